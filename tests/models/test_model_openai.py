"""The OpenAI adapter over a real socket: whole answers, broken ones, and a connection that is always let go."""

import asyncio
import gc
import json
import os
import weakref

import pytest

from lictor.errors import DefinitionError, ModelError
from lictor.models import Call, ModelResponse, OpenAIModel, Price, ReasoningDelta, TextDelta, user
from lictor.models.clients import _OPEN as OPEN
from lictor.runs import Usage
from lictor.testing import PAUSE, FaultServer, HttpReply
from lictor.testing.wire import chunk, envelope, piece, sse, usage

pytestmark = pytest.mark.wire

HELLO = sse(chunk("Hel"), chunk("lo"), chunk(finish="stop"), usage(10, 2))


def plain(each):
    """A chunk with only what the adapter reads, to keep the test at every byte short."""
    return {key: value for key, value in each.items() if key in {"choices", "usage", "model"} and value}


CALLS = sse(
    plain(chunk(reasoning_content="Hm, café 🍸")),
    plain(chunk("Let me see.")),
    plain(chunk(calls=[piece(0, "a", "read", '{"p":'), piece(1, "b", "write", "")])),
    plain(chunk(calls=[piece(1, arguments='{"q":"é🍸"}'), piece(0, arguments="1}")])),
    plain(chunk(finish="tool_calls")),
    plain(usage(10, 20, 5)),
)
ANSWER = [
    ReasoningDelta("Hm, café 🍸"),
    TextDelta("Let me see."),
    ModelResponse(
        "Let me see.",
        (Call("a", "read", '{"p":1}'), Call("b", "write", '{"q":"é🍸"}')),
        "tool_calls",
        Usage(10, 20, 5),
        "Hm, café 🍸",
        None,
        "test-model",
    ),
]


def stream(*parts, **fields):
    """A streamed answer in these parts."""
    return HttpReply(parts=parts, **fields)


async def events(model, **settings):
    """All events of one answer."""
    return [event async for event in model.respond([user("Hi")], [], settings)]


async def attempt(model, **settings):
    """The events and the error of one answer; of a new model if a server is given."""
    if isinstance(model, FaultServer):
        model = OpenAIModel("m", base_url=model.base_url)
    seen = []
    try:
        async for event in model.respond([user("Hi")], [], settings):
            seen.append(event)
    except ModelError as error:
        return seen, error
    return seen, None


def client_of(model):
    """The clients of a model that were not closed by hand, over all loops."""
    return [lease.client for leases in OPEN.values() for lease in leases if lease.owner() is model._clients]


async def failure(*replies, **settings):
    """The error of one answer from these replies."""
    async with FaultServer(replies) as server:
        _, error = await attempt(server, **settings)
    assert error is not None
    return error


async def test_a_streamed_answer():
    """The request is a streamed chat completion, the answer its deltas and the response."""
    async with FaultServer([HELLO]) as server:
        model = OpenAIModel("gpt-x", base_url=server.base_url, api_key="sk-1", prices=Price(input=1.0, output=5.0))
        *deltas, last = await events(model, temperature=0.5, position=3, timeout=30)
    assert [delta.text for delta in deltas] == ["Hel", "lo"]
    assert (last.content, last.finish, last.model) == ("Hello", "stop", "test-model")
    assert last.usage == Usage(10, 2, cost_usd=pytest.approx(20e-6))
    assert server.requests == [
        {
            "model": "gpt-x",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
        }
    ]
    assert server.headers[0]["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
async def test_an_answer_split_at_every_byte_is_the_same_answer(ending):
    """Wherever the stream is cut into pieces, in a character, a line or an event, the answer does not change."""
    body = b": comment\n\n" + CALLS
    body = body.replace(b"\n", ending)
    offsets = range(1, len(body), 1 if ending == b"\n" else 7)
    async with FaultServer(stream(body[:offset], body[offset:]) for offset in offsets) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        for offset in offsets:
            assert await events(model) == ANSWER, offset
        assert server.connections == 1


async def test_an_answer_byte_by_byte_is_the_same_answer():
    """One byte at a time changes nothing."""
    async with FaultServer([stream(*(CALLS[at : at + 1] for at in range(len(CALLS))))]) as server:
        assert (await attempt(server))[0] == ANSWER


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_every_framing_is_read(framing):
    """Chunked, with a length, or until the connection closes: the same answer."""
    async with FaultServer([stream(CALLS, framing=framing)]) as server:
        assert (await attempt(server))[0] == ANSWER


@pytest.mark.parametrize("end", ["cut", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_an_answer_cut_at_any_event_is_never_an_answer(framing, end):
    """G11, D17: a connection lost after any event but the finish is `stream_cut`, and gives no response."""
    events_of_body = [each + b"\n\n" for each in CALLS.split(b"\n\n")[:4]]
    for count in range(len(events_of_body) + 1):
        sent = b"".join(events_of_body[:count]) + b'data: {"choices": [{"ind'
        headers = {"Content-Length": "100000"} if framing == "length" else {}
        reply = HttpReply(parts=(sent,), framing="close" if headers else framing, headers=headers, end=end)
        async with FaultServer([reply]) as server:
            seen, error = await attempt(server)
        assert error.retryable
        assert error.code == "stream_cut", (count, error)
        assert not any(isinstance(event, ModelResponse) for event in seen)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_connection_lost_before_the_answer_could_not_connect(end):
    """Nothing came back: `connect`, to be tried again."""
    error = await failure(HttpReply(status=0, framing="close", end=end))
    assert (error.code, error.retryable, error.status) == ("connect", True, None)


async def test_a_closed_port_could_not_connect():
    """A server that is not there: `connect`."""
    async with FaultServer() as server:
        pass
    _, error = await attempt(server)
    assert (error.code, error.retryable) == ("connect", True)


async def test_g11_a_clean_end_without_finish_is_cut():
    """G11: `[DONE]` without a finish reason is no answer."""
    for body in (sse(chunk("Hello")), sse(chunk(calls=[piece(0, "a", "read", "{}")])), sse(), b""):
        error = await failure(stream(body) if body else stream())
        assert (error.code, error.retryable) == ("stream_cut", True)


async def test_empty_choices_are_an_empty_answer():
    """A complete stream without any choice is a response with the finish `empty` and its usage."""
    async with FaultServer([sse(envelope(), usage(7, 0))]) as server:
        assert (await attempt(server))[0] == [
            ModelResponse(None, finish="empty", usage=Usage(7, 0), model="test-model")
        ]


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(400, "bad_request", False), (401, "auth", False), (403, "auth", False), (404, "bad_request", False),
     (408, "timeout", True), (409, "conflict", True), (422, "bad_request", False), (429, "rate_limit", True),
     (500, "server_error", True), (502, "server_error", True), (503, "server_error", True)],
)  # fmt: skip
async def test_http_errors_have_codes(status, code, retryable):
    """One request, one error, nothing tried again inside."""
    async with FaultServer([HttpReply.error(status, "because")] * 3) as server:
        _, error = await attempt(server)
    assert (error.code, error.status, error.retryable) == (code, status, retryable)
    assert "because" in str(error)
    assert len(server.requests) == 1


async def test_retry_after_is_passed_on():
    """The wait that a 429 asks for reaches the loop."""
    assert (await failure(HttpReply.error(429, "slow down", retry_after="2"))).retry_after == 2.0


async def test_an_error_that_is_no_json_is_still_an_error():
    """A proxy's HTML page with a 502 is the provider's failure."""
    page = HttpReply(
        parts=(b"<html>bad gateway</html>",), status=502, headers={"Content-Type": "text/html"}, framing="length"
    )
    assert (await failure(page)).code == "server_error"


@pytest.mark.parametrize("where", ["chunk", "choice"])
async def test_g25_an_error_inside_the_stream_is_an_error(where):
    """G25: after half an answer with status 200 the provider's error object fails the call."""
    error = {"message": "upstream lost", "code": 502}
    choice = {"index": 0, "delta": {"content": "!"}, "finish_reason": "error", "error": error}
    broken = envelope(choice) if where == "choice" else {"error": error}
    async with FaultServer([sse(chunk("Half"), broken)]) as server:
        seen, found = await attempt(server)
    assert seen == [TextDelta("Half")]
    assert (found.code, found.status, found.retryable) == ("server_error", 502, True)
    assert "upstream lost" in str(found)


@pytest.mark.parametrize(
    "line", [b'{"choices": [{"ind', b"not json", b"\xff\xfe", b"[1, 2]", b'"text"', b"[" * 100_000]
)
async def test_a_broken_line_is_a_bad_response(line):
    """A line that is no JSON object, in a stream that is otherwise whole, fails the call and may be tried again."""
    error = await failure(stream(sse(chunk("Half"), line, chunk(finish="stop"))))
    assert (error.code, error.retryable) == ("bad_response", True)


async def test_g01_glued_calls_are_refused_on_the_wire():
    """G01: calls that cannot be told apart fail the call; clear ones at one index are two."""
    glued = sse(
        chunk(calls=[piece(0, "a", "read", ""), piece(0, "b", "read", ""), piece(0, arguments="{}")]),
        chunk(finish="stop"),
    )
    assert (await failure(stream(glued))).code == "ambiguous_calls"
    both = sse(
        chunk(calls=[piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", '{"p":2}')]), chunk(finish="tool_calls")
    )
    async with FaultServer([both]) as server:
        (last,) = (await attempt(server))[0]
    assert last.calls == (Call("a", "read", '{"p":1}'), Call("b", "read", '{"p":2}'))


async def test_g15_surrogates_survive_neither_way():
    """G15: escapes of half characters in the stream and in the request do not break the encoding."""
    body = sse(
        b'{"choices":[{"index":0,"delta":{"content":"a\\ud83c"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\udf78\\ud83c"},"finish_reason":"stop"}]}',
    )
    async with FaultServer([body]) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        found = [event async for event in model.respond([user("x\ud83d")], [], {})]
    assert [event.text for event in found[:-1]] == ["a", "🍸", "\ufffd"]
    assert found[-1].content == "a🍸\ufffd"
    assert server.requests[0]["messages"][0]["content"] == "x\ufffd"


async def test_huge_answers_arrive_whole():
    """Five megabytes in one event, and arguments in 20,000 pieces."""
    big = "x" * 5_000_000
    pieces = [chunk(calls=[piece(0, arguments="y}" if number % 2 else '"{y')]) for number in range(20_000)]
    long = sse(chunk(calls=[piece(0, "a", "read", '{"p": "')]), *pieces, chunk(finish="tool_calls"))
    async with FaultServer([sse(chunk(big), chunk(finish="stop")), long]) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        assert (await events(model))[-1].content == big
        (last,) = await events(model)
    assert len(last.calls[0].arguments) == 7 + 20_000 // 2 * 5


async def test_an_endpoint_that_does_not_stream_is_read():
    """One JSON completion instead of a stream is the answer; one with an error is an error."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    whole = envelope({"index": 0, "message": {"content": "Hi", "tool_calls": [call]}, "finish_reason": "tool_calls"})
    async with FaultServer([HttpReply.json(whole)]) as server:
        assert (await attempt(server))[0] == [
            TextDelta("Hi"),
            ModelResponse("Hi", (Call("a", "read", "{}"),), "tool_calls", model="test-model"),
        ]
    assert (await failure(HttpReply.json({"error": {"message": "no"}}))).code == "server_error"
    page = HttpReply(parts=(b"<html>log in</html>",), headers={"Content-Type": "text/html"}, framing="length")
    error = await failure(page)
    assert (error.code, error.retryable) == ("bad_response", True)
    assert "text/html" in str(error)
    assert (await failure(HttpReply.json("Hi"))).code == "bad_response"


async def test_the_timeout_ends_a_silent_answer():
    """A provider that falls silent, before or in the middle of its answer, is given up after `timeout`."""
    async with FaultServer([HELLO, stream(PAUSE), stream(sse(chunk("Half"), done=False), PAUSE)]) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        await events(model)
        for text in ([], [TextDelta("Half")]):
            seen, error = await attempt(model, timeout=0.5)
            assert (error.code, error.retryable) == ("timeout", True)
            assert seen == text
            await server.hung_up.wait()
            server.hung_up.clear()


async def test_the_timeout_is_for_the_whole_answer():
    """Drops that come one by one do not extend it; what the reader takes for itself does not count."""
    drops = [part for _ in range(1000) for part in (sse(chunk("x"), done=False), PAUSE)]
    async with FaultServer([stream(*drops)]) as server:
        model = OpenAIModel("m", base_url=server.base_url)

        async def drip():
            while True:
                await server.paused.wait()
                server.release()

        async with asyncio.TaskGroup() as group:
            dripping = group.create_task(drip())
            with pytest.raises(ModelError, match="Timeout") as caught:
                await events(model, timeout=0.05)
            dripping.cancel()
    assert caught.value.code == "timeout"


async def test_cancelling_closes_the_connection():
    """A cancelled call hangs up: the provider sees it at once, and the next call works."""
    async with FaultServer([stream(sse(chunk("Half"), done=False), PAUSE), HELLO]) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(events(model))
            await server.paused.wait()
            call.cancel()
        await server.hung_up.wait()
        assert (await events(model))[-1].content == "Hello"


async def test_closing_the_iterator_closes_the_connection():
    """A reader that has seen enough closes the stream, and the provider stops."""
    async with FaultServer([stream(sse(chunk("Half"), done=False), PAUSE)]) as server:
        answer = OpenAIModel("m", base_url=server.base_url).respond([user("Hi")], [], {})
        assert await anext(answer) == TextDelta("Half")
        await answer.aclose()
        await server.hung_up.wait()


async def test_calls_run_side_by_side_over_one_client():
    """Ten calls at once get ten answers."""
    async with FaultServer([HELLO] * 10) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        found = await asyncio.gather(*(events(model) for _ in range(10)))
    assert {answer[-1].content for answer in found} == {"Hello"}
    assert len(client_of(model)) == 1


async def test_the_environment_is_read_at_the_first_request(monkeypatch):
    """OPENAI_BASE_URL and OPENAI_API_KEY count when the first request is made, not before."""
    model = OpenAIModel("m")
    async with FaultServer([HELLO]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        await events(model)
    assert server.headers[0]["authorization"] == "Bearer sk-env"


async def test_without_a_key_there_is_no_request(monkeypatch):
    """OpenAI's own endpoint needs a key, and the error says where it goes; a named endpoint may need none."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
        await events(OpenAIModel("m"))
    assert (caught.value.code, caught.value.retryable) == ("auth", False)
    async with FaultServer([HELLO]) as server:
        assert (await events(OpenAIModel("m", base_url=server.base_url)))[-1].content == "Hello"


async def test_the_key_is_nowhere_to_be_seen():
    """Neither the id, the repr nor an error of a gateway that echoes it shows the key."""
    async with FaultServer([HttpReply.error(401, "sk-secret is wrong")]) as server:
        model = OpenAIModel("m", base_url=server.base_url, api_key="sk-secret")
        with pytest.raises(ModelError) as caught:
            await events(model)
    assert "sk-secret" not in f"{caught.value} {model!r} {model.id}"


@pytest.mark.parametrize(
    ("base_url", "code"),
    [("nowhere", "bad_request"), ("http://127.0.0.1:1/v1", "connect")],
)
async def test_a_wrong_base_url_is_told_apart_from_a_lost_one(base_url, code):
    """An address that can never work is not tried again."""
    with pytest.raises(ModelError) as caught:
        await events(OpenAIModel("m", base_url=base_url))
    assert (caught.value.code, caught.value.retryable) == (code, code == "connect")


async def test_settings_that_are_no_json_make_no_request():
    """A bad setting is the caller's mistake, found before anything is sent."""
    async with FaultServer([HELLO]) as server:
        _, error = await attempt(server, logit_bias={"a": {1}})
    assert error.code == "bad_request"
    assert server.requests == []


def test_each_loop_has_its_own_client_and_closes_it():
    """One model serves several event loops in turn; each ends without an open connection, and nothing holds it."""
    model, clients, loops = OpenAIModel("m"), [], []

    async def once():
        async with FaultServer([HELLO]) as server:
            model._base_url = server.base_url
            await events(model)
            clients.extend(client_of(model))
            loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(2):
        asyncio.run(once())
    assert len(set(map(id, clients))) == 2
    assert all(client.is_closed() for client in clients)
    clients.clear()
    gc.collect()
    assert [loop() for loop in loops] == [None, None]


def test_a_model_that_dies_with_its_loop_leaves_nothing_open():
    """The last thing a program does may be to drop its model: refcounting or the collector, the client is closed."""

    class Holder:
        pass

    async def last(in_a_cycle):
        model = OpenAIModel("m", base_url=os.environ["OPENAI_BASE_URL"])
        await events(model)
        clients.extend(client_of(model))
        if in_a_cycle:
            holder = Holder()
            holder.model, holder.itself = model, holder

    async def serve(in_a_cycle):
        async with FaultServer([HELLO]) as server:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("OPENAI_BASE_URL", server.base_url)
                await asyncio.to_thread(asyncio.run, last(in_a_cycle))
                gc.collect()

    clients = []
    for in_a_cycle in (False, True):
        asyncio.run(serve(in_a_cycle))
    assert [client.is_closed() for client in clients] == [True, True]


async def test_a_model_that_is_gone_lets_its_connections_go():
    """The client of a model is closed by `aclose`, and that of a garbage model when the next one is wanted."""
    async with FaultServer([HELLO] * 3) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        await events(model)
        (first,) = client_of(model)
        await model.aclose()
        await model.aclose()
        assert first.is_closed()
        await events(model)
        (second,) = client_of(model)
        model.itself = model
        del model
        gc.collect()
        assert not second.is_closed()
        await attempt(server)
        assert second.is_closed()


def test_a_model_needs_a_name():
    """An empty name is refused where it is written."""
    with pytest.raises(DefinitionError):
        OpenAIModel(" ")


def test_bodies_of_the_server_are_what_they_say():
    """The builders make the stream that the API describes."""
    lines = HELLO.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["delta"] == {"content": "Hel"}
