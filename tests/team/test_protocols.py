"""The protocols alone: pure functions of what happened; and that every sequence of outcomes ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from teamplay import World, agent, boss, finish, requests, say, transfer

from lictor import Team
from lictor.models import fail
from lictor.team import Finish, Go, Handoff, Hierarchical, Outcome, RouteState, Sequential, Unroutable, Unrouted
from lictor.team.route import ASK

NAMES = ("a", "b", "c")
STATUSES = ("completed", "skipped", "failed", "blocked", "stopped", "exhausted", "cancelled")
outcomes = st.builds(
    Outcome,
    member=st.sampled_from(NAMES),
    status=st.sampled_from(STATUSES),
    answer=st.sampled_from(["one", "", {"k": 1}, None]),
    reason=st.sampled_from([None, "no"]),
    to=st.sampled_from([None, None, *NAMES, "nobody"]),
    note=st.sampled_from(["", "note"]),
)


def state(*found: Outcome, chosen: int | None = None, members: tuple[str, ...] = NAMES) -> RouteState:
    """What a protocol is shown."""
    return RouteState(members, "task", found, len(found) if chosen is None else chosen, (), len(found), 0)


def done(member: str, answer: Any = "x", **more: Any) -> Outcome:
    """An answer."""
    return Outcome(member, "completed", answer, **more)


@given(st.lists(outcomes, max_size=6))
def test_hierarchical_always_asks_its_supervisor(found: list[Outcome]) -> None:
    """Limits and gates are in front of the supervisor, not in the protocol."""
    assert Hierarchical().next(state(*found), None) is ASK


@given(st.data())
def test_sequential_ends_after_each_member_at_most_once(data: st.DataObject) -> None:
    """Whatever comes of the stages: in order, each once, and then an end."""
    members = NAMES[: data.draw(st.integers(1, 3))]
    may_fail = data.draw(st.sets(st.sampled_from(NAMES)))
    route, found, worked = Sequential(may_fail=may_fail), [], []
    for _ in range(len(members) + 1):
        move = route.next(state(*found, members=members), None)
        if not isinstance(move, Go):
            break
        assert len(move.members) == 1
        worked += move.members
        found.append(data.draw(outcomes)._replace(member=move.members[0]))
    assert isinstance(move, Finish | Unroutable)
    assert tuple(worked) == members[: len(worked)]
    bad = [each for each in found if each.status not in ("completed", "skipped") and each.member not in may_fail]
    if isinstance(move, Finish):
        assert not bad
        assert move.answer == str([each.answer for each in found if each.status == "completed"][-1])
    else:
        assert bad or not any(each.status == "completed" for each in found)


@given(st.data())
def test_none_asks_everybody_once(data: st.DataObject) -> None:
    """All at once; then an answer if there is any."""
    route = Unrouted()
    move = route.next(state(), None)
    assert move == Go(NAMES, "")
    found = [data.draw(outcomes)._replace(member=name) for name in data.draw(st.permutations(NAMES))]
    end = route.next(state(*found), None)
    assert isinstance(end, Finish) is any(each.status == "completed" for each in found)


@given(st.data())
def test_handoff_spends_a_handoff_for_each_transfer(data: st.DataObject) -> None:
    """Every move after the first either counts against the limit, gives back after a skip, or ends the run."""
    route, found, counted = Handoff(), [], 0
    for _ in range(12):
        move = route.next(state(*found), None)
        if not isinstance(move, Go):
            assert isinstance(move, Finish | Unroutable)
            break
        last = found[-1] if found else None
        if last is not None:
            assert move.handoff is (last.to is not None)
            assert move.handoff or last.status == "skipped"
        counted += move.handoff
        assert move.members[0] in NAMES
        new = data.draw(outcomes)._replace(member=move.members[0])
        found.append(new if new.status == "completed" else new._replace(to=None))
    transfers = [each for each in found if each.to is not None]
    assert counted in (len(transfers), len(transfers) - 1)


def test_none_gives_one_answer_plainly_and_several_as_json() -> None:
    """In the order of the definition, whoever came first."""
    route = Unrouted()
    assert route.next(state(done("b", "only"), Outcome("a", "failed")), None) == Finish("only")
    assert route.next(state(done("c", "3"), done("a", "1")), None) == Finish('{"a":"1","c":"3"}')


def test_handoff_to_nobody_tells_whom_there_is() -> None:
    """It costs a hand-off and goes back to the sender."""
    move = Handoff().next(state(done("a", "", to="nobody")), None)
    assert isinstance(move, Go)
    assert (move.members, move.handoff) == (("a",), True)
    assert "b, c" in move.instruction


def test_handoff_may_begin_elsewhere() -> None:
    """`first` names who begins."""
    assert Handoff(first="c").next(state(), None) == Go(("c",), "")


# ---- whole runs -----------------------------------------------------------------------------------


async def test_a_failed_stage_fails_the_run_and_a_next_attempt_begins_there() -> None:
    """What was finished is not repeated; the failed stage works again, the one after it once."""
    broken = [True]

    def second(request: Any) -> Any:
        return fail(503, retry_after=0) if broken[0] else say("two")

    a, b, c = agent("a", say("one")), agent("b", *[second] * 20), agent("c", say("three"))
    team, world = Team("line", members=[a, b, c], protocol="sequential"), World()
    result = await world.play(team)
    assert (result.status, result.by, result.resumable) == ("failed", "member:b", True)
    assert (result.reason or "").startswith("model_error")
    broken[0] = False
    async with world.open(team) as runtime:
        run = await runtime.resume(result.run_id)
        result = await run.result()
    assert (result.status, result.answer) == ("completed", "three")
    assert (len(requests(a)), len(requests(c))) == (1, 1)
    assert result.trace.route == ("a", "b", "c")  # type: ignore[attr-defined]


async def test_a_stage_may_fail_where_that_is_allowed() -> None:
    """The next one goes on without it."""
    a, b = agent("a", fail(400)), agent("b", say("fine"))
    route = Sequential(may_fail=["a"])
    result = await Team("line", members=[a, b], protocol=route).run("go")
    assert (result.status, result.answer) == ("completed", "fine")


async def test_a_transfer_to_nobody_costs_a_handoff() -> None:
    """The sender is told and asked again until the limit is reached."""
    a = agent("a", *[transfer("ghost")] * 3)
    result = await World().play(Team("t", members=[a, agent("b")], protocol="handoff", max_handoffs=2))
    assert (result.status, result.reason, len(requests(a))) == ("exhausted", "max_handoffs", 3)
    told = str(requests(a)[1].messages[-1]["content"])
    assert "There is no member 'ghost'" in told
    assert "Note from" not in told


async def test_the_receiver_gets_the_note_and_not_the_senders_work() -> None:
    """The request ends with a user note; the task is as it was."""
    a = agent("a", [transfer("b", "the memo"), transfer("c", "second")])
    b, c = agent("b", say("done")), agent("c", say("never"))
    result = await World().play(Team("t", members=[a, b, c], protocol="handoff"), "the task")
    assert (result.answer, len(requests(c))) == ("done", 0)
    asked = requests(b)[0].messages
    assert (asked[-1]["role"], asked[-1]["content"]) == ("user", "the task\n\nNote from a: the memo")


async def test_a_supervisor_is_asked_for_nothing_by_the_other_protocols() -> None:
    """A model that is given all the same is never called."""
    model = boss(finish("never"))
    for protocol in ("sequential", "none", "handoff"):
        result = await Team("t", members=[agent("a", say("x"))], protocol=protocol, model=model).run("go")
        assert (result.status, requests(model)) == ("completed", [])


async def test_a_protocol_of_ones_own() -> None:
    """An object with name, supervised and next routes like the ones there are."""

    class Twice:
        name = "twice"
        supervised = False

        def next(self, state: RouteState, event: Any) -> Any:
            return Go(("a",), f"round {state.chosen}") if state.chosen < 2 else Finish(str(len(state.outcomes)))

    a = agent("a", say("x"))
    result = await Team("t", members=[a], protocol=Twice()).run("go")  # type: ignore[arg-type]
    assert (result.status, result.answer, len(requests(a))) == ("completed", "2", 2)


@pytest.mark.parametrize("answer", ["raise", None, Go(("ghost",), ""), Go((), "")])
async def test_a_protocol_that_is_broken_fails_the_run(answer: Any) -> None:
    """It raises, answers nonsense, or names nobody: one outcome, and no endless loop."""

    class Broken:
        name = "broken"
        supervised = False

        def next(self, state: RouteState, event: Any) -> Any:
            if answer == "raise":
                raise ValueError("oops")
            return answer

    result = await Team("t", members=[agent("a", say("x"))], protocol=Broken()).run("go")  # type: ignore[arg-type]
    assert result.status == "failed"
    assert result.error
