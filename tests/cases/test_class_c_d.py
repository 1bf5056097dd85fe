"""Field cases of classes c and d: limits are exact, histories stay valid, and nothing is replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from driving import (
    Played,
    Strict,
    both_ways,
    cancelled,
    crash_at,
    decided,
    park,
    play,
    reopened,
    settled,
    strict_problem,
    tools_said,
)

from lictor import Agent, Budget, LoopBreaker, Runtime, ScriptedModel, tool
from lictor.agent import Window, problems_of
from lictor.errors import AlreadyDecided, NotResumable, SimulatedCrash
from lictor.models import Call, ModelResponse, TextDelta, call, fail, say
from lictor.testing.clock import VirtualClock


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


@both_ways
@pytest.mark.parametrize("limit", [0, 1, 2, 5])
async def test_C08_a_limit_of_n_makes_n_model_calls(how: str, limit: int) -> None:
    """A script without an end is stopped after exactly `max_steps` model calls, its last calls answered."""
    model = Strict([call("look")] * 10)
    agent = Agent("clerk", model=model, tools=[look], max_steps=limit, loop_breaker=None)
    played = await play(agent, how=how)
    assert (played.status, played.reason, len(model.requests)) == ("exhausted", "max_steps", limit)
    assert len(tools_said(played.messages)) == limit


@both_ways
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_C08_finishing_on_the_last_allowed_call_is_completed(how: str, limit: int) -> None:
    """A script that ends exactly at the limit is completed, not exhausted."""
    model = Strict([*[call("look")] * (limit - 1), say("done")])
    played = await play(Agent("clerk", model=model, tools=[look], max_steps=limit), how=how)
    assert (played.status, played.answer, len(model.requests)) == ("completed", "done", limit)


@both_ways
async def test_C19_a_call_that_waits_is_no_round_of_a_loop(how: str) -> None:
    """Look, pay, look, pay: the payment that waits is no step yet; approved it runs, and its result is delivered."""
    paid: list[int] = []

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    model = Strict([*[call("look"), call("pay", amount=5)] * 2, say("paid twice")])
    async with Runtime() as runtime:
        run, result = await park(runtime, Agent("clerk", model=model, tools=[look, pay]), how=how)
        for _ in range(2):
            assert result.status == "suspended"
            result = await decided(runtime, run, (result.requests[0].id, "approve", {}), how=how)
        assert (result.status, result.answer, paid) == ("completed", "paid twice", [5, 5])
        assert tools_said(result.trace.messages) == ["seen", "paid"] * 2
        assert [r["verdict"]["warnings"] for r in result.records if "warnings" in r["verdict"]] == []


@both_ways
async def test_C19_the_outcome_names_the_steps_of_the_loop(how: str) -> None:
    """Only finished calls of this run count, and the record of the stop says which."""

    @tool(effect="pure")
    async def list_all() -> str:
        return "nothing"

    model = Strict([call("look"), call("list_all")] * 6)
    agent = Agent("clerk", model=model, tools=[look, list_all], loop_breaker=LoopBreaker(window=4, on_hit=("stop",)))
    played = await play(agent, how=how)
    assert (played.status, played.reason, played.by) == ("stopped", "loop", "lictor/loop-breaker")
    [record] = [record for record in played.records if record["verdict"].get("reason") == "loop"]
    assert dict(record["verdict"]["evidence"]["verification_pointers"]) | {"arguments": ""} == {
        "tool": "look",
        "arguments": "",
        "period": "2",
        "steps": "call_0,call_1,call_2,call_3",
        "count": "2",
        "score": "1.0",
    }


@both_ways
@pytest.mark.parametrize("batch", [1, 3])
async def test_C09_the_limit_of_a_nested_agent_holds(how: str, batch: int) -> None:
    """Each run of a member ends at its own limit, and the leader is told `exhausted`, not an empty success."""
    inner = Strict([call("look")] * 10, id="M")
    member = Agent("M", model=inner, tools=[look], max_steps=3)
    leader = Strict([[call("M", task="work")] * batch, say("done")], id="L")
    played = await play(Agent("L", model=leader, tools=[member], max_steps=10), how=how)
    assert (played.status, len(inner.requests), len(leader.requests)) == ("completed", 3 * batch, 2)
    for content in tools_said(played.messages):
        assert json.loads(content) == {"status": "exhausted", "reason": "max_steps"}


@both_ways
async def test_D03_a_limit_amid_parallel_calls_leaves_none_open(how: str) -> None:
    """With one tool call allowed and three asked for each has a result, and the conversation goes on."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        ran.append(n)
        return f"did {n}"

    model = Strict([[call("work", n=n) for n in range(3)], say("hello")])
    agent = Agent("clerk", model=model, tools=[work])
    async with Runtime() as runtime:
        _, result = await park(runtime, agent, how=how, conversation="c", max_tool_calls=1)
        assert (result.status, result.reason, ran) == ("exhausted", "budget:max_tool_calls", [0])
        first, second, third = tools_said(result.trace.messages)
        assert (first, json.loads(second)["error"], json.loads(third)["error"]) == ("did 0", "not_run", "not_run")
        assert result.usage.tool_calls == 1
        _, result = await park(runtime, agent, "go on", how=how, conversation="c")
        assert (result.status, result.answer) == ("completed", "hello")


@both_ways
async def test_D06_a_tool_that_cancels_itself_is_an_error_result(how: str) -> None:
    """A tool's own cancellation is not the run's: siblings keep their results, in call order."""

    @tool
    async def ok(n: int) -> str:
        return f"ok {n}"

    @tool
    async def odd() -> str:
        raise asyncio.CancelledError

    model = Strict([[call("ok", n=1), call("odd"), call("ok", n=3)], say("done")])
    played = await play(Agent("clerk", model=model, tools=[ok, odd]), how=how)
    first, second, third = tools_said(played.messages)
    assert (played.answer, first, third) == ("done", "ok 1", "ok 3")
    assert json.loads(second)["reason"] == "CancelledError"
    alone = await play(Agent("clerk", model=Strict([call("odd"), say("done")]), tools=[odd]), how=how)
    assert (alone.status, alone.answer) == ("completed", "done")


@both_ways
async def test_D07_a_cancelled_run_waits_for_a_tool_that_ignores_it(how: str) -> None:
    """The cancelled run is over only when the stubborn tool is: there is no interleaving, and no second attempt."""
    started, stubborn_goes_on = asyncio.Event(), asyncio.Event()
    wrote: list[str] = []

    @tool
    async def polite() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stubborn_goes_on.wait()
            wrote.append("late")
        return "late"

    model = Strict([[call("polite"), call("stubborn")], say("x")])
    agent = Agent("clerk", model=model, tools=[polite, stubborn])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        await started.wait()
        await runtime.commands.cancel(run.id, by="human:ana")
        assert run.status == "cancelling"
        for _ in range(20):
            await asyncio.sleep(0)
        assert (run.status, wrote) == ("cancelling", [])
        stubborn_goes_on.set()
        result = await settled(runtime, run, how)
        assert (result.status, result.by, wrote) == ("cancelled", "human:ana", ["late"])
        assert len(tools_said(result.trace.messages)) == 2
        with pytest.raises(NotResumable):
            await runtime.resume(run.id)


@both_ways
async def test_D08_each_message_is_shown_once_after_every_restore(how: str) -> None:
    """Three runs of one conversation, each parked and gone on with in a new Runtime: no request repeats a message."""

    @tool(requires_approval=True)
    async def ask(n: int) -> str:
        return f"answer {n}"

    model = Strict([entry for n in range(3) for entry in (call("ask", n=n), say(f"done {n}"))])
    agent = Agent("B", model=model, tools=[ask])
    old = Runtime()
    for turn in range(3):
        async with reopened(old, agent) as runtime:
            run, result = await park(runtime, agent, f"user {turn}", how=how, conversation="c")
        async with reopened(runtime, agent) as runtime:
            request = result.requests[0]
            result = await decided(runtime, await runtime.run(run.id), (request.id, "approve", {}), how=how)
            assert result.answer == f"done {turn}"
        old = runtime
    for number, request in enumerate(model.requests):
        shown = [json.dumps(dict(message), default=dict, sort_keys=True) for message in request.messages]
        assert len(set(shown)) == len(shown) == 1 + 2 * number
        assert strict_problem(request.messages) is None
    async with reopened(old, agent) as last:
        stored = (await last.conversation("c")).messages
    ids = [message["tool_call_id"] for message in stored if message["role"] == "tool"]
    assert ids == ["call_0", "call_1", "call_2"]


@both_ways
async def test_D15_a_fallback_sees_what_was_done(how: str) -> None:
    """A fallback after tools ran gets their calls and results, and repeats nothing; attempts are recorded."""
    mailed: list[int] = []

    @tool
    async def mail() -> str:
        mailed.append(1)
        return "sent"

    def answer(request: Any) -> Any:
        return say("fine") if any(message["role"] == "tool" for message in request.messages) else call("mail")

    primary = Strict([call("mail"), *[fail(429, retry_after=0)] * 9], id="primary")
    fallback = Strict([answer], id="fallback")
    played = await play(Agent("clerk", model=[primary, fallback], tools=[mail]), how=how)
    assert (played.status, played.answer, mailed) == ("completed", "fine", [1])
    assert [message["role"] for message in fallback.requests[0].messages] == ["user", "assistant", "tool"]
    assert [message["role"] for message in played.messages] == ["user", "assistant", "tool", "assistant"]
    tries = [event.payload for event in played.events if event.kind == "model_retry"]
    assert [(item["model"], item["attempt"], item["error"]) for item in tries] == [
        ("primary", n, "rate_limit") for n in (1, 2, 3)
    ]


class Broken(Strict):
    """Streams a piece of text, half a call, and breaks; the second time it answers."""

    async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
        """Fail at position 0."""
        if settings["position"] == 0:
            yield TextDelta("par")
        async for event in super().respond(messages, tools, settings):
            yield event


@both_ways
async def test_D17_a_broken_stream_leaves_nothing(how: str) -> None:
    """What a broken attempt streamed is neither stored nor shown; both attempts count."""
    model = Broken([fail(code="stream_cut"), say("whole")])
    played = await play(Agent("clerk", model=model, tools=[look]), how=how, clock=VirtualClock())
    assert (played.status, played.answer) == ("completed", "whole")
    assert [message["content"] for message in played.messages] == ["go", "whole"]
    assert "'par'" not in played.text
    assert (played.usage.requests, played.usage.retries) == (2, 1)


def history_of(batches: Sequence[int]) -> list[dict[str, Any]]:
    """A conversation of one user message and batches of calls with their results, then an answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "u"}]
    number = 0
    for size in batches:
        ids = [f"c{number + n}" for n in range(size)]
        number += size
        calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": one, "content": "r"} for one in ids]
    return messages


@both_ways
@pytest.mark.parametrize("window", range(1, 10))
async def test_D18_a_window_never_parts_a_call_from_its_result(how: str, window: int) -> None:
    """Whatever number of messages is wanted, batches are shown whole or not at all, in order."""
    model = Strict([call("look"), [call("look"), call("look")], call("look"), say("done")])
    agent = Agent("clerk", model=model, tools=[look], history_window=window, instructions="be brief")
    played = await play(agent, how=how)
    assert (played.status, len(played.messages)) == ("completed", 9)
    for request in model.requests:
        assert request.messages[0]["role"] == "system"
        shown = list(request.messages[1:])
        stored = list(played.messages)
        assert strict_problem(shown) is None
        assert any(stored[start : start + len(shown)] == shown for start in range(len(stored)))
        assert len(shown) <= max(window, 3)


def test_D18_the_window_alone_keeps_every_history_valid() -> None:
    """The pure selection of D18's own history is valid for every size and never loses the newest block."""
    history = [*history_of([1, 2, 1]), {"role": "assistant", "content": "a"}]
    for size in range(1, 10):
        kept = Window().select(history, size)
        assert problems_of(kept) == []
        assert kept[-1] is history[-1]
        assert list(kept) == history[len(history) - len(kept) :]


@both_ways
async def test_D26_equal_calls_are_two_calls(how: str) -> None:
    """Two calls with equal name and arguments run twice, each with its own value under its own id."""
    rolled: list[int] = []

    @tool
    async def roll() -> int:
        rolled.append(len(rolled) + 1)
        return rolled[-1]

    played = await play(Agent("clerk", model=Strict([[call("roll")] * 2, say("done")]), tools=[roll]), how=how)
    results = [
        (message["tool_call_id"], message["content"]) for message in played.messages if message["role"] == "tool"
    ]
    assert (rolled, results) == ([1, 2], [("call_0", "1"), ("call_1", "2")])


async def test_D26_after_a_crash_between_equal_calls_each_keeps_its_own_value() -> None:
    """A recorded call is never run again; the one without a record is, and both keep their ids and values."""
    rolled: list[int] = []

    @tool(effect="idempotent")
    async def roll() -> int:
        rolled.append(len(rolled) + 1)
        return rolled[-1]

    agent = Agent("clerk", model=Strict([[call("roll")] * 2, say("done")]), tools=[roll], max_parallel_tools=1)
    with crash_at("effect.after", after=1):
        async with Runtime() as first:
            run = await first.start(agent, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    async with reopened(first, agent) as second:
        result = await settled(second, await second.run(run.id))
    assert result.status == "completed"
    assert (rolled, tools_said(result.trace.messages)) == ([1, 2, 3], ["1", "3"])


@both_ways
async def test_G07_ids_of_a_provider_are_only_hints(how: str) -> None:
    """Missing, empty and equal ids get ids of our own; each call is answered once."""

    class Odd(ScriptedModel):
        async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
            self.requests.append(messages)
            if settings["position"] == 0:
                ids: list[Any] = ["", None, "", "x", "x"]
                yield ModelResponse(None, tuple(Call(each, "look", "{}") for each in ids), "tool_calls")
            elif settings["position"] == 1:
                yield ModelResponse(None, (Call("x", "look", "{}"), Call("call_0", "look", "{}")), "tool_calls")
            else:
                yield ModelResponse("done")

    played: Played = await play(Agent("clerk", model=Odd([]), tools=[look]), how=how)
    ids = [message["tool_call_id"] for message in played.messages if message["role"] == "tool"]
    assert (played.status, len(ids), len(set(ids))) == ("completed", 7, 7)


@both_ways
async def test_a_caller_that_cancels_leaves_every_call_answered(how: str) -> None:
    """Cancelling the caller cancels the tool that runs, answers its call, and closes the session."""
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("clerk", model=Strict([[call("slow"), call("look")], say("x")]), tools=[slow, look], budget=Budget())
    played = await cancelled(agent, started, how)
    assert (played.status, played.by) == ("cancelled", "caller")
    assert json.loads(played.result_of(0))["error"] == "cancelled"
    assert played.result_of(1) == "seen"


@both_ways
async def test_a_decision_after_a_cancel_is_refused(how: str) -> None:
    """A parked run that is cancelled takes its request with it; deciding it later is refused."""

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent("clerk", model=Strict([call("pay"), say("x")]), tools=[pay])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, how=how)
        await runtime.commands.cancel(run.id, by="human:ana")
        ended = await settled(runtime, run, how)
        assert (ended.status, ended.by) == ("cancelled", "human:ana")
        with pytest.raises(AlreadyDecided):
            await decided(runtime, run, (result.requests[0].id, "approve", {}))
