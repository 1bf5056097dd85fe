"""Typed answers, retries and fallbacks, usage, histories and sinks of an agent run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import pydantic
import pytest
from driving import Strict, asked, both_ways, park, play, strict_problem, tools_said

from lictor import Agent, Governance, Runtime, ScriptedModel, Usage, tool
from lictor.agent import Window
from lictor.models import ModelResponse, TextDelta, call, fail, say
from lictor.testing.clock import VirtualClock

TEN = Usage(input_tokens=10, output_tokens=5)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


class Invoice(pydantic.BaseModel):
    """What is asked for."""

    number: int
    lines: list[str] = []


@both_ways
async def test_a_typed_answer_is_asked_again_until_it_fits(how: str) -> None:
    """An answer that is not of the type is told what is wrong, at most twice; the result has the type."""
    model = Strict([say("no json"), say('{"number": "x"}'), say('{"number": 7, "lines": ["a"]}')])
    agent = Agent("clerk", model=model, output_type=Invoice)
    played = await play(agent, how=how)
    assert played.status == "completed"
    if how == "plain":
        assert played.answer == Invoice(number=7, lines=["a"])
    assert asked(model, 0).settings["response_format"]["properties"].keys() == {"number", "lines"}
    assert "number" in asked(model, 2).messages[-1]["content"]
    assert len(played.messages) == 2
    played = await play(agent.with_(model=Strict([say("no json")] * 5)), how=how)
    assert (played.status, played.reason, played.usage.requests) == ("failed", "no_answer", 3)


@both_ways
@pytest.mark.parametrize(
    ("kind", "text", "value"), [(int, "7", 7), (list[int], "[1]", [1]), (Literal["a"], '"a"', "a")]
)
async def test_any_type_may_be_asked_for(how: str, kind: Any, text: str, value: Any) -> None:
    """Whatever pydantic can describe."""
    played = await play(Agent("clerk", model=Strict([say(text)]), output_type=kind), how=how)
    assert (played.status, played.messages[-1]["content"]) == ("completed", text)
    if how == "plain":
        assert played.answer == value


# ---- models ------------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, None])
async def test_transient_failures_are_retried(how: str, status: int | None) -> None:
    """Three attempts with growing pauses; each failure is an event, and no tool is repeated."""
    clock = VirtualClock()
    model = Strict([call("look"), fail(status), fail(status), say("ok")])
    played = await play(Agent("clerk", model=model, tools=[look]), how=how, clock=clock)
    assert (played.status, played.usage.requests, played.usage.retries) == ("completed", 4, 2)
    assert 0.75 <= clock.monotonic() <= 1.5
    assert [event.payload["attempt"] for event in played.events if event.kind == "model_retry"] == [1, 2]
    assert sum(event.kind == "tool_started" for event in played.events) == 1


@both_ways
async def test_retry_after_is_waited_for(how: str) -> None:
    """What the provider asks for takes the place of our own pause, up to a minute."""
    clock = VirtualClock()
    model = Strict([fail(429, retry_after=17), fail(429, retry_after=3600), say("ok")])
    played = await play(Agent("clerk", model=model), how=how, clock=clock)
    assert (played.status, clock.monotonic()) == ("completed", 17 + 60)


@both_ways
async def test_failures_after_all_attempts_may_be_resumed(how: str) -> None:
    """After three attempts the run is failed and resumable; a plain 4xx is neither retried nor resumable."""
    played = await play(Agent("clerk", model=Strict([fail(503)] * 9)), how=how, clock=VirtualClock())
    assert (played.status, played.reason, played.usage.requests) == ("failed", "model_error:server_error", 3)
    assert played.result is None or played.result.resumable
    for status, code in ((400, "bad_request"), (401, "auth"), (404, "bad_request")):
        played = await play(Agent("clerk", model=Strict([fail(status)] * 9)), how=how)
        assert (played.status, played.reason, played.usage.requests) == ("failed", f"model_error:{code}", 1)
        assert played.result is None or not played.result.resumable


@both_ways
async def test_fallbacks_are_asked_in_order(how: str) -> None:
    """A model that stays down is followed by the next; one that is refused at once is not retried."""
    first, second, third = Strict([fail(503)] * 9, id="a"), Strict([fail(401)], id="b"), Strict([say("ok")], id="c")
    played = await play(Agent("clerk", model=[first, second, third]), how=how, clock=VirtualClock())
    assert (played.answer, len(first.requests), len(second.requests), len(third.requests)) == ("ok", 3, 1, 1)
    used = [event.payload["model"] for event in played.events if event.kind == "model_finished"]
    assert used == ["c"]
    down = await play(
        Agent("clerk", model=[Strict([fail(503)] * 9, id="a"), Strict([fail(400)], id="b")]),
        how=how,
        clock=VirtualClock(),
    )
    assert (down.status, down.reason) == ("failed", "model_error:bad_request")


@both_ways
async def test_whatever_a_model_raises_is_a_failed_call(how: str) -> None:
    """A foreign model that raises, ends early or gives nothing is a typed failure, never a success."""

    class Odd(ScriptedModel):
        async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
            self.requests.append(messages)
            if len(self.requests) == 1:
                return
            if len(self.requests) == 2:
                yield TextDelta("par")
                return
            raise ZeroDivisionError("oops")

    played = await play(Agent("clerk", model=Odd([])), how=how, clock=VirtualClock())
    assert (played.status, played.reason) == ("failed", "model_error:model_failed")
    assert "ZeroDivisionError: oops" in str(played.error)
    errors = [event.payload["error"] for event in played.events if event.kind == "model_retry"]
    assert errors == ["stream_cut", "stream_cut", "model_failed"]


async def test_a_model_that_hangs_times_out() -> None:
    """`settings["timeout"]` bounds one request; the attempts that timed out are recorded."""

    class Hanging:
        id = "hanging"

        async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
            if settings["position"] < 2:
                await asyncio.Event().wait()
            yield ModelResponse("ok")

    played = await play(Agent("clerk", model=Hanging(), settings={"timeout": 0.01}), clock=VirtualClock())
    assert (played.status, played.usage.retries) == ("completed", 2)


@both_ways
async def test_usage_is_summed_over_everything(how: str) -> None:
    """Answers, retries, re-asks and nested agents add up, and the events say the same."""
    inner = Agent("inner", model=Strict([say("in", usage=TEN)], id="inner"))
    script = [call("inner", task="t", usage=TEN), fail(503), say(None, usage=TEN), say("ok", usage=TEN)]
    played = await play(Agent("clerk", model=Strict(script), tools=[inner]), how=how, clock=VirtualClock())
    assert (played.usage.input_tokens, played.usage.output_tokens, played.usage.total_tokens) == (40, 20, 60)
    assert (played.usage.requests, played.usage.retries, played.usage.tool_calls) == (5, 1, 1)
    told = [
        Usage.of(event.payload["usage"]) for event in played.events if event.kind in ("model_finished", "model_retry")
    ]
    total = sum(told, Usage())
    assert (total.total_tokens, total.requests, total.retries) == (60, 5, 1)


# ---- history -----------------------------------------------------------------------------------------


class Newest:
    """A history policy that shows the first message and the newest block."""

    def select(self, messages: Any, budget: int | None) -> Any:
        """Select."""
        return Window().select(messages, 2) if len(messages) > 2 else messages


@both_ways
async def test_a_history_policy_decides_what_is_shown(how: str) -> None:
    """The transcript keeps everything, the request shows what the policy selects, validly."""
    model = Strict([*[call("look")] * 4, say("ok")])
    played = await play(Agent("clerk", model=model, tools=[look], history=Newest()), how=how)
    assert len(played.messages) == 10
    assert all(len(request.messages) <= 2 for request in model.requests)
    assert all(strict_problem(request.messages) is None for request in model.requests)


@both_ways
async def test_an_invalid_history_is_refused(how: str) -> None:
    """A policy that parts a call from its result fails the run before the request."""

    class Parting:
        def select(self, messages: Any, budget: int | None) -> Any:
            return messages[-1:]

    model = Strict([call("look"), say("x")])
    played = await play(Agent("clerk", model=model, tools=[look], history=Parting()), how=how)
    assert (played.status, len(model.requests)) == ("failed", 1)
    assert "invalid history" in str(played.error)


@both_ways
async def test_a_conversation_goes_on(how: str) -> None:
    """A second run shows the first one's messages, numbers its calls on, and goes on in the script."""
    model = Strict([call("look"), say("one"), [call("look"), call("look")], say("two")])
    agent = Agent("clerk", model=model, tools=[look], instructions="be nice")
    async with Runtime() as runtime:
        _, first = await park(runtime, agent, "a", how=how, conversation="c")
        _, second = await park(runtime, agent, "b", how=how, conversation="c")
        assert (first.answer, second.answer) == ("one", "two")
        stored = (await runtime.conversation("c")).messages
        assert strict_problem(stored) is None
        assert [message["role"] for message in stored].count("system") == 0
        assert [message["role"] for message in asked(model).messages].count("system") == 1
        assert [request.position for request in model.requests] == [0, 1, 2, 3]


@both_ways
async def test_a_nested_agent_goes_on_in_its_script(how: str) -> None:
    """The position of an agent used as a tool counts its responses in the whole conversation, failed ones too."""
    reply = [call("look"), say("one"), fail(500), say("two"), say("three")]
    inner = Agent("inner", model=Strict(reply, id="same"), tools=[look])
    tasks = [call("inner", task=task) for task in "abc"]
    script = Strict([*tasks[:2], say("x"), tasks[2], say("y")], id="same")
    outer = Agent("outer", model=script, tools=[inner])
    async with Runtime(clock=VirtualClock()) as runtime:
        await park(runtime, outer, "a", how=how, conversation="c")
        await park(runtime, outer, "b", how=how, conversation="c")
        assert [request.position for request in inner.models[0].requests] == [0, 1, 2, 3, 4]
        assert [request.position for request in script.requests] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("passes", [0, 1])  # the tool of the first child; that child itself
async def test_nested_responses_are_counted_once_after_a_crash(runtime: Any, passes: int) -> None:
    """A child that is taken up by another process asks at the place where it stood; the next one goes on from there."""
    inner = Agent("inner", model=Strict([call("look"), say("one"), say("two")]), tools=[look])
    outer = Agent("outer", model=Strict([call("inner", task="a"), call("inner", task="b"), say("x")]), tools=[inner])
    runtime.crash_at("effect.after", after=passes)
    assert (await runtime.run_to_park(outer, "go")).status == "completed"
    assert runtime.crashes == 1
    assert [request.position for request in inner.models[0].requests] == [0, 1, 2]


@both_ways
async def test_a_failing_sink_is_counted(how: str) -> None:
    """Records that a sink did not take are counted in the result; a required sink blocks."""

    def sink(record: Any) -> None:
        raise OSError("full")

    agent = Agent("clerk", model=Strict([say("ok")]), governance=Governance(record_sink=sink))
    played = await play(agent, how=how)
    assert played.status == "completed"
    assert played.result is None or played.result.lost_records == 6
    async with Runtime() as runtime:
        _, result = await park(runtime, agent, how=how)
        assert result.lost_records == 6
    strict = agent.with_(governance=Governance(record_sink=sink, sink_required=True))
    played = await play(strict, how=how)
    assert (played.status, played.reason) == ("blocked", "host_error:adapter_unsupported")


async def test_threads_of_tools_do_not_hold_the_loop() -> None:
    """A plain function runs in a thread: two of them overlap."""
    meeting = threading.Barrier(2, timeout=30)

    @tool
    def meet(n: int) -> str:
        meeting.wait()
        return f"met {n}"

    model = Strict([[call("meet", n=1), call("meet", n=2)], say("ok")])
    played = await play(Agent("clerk", model=model, tools=[meet]))
    assert tools_said(played.messages) == ["met 1", "met 2"]
