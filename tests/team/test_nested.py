"""Teams as members: run once, suspended, resumed, budgeted, intercepted and cancelled with the team around them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from teamplay import (
    ANA,
    Listening,
    Worked,
    World,
    agent,
    approve,
    assign,
    boss,
    call,
    delegate,
    finish,
    holds,
    hook,
    requests,
    say,
    skips,
    told,
)

from lictor import Budget, Team, Verdict
from lictor.team import team_trace_of


def nested(
    protocol: str = "hierarchical", *, inner: dict[str, Any] | None = None, **options: Any
) -> tuple[Team, Any, Any]:
    """A team of a team of one, and both models."""
    worker = agent("worker", say("inner work"))
    model = boss(assign("worker"), finish("inner answer"))
    below = Team("below", members=[worker], model=model, **(inner or {}))
    if protocol == "hierarchical":
        options.setdefault("model", boss(assign("below"), finish("outer answer")))
    return Team("above", members=[below], protocol=protocol, **options), worker, model


def inner_run(world: World, root: str) -> str:
    """The run of the nested team."""
    starts = {
        item.run_id: item.entry.payload for item in world.store.root_entries(root) if item.entry.kind == "run_started"
    }
    return next(run_id for run_id, payload in starts.items() if payload.get("team") == "below")


@pytest.mark.parametrize("protocol", ["hierarchical", "sequential", "none", "handoff"])
async def test_it_runs_its_members_once_and_both_traces_exist(protocol: str) -> None:
    """The record of the team above names the team below; each has its own route."""
    team, worker, model = nested(protocol)
    world = World()
    result = await world.play(team)
    assert (result.status, len(requests(worker)), len(requests(model))) == ("completed", 1, 2)
    trace: Any = result.trace
    record = next(each for each in trace.records if each.is_agent)
    assert (record.source, record.content, trace.route) == ("below", "inner answer", ("below",))
    below = team_trace_of(record.run_id, world.store.entries(record.run_id))
    assert (below.name, below.route, below.final_answer) == ("below", ("worker",), "inner answer")
    assert record.run_id == inner_run(world, result.run_id)
    assert result.usage.requests == len(requests(worker)) + 2 + (2 if protocol == "hierarchical" else 0)


@pytest.mark.parametrize("protocol", ["hierarchical", "sequential", "none", "handoff"])
async def test_it_is_suspended_and_resumed_with_the_team_above(protocol: str) -> None:
    """A tool three levels down waits; after a new start nothing is asked of any model again."""
    tool = Worked(requires_approval=True)
    worker = agent("worker", call("act", who="worker"), say("inner work"), tools=[tool.tool])
    model, top = boss(assign("worker"), finish("inner answer")), boss(assign("below"), finish("outer answer"))
    below = Team("below", members=[worker], model=model)
    team = Team("above", members=[below], protocol=protocol, model=top)
    world = World()
    result = await world.play(team)
    assert (result.status, tool.calls["worker"], len(result.requests)) == ("suspended", 0, 1)
    assert [step.name for step in result.requests[0].path] == ["above", "below", "worker"]
    result = await world.go_on(team, result.run_id, decide=approve)
    assert (result.status, tool.calls["worker"]) == ("completed", 1)
    assert (len(requests(worker)), len(requests(model))) == (2, 2)
    assert len(requests(top)) == (2 if protocol == "hierarchical" else 0)


async def test_killed_anywhere_it_ends_the_same() -> None:
    """The driver is dropped after each entry in turn."""
    world = World()
    expected = await world.play(nested()[0])
    entries = len(world.store.root_entries(expected.run_id))
    for place in range(1, entries, 3):
        broken = World()
        result = await broken.play(nested()[0], crash=[place])
        assert told(broken.store, result.run_id) == told(world.store, expected.run_id), f"killed after {place}"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [({"max_turns": 1}, "budget:max_turns"), ({"max_tool_calls": 0}, "budget:max_tool_calls")],
)
async def test_its_own_budget_holds(budget: dict[str, int], reason: str) -> None:
    """The team below ends; the team above is told and goes on."""
    team, _, _ = nested(inner={"budget": Budget(**budget)})
    result = await World().play(team)
    record = next(each for each in result.trace.records if each.is_agent)  # type: ignore[attr-defined]
    assert (result.status, record.kind) == ("completed", "error")
    assert record.content == f"[exhausted] {reason}"


async def test_the_budget_above_holds_for_everything_below() -> None:
    """One tool call above leaves none for the team below."""
    tool = Worked(effect="pure")
    worker = agent("worker", call("act", who="w"), call("act", who="w"), say("x"), tools=[tool.tool])
    below = Team("below", members=[worker], protocol="sequential")
    team = Team("above", members=[below], protocol="sequential", budget=Budget(max_tool_calls=1))
    result = await World().play(team)
    assert (result.status, tool.calls["w"], result.usage.tool_calls) == ("failed", 1, 1)


async def test_policies_above_hold_below() -> None:
    """A tool that is denied above is denied to the member of the member, and the record has the whole path."""
    tool = Worked(effect="pure")
    deny = hook("intercept", _no_act)
    worker = agent("worker", call("act", who="w"), say("x"), tools=[tool.tool])
    below = Team("below", members=[worker], protocol="sequential")
    world = World()
    result = await world.play(Team("above", members=[below], protocol="sequential", interceptors=[deny]))
    assert (result.status, tool.calls["w"]) == ("completed", 0)


def _no_act(context: Any) -> Any:
    denied = context["interception_point"] == "pre_tool_call" and context["tool_call"]["name"] == "act"
    return Verdict.deny("no_act") if denied else Verdict.allow()


@pytest.mark.parametrize("where", ["definition", "runtime", "run"])
async def test_whom_the_team_above_refuses_does_not_work_below(where: str) -> None:
    """A permission is not got around by a team in between, wherever it was given."""
    guard = hook("should_agent_continue", lambda trace, member: member.name != "worker")
    team, worker, _ = nested(interceptors=[guard] if where == "definition" else [])
    world = World()
    async with world.open(team, interceptors=[guard] if where == "runtime" else []) as runtime:
        run = await runtime.start(team, "go", interceptors=[guard] if where == "run" else [])
        result = await run.result()
    assert (result.status, requests(worker)) == ("completed", [])
    below = inner_run(world, result.run_id)
    records = team_trace_of(below, world.store.entries(below)).records
    assert [record.kind for record in records] == ["decision", "skip", "decision"]


@pytest.mark.parametrize("where", ["definition", "run"])
async def test_hooks_above_hear_the_supervisor_below_and_no_agent(where: str) -> None:
    """Model hooks are for supervisors: both of them, each once per call, never for a member's own model."""
    listening = Listening()
    team, _, _ = nested(interceptors=[listening] if where == "definition" else [])
    world = World()
    result = await world.play(team, interceptors=[listening] if where == "run" else [])
    heard = [moment for moment, *_ in listening.heard]
    assert result.status == "completed"
    assert (heard.count("on_model_start"), heard.count("on_model_end")) == (4, 4)
    assert heard.count("on_supervisor_decision") == 4
    assert (heard.count("on_team_start"), heard.count("on_team_end"), heard.count("on_team_finished")) == (2, 2, 2)
    assert [about for moment, *about in listening.heard if moment == "should_agent_continue"] == [["below"], ["worker"]]


async def test_hooks_below_hear_nothing_of_the_team_above() -> None:
    """A policy holds for its own team and what is below it."""
    listening = Listening()
    team, _, _ = nested(inner={"interceptors": [listening]})
    await World().play(team)
    heard = [moment for moment, *_ in listening.heard]
    assert (heard.count("on_team_start"), heard.count("on_model_end")) == (1, 2)


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_it_ends_with_the_team_above(how: str) -> None:
    """Cancelled while its member works: everything below has an end, and no model is asked again."""
    reached = asyncio.Event()

    async def hang(request: Any) -> Any:
        reached.set()
        await asyncio.Event().wait() if how == "cancel" else await asyncio.sleep(0)
        return say("late")

    worker = agent("worker", hang)
    model = boss(assign("worker"), finish("inner"))
    top = boss(assign("below"), finish("outer"))
    team = Team("above", members=[Team("below", members=[worker], model=model)], model=top)
    world = World()
    async with world.open(team) as runtime:
        run = await runtime.start(team, "go")
        await reached.wait()
        if how == "cancel":
            await runtime.commands.cancel(run.id, by=ANA)
        else:
            await runtime.commands.stop(run.id, reason="enough", by=ANA)
        result = await run.result()
    holds(world.store, run.id)
    assert (result.status, result.by) == ("cancelled" if how == "cancel" else "stopped", ANA)
    assert len(requests(top)) == 1


async def test_it_is_cancelled_while_it_waits() -> None:
    """A parked team below ends with the parked team above, its request withdrawn."""
    guard = hook("should_agent_continue", lambda *_: Verdict.escalate("look"))
    team, worker, _ = nested(inner={"interceptors": [guard]})
    world = World()
    result = await world.play(team)
    assert (result.status, len(result.requests)) == ("suspended", 1)
    async with world.open(team) as runtime:
        await runtime.commands.cancel(result.run_id, by=ANA)
        run = await runtime.run(result.run_id)
        result = await run.result()
        assert [request.status for request in await runtime.docket.requests(run=run.id)] == ["cancelled"]
    holds(world.store, result.run_id)
    assert (result.status, requests(worker)) == ("cancelled", [])


async def test_two_of_them_side_by_side_wait_each_for_its_own() -> None:
    """Approving one lets that one go on; the other is still asked for."""
    tools = [Worked(requires_approval=True), Worked(requires_approval=True)]
    teams = [
        Team(
            f"t{n}",
            members=[agent(f"w{n}", call("act", who=f"w{n}"), say(f"d{n}"), tools=[tools[n].tool])],
            protocol="sequential",
        )
        for n in range(2)
    ]
    team = Team("above", members=teams, model=boss(delegate("t0", "t1"), finish()))
    world = World()
    result = await world.play(team)
    assert len(result.requests) == 2
    second = next(each for each in result.requests if each.path[-1].name == "w1")
    async with world.open(team) as runtime:
        await runtime.docket.decide(second.id, "approve", by=ANA)
        run = await runtime.run(result.run_id)
        result = await run.result()
        assert (result.status, tools[0].calls["w0"], tools[1].calls["w1"]) == ("suspended", 0, 1)
        assert [each.path[-1].name for each in result.requests] == ["w0"]
        await runtime.docket.decide(result.requests[0].id, "approve", by=ANA)
        result = await run.result()
    assert (result.status, tools[0].calls["w0"], tools[1].calls["w1"]) == ("completed", 1, 1)


async def test_depth_is_limited() -> None:
    """A chain deeper than eight ends with `max_depth` where it would go on, and no model below it is asked."""
    worker = agent("worker", say("deep"))
    team: Any = worker
    for level in range(9):
        team = Team(f"level{level}", members=[team], protocol="sequential")
    result = await World().play(team)
    assert (result.status, result.reason, requests(worker)) == ("failed", "max_depth", [])


async def test_no_in_the_team_below_is_a_result_above() -> None:
    """A blocked team below is the record of a failed member, told as such to the supervisor above."""
    guard = hook("on_team_start", lambda trace: Verdict.deny("closed"))
    team, worker, model = nested(inner={"interceptors": [guard]})
    result = await World().play(team)
    record = next(each for each in result.trace.records if each.is_agent)  # type: ignore[attr-defined]
    assert (result.status, record.kind, record.content) == ("completed", "error", "[blocked] closed")
    assert (requests(worker), requests(model), skips(result)) == ([], [], [])
