"""TeamTrace: live and afterwards, from whatever process; what is output and what never is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from teamplay import World, agent, assign, boss, call, delegate, finish, hook, requests, say, told, two

from lictor import Runtime, Team, Verdict
from lictor.models import chunks
from lictor.runs import Usage
from lictor.team import TeamTrace, team_trace_of

SHOWN = (
    "run_id",
    "name",
    "status",
    "turn_count",
    "records",
    "record_count",
    "last_agent_name",
    "last_agent_content",
    "last_agent_duration",
    "route",
    "last_decision",
    "final_answer",
    "messages",
    "extras",
    "options",
)


def view(trace: TeamTrace) -> dict[str, Any]:
    """All that a trace shows and that does not depend on when it is looked at."""
    return {name: getattr(trace, name) for name in SHOWN}


@pytest.mark.parametrize("protocol", ["hierarchical", "sequential", "none", "handoff"])
async def test_afterwards_it_is_what_it_was_live(protocol: str) -> None:
    """The trace at the last moment, that of the result, and the one folded from the log show the same."""
    live: list[dict[str, Any]] = []
    guard = hook("on_team_finished", lambda trace, outcome: live.append(view(trace)))
    team, _, _ = two(protocol, interceptors=[guard])
    world = World()
    result = await world.play(team)
    stored = team_trace_of(result.run_id, world.store.entries(result.run_id))
    async with Runtime(world.store, drive=False) as runtime:
        read = await runtime.trace(result.run_id)
    after = view(result.trace)  # type: ignore[arg-type]
    assert after == view(stored) == view(read)  # type: ignore[arg-type]
    assert {**live[0], "status": "completed"} == after


async def test_at_every_moment_it_is_the_fold_so_far() -> None:
    """Whatever a hook sees is what another process could read then."""
    world = World()
    seen: list[str] = []

    def look(trace: TeamTrace, *about: Any) -> None:
        entries = world.store.entries(trace.run_id)
        assert view(team_trace_of(trace.run_id, entries)) == view(trace)
        seen.append(trace.status)

    moments = ("on_team_start", "should_supervisor_continue", "should_agent_continue", "on_agent_end", "on_team_end")
    team, _, _ = two(interceptors=[hook(moment, look, moment) for moment in moments])
    await world.play(team)
    assert len(seen) == 9


async def test_skips_and_pauses_are_never_the_last_output() -> None:
    """Nor in the history that members are told."""
    guard = hook("should_agent_continue", lambda trace, member: member.name != "bob")
    team, ada, _ = two(interceptors=[guard], model=boss(assign("ada"), assign("bob"), assign("ada"), finish()))
    result = await World().play(team)
    trace: Any = result.trace
    assert (trace.last_agent_name, trace.last_agent_content) == ("ada", "ada's work")
    assert [record.kind for record in trace.records].count("skip") == 1
    assert "Skipped" not in trace.formatted_history()
    assert "Skipped" not in str(requests(ada)[1].messages)
    team, _, _ = two(interceptors=[hook("on_agent_end", lambda trace, *_: trace.suspend("wait"))])
    result = await World().play(team)
    assert (result.status, result.trace.last_agent_content) == ("suspended", "ada's work")  # type: ignore[attr-defined]
    assert [record.kind for record in result.trace.records] == ["decision", "output"]  # type: ignore[attr-defined]


async def test_a_failed_member_is_an_error_and_no_output() -> None:
    """`is_agent` holds for both; only output is the last agent's content."""
    team = Team("t", members=[agent("a", *[call("x")] * 3), agent("b", say("fine"))], model=boss(assign("a"), finish()))
    trace: Any = (await team.run("go")).trace
    error = trace.records[1]
    assert (error.kind, error.is_agent, error.source) == ("error", True, "a")
    assert (trace.last_agent_name, trace.last_agent_content) == ("a", None)


async def test_formatted_history_keeps_the_newest() -> None:
    """`window` outputs, or all, or none."""
    team, _, _ = two()
    trace: Any = (await team.run("go")).trace
    assert trace.formatted_history() == "ada: ada's work\n\nbob: bob's work"
    assert trace.formatted_history(1) == "bob: bob's work"
    assert trace.formatted_history(0) == ""
    assert trace.formatted_history(99) == trace.formatted_history()


async def test_turns_are_decisions_and_members_chosen_without_one() -> None:
    """Skipped ones count; a delegation is one turn; a re-asked response is none."""
    guard = hook("should_agent_continue", lambda trace, member: False)
    team, _, _ = two("sequential", interceptors=[guard])
    assert (await team.run("go")).trace.turn_count == 2  # type: ignore[attr-defined]
    team, _, _ = two(model=boss(say("hm"), delegate("ada", "bob"), finish()))
    assert (await team.run("go")).trace.turn_count == 2  # type: ignore[attr-defined]


def used(tokens: int) -> Usage:
    """Usage of one call."""
    return Usage(input_tokens=tokens, output_tokens=1)


async def test_metrics_add_up() -> None:
    """Total, by source, and the same afterwards."""
    a = agent("a", say("x", usage=used(9)), say("y", usage=used(19)))
    b = agent("b", say("x", usage=used(4)))
    team = Team("t", members=[a, b], model=boss(delegate("a", "b"), assign("a"), finish()), record_window=0)
    world = World()
    result = await world.play(team)
    trace: Any = result.trace
    metrics = trace.metrics
    first = metrics.by["a"]
    assert metrics.by == {"a": first, "b": 5}
    assert metrics.total_tokens == result.usage.total_tokens == first + 5
    assert metrics.duration >= 0
    stored = team_trace_of(result.run_id, world.store.entries(result.run_id))
    assert (stored.metrics.total_tokens, stored.metrics.by) == (metrics.total_tokens, metrics.by)


async def test_usage_of_a_member_that_was_broken_off_is_kept() -> None:
    """What a cancelled member had used is in its record, and in the sum afterwards."""
    reached = asyncio.Event()

    async def hang(request: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    a = agent("a", call("x", usage=used(9)), hang)
    team, world = Team("t", members=[a], protocol="sequential"), World()
    async with world.open(team) as runtime:
        run = await runtime.start(team, "go")
        await reached.wait()
        await runtime.commands.cancel(run.id, by="human:ana")
        result = await run.result()
    stored = team_trace_of(run.id, world.store.entries(run.id))
    assert (result.status, stored.metrics.total_tokens, stored.metrics.by) == ("cancelled", 10, {"a": 10})
    assert result.usage.total_tokens == 10


async def test_extras_are_stored_and_come_back() -> None:
    """Nested values too; what a hook keeps after the moment changes nothing; what is no JSON is a no."""
    kept: list[Any] = []

    def count(trace: TeamTrace, member: Any) -> None:
        seen = trace.extras.setdefault("seen", [])
        seen.append(member.name)
        kept.append(seen)

    team, _, _ = two(interceptors=[hook("should_agent_continue", count)])
    world = World()
    result = await world.play(team)
    kept[0].append("later")
    assert result.trace.extras == {"seen": ["ada", "bob"]}  # type: ignore[attr-defined]
    assert told(world.store, result.run_id)[0][2][-1] == {"seen": ["ada", "bob"]}

    def drop(trace: TeamTrace) -> None:
        trace.extras["gone"] = 1
        del trace.extras["gone"]
        trace.extras["odd"] = object()

    team, _, _ = two(interceptors=[hook("on_team_start", drop)])
    result = await team.run("go")
    assert (result.status, result.reason) == ("blocked", "host_error:interceptor_failed")


async def test_extras_that_two_members_write_are_both_kept() -> None:
    """Side by side, what one moment changed is added to what another did."""
    gate = asyncio.Barrier(2)

    async def write(trace: TeamTrace, member: Any) -> None:
        trace.extras[member.name] = True
        await gate.wait()

    team, _, _ = two("none", interceptors=[hook("should_agent_continue", write)])
    result = await team.run("go")
    assert result.trace.extras == {"ada": True, "bob": True}  # type: ignore[attr-defined]


async def test_records_tell_digests_of_what_members_called() -> None:
    """Tool, arguments and result of each call, so that loops can be found without the texts."""
    from teamplay import Worked

    tool = Worked(effect="pure")
    a = agent("a", call("act", who="a"), call("act", who="a"), say("x"), tools=[tool.tool])
    result = await Team("t", members=[a], protocol="sequential").run("go")
    record = result.trace.records[0]  # type: ignore[attr-defined]
    first, second = record.tools
    assert first == second
    assert first[0] == "act"
    assert len(first[1]) == len(record.digest)


async def test_long_outputs_are_cut_in_the_record() -> None:
    """The whole is in the member's own log; the digest tells records apart."""
    text = "x" * 90_000
    team = Team("t", members=[agent("a", say(text))], protocol="sequential")
    result = await team.run("go")
    record = result.trace.records[0]  # type: ignore[attr-defined]
    assert result.answer == text
    assert len(record.content) < 70_000
    assert "[cut:" in record.content


OTHER = """
import asyncio, sys
from lictor import Runtime

async def main():
    async with Runtime(sys.argv[1], drive=False) as runtime:
        trace = await runtime.trace(sys.argv[2])
        print(trace.status, trace.turn_count, trace.route, trace.final_answer)
        print([(record.source, record.kind, record.content) for record in trace.records])
        print(trace.extras, trace.user)

asyncio.run(main())
"""


async def test_another_process_reads_it_without_the_definitions(tmp_path: Path) -> None:
    """From the file alone: records, route, answer, extras and for whom it was."""
    url = f"sqlite:///{tmp_path}/s.db"
    guard = hook("on_team_start", lambda trace: trace.extras.update(k=[1]))
    team, _, _ = two("none", interceptors=[guard])
    async with Runtime(url, definitions={"room": team}) as runtime:
        run = await runtime.start(team, "go", user="ana")
        result = await run.result()
    source = Path(__file__).parents[2] / "src"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OTHER, url, result.run_id],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    first, second, third = done.stdout.splitlines()
    assert first.startswith("completed 2 ('ada', 'bob')")
    assert "('ada', 'output', \"ada's work\")" in second
    assert third == "{'k': [1]} User(id='ana', attributes={})"


async def test_a_stop_at_a_member_shows_what_was_done() -> None:
    """The status of a run that ended, and of one that waits."""
    team, _, _ = two(interceptors=[hook("on_agent_end", lambda *_: Verdict.stop("enough"))])
    trace: Any = (await team.run("go")).trace
    assert (trace.status, trace.final_answer, trace.last_agent_content) == ("stopped", None, "ada's work")


async def test_the_events_of_a_stream_end_once_and_tell_members() -> None:
    """One terminal event of the root, last; the members' own come before it."""
    a = agent("a", chunks(["one ", "two"]))
    team = Team("t", members=[a], model=boss(assign("a"), finish()))
    events = [event async for event in team.stream("go")]
    roots = [event for event in events if event.kind == "run_finished" and event.run_id == events[0].run_id]
    assert (len(roots), events[-1] is roots[0]) == (1, True)
    assert "".join(event.payload["text"] for event in events if event.kind == "model_delta")
    assert [event.kind for event in events].index("member_started") < [event.kind for event in events].index(
        "member_finished"
    )


async def test_an_answer_that_was_changed_is_stored_as_it_was_released() -> None:
    """A transform at `output`: the transcript ends with what the caller got, and is whole."""
    from lictor.testing import invariants

    def mask(context: Any) -> Any:
        if context["interception_point"] != "output":
            return Verdict.allow()
        return Verdict.replace({**context["target"], "content": "masked"}, "masked")

    for protocol in ("hierarchical", "sequential"):
        team, _, _ = two(protocol, interceptors=[hook("intercept", mask)])
        result = await World().play(team)
        await invariants(result)
        assert (result.answer, result.trace.final_answer) == ("masked", "masked")  # type: ignore[attr-defined]
        assert "the end" not in str(result.trace.messages[-1])
