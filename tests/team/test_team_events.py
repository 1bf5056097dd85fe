"""What a caller sees of a team while it runs: the names of the API sheet, and no bookkeeping."""

from __future__ import annotations

import json
from typing import Any

import pytest
from teamplay import ANA, World, agent, assign, boss, delegate, finish, hook, transfer

from lictor import Team, Verdict
from lictor.console.lines import event_line
from lictor.models import say
from lictor.runs import Event

QUIET = frozenset({"stint_started", "model_started", "model_finished", "model_delta", "tool_started", "tool_finished"})


async def told(team: Team, *, quiet: bool = False) -> list[Event]:
    """The events of a run in memory; without `quiet` those that every agent has are left out."""
    events = [event async for event in team.stream("go")]
    return events if quiet else [each for each in events if not _usual(each)]


def _usual(event: Event) -> bool:
    return event.kind in QUIET or (event.kind == "verdict" and "record" in event.payload)


def named(events: list[Event]) -> list[tuple[str, str]]:
    """(whose, kind) of each event."""
    return [(event.path[-1].name, event.kind) for event in events]


def team(*script: Any, **options: Any) -> Team:
    """Ada and bob, who each say one thing, and a supervisor with this script."""
    members = [agent("ada", say("ada's work"), say("again")), agent("bob", say("bob's work"))]
    return Team("t", members=members, model=boss(*script), **options)


async def test_a_team_tells_decisions_and_what_members_came_to() -> None:
    """In order: who is decided for, who works, who is done; nothing else of the team's own."""
    events = await told(team(assign("ada", "look"), finish()))
    assert named(events) == [
        ("t", "run_started"),
        ("t", "decision"),
        ("t", "member_started"),
        ("ada", "run_started"),
        ("ada", "run_finished"),
        ("t", "member_finished"),
        ("t", "decision"),
        ("t", "run_finished"),
    ]
    one, last = [dict(event.payload) for event in events if event.kind == "decision"]
    work = [{"member": "ada", "instruction": "look"}]
    call = one.pop("call")
    assert one == {"kind": "assign", "turn": 1, "member": "ada", "instruction": "look", "assignments": work}
    assert call is not None
    assert (last["kind"], last["turn"], last["member"], last["assignments"]) == ("finish", 2, None, [])
    assert "the end" not in json.dumps(events[-2].json())  # its verdict comes later
    begun = events[0].payload
    assert (list(begun["members"]), begun["protocol"]) == (["ada", "bob"], "hierarchical")


async def test_several_calls_of_one_response_are_one_turn() -> None:
    """Each is a decision of its own; a delegation names everybody and nobody as the one member."""
    decided = [
        event.payload
        for event in await told(team([assign("ada"), assign("bob")], delegate("ada"), finish()))
        if event.kind == "decision"
    ]
    assert [(each["turn"], each["kind"], each["member"]) for each in decided] == [
        (1, "assign", "ada"),
        (1, "assign", "bob"),
        (2, "delegate", "ada"),
        (3, "finish", None),
    ]
    [both] = [
        event.payload for event in await told(team(delegate("ada", "bob"), finish())) if event.kind == "decision"
    ][:1]
    assert (both["member"], both["instruction"]) == (None, None)
    assert [each["member"] for each in both["assignments"]] == ["ada", "bob"]


async def test_a_decision_that_was_not_accepted_is_none() -> None:
    """Only the redirected one is told, as it was changed; a denied one is a verdict."""

    def look(trace: Any, decision: Any) -> Any:
        if decision.kind == "finish" and not trace.route:
            return Verdict.deny("too_early")
        return Verdict.replace({"member": "bob", "instruction": "rather you"}) if decision.member == "ada" else None

    guard = hook("on_supervisor_decision", look)
    events = await told(team(finish(), assign("ada"), finish(), interceptors=[guard]))
    decided = [event.payload for event in events if event.kind == "decision"]
    assert [(each["kind"], each["member"], each["instruction"]) for each in decided] == [
        ("assign", "bob", "rather you"),
        ("finish", None, None),
    ]


@pytest.mark.parametrize(("protocol", "kinds"), [("sequential", ["route", "route"]), ("none", ["route"])])
async def test_a_protocol_decides_without_a_model(protocol: str, kinds: list[str]) -> None:
    """Whom it chose is a decision too; turns count members."""
    members = [agent("ada", say("one")), agent("bob", say("two"))]
    events = await told(Team("t", members=members, protocol=protocol))
    decided = [event.payload for event in events if event.kind == "decision"]
    assert [each["kind"] for each in decided] == kinds
    assert (decided[-1]["turn"], [work["member"] for each in decided for work in each["assignments"]]) == (
        2,
        ["ada", "bob"],
    )


async def test_a_transfer_is_told_by_the_sender_and_as_the_next_decision() -> None:
    """`handoff` says to whom and with which note."""
    members = [agent("ada", transfer("bob", "yours")), agent("bob", say("done"))]
    events = await told(Team("t", members=members, protocol="handoff"))
    [handed] = [event for event in events if event.kind == "handoff"]
    assert (handed.path[-1].name, handed.payload["to"], handed.payload["note"]) == ("ada", "bob", "yours")
    decided = [(event.payload["kind"], event.payload["member"]) for event in events if event.kind == "decision"]
    assert decided == [("route", "ada"), ("handoff", "bob")]
    lines = [event_line(event.json()) for event in events if event.kind in ("handoff", "decision")]
    assert [line.split("  ", 2)[2] for line in lines] == [
        "decision  turn 1, ada",
        "handoff  to bob: yours",
        "decision  turn 2, bob: yours",
    ]


async def test_a_verdict_at_a_moment_is_a_verdict() -> None:
    """Point, decision, reason, by, whose work it is about, and what each one said; a skip follows."""
    guard = hook("should_agent_continue", lambda trace, who: who.name != "ada", name="guard")
    events = await told(team(assign("ada"), finish(), interceptors={"guard": guard}))
    [verdict] = [event for event in events if event.kind == "verdict"]
    assert verdict.json()["payload"] == {
        "point": "should_agent_continue",
        "decision": "deny",
        "reason": "not_continued",
        "by": "team:t/guard",
        "call": None,
        "member": "ada",
        "verdicts": [{"name": "team:t/guard", "decision": "deny", "reason": "not_continued"}],
    }
    [skipped] = [event for event in events if event.kind == "skipped"]
    told_of = (skipped.payload["member"], skipped.payload["reason"], skipped.payload["by"])
    assert told_of == ("ada", "not_continued", "team:t/guard")
    lines = [event_line(event.json()).split("  ", 2)[2] for event in (verdict, skipped)]
    assert lines == [
        "verdict  should_agent_continue (ada) deny not_continued by team:t/guard",
        "skipped  ada [Skipped] Cancelled by team:t/guard",
    ]


@pytest.mark.parametrize(
    ("options", "reason", "by"),
    [
        (
            {"interceptors": {"no": hook("should_supervisor_continue", lambda trace: False)}},
            "not_continued",
            "team:t/no",
        ),
        ({"max_turns": 0}, "max_turns", "limit:max_turns"),
    ],
)
async def test_a_supervisor_that_may_not_go_on_is_skipped(options: Any, reason: str, by: str) -> None:
    """The event says why and by whom, for a policy and for a limit."""
    events = await told(team(finish(), **options))
    [skipped] = [event for event in events if event.kind == "skipped"]
    assert [skipped.payload[name] for name in ("member", "reason", "by")] == ["supervisor", reason, by]
    assert event_line(skipped.json()).endswith(f"skipped  supervisor [Skipped] Intercepted by {by}")
    assert events[-1].payload["reason"] == reason


async def test_whoever_goes_on_from_a_cursor_misses_no_decision() -> None:
    """A decision is told by an entry that refers to an earlier one, also when that one was read before."""
    guard = hook("should_agent_continue", lambda trace, who: Verdict.escalate("look"))
    world = World()
    both = team(assign("ada", "look"), finish(), interceptors=[guard])
    result = await world.play(both)
    async with world.open(both) as runtime:
        run = await runtime.run(result.run_id)
        first = [event async for event in run.events()]
        await runtime.docket.decide(result.requests[0].id, "approve", by=ANA)
        await run.result()
        whole = [event async for event in run.events()]
        for at, event in enumerate(whole):
            rest = [each async for each in run.events(after=event.cursor)]
            assert [each.json() for each in rest] == [each.json() for each in whole[at + 1 :]]
    assert [event.json() for event in first] == [event.json() for event in whole[: len(first)]]
    assert [
        event.payload["decision"] for event in whole if event.kind == "verdict" and "verdicts" in event.payload
    ] == [
        "suspend",
        "allow",
    ]
    assert sum(event.kind == "decision" for event in whole) == 2
