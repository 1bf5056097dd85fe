"""Steps, budgets and batches of one agent run."""

from __future__ import annotations

import asyncio
import json

import pytest
from driving import Strict, asked, both_ways, park, play, policy, settled, tools_said

from lictor import Agent, Budget, Runtime, ToolContext, Usage, Verdict, tool
from lictor.models import call, say
from lictor.testing.clock import VirtualClock

TEN = Usage(input_tokens=10, output_tokens=5)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


# ---- steps and budgets -------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_max_steps_of_a_run_takes_the_place_of_the_agents(how: str, limit: int) -> None:
    """The limit given to a run holds for that run only."""
    model = Strict([call("look")] * 9)
    agent = Agent("clerk", model=model, tools=[look], max_steps=7, loop_breaker=None)
    played = await play(agent, how=how, max_steps=limit)
    assert (played.status, played.reason, len(model.requests)) == ("exhausted", "max_steps", limit)
    assert (await play(agent, how=how)).usage.requests == 7


@both_ways
async def test_re_asks_and_answers_that_are_sent_back_are_model_calls_too(how: str) -> None:
    """`max_steps` counts every model call that answered, whatever became of the answer."""
    model = Strict([say(None), say("v1"), say("v2")])
    check = policy("output", lambda c: Verdict.retry("again"))
    played = await play(Agent("clerk", model=model, interceptors=[check], max_steps=3), how=how)
    assert (played.status, played.reason, len(model.requests)) == ("exhausted", "max_steps", 3)


@both_ways
@pytest.mark.parametrize("limit", [0, 1, 2])
async def test_max_tool_calls_is_exact(how: str, limit: int) -> None:
    """So many tools start, the next one is refused, the run ends `exhausted` and every call is answered."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        ran.append(n)
        return f"did {n}"

    model = Strict([call("work", n=0), [call("work", n=1), call("work", n=2)], say("x")])
    agent = Agent("clerk", model=model, tools=[work], budget=Budget(max_tool_calls=limit))
    played = await play(agent, how=how)
    assert (played.status, played.reason, len(ran)) == ("exhausted", "budget:max_tool_calls", limit)
    assert played.usage.tool_calls == limit
    refused = [text for text in tools_said(played.messages) if not text.startswith("did")]
    assert {json.loads(text)["error"] for text in refused} == {"not_run"}


@both_ways
async def test_a_token_budget_is_checked_before_the_call(how: str) -> None:
    """A request whose reservation does not fit is never sent; what was used stays below the limit."""
    model = Strict([call("look", usage=Usage(input_tokens=300, output_tokens=300))] * 9)
    agent = Agent(
        "clerk", model=model, tools=[look], settings={"max_tokens": 300}, budget=Budget(max_total_tokens=2000)
    )
    played = await play(agent, how=how)
    assert (played.status, played.reason) == ("exhausted", "budget:max_total_tokens")
    assert (played.usage.total_tokens, len(model.requests)) == (1200, 2) or played.usage.total_tokens == 1800
    assert asked(model, 0).settings["max_tokens"] == 300
    bare = Strict([say("x")])
    await play(Agent("clerk", model=bare), how=how)
    assert "max_tokens" not in asked(bare).settings
    bounded = Strict([say("x")])
    await play(Agent("clerk", model=bounded, budget=Budget(max_total_tokens=10_000)), how=how)
    assert asked(bounded).settings["max_tokens"] == 4096


@both_ways
async def test_a_cost_budget_ends_the_run(how: str) -> None:
    """When the dollars are spent no further request is sent."""
    model = Strict([call("look", usage=Usage(cost_usd=0.4))] * 9)
    played = await play(Agent("clerk", model=model, tools=[look], budget=Budget(max_cost_usd=1.0)), how=how)
    assert (played.status, played.reason, len(model.requests)) == ("exhausted", "budget:max_cost_usd", 2)
    assert played.usage.cost_usd == pytest.approx(0.8)


@both_ways
async def test_a_budget_of_seconds_ends_the_run(how: str) -> None:
    """Time that tools take counts; no model call and no tool begins after the limit."""
    clock = VirtualClock()

    @tool
    async def slow() -> str:
        await clock.sleep(40)
        return "slow"

    model = Strict([call("slow")] * 9)
    agent = Agent("clerk", model=model, tools=[slow], budget=Budget(max_seconds=100))
    played = await play(agent, how=how, clock=clock)
    assert (played.status, played.reason, len(model.requests)) == ("exhausted", "budget:max_seconds", 3)
    assert tools_said(played.messages) == ["slow"] * 3


async def test_a_budget_of_seconds_counts_waiting() -> None:
    """A run that was parked longer than its budget is over when it is woken."""
    clock = VirtualClock()

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent("clerk", model=Strict([call("pay"), say("x")]), tools=[pay])
    async with Runtime(clock=clock) as runtime:
        run, result = await park(runtime, agent, max_seconds=60)
        await clock.advance(100)
        await runtime.docket.decide(result.requests[0].id, "approve", by="human:ana")
        result = await settled(runtime, run)
        assert (result.status, result.reason) == ("exhausted", "budget:max_seconds")
        assert json.loads(tools_said(result.trace.messages)[0])["error"] == "not_run"


@both_ways
async def test_the_budget_of_a_nested_agent_is_its_own_and_its_parents(how: str) -> None:
    """A child ends at its own limit as a result; what it used counts for the parent."""
    inner = Agent("inner", model=Strict([call("look")] * 9, id="inner"), tools=[look], budget=Budget(max_tool_calls=2))
    outer = Agent("outer", model=Strict([call("inner", task="t"), call("look"), say("ok")]), tools=[inner, look])
    played = await play(outer, how=how)
    assert json.loads(played.result_of()) == {"status": "exhausted", "reason": "budget:max_tool_calls"}
    assert (played.status, played.usage.tool_calls) == ("completed", 4)
    played = await play(outer, how=how, max_tool_calls=2)
    assert (played.status, played.reason) == ("exhausted", "budget:max_tool_calls")


@both_ways
async def test_depth_and_number_of_nested_runs_are_limited(how: str) -> None:
    """Beyond `max_depth` and `max_children` a call is answered `not_run`, and the loop goes on."""
    inner = Agent("inner", model=Strict([say("in"), say("in")], id="inner"))
    model = Strict([[call("inner", task="a"), call("inner", task="b"), call("inner", task="c")], say("ok")])
    played = await play(Agent("outer", model=model, tools=[inner], max_children=2), how=how)
    told = [json.loads(text) for text in tools_said(played.messages)]
    assert [item.get("reason") for item in told] == [None, None, "max_children"]
    flat = Agent("outer", model=Strict([call("inner", task="a"), say("ok")]), tools=[inner], max_depth=0)
    played = await play(flat, how=how)
    assert json.loads(played.result_of())["reason"] == "max_depth"


# ---- batches -----------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("parallel", [1, 2, 8])
async def test_results_keep_call_order_whatever_ends_first(how: str, parallel: int) -> None:
    """Tools of one response run together, at most so many, and their results come in call order."""
    running: list[int] = []
    most = 0

    @tool
    async def work(n: int) -> str:
        nonlocal most
        running.append(n)
        most = max(most, len(running))
        for _ in range(10 - n):
            await asyncio.sleep(0)
        running.remove(n)
        return f"did {n}"

    batch = [call("work", n=n) for n in range(6)]
    agent = Agent("clerk", model=Strict([batch, say("ok")]), tools=[work], max_parallel_tools=parallel)
    played = await play(agent, how=how)
    assert tools_said(played.messages) == [f"did {n}" for n in range(6)]
    assert most == min(parallel, 6)


@both_ways
async def test_a_raising_tool_disturbs_no_sibling(how: str) -> None:
    """Its error is its own result; it tells type and text, and siblings keep theirs."""

    @tool
    async def bad() -> str:
        raise KeyError("missing")

    @tool
    def threaded() -> str:
        raise SystemExit(3)

    @tool(timeout=0.01)
    async def hanging() -> str:
        await asyncio.Event().wait()
        return "never"

    model = Strict([[call("bad"), call("look"), call("threaded"), call("hanging")], say("ok")])
    played = await play(Agent("clerk", model=model, tools=[bad, look, threaded, hanging]), how=how)
    first, second, third, fourth = tools_said(played.messages)
    assert json.loads(first) == {"error": "tool_failed", "reason": "KeyError", "message": "'missing'"}
    assert second == "seen"
    assert "exit 3" in json.loads(third)["message"]
    assert json.loads(fourth)["reason"] == "timeout"
    assert played.answer == "ok"


async def test_a_tools_own_timeout_error_keeps_its_text() -> None:
    """A TimeoutError that a tool raises itself is told as it is, not as a limit of ours."""

    @tool
    async def query() -> str:
        raise TimeoutError("the database did not answer")

    played = await play(Agent("clerk", model=Strict([call("query"), say("ok")]), tools=[query]))
    assert json.loads(played.result_of())["message"] == "the database did not answer"


@both_ways
async def test_what_a_tool_reports_on_its_way_are_events(how: str) -> None:
    """`emit` gives notes to whoever follows the run; values without a JSON form never fail the tool."""

    @tool
    async def work(context: ToolContext) -> str:
        context.emit({"done": 1})
        context.emit({1, 2})
        context.emit(iter([1]))
        return "ok"

    @tool
    def threaded(context: ToolContext) -> str:
        context.emit("from a thread")
        return "ok"

    model = Strict([[call("work"), call("threaded")], say("ok")])
    played = await play(Agent("clerk", model=model, tools=[work, threaded]), how=how)
    notes = [event.payload["progress"] for event in played.events if event.kind == "note"]
    assert {"done": 1} in notes
    assert [1, 2] in notes
    assert "from a thread" in notes
    json.dumps([event.json() for event in played.events])
