"""Incremental streaming over a real socket: what the wire does to bytes changes nothing about what is released."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from driving import play, said_by

from lictor import ALLOW, Agent, OpenAIModel, Verdict, interceptor, tool
from lictor.agent import Incremental
from lictor.testing import PAUSE, FaultServer, HttpReply, call, chunks, fail
from lictor.testing.wire import chunk, sse

pytestmark = pytest.mark.wire

TEXT = ["Grüße aus ", "dem 日本", "語 and a 𝄞", " system ", "prompt", " : x"]


@interceptor(points=["post_model_call"])
def no_prompt(context: Any) -> Verdict:
    """Deny what looks like a leaked prompt."""
    return Verdict.deny("leak") if "system prompt :" in (context["target"]["content"] or "") else ALLOW


def released(events: Any) -> list[str]:
    """The pieces a caller was given."""
    return [event.payload["text"] for event in events if event.kind == "model_delta"]


async def over(server: FaultServer, **options: Any) -> Any:
    """A run of an agent whose model is behind `server`."""
    model = OpenAIModel("any", base_url=server.base_url)
    try:
        return await play(Agent("clerk", model=model, **{"stream": "incremental", **options}), how="streamed")
    finally:
        await model.aclose()


@pytest.mark.parametrize("split", [1, 2, 7, None])
async def test_bytes_split_anywhere_are_one_text(split: int | None) -> None:
    """Events parted at every byte give the same pieces, judged and released in the same way."""
    async with FaultServer([chunks(TEXT[:3])], split=split) as server:
        played = await over(server)
    assert (played.status, released(played.events)) == ("completed", TEXT[:3])
    assert said_by(played.events) == "".join(TEXT[:3])


@pytest.mark.parametrize("split", [1, 5, None])
async def test_B30_a_phrase_over_the_wire_is_denied(split: int | None) -> None:
    """A forbidden phrase is denied however the bytes come, and with a holdback none of it is released."""
    for stream, given in (("incremental", TEXT[:5]), (Incremental(20), ["Grüße aus dem 日本語 and a 𝄞"])):
        async with FaultServer([chunks(TEXT)], split=split) as server:
            played = await over(server, interceptors=[no_prompt], stream=stream)
        assert (played.status, played.reason) == ("blocked", "leak")
        assert "".join(given).startswith("".join(released(played.events)))
        assert "prompt :" not in played.text


async def test_a_cut_wire_after_a_release_fails_closed() -> None:
    """A connection that is lost behind a release ends the run; the text nobody judged is nowhere."""
    async with FaultServer([fail(text="released unseen"), "never"]) as server:
        played = await over(server)
        assert len(server.requests) == 1
    assert (played.status, played.reason) == ("blocked", "host_error:streaming_unsupported")
    assert released(played.events) == ["released "]
    assert "unseen" not in played.text


async def test_a_cut_wire_before_a_release_is_tried_again() -> None:
    """A connection that is lost before anything was released is a failed call like any other."""
    async with FaultServer([fail(text="half"), fail(), chunks(["who", "le"])]) as server:
        played = await over(server)
    assert (played.status, said_by(played.events), played.usage.retries) == ("completed", "whole", 2)
    assert "half" not in played.text


async def test_pieces_come_while_the_provider_waits() -> None:
    """A judged piece is released while the provider still holds the rest of its answer back."""
    parts = [
        sse(chunk("one "), done=False),
        sse(chunk("two "), done=False),
        PAUSE,
        sse(chunk("three"), chunk(finish="stop")),
    ]
    async with FaultServer([HttpReply(parts=parts)]) as server:
        model = OpenAIModel("any", base_url=server.base_url)
        had = asyncio.Event()

        async def read() -> list[str]:
            found: list[str] = []
            async for event in Agent("clerk", model=model, stream="incremental").stream("go"):
                if event.kind == "model_delta":
                    found.append(event.payload["text"])
                    had.set()
            return found

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            await server.paused.wait()
            await had.wait()
            server.release()
        assert reader.result() == ["one ", "two ", "three"]
        await model.aclose()


async def test_calls_come_with_their_text() -> None:
    """The text beside calls is incremental, the calls are judged with the whole response and run once."""
    ran: list[int] = []

    @tool(effect="pure")
    async def look(order_id: int) -> str:
        ran.append(order_id)
        return "there"

    asks = [chunks(["let me ", "look"]), call("look", order_id=7, id="tc-1")]
    async with FaultServer([asks, chunks(["it is ", "there"])], split=3) as server:
        played = await over(server, tools=[look])
        sent = server.requests[1]["messages"]
    assert (played.status, said_by(played.events), ran) == ("completed", "it is there", [7])
    assert [message.get("tool_call_id") for message in sent if message["role"] == "tool"] == ["tc-1"]
    assert released(played.events) == ["let me ", "look", "it is ", "there"]
