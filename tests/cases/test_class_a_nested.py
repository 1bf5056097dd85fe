"""Field cases of class a: pauses inside agents used as tools, where the inner run goes on where it stood."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from driving import Strict, both_ways, decided, park, reopened, settled, tools_said

from lictor import Agent, Runtime, tool
from lictor.errors import NotResumable
from lictor.models import call, say


class Weather:
    """The pair of A01: an outer agent that asks an inner one, whose tool is gated."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

        @tool(requires_approval=True)
        async def fetch(city: str) -> str:
            self.fetched.append(city)
            return f"raw {city}"

        self.inner_model = Strict([call("fetch", city="LA"), say("sunny")], id="inner")
        self.outer_model = Strict([call("inner", task="LA"), say("done")], id="outer")
        self.inner = Agent("inner", model=self.inner_model, tools=[fetch])
        self.outer = Agent("outer", model=self.outer_model, tools=[self.inner])

    @property
    def calls(self) -> tuple[int, int]:
        """Requests to the outer and the inner model."""
        return len(self.outer_model.requests), len(self.inner_model.requests)


@both_ways
async def test_A01_an_approval_inside_an_agent_runs_the_inner_tool(how: str) -> None:
    """The request names the inner tool and its path; the decision goes on inside, and nothing is asked twice."""
    weather = Weather()
    async with Runtime() as runtime:
        run, result = await park(runtime, weather.outer, how=how)
        (request,) = result.requests
        assert (request.tool, request.arguments) == ("fetch", {"city": "LA"})
        assert [step.name for step in request.path] == ["outer", "inner"]
        assert (request.root_run, request.path[0].run_id, request.path[1].call_id) == (run.id, run.id, "call_0")
        result = await decided(runtime, run, (request.id, "approve", {}), how=how)
        assert (result.status, result.answer, weather.fetched) == ("completed", "done", ["LA"])
        assert weather.calls == (2, 2)
        assert json.loads(tools_said(result.trace.messages)[0]) == {"status": "completed", "answer": "sunny"}


@both_ways
async def test_A04_a_nested_pause_survives_a_restart(how: str) -> None:
    """With everything dropped but the store the same request is decided and no recorded step is done again."""
    weather = Weather()
    async with Runtime() as first:
        run, result = await park(first, weather.outer, how=how)
        (before,) = result.requests
    again = Weather()
    async with reopened(first, again.outer) as second:
        (request,) = await second.docket.pending()
        assert request.id == before.id
        result = await decided(second, await second.run(run.id), (request.id, "approve", {}), how=how)
        assert (result.status, result.answer) == ("completed", "done")
    assert (weather.fetched, again.fetched) == ([], ["LA"])
    assert (weather.calls, again.calls) == ((1, 1), (1, 1))


@both_ways
async def test_A11_stages_that_pause_go_on_at_their_own_place(how: str) -> None:
    """Three agents in a row, two of which pause: no stage starts again, each request is asked once."""
    confirmed: list[str] = []

    @tool(requires_approval=True)
    async def ask_human(stage: str) -> str:
        confirmed.append(stage)
        return f"{stage} confirmed"

    models: dict[str, Strict] = {}

    def stage(name: str, entries: list[Any]) -> Agent:
        models[name] = Strict(entries, id=name)
        return Agent(name, model=models[name], tools=[ask_human])

    members = [
        stage("P", [call("ask_human", stage="P"), say("plan")]),
        stage("E", [call("ask_human", stage="E"), say("executed")]),
        stage("V", [lambda request: say(f"verified {request.messages[-1]['content']}")]),
    ]
    outer_model = Strict([call("P", task="go"), call("E", task="plan"), call("V", task="executed"), say("end")])
    outer = Agent("outer", model=outer_model, tools=members)
    async with Runtime() as runtime:
        run, result = await park(runtime, outer, how=how)
        order = []
        while result.requests:
            (request,) = result.requests
            order.append((request.path[-1].name, request.id))
            result = await decided(runtime, run, (request.id, "approve", {}), how=how)
        assert [name for name, _ in order] == ["P", "E"]
        assert (result.status, confirmed) == ("completed", ["P", "E"])
        assert {name: len(model.requests) for name, model in models.items()} == {"P": 2, "E": 2, "V": 1}
        answers = [json.loads(content)["answer"] for content in tools_said(result.trace.messages)]
        assert answers == ["plan", "executed", "verified executed"]


@both_ways
async def test_A33_two_drivers_never_mix_one_run(how: str) -> None:
    """Two Runtimes over one store: what one finished the other cannot do again, and nothing is mixed."""
    weather = Weather()
    async with Runtime() as first:
        run, result = await park(first, weather.outer, how=how)
        (request,) = result.requests
        async with reopened(first, weather.outer) as second:
            result = await decided(first, run, (request.id, "approve", {}), how=how)
            assert (result.status, weather.fetched) == ("completed", ["LA"])
            await second.docket.decide(request.id, "approve", by="human:bob")  # the same decision: nothing happens
            other = await settled(second, await second.run(run.id), how)
            assert other.status == "completed"
            with pytest.raises(NotResumable):
                await second.resume(run.id)
        assert (weather.fetched, weather.calls) == (["LA"], (2, 2))


async def test_A33_a_run_that_is_driven_is_not_resumed_by_another() -> None:
    """While one Runtime drives a run, another one over the store is refused, and the run is not disturbed."""
    going, goes_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        going.set()
        await goes_on.wait()
        return "slow"

    model = Strict([call("slow"), say("ok")])
    agent = Agent("clerk", model=model, tools=[slow])
    async with Runtime() as first:
        run = await first.start(agent, "go")
        await going.wait()
        async with reopened(first, agent) as second:
            with pytest.raises(NotResumable, match="another Runtime"):
                await second.resume(run.id)
            goes_on.set()
            result = await settled(first, run)
        assert (result.status, len(model.requests)) == ("completed", 2)
        assert result.trace.steps.count(("stint_started", {})) == 1


async def test_A33_copies_in_two_stores_are_independent() -> None:
    """The same pair of agents suspended in two stores: approving one and rejecting the other touches only its own."""
    ran = []
    for verb in ("approve", "reject"):
        weather = Weather()
        async with Runtime() as runtime:
            run, result = await park(runtime, weather.outer)
            result = await decided(runtime, run, (result.requests[0].id, verb, {}))
            assert result.status == "completed"
            ran.append(weather.fetched)
    assert ran == [["LA"], []]


@both_ways
async def test_A36_finished_work_is_not_done_again_after_a_confirmation(how: str) -> None:
    """A leader whose second member paused still knows the first one's result and goes on with its own script."""

    @tool(requires_approval=True)
    async def deploy() -> str:
        return "deployed"

    research = Strict([say("findings")], id="R")
    deployer = Strict([call("deploy"), say("live")], id="D")
    leader = Strict([call("R", task="research"), call("D", task="deploy"), say("final")], id="L")
    members = [Agent("R", model=research), Agent("D", model=deployer, tools=[deploy])]
    outer = Agent("L", model=leader, tools=members)
    async with Runtime() as first:
        run, result = await park(first, outer, how=how)
    async with reopened(first, outer) as second:
        request = result.requests[0]
        result = await decided(second, await second.run(run.id), (request.id, "approve", {}), how=how)
        assert (result.status, result.answer) == ("completed", "final")
    assert (len(research.requests), len(leader.requests)) == (1, 3)
    shown = tools_said(leader.requests[2].messages)
    assert [json.loads(content)["answer"] for content in shown] == ["findings", "live"]
    assert [request.position for request in leader.requests] == [0, 1, 2]


@both_ways
async def test_A37_the_same_agent_twice_in_one_response(how: str) -> None:
    """Two runs of one member pause at once; each decision reaches its own, each result its own call."""
    wrote: list[str] = []

    @tool(requires_approval=True)
    async def w(v: str) -> str:
        wrote.append(v)
        return f"wrote {v}"

    def start(request: Any) -> Any:
        return call("w", v=request.messages[-1]["content"])

    member = Agent("M", model=Strict([start, lambda request: say(f"M: {request.messages[-1]['content']}")]), tools=[w])
    leader = Strict([[call("M", task="x"), call("M", task="y")], say("ok")])
    outer = Agent("L", model=leader, tools=[member])
    async with Runtime() as runtime:
        run, result = await park(runtime, outer, how=how)
        by_value = {request.arguments["v"]: request for request in result.requests}
        assert len({request.run_id for request in by_value.values()}) == 2
        result = await decided(runtime, run, (by_value["y"].id, "approve", {}), how=how)
        assert (result.status, wrote) == ("suspended", ["y"])
        assert [request.id for request in result.requests] == [by_value["x"].id]
        result = await decided(runtime, run, (by_value["x"].id, "approve", {}), how=how)
        assert (result.status, wrote) == ("completed", ["y", "x"])
        answers = [json.loads(content)["answer"] for content in tools_said(result.trace.messages)]
        assert answers == ["M: wrote x", "M: wrote y"]
