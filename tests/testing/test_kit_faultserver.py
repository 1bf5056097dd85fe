"""The fault server: the same script over a real wire, and every way to fail on it."""

import asyncio
import json

import pytest

from lictor import Agent, OpenAIModel, tool
from lictor.errors import DefinitionError, ModelError
from lictor.models import ModelResponse, TextDelta, user
from lictor.runs import Usage
from lictor.testing import PAUSE, FaultServer, HttpReply, ScriptedModel, VirtualClock, call, chunks, fail, hosted, say
from lictor.testing.wire import chunk, envelope, piece, sse, usage

pytestmark = pytest.mark.wire
SCRIPT = {
    "text": say("Grüße an 🦊 und alle", usage=Usage(11, 7, 3)),
    "reasoning": say("so", reasoning="I think so"),
    "calls": [call("look", order_id=42, id="c1"), call("pay", '{"amount": 3')],
    "both": say("wait", calls=[call("look", id="c1")]),
    "chunks": chunks(["a", "bc"], finish="length"),
    "refusal": say(None, refusal="I will not"),
    "plain": "just text",
}


async def events(base_url, **settings):
    model = OpenAIModel("m", base_url=base_url)
    return [event async for event in model.respond([user("hi")], [], settings)]


async def scripted(entry):
    return [event async for event in ScriptedModel([entry]).respond([user("hi")], [], {})]


def whole(response):
    """A response without what only a real provider knows."""
    usage = response.usage and (response.usage.input_tokens, response.usage.output_tokens, response.usage.cached_tokens)
    parts = (response.content, response.calls, response.finish, response.reasoning, response.refusal)
    return (*parts, usage)


@pytest.mark.parametrize("split", [None, 1, 7])
@pytest.mark.parametrize("entry", SCRIPT.values(), ids=SCRIPT)
async def test_an_entry_means_the_same_over_the_wire(entry, split):
    """Whatever the script says, a real client reads it as the scripted model would have said it, wherever it is cut."""
    async with FaultServer([entry], split=split) as server:
        *deltas, last = await events(server.base_url)
    *expected, response = await scripted(entry)
    assert isinstance(last, ModelResponse)
    assert whole(last) == whole(response)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert text == "".join(delta.text for delta in expected if isinstance(delta, TextDelta))


@pytest.mark.parametrize(
    ("entry", "code", "status"),
    [
        (fail(429, retry_after=2), "rate_limit", 429),
        (fail(500), "server_error", 500),
        (fail(503), "server_error", 503),
        (fail(400), "bad_request", 400),
        (fail(401), "auth", 401),
        (fail(code="server_error"), "server_error", 500),
        (fail(code="rate_limit"), "rate_limit", 429),
        (fail(), "connect", None),
        (fail(text="half an ans"), "stream_cut", None),
        (fail(code="stream_cut"), "stream_cut", None),
        (HttpReply(parts=[b"data: {broken\n\n"]), "bad_response", None),
        (HttpReply(parts=[b'data: {"error": {"message": "busy"}}\n\n']), "server_error", None),
        (b"data: [DONE]\n\n", "stream_cut", None),
    ],
)
async def test_failures_are_what_they_say(entry, code, status):
    """A client of the real API gets the failure that the entry names."""
    async with FaultServer([entry]) as server:
        with pytest.raises(ModelError) as caught:
            await events(server.base_url)
    assert (caught.value.code, caught.value.status) == (code, status)
    if code == "rate_limit" and caught.value.retry_after is not None:
        assert caught.value.retry_after == 2


async def test_a_whole_agent_runs_over_it():
    """A lookup, a failure that is retried, an answer: over HTTP, with the requests to look at."""

    @tool
    async def look(order_id: int) -> str:
        """Look."""
        return "Monday"

    entries = [call("look", order_id=42), fail(503), say("It left on Monday.")]
    async with FaultServer(entries) as server:
        agent = Agent("clerk", model=OpenAIModel("m", base_url=server.base_url, api_key="k"), tools=[look])
        clock = VirtualClock()
        async with asyncio.TaskGroup() as group:
            run = group.create_task(agent.run("Where is order 42?", clock=clock))
            await clock.advance(await clock.next_sleep())  # a connection that is kept open holds the clock
            result = await run
    assert (result.answer, result.usage.requests, result.usage.retries) == ("It left on Monday.", 3, 1)
    assert [len(request["messages"]) for request in server.requests] == [1, 3, 3]
    assert server.headers[0]["authorization"] == "Bearer k"


async def test_past_the_end_it_says_so():
    """A request too many is a server error that names the numbers."""
    async with FaultServer([]) as server:
        with pytest.raises(ModelError, match="0 entries and was asked 1 times"):
            await events(server.base_url)


async def test_a_body_may_come_with_a_length_or_end_with_the_connection():
    """The three framings carry the same answer."""
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    json_type = {"Content-Type": "application/json"}
    for framing in ("chunked", "length", "close"):
        async with FaultServer([HttpReply(parts=[body], framing=framing, headers=json_type)]) as server:
            assert (await events(server.base_url))[-1].content == "hi"


async def test_a_reply_stands_still_until_it_is_released():
    """At PAUSE nothing more is sent; `release` lets it go on to the next one, and a client that leaves is noticed."""
    body = [sse(chunk("Hel"), done=False), PAUSE, sse(chunk("lo"), done=False), PAUSE, sse(chunk(finish="stop"))]
    async with FaultServer([HttpReply(parts=body), HttpReply(parts=body)], split=3) as server:
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(events(server.base_url))
            for _ in range(2):
                await server.paused.wait()
                assert not answer.done()
                server.release()
        assert answer.result()[-1].content == "Hello"
        server.hung_up.clear()
        async with asyncio.TaskGroup() as group:
            left = group.create_task(events(server.base_url))
            await server.paused.wait()
            left.cancel()
        await server.hung_up.wait()
        assert server.connections == 2


async def test_documents_and_errors_are_written_for_you():
    """One JSON document is an answer, an error has its status, its code and its headers."""
    whole = envelope({"message": {"content": "hi"}, "finish_reason": "stop"})
    quota = HttpReply.error(429, "pay", code="insufficient_quota", retry_after="3")
    async with FaultServer([HttpReply.json(whole), quota]) as server:
        assert (await events(server.base_url))[-1].content == "hi"
        with pytest.raises(ModelError, match="pay") as caught:
            await events(server.base_url)
    assert (caught.value.retry_after, caught.value.retryable) == (3.0, False)


def test_the_bytes_are_what_the_api_describes():
    """Chunks, pieces and usage become events of JSON in UTF-8, with escapes only for half characters."""
    body = sse(chunk("é"), chunk("\ud83c"), chunk(calls=[piece(1, "a", "f", "{}")], finish="stop"), usage(3, 2, 1))
    *lines, done = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert done == b"[DONE]"
    text, half, calls, counted = map(json.loads, lines)
    assert "é".encode() in lines[0]
    assert b"\\ud83c" in lines[1]
    assert (text["choices"][0]["delta"], half["choices"][0]["delta"]) == ({"content": "é"}, {"content": "\ud83c"})
    assert calls["choices"][0]["delta"]["tool_calls"] == [
        {"index": 1, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    ]
    assert (counted["choices"], counted["usage"]["total_tokens"]) == ([], 5)
    assert sse(b"oops", done=False) == b"data: oops\n\n"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: FaultServer([7]), "a script cannot hold 7"),
        (lambda: FaultServer([lambda request: "x"]), "takes no functions"),
        (lambda: FaultServer([hosted("search", {}, {})]), "no part of the chat completions API"),
        (lambda: FaultServer([], split=0), "at least 1"),
        (lambda: HttpReply(framing="none"), "use chunked or length or close"),
        (lambda: HttpReply(end="none"), "clean or cut or reset"),
    ],
)
def test_what_cannot_be_served_is_refused_when_written(make, told):
    """The errors say what to use instead."""
    with pytest.raises(DefinitionError, match=told):
        make()
