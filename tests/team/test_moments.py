"""Every row of the table of moments, for every protocol that reaches it: record, route, status, reason, and by whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from teamplay import ANA, World, approve, boss, finish, holds, hook, kinds, reject, requests, skips, told, two

from lictor import Agent, Governance, Runtime, Verdict
from lictor.hooks import ALLOW
from lictor.runs import RunResult

ALL = ("hierarchical", "sequential", "none", "handoff")
SUPERVISED = ("hierarchical",)
REACHED = {
    "on_team_start": ALL,
    "should_supervisor_continue": SUPERVISED,
    "on_prepare": SUPERVISED,
    "on_model_start": SUPERVISED,
    "on_model_end": SUPERVISED,
    "on_supervisor_decision": SUPERVISED,
    "should_agent_continue": ALL,
    "on_agent_end": ALL,
    "on_node_start": ALL,
    "on_node_end": ALL,
    "on_team_end": ALL,
}
PLACES = [(moment, protocol) for moment, protocols in REACHED.items() for protocol in protocols]
LATE = Governance(timeout=0.01)
BEFORE_ALL = ("on_team_start", "should_supervisor_continue", "on_prepare", "on_model_start")
REASON = {
    "deny": "no",
    "false": "not_continued",
    "raise": "host_error:interceptor_failed",
    "late": "host_error:interceptor_timeout",
    "stop": "enough",
    "nonsense": "host_error:verdict_invalid",
}


async def _never() -> None:
    await asyncio.Event().wait()


def _raise() -> Any:
    raise ValueError("broken")


def says(how: str) -> Any:
    """A hook's function that says no in one of the ways there are."""
    answers = {
        "deny": lambda: Verdict.deny("no", "never"),
        "false": lambda: False,
        "raise": _raise,
        "late": _never,
        "stop": lambda: Verdict.stop("enough"),
        "nonsense": lambda: 7,
        "escalate": lambda: Verdict.escalate("look"),
    }
    if how == "suspend":
        return lambda trace, *about: trace.suspend("somebody has to look")
    return lambda *given: answers[how]()


def worked(result: RunResult) -> list[str]:
    """Members whose work is recorded, in order."""
    return [source for source, kind in kinds(result) if kind == "output"]


def moments(result: RunResult) -> list[tuple[str, str, str | None, str | None]]:
    """What was recorded of moments."""
    steps: Any = result.trace
    found = [payload for kind, payload in steps.steps if kind == "moment"]
    return [(each["moment"], each["decision"], each["reason"], each["by"]) for each in found]


async def played(moment: str, protocol: str, how: str) -> tuple[RunResult, Any, list[Agent], World]:
    """A team of two with a hook that says no at each of these moments."""
    team, ada, bob = two(protocol, interceptors=[hook(moment, says(how))], governance=LATE if how == "late" else None)
    world = World()
    result = await world.play(team)
    return result, team, [ada, bob], world


@pytest.mark.parametrize("how", REASON)
@pytest.mark.parametrize("protocol", ALL)
async def test_no_at_the_start_blocks_the_run(protocol: str, how: str) -> None:
    """Nobody was asked and nobody worked; a stop is `stopped`."""
    result, team, members, _ = await played("on_team_start", protocol, how)
    status = "stopped" if how == "stop" else "blocked"
    assert (result.status, result.reason, result.by) == (status, REASON[how], "team:room/guard")
    assert [len(requests(each)) for each in members] == [0, 0]
    assert team.model is None or requests(team.model) == []
    assert (kinds(result), result.usage.requests) == ([], 0)


@pytest.mark.parametrize("how", REASON)
async def test_no_to_the_supervisor_ends_the_run_stopped(how: str) -> None:
    """It is recorded as a skip of the supervisor, and nothing was spent."""
    result, team, _, _ = await played("should_supervisor_continue", "hierarchical", how)
    assert (result.status, result.reason, result.by) == ("stopped", REASON[how], "team:room/guard")
    assert kinds(result) == [("supervisor", "skip")]
    assert skips(result)[0].startswith("[Skipped] Intercepted by team:room/guard")
    assert (requests(team.model), result.usage.requests) == ([], 0)


async def test_no_to_the_supervisor_later_keeps_what_was_done() -> None:
    """The route does not matter: the run ends although a member was about to be asked for."""
    guard = hook("should_supervisor_continue", lambda trace: trace.turn_count < 1)
    team, ada, bob = two(interceptors=[guard])
    result = await World().play(team)
    assert (result.status, result.reason) == ("stopped", "not_continued")
    assert kinds(result) == [("supervisor", "decision"), ("ada", "output"), ("supervisor", "skip")]
    assert (len(requests(ada)), len(requests(bob)), result.answer) == (1, 0, None)


@pytest.mark.parametrize(
    ("limits", "reason"), [({"max_turns": 1}, "max_turns"), ({"max_seconds": 0}, "budget:max_seconds")]
)
async def test_a_limit_at_the_supervisor_ends_the_run_exhausted(limits: dict[str, Any], reason: str) -> None:
    """A limit's refusal is recorded like an interceptor's, and comes after the interceptors."""
    asked: list[int] = []
    team, _, bob = two(interceptors=[hook("should_supervisor_continue", lambda trace: asked.append(trace.turn_count))])
    result = await World().play(team, **limits)
    assert (result.status, result.reason, result.by) == ("exhausted", reason, f"limit:{reason}")
    assert skips(result) == [f"[Skipped] Intercepted by limit:{reason}"]
    assert (len(requests(bob)), asked[-1]) == (0, limits.get("max_turns", 0))


@pytest.mark.parametrize("protocol", ["sequential", "none", "handoff"])
async def test_a_limit_holds_for_members_chosen_without_a_decision(protocol: str) -> None:
    """Every member chosen is a turn; side by side either all of them may work or none."""
    team, ada, bob = two(protocol, max_turns=1)
    result = await World().play(team)
    assert (result.status, result.reason, result.by) == ("exhausted", "max_turns", "limit:max_turns")
    assert (len(requests(ada)), len(requests(bob))) == ((0, 0) if protocol == "none" else (1, 0))


@pytest.mark.parametrize("how", REASON)
@pytest.mark.parametrize("moment", ["on_prepare", "on_model_start"])
async def test_no_before_the_model_blocks(moment: str, how: str) -> None:
    """The supervisor's model is not called; the record carries the hook's name."""
    result, team, _, _ = await played(moment, "hierarchical", how)
    status = "stopped" if how == "stop" else "blocked"
    assert (result.status, result.reason, result.by) == (status, REASON[how], f"team:room/guard.{moment}")
    assert requests(team.model) == []
    record = [each for each in result.records if each["interception_point"] == "pre_model_call"][-1]
    assert f"team:room/guard.{moment}" in [slot.get("name") for slot in record["verdicts"]]


@pytest.mark.parametrize("point", ["pre_model_call", "post_model_call"])
@pytest.mark.parametrize("how", ["deny", "raise", "stop"])
async def test_intercept_at_the_points_of_the_supervisor_blocks(point: str, how: str) -> None:
    """An ordinary interceptor's deny is never asked again."""
    judge = says(how)
    guard = hook("intercept", lambda context: judge() if context["interception_point"] == point else ALLOW)
    team, ada, _ = two(interceptors=[guard])
    result = await World().play(team)
    status = "stopped" if how == "stop" else "blocked"
    assert (result.status, result.reason, result.by) == (status, REASON[how], "team:room/guard")
    assert (len(requests(team.model)), len(requests(ada))) == (0 if point == "pre_model_call" else 1, 0)


async def test_a_deny_by_intercept_beside_one_by_on_model_end_blocks() -> None:
    """Only a response that nobody else denied is asked for again."""
    guard = hook(
        "intercept", lambda context: Verdict.deny("other") if "content" in context["target"] else ALLOW, "gate"
    )
    guard.points = ("post_model_call",)
    team, _, _ = two(interceptors=[hook("on_model_end", says("deny")), guard])
    result = await World().play(team)
    assert (result.status, len(requests(team.model))) == ("blocked", 1)


@pytest.mark.parametrize("how", REASON)
@pytest.mark.parametrize("moment", ["on_model_end", "on_supervisor_decision"])
async def test_no_after_the_model_asks_again_at_most_twice(moment: str, how: str) -> None:
    """A verdict is told to the supervisor, a failure of the hook is not; no route is taken."""
    result, team, members, _ = await played(moment, "hierarchical", how)
    asked = requests(team.model)
    if how in ("deny", "false"):
        assert (result.status, result.reason, len(asked)) == ("failed", "decision_denied", 3)
        assert REASON[how] in str(asked[-1].messages[-1]["content"])
    else:
        status = "stopped" if how == "stop" else "blocked"
        assert (result.status, result.reason) == (status, REASON[how])
        assert (result.by, len(asked)) == (f"team:room/guard.{moment}", 1)
    assert [len(requests(each)) for each in members] == [0, 0]
    assert "output" not in [kind for _, kind in kinds(result)]


@pytest.mark.parametrize("moment", ["on_model_end", "on_supervisor_decision"])
async def test_what_is_asked_again_may_be_better(moment: str) -> None:
    """Two refusals leave the third response; an accepted decision starts the count anew."""
    refusals = iter([True, True, False, True, True, False, False])
    guard = hook(moment, lambda *given: Verdict.deny("again") if next(refusals) else None)
    from teamplay import assign

    team, ada, _ = two(interceptors=[guard], model=boss(*[assign("ada")] * 3, *[finish()] * 4))
    result = await World().play(team)
    assert (result.status, result.answer, len(requests(ada))) == ("completed", "the end", 1)
    assert result.trace.turn_count == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", REASON)
@pytest.mark.parametrize("protocol", ALL)
async def test_no_to_a_member_skips_it(protocol: str, how: str) -> None:
    """It never works, a skip is recorded, a turn is spent; what follows is the protocol's."""
    result, _, members, _ = await played("should_agent_continue", protocol, how)
    assert [len(requests(each)) for each in members] == [0, 0]
    assert worked(result) == []
    assert skips(result)[0].startswith("[Skipped] Cancelled by team:room/guard")
    assert result.trace.last_agent_content is None  # type: ignore[attr-defined]
    if how == "stop":
        assert (result.status, result.reason, result.by) == ("stopped", "enough", "team:room/guard")
        return
    expected = {
        "hierarchical": ("completed", None, 3),
        "sequential": ("failed", "no_answer", 2),
        "none": ("failed", "no_answer", 2),
        "handoff": ("failed", REASON[how], 1),
    }[protocol]
    assert (result.status, result.reason, result.trace.turn_count) == expected  # type: ignore[attr-defined]
    assert result.trace.route == (("ada",) if protocol == "handoff" else ("ada", "bob"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ["sequential", "hierarchical", "handoff"])
async def test_no_to_one_member_leaves_the_others(protocol: str) -> None:
    """A skipped stage is passed over; a receiver that may not work gives the work back to the sender."""
    guard = hook("should_agent_continue", lambda trace, member: member.name != "bob")
    team, _ada, bob = two(protocol, interceptors=[guard])
    result = await World().play(team)
    assert (result.status, len(requests(bob))) == ("completed", 0)
    assert result.answer == {"sequential": "ada's work", "hierarchical": "the end", "handoff": "ada again"}[protocol]
    assert len(skips(result)) == 1


@pytest.mark.parametrize("retries", [1, 2, 3])
async def test_denied_members_in_a_row_stop_the_run(retries: int) -> None:
    """After so many the run is stopped by whoever denied."""
    from teamplay import assign

    guard = hook("should_agent_continue", says("deny"))
    team, _, _ = two(interceptors=[guard], retries=retries, model=boss(*[assign("ada")] * 5))
    result = await World().play(team)
    assert (result.status, result.reason, result.by) == ("stopped", "no", "team:room/guard")
    assert len(skips(result)) == retries


@pytest.mark.parametrize("how", REASON)
@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize("moment", ["on_agent_end", "on_node_start", "on_node_end", "on_team_end"])
async def test_no_where_nothing_can_be_undone_is_recorded(moment: str, protocol: str, how: str) -> None:
    """The run goes its way; only a stop ends it, and nothing of it at the very end."""
    result, _team, members, world = await played(moment, protocol, how)
    assert (moment, "deny", REASON[how], "team:room/guard") in moments(result)
    if how == "stop" and moment != "on_team_end":
        assert (result.status, result.reason, result.by) == ("stopped", "enough", "team:room/guard")
        most = 2 if protocol == "none" else 1
        assert sum(len(requests(each)) for each in members) <= most
        return
    plain, _, _ = two(protocol)
    other = World()
    expected = await other.play(plain)
    assert (result.status, result.answer) == (expected.status, expected.answer) == ("completed", expected.answer)
    assert told(world.store, result.run_id) == told(other.store, expected.run_id)


# ---- somebody is asked --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["escalate", "suspend"])
@pytest.mark.parametrize(("moment", "protocol"), PLACES)
async def test_asking_waits_exactly_there(moment: str, protocol: str, how: str) -> None:
    """The run is suspended with one request that says where and why; what comes after has not begun."""
    result, team, members, _world = await played(moment, protocol, how)
    assert result.status == "suspended"
    expected = 2 if protocol == "none" and moment not in ("on_team_start", "on_team_end") else 1
    assert len(result.requests) == expected
    name = (
        "guard"
        if moment not in ("on_prepare", "on_model_start", "on_model_end", "on_supervisor_decision")
        else f"guard.{moment}"
    )
    assert {reason.name for request in result.requests for reason in request.reasons} == {f"team:room/{name}"}
    if moment in BEFORE_ALL:
        assert (result.usage.requests, [len(requests(each)) for each in members]) == (0, [0, 0])
    if moment in ("on_model_end", "on_supervisor_decision"):
        assert (len(requests(team.model)), [len(requests(each)) for each in members]) == (1, [0, 0])
        assert result.trace.turn_count == 0  # type: ignore[attr-defined]
    if moment == "should_agent_continue":
        assert [len(requests(each)) for each in members] == [0, 0]
    if moment == "on_agent_end" and protocol != "none":
        assert [len(requests(each)) for each in members] == [1, 0]
    assert result.trace.status == "waiting"  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["escalate", "suspend"])
@pytest.mark.parametrize(("moment", "protocol"), PLACES)
async def test_approved_goes_on_as_if_nothing_had_been(moment: str, protocol: str, how: str) -> None:
    """The history is that of a run that nobody held; each model was asked as often."""
    plain, *plain_members = two(protocol)
    other = World()
    expected = await other.play(plain)
    team, *members = two(protocol, interceptors=[hook(moment, says(how))])
    world = World()
    result = await world.play(team, decide=approve)
    assert (result.status, result.answer) == ("completed", expected.answer)
    assert told(world.store, result.run_id) == told(other.store, expected.run_id)
    assert [len(requests(each)) for each in members] == [len(requests(each)) for each in plain_members]
    if team.model is not None:
        assert len(requests(team.model)) == len(requests(plain.model))
    assert result.usage.requests == expected.usage.requests


@pytest.mark.parametrize(("moment", "protocol"), PLACES)
async def test_rejected_is_a_no(moment: str, protocol: str) -> None:
    """What a person rejects ends as what an interceptor denies, with the reason `rejected`."""
    team, *members = two(protocol, interceptors=[hook(moment, says("escalate"))])
    result = await World().play(team, decide=reject)
    ran = [len(requests(each)) for each in members]
    if moment in ("on_team_start", "on_prepare", "on_model_start"):
        assert (result.status, result.reason, ran) == ("blocked", "rejected", [0, 0])
    elif moment == "should_supervisor_continue":
        assert (result.status, result.reason, ran) == ("stopped", "rejected", [0, 0])
    elif moment in ("on_model_end", "on_supervisor_decision"):
        assert (result.status, result.reason, ran) == ("failed", "decision_denied", [0, 0])
        assert len(requests(team.model)) == 3
    elif moment == "should_agent_continue":
        assert (worked(result), ran) == ([], [0, 0])
        assert all("Cancelled by team:room/guard" in skip for skip in skips(result))
    else:
        assert result.status == "completed"


@pytest.mark.parametrize(("moment", "protocol"), PLACES)
async def test_a_crash_while_it_waits_changes_nothing(moment: str, protocol: str) -> None:
    """Another Runtime over the same store finds the request, and goes on from there."""
    plain, *_ = two(protocol)
    other = World()
    expected = await other.play(plain)
    world = World()
    result = await world.play(two(protocol, interceptors=[hook(moment, says("suspend"))])[0])
    before = {request.id for request in result.requests}
    while result.status == "suspended":
        team, *_ = two(protocol, interceptors=[hook(moment, says("suspend"))])  # another process has its own objects
        again = await world.go_on(team, result.run_id)
        assert {request.id for request in again.requests} == before, "it is asked once"
        async with world.open(team, drive=False) as runtime:
            for request in again.requests:
                await runtime.docket.decide(request.id, "approve", by=ANA)
        result = await world.go_on(team, result.run_id)
        before = {request.id for request in result.requests}
    assert (result.status, result.answer) == ("completed", expected.answer)
    assert told(world.store, result.run_id) == told(other.store, expected.run_id)


@pytest.mark.parametrize(("moment", "protocol"), PLACES)
async def test_killed_at_any_entry_it_ends_the_same(moment: str, protocol: str) -> None:
    """Dropped after one entry or another, with requests decided between: the history is that of an unbroken run."""
    world = World()
    expected = await world.play(two(protocol, interceptors=[hook(moment, says("escalate"))])[0], decide=approve)
    entries = len(world.store.root_entries(expected.run_id))
    for place in range(1 + len(moment + protocol) % 14, entries, 14):
        broken = World()
        team, *_ = two(protocol, interceptors=[hook(moment, says("escalate"))])
        result = await broken.play(team, crash=[place], decide=approve)
        assert broken.crashes == 1
        assert (result.status, result.answer) == (expected.status, expected.answer)
        assert told(broken.store, result.run_id) == told(world.store, expected.run_id), f"killed after {place}"


@pytest.mark.parametrize(("moment", "protocol"), [place for place in PLACES if place[1] in ("hierarchical", "none")])
async def test_over_a_file_it_waits_and_goes_on_too(moment: str, protocol: str, tmp_path: Any) -> None:
    """Parked in one Runtime over SQLite, decided in a second, finished in a third."""
    url, guards = f"sqlite:///{tmp_path}/s.db", lambda: [hook(moment, says("suspend"))]
    team, *_ = two(protocol, interceptors=guards())
    async with Runtime(url, definitions={"room": team}) as runtime:
        run = await runtime.start(team, "go")
        result = await run.result()
    while result.status == "suspended":
        async with Runtime(url, drive=False) as runtime:
            for request in result.requests:
                await runtime.docket.decide(request.id, "approve", by=ANA)
        team, *_ = two(protocol, interceptors=guards())
        async with Runtime(url, definitions={"room": team}) as runtime:
            run = await runtime.run(result.run_id)
            result = await run.result()
            holds(runtime.store, run.id)
    plain = await World().play(two(protocol)[0])
    assert (result.status, result.answer, kinds(result)) == ("completed", plain.answer, kinds(plain))


@pytest.mark.parametrize("moment", ["on_team_start", "should_supervisor_continue", "should_agent_continue"])
async def test_without_a_docket_nobody_can_be_asked(moment: str) -> None:
    """In memory an escalation is a no, unless a resolver decides in place."""
    team, ada, _ = two(interceptors=[hook(moment, says("escalate"))])
    result = await team.run("go")
    assert (result.status, result.reason) != ("completed", "look")
    assert requests(ada) == []
    from lictor.hooks import ApprovalResolution

    seen: list[Any] = []

    def resolver(request: Any) -> Any:
        seen.append(request.target["moment"])
        return ApprovalResolution(outcome="approve", context_identity=request.context_identity, verdict=ALLOW)

    team, ada, _ = two(interceptors=[hook(moment, says("escalate"))], resolver=resolver)
    result = await team.run("go")
    assert (result.status, len(requests(ada)), set(seen)) == ("completed", 1, {moment})


async def test_a_resolver_that_raises_lifts_nothing() -> None:
    """Its failure is a no, not the end of the process."""
    team, ada, _ = two(
        interceptors=[hook("should_agent_continue", says("escalate"))], resolver=lambda request: _raise()
    )
    result = await team.run("go")
    assert (result.status, len(skips(result)), requests(ada)) == ("completed", 2, [])


async def test_one_denies_outright_and_nobody_is_asked() -> None:
    """An escalation beside a plain deny opens no request."""
    guards = [
        hook("should_agent_continue", says("escalate"), "one"),
        hook("should_agent_continue", says("deny"), "two"),
    ]
    team, ada, bob = two(interceptors=guards)
    result = await World().play(team)
    assert (result.status, result.requests, len(requests(ada) + requests(bob))) == ("completed", (), 0)
    assert all("Cancelled by team:room/two" in skip for skip in skips(result))


async def test_evaluate_only_records_and_lets_pass() -> None:
    """Under `evaluate_only` a no at a moment is written down and nothing else."""
    team, ada, bob = two(
        interceptors=[hook("should_agent_continue", says("deny"))], governance=Governance(mode="evaluate_only")
    )
    result = await World().play(team)
    assert (result.status, len(requests(ada)), len(requests(bob)), skips(result)) == ("completed", 1, 1, [])
    assert ("should_agent_continue", "allow", None, None) in moments(result)
