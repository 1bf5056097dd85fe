"""How a run is cancelled or stopped, and how its events are followed."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from driving import Seen, Strict, both_ways, cancelled, play, settled, tools_said

from lictor import Agent, Runtime, ScriptedModel, Usage, tool
from lictor.errors import NotResumable
from lictor.journal import MemoryStore
from lictor.models import TextDelta, call, chunks, say

TEN = Usage(input_tokens=10, output_tokens=5)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


# ---- cancellation ------------------------------------------------------------------------------------


@both_ways
async def test_cancelling_the_caller_reaches_a_model_call(how: str) -> None:
    """The request is ended, the attempt is accounted for, and the run is over as `cancelled`."""
    asking = asyncio.Event()
    closed: list[str] = []

    class Hanging(ScriptedModel):
        async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
            asking.set()
            try:
                yield TextDelta("par")
                await asyncio.Event().wait()
            finally:
                closed.append("closed")

    played = await cancelled(Agent("clerk", model=Hanging([])), asking, how)
    gc.collect()
    await asyncio.sleep(0)
    assert (played.status, played.by, closed) == ("cancelled", "caller", ["closed"])
    assert played.usage.requests == 1
    assert played.events[-1].kind == "run_finished"


@both_ways
async def test_cancelling_the_caller_reaches_nested_agents(how: str) -> None:
    """Every run below ends as cancelled, innermost first, and every open call is answered."""
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    inner = Agent("inner", model=Strict([call("slow"), say("x")], id="inner"), tools=[slow])
    outer = Agent("outer", model=Strict([[call("inner", task="t"), call("look")], say("x")]), tools=[inner, look])
    played = await cancelled(outer, started, how)
    ends = [(event.path[-1].name, event.payload["status"]) for event in played.events if event.kind == "run_finished"]
    assert ends == [("inner", "cancelled"), ("outer", "cancelled")]


@pytest.mark.parametrize("where", ["model", "tool", "batch", "nested"])
@pytest.mark.parametrize("command", ["cancel", "stop"])
async def test_commands_end_a_running_run(command: str, where: str) -> None:
    """A cancel ends what runs; a stop lets running tools finish, and starts nothing new."""
    going, go_on = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def wait() -> None:
        going.set()
        await go_on.wait()
        finished.append(where)

    @tool
    async def slow() -> str:
        await wait()
        return "slow"

    async def thinking(request: Any) -> Any:
        await wait()
        return say("an answer")

    inner = Agent("inner", model=Strict([call("slow"), say("x")], id="inner"), tools=[slow])
    first: Any = {
        "model": thinking,
        "tool": call("slow"),
        "batch": [call("slow"), call("look")],
        "nested": call("inner", task="t"),
    }[where]
    model = Strict([first, say("unreachable")])
    async with Runtime() as runtime:
        run = await runtime.start(Agent("clerk", model=model, tools=[slow, look, inner]), "go")
        await going.wait()
        if command == "cancel":
            await runtime.commands.cancel(run.id, by="human:ana")
        else:
            await runtime.commands.stop(run.id, reason="enough", by="human:ana")
            for _ in range(20):
                await asyncio.sleep(0)
            go_on.set()
        result = await settled(runtime, run)
        status, reason = ("cancelled", None) if command == "cancel" else ("stopped", "enough")
        assert (result.status, result.reason, result.by) == (status, reason, "human:ana")
        assert len(model.requests) == 1
        assert finished == ([] if command == "cancel" else [where])
        told = tools_said(result.trace.messages)
        if where in ("tool", "batch"):
            assert told[0] == "slow" if command == "stop" else json.loads(told[0])["error"] == "cancelled"
        await runtime.commands.cancel(run.id, by="human:bob")
        assert (await run.result()).by == "human:ana"
        with pytest.raises(NotResumable):
            await runtime.resume(run.id)


async def test_the_first_cause_wins() -> None:
    """A second command while the run ends changes nothing, and the end is emitted once."""
    going, go_on = asyncio.Event(), asyncio.Event()
    seen = Seen()

    @tool
    async def stubborn() -> str:
        going.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on.wait()
        return "late"

    agent = Agent("clerk", model=Strict([call("stubborn"), say("x")]), tools=[stubborn], interceptors=[seen])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        await going.wait()
        await runtime.commands.cancel(run.id, by="human:ana")
        await runtime.commands.stop(run.id, reason="too late", by="human:bob")
        await runtime.commands.cancel(run.id, by="human:eve")
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()
        result = await settled(runtime, run)
        assert (result.status, result.by) == ("cancelled", "human:ana")
        assert seen.order.count("agent_shutdown") == 1


async def test_a_cancel_before_the_first_step_makes_no_model_call() -> None:
    """A run that is cancelled at once ends without startup, and without a request."""
    seen = Seen()
    model = Strict([say("x")])
    async with Runtime() as runtime:
        run = await runtime.start(Agent("clerk", model=model, interceptors=[seen]), "go")
        await runtime.commands.cancel(run.id, by="human:ana")
        assert (await settled(runtime, run)).status == "cancelled"
    assert (model.requests, seen.order) == ([], ["agent_shutdown"])


@pytest.mark.parametrize("leave", ["break", "aclose", "forget"])
async def test_an_abandoned_stream_is_cancelled(leave: str) -> None:
    """Whoever stops reading cancels the run; it ends recorded, and no task is left."""
    store = MemoryStore()
    ended = asyncio.Event()

    @tool
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    agent = Agent("clerk", model=Strict([call("slow"), say("x")]), tools=[slow])
    stream: Any = agent.stream("go", store=store, run_id="r")
    async for event in stream:
        if event.kind == "tool_started":
            break
    if leave == "aclose":
        await stream.aclose()
    del stream
    gc.collect()
    await ended.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    last = store.entries("r")[-1]
    assert (last.kind, last.payload["status"], last.payload["by"]) == ("run_finished", "cancelled", "caller")
    assert len(asyncio.all_tasks()) == 1


async def test_a_slow_reader_does_not_hold_the_run() -> None:
    """The run goes on while nobody reads; the reader still gets every event in order."""
    done = asyncio.Event()

    async def last(request: Any) -> Any:
        done.set()
        return say("ok")

    agent = Agent("clerk", model=Strict([*[call("look")] * 5, last]), tools=[look], loop_breaker=None)
    kinds: list[str] = []
    async for event in agent.stream("go"):
        if not kinds:
            await done.wait()
        kinds.append(event.kind)
    assert (kinds[0], kinds[-1], kinds.count("tool_finished")) == ("run_started", "run_finished", 5)


# ---- streams and answers -----------------------------------------------------------------------------


async def test_events_are_the_same_plain_and_streamed() -> None:
    """One loop: a stream gives the very events that a run leaves behind."""
    plain, streamed = [
        await play(
            Agent("clerk", model=Strict([say("a", calls=[call("look")]), chunks(["x", "y"])]), tools=[look]), how=how
        )
        for how in ("plain", "streamed")
    ]

    def shape(events: Any) -> list[Any]:
        return [(event.kind, event.seq, event.cursor) for event in events]

    assert shape(plain.events) == shape(streamed.events)
    cursors = [event.cursor for event in streamed.events]
    assert cursors == sorted(cursors)


async def test_events_of_a_run_go_on_after_a_park() -> None:
    """`events()` ends at the park, goes on from a cursor, and `follow=True` goes past parks to the end."""

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent("clerk", model=Strict([call("pay"), say("ok")]), tools=[pay])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        first = [event async for event in run.events()]
        assert first[-1].kind == "request_opened"
        request = (await runtime.docket.pending())[0]

        async def everything() -> list[str]:
            return [event.kind async for event in run.events(follow=True)]

        async with asyncio.TaskGroup() as group:
            following = group.create_task(everything())
            await asyncio.sleep(0)
            await runtime.docket.decide(request.id, "approve", by="human:ana")
        rest = [event async for event in run.events(after=first[-1].cursor)]
        assert rest[-1].kind == "run_finished"
        assert [event.kind for event in (*first, *rest)] == following.result()
        assert [event.cursor for event in rest] == sorted(event.cursor for event in rest)
        assert rest[0].cursor > first[-1].cursor
