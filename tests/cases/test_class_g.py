"""Field cases of class g over a real socket: what gateways do to a stream, and what must never come of it.

`test_class_e_f_g.py` has the same rows with scripted models, `tests/models` the parts one by one, and
`tests/wire` everything else that can happen on a wire. D17 and B29 are here as far as they are about a wire.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from driving import both_ways, decided, park, play, reopened, tools_said
from overwire import BOTH, CALLS, DONE, READ, Waits, assert_valid, served

from lictor import ALLOW, Agent, Governance, OpenAIModel, Runtime, Verdict, tool
from lictor.testing import PAUSE, FaultServer, HttpReply
from lictor.testing.wire import chunk, envelope, piece, sse, usage
from lictor.values import digest

pytestmark = pytest.mark.wire

ONE, TWO = ("read", 1), ("read", 2)
CLEAR: dict[str, list[Any]] = {
    "one chunk each": [
        chunk(calls=[piece(0, "a", "read", '{"p":1}')]),
        chunk(calls=[piece(0, "b", "read", '{"p":2}')]),
    ],
    "in one delta": [chunk(calls=[piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", '{"p":2}')])],
    "the second in pieces": [
        chunk(calls=[piece(0, "a", "read", '{"p":1}')]),
        chunk(calls=[piece(0, "b", "read", "")]),
        chunk(calls=[piece(0, arguments='{"p":')]),
        chunk(calls=[piece(0, arguments="2}")]),
    ],
    "pieces with ids": [
        chunk(calls=[piece(0, "a", "read", ""), piece(0, "b", "read", "")]),
        chunk(calls=[piece(0, "b", arguments='{"p":2}'), piece(0, "a", arguments='{"p":1}')]),
    ],
}
UNCLEAR: dict[str, list[Any]] = {
    "a tail at another index": [
        chunk(calls=[piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", "")]),
        chunk(calls=[piece(1, arguments='{"p":2}')]),
    ],
    "tails after two open heads": [
        chunk(calls=[piece(0, "a", "read", ""), piece(0, "b", "read", "")]),
        chunk(calls=[piece(0, arguments='{"p":1}'), piece(0, arguments='{"p":2}')]),
    ],
    "no second head": [chunk(calls=[piece(0, "a", "read", '{"p":1}')]), chunk(calls=[piece(0, arguments='{"p":2}')])],
}


@both_ways
@pytest.mark.parametrize("chunks", CLEAR.values(), ids=CLEAR)
async def test_G01_two_calls_at_one_index_are_two_calls(how: str, chunks: list[Any]) -> None:
    """A second head begins a second call; each runs with its own arguments, under its own id."""
    done = await served([sse(*chunks, chunk(finish="tool_calls")), DONE], how)
    assert (done.outcome, sorted(done.ran), done.codes) == (("completed", None), [ONE, TWO], [])
    calls = done.played.messages[1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"p": 1}, {"p": 2}]
    assert sorted(done.told) == ["read 1", "read 2"]


@both_ways
@pytest.mark.parametrize("chunks", UNCLEAR.values(), ids=UNCLEAR)
async def test_G01_calls_that_cannot_be_told_apart_are_asked_for_again(how: str, chunks: list[Any]) -> None:
    """Where two readings are possible nothing runs: the response is refused, tried again, and at last given up."""
    unclear = sse(*chunks, chunk(finish="tool_calls"))
    done = await served([unclear, CALLS, DONE], how)
    assert (done.outcome, sorted(done.ran), done.codes) == (("completed", None), BOTH, ["ambiguous_calls"])
    lost = await served([unclear] * 3, how)
    assert (lost.outcome, lost.ran) == (("failed", "model_error:ambiguous_calls"), [])


@both_ways
@pytest.mark.parametrize(
    "ids", [["", ""], [None, None], [..., ...], ["x", "x"], ["", "x"], ["call_1", "call_0"]], ids=str
)
async def test_G07_every_call_has_an_id_of_its_own(how: str, ids: list[Any]) -> None:
    """Empty, null, missing, equal and confusing ids: each call runs and is answered once, under a unique id."""
    heads = [
        {"index": n, "id": id, "function": {"name": "read", "arguments": f'{{"p": {n}}}'}} for n, id in enumerate(ids)
    ]
    sent = [{key: value for key, value in head.items() if value is not ...} for head in heads]
    done = await served([sse(chunk(calls=sent), chunk(finish="tool_calls")), DONE], how)
    assert (done.outcome, sorted(done.ran)) == (("completed", None), [("read", 0), ("read", 1)])
    asked = [call["id"] for call in done.requests[1]["messages"][1]["tool_calls"]]
    answered = [message["tool_call_id"] for message in done.requests[1]["messages"] if message["role"] == "tool"]
    assert asked == answered
    assert len({*asked}) == 2
    assert all(asked)


@both_ways
async def test_G07_what_is_said_again_runs_once(how: str) -> None:
    """A call that the same response repeats runs once; under an answered id, a new response makes a new call."""
    echo = sse(chunk(calls=[READ]), chunk(calls=[READ]), chunk(finish="tool_calls"))
    done = await served([echo, sse(chunk(calls=[READ], finish="tool_calls")), DONE], how)
    assert (done.outcome, done.ran) == (("completed", None), [ONE, ONE])
    assert [message["role"] for message in done.played.messages] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip


NO_OBJECTS = ["null", "[1]", '"{\\"p\\":1}"', "5", "true", '{"p":1,"p":2}', '{"p":', "{'p':1}", "x" * 100_000]


@both_ways
@pytest.mark.parametrize("raw", NO_OBJECTS, ids=lambda raw: raw[:10])
async def test_G09_arguments_that_are_no_object_do_not_run(how: str, raw: str) -> None:
    """The model is told, with a short echo; nothing is repaired or unwrapped, the loop goes on."""
    done = await served([sse(chunk(calls=[piece(0, "a", "read", raw)]), chunk(finish="stop")), CALLS, DONE], how)
    assert (done.outcome, sorted(done.ran)) == (("completed", None), BOTH)
    first = done.played.result_of(0)
    assert json.loads(first)["error"] == "invalid_arguments"
    assert len(first) < 1000


@both_ways
async def test_G09_an_object_instead_of_text_is_taken(how: str) -> None:
    """A gateway that sends the arguments as an object means just that."""
    done = await served([sse(chunk(calls=[piece(0, "a", "read", {"p": 1})]), chunk(finish="stop")), DONE], how)
    assert (done.outcome, done.ran) == (("completed", None), [ONE])


@both_ways
@pytest.mark.parametrize("before", [[], [chunk("Let me see.")]], ids=["call", "text and call"])
async def test_G11_a_cut_call_never_runs(how: str, before: list[Any]) -> None:
    """`tool_calls` with half an argument is an error result; a stream that just ends is asked for again."""
    half = chunk(calls=[piece(0, "a", "write", '{"q":"abc')])
    told = await served([sse(*before, half, chunk(finish="tool_calls")), DONE], how)
    assert (told.outcome, told.ran) == (("completed", None), [])
    assert json.loads(told.told[0])["error"] == "invalid_arguments"
    for ending in ({"done": True}, {"done": False}):
        cut = await served([sse(*before, half, **ending), CALLS, DONE], how)
        assert (cut.outcome, sorted(cut.ran), cut.codes) == (("completed", None), BOTH, ["stream_cut"])


@both_ways
async def test_G11_a_text_without_a_finish_is_no_answer(how: str) -> None:
    """A stream that ends after some text is retried and at last failed, never a completed answer."""
    text = sse(chunk("The answer is 4"))
    done = await served([text, sse(chunk("The answer is 42."), chunk(finish="stop"))], how)
    assert (done.played.answer, done.codes) == ("The answer is 42.", ["stream_cut"])
    lost = await served([text] * 3, how)
    assert (lost.outcome, lost.played.answer) == (("failed", "model_error:stream_cut"), None)


@both_ways
@pytest.mark.parametrize(
    ("first", "runs"),
    [
        (chunk(None, calls=[READ], finish="stop"), True),
        (chunk(finish="tool_calls"), False),
        (chunk("", calls=[READ], finish="tool_calls"), True),
        (chunk(None, finish="stop"), False),
    ],
    ids=["V1", "V2", "V3", "V4"],
)
async def test_G12_finish_reasons_are_hints(how: str, first: Any, runs: bool) -> None:
    """Calls that come with `stop` run; `tool_calls` without calls and null content are empty, and asked twice more."""
    done = await served([sse(first), DONE], how)
    assert (done.outcome, done.ran) == (("completed", None), [ONE] if runs else [])
    if not runs:
        ended = await served([sse(first)] * 5, how)
        assert (ended.outcome, len(ended.requests)) == (("failed", "empty_answer"), 3)


@both_ways
async def test_G15_half_characters_do_not_kill_a_session(how: str) -> None:
    """In a result, in arguments and in an answer: two turns and a reload, and every request is proper UTF-8."""

    @tool(effect="pure")
    async def odd(text: str) -> str:
        """Say it with half a character."""
        return f"{text} a\ud83d"

    entries = [
        sse(chunk(calls=[piece(0, "a", "odd", '{"text": "\\ud83c\\udf78"}')], finish="stop")),
        sse(chunk(calls=[piece(0, "a", "odd", '{"text": "\\ud83c"}')], finish="stop")),
        sse(chunk("half \ud83c"), chunk(finish="stop")),
        DONE,
    ]
    async with FaultServer(entries, split=1) as server:
        agent = Agent("clerk", model=OpenAIModel("m", base_url=server.base_url), tools=[odd])
        async with Runtime() as first:
            _, result = await park(first, agent, "\x00 text \ufffe", how=how, conversation="c")
            assert (result.status, result.answer) == ("completed", "half \ufffd")
            said, refused = tools_said(result.trace.messages)
            assert said == "🍸 a\ufffd"
            assert json.loads(refused)["error"] == "invalid_arguments"
            stored = (await first.conversation("c")).messages
        async with reopened(first, agent) as second:
            loaded = (await second.conversation("c")).messages
            assert digest(list(loaded)) == digest(list(stored))
            _, again = await park(second, agent, "go on", how=how, conversation="c")
        assert again.answer == "Done."
    assert server.requests[0]["messages"][0]["content"] == "\x00 text \ufffe"
    assert len(server.requests[-1]["messages"]) == 7
    json.dumps(server.requests, ensure_ascii=False).encode()


LONG = 2512292042121000001


@both_ways
async def test_G17_long_integers_survive_the_wire(how: str) -> None:
    """An integer beyond 2^53 is exact in the approval, after an edit and a restart, in the tool and in the history."""
    asked: list[tuple[int, float]] = []

    @tool(requires_approval=True)
    async def q(id: int, y: float, z: int, note: str = "") -> str:
        """Look it up."""
        asked.append((id, y))
        return f"found {id}"

    raw = f'{{"id":{LONG},"y":0.1,"z":-0}}'
    async with FaultServer([sse(chunk(calls=[piece(0, "a", "q", raw)], finish="tool_calls")), DONE]) as server:
        agent = Agent("clerk", model=OpenAIModel("m", base_url=server.base_url), tools=[q])
        async with Runtime() as first:
            run, result = await park(first, agent, how=how)
            (request,) = result.requests
            assert int(request.arguments["id"]) == LONG
        edited = {**request.arguments, "note": "x"}
        async with reopened(first, agent) as second:
            run = await second.run(run.id)
            result = await decided(second, run, (request.id, "edit", {"arguments": edited}), how=how)
    assert (result.status, asked, tools_said(result.trace.messages)) == ("completed", [(LONG, 0.1)], [f"found {LONG}"])
    (sent,) = server.requests[1]["messages"][1]["tool_calls"]
    arguments = json.loads(sent["function"]["arguments"])
    assert (int(arguments["id"]), arguments["y"], arguments["note"]) == (LONG, 0.1, "x")


@both_ways
@pytest.mark.parametrize("number", ["1e400", "-1e400", "Infinity", "NaN"])
async def test_G17_what_is_no_number_is_refused(how: str, number: str) -> None:
    """A number beyond a double is no argument."""
    raw = f'{{"p": {number}}}'
    done = await served([sse(chunk(calls=[piece(0, "a", "read", raw)], finish="stop")), DONE], how)
    assert (done.outcome, done.ran) == (("completed", None), [])
    assert json.loads(done.told[0])["error"] == "invalid_arguments"


@both_ways
async def test_G25_half_an_answer_with_an_error_is_no_answer(how: str) -> None:
    """An error on the choice is the provider's failure: tried again, then failed; `Half` is stored nowhere."""
    lost = {"index": 0, "delta": {"content": "Half"}, "finish_reason": "error", "error": {"message": "upstream lost"}}
    done = await served([sse(envelope(lost)), DONE], how)
    assert (done.outcome, done.played.answer, done.codes) == (("completed", None), "Done.", ["server_error"])
    assert "Half" not in done.played.text
    ended = await served([sse(envelope(lost))] * 3, how)
    assert (ended.outcome, ended.played.answer) == (("failed", "model_error:server_error"), None)
    assert "upstream lost" in str(ended.played.error)


@both_ways
async def test_G25_a_refusal_is_told(how: str) -> None:
    """A refusal ends the run with its text, and is no answer."""
    done = await served([sse(envelope({"index": 0, "delta": {"refusal": "no"}, "finish_reason": "stop"}))], how)
    assert (done.outcome, done.played.answer) == (("failed", "content_filter"), None)
    assert str(done.played.error) == "the model refused: no"


@both_ways
@pytest.mark.parametrize("content", ["", "Half"])
async def test_G25_an_unknown_finish_is_recorded_and_no_success(how: str, content: str) -> None:
    """The provider's own word is in the record of the call; the run does not complete with what came."""
    done = await served([sse(chunk(content), chunk(finish="sensitive"))] * 3, how)
    assert (done.outcome, done.played.answer) == (("failed", "no_answer" if content else "empty_answer"), None)
    finishes = [event.payload.get("finish") for event in done.played.events if event.kind == "model_finished"]
    assert finishes == ["sensitive"] * 3


@both_ways
async def test_D17_a_stream_that_breaks_in_a_call_leaves_nothing_but_its_usage(how: str) -> None:
    """After text and half a call the connection is lost: the retry alone is stored, and both attempts are paid for."""
    broken = sse(chunk("par"), chunk(calls=[piece(0, "c1", "write", '{"q":')]), usage(50, 9), done=False)
    done = await served([HttpReply(parts=[broken], end="reset"), CALLS, DONE], how)
    assert (done.outcome, sorted(done.ran)) == (("completed", None), BOTH)
    assert "'par'" not in done.played.text
    assert [message["role"] for message in done.played.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    spent = done.played.usage
    if done.codes == ["stream_cut"] and spent.input_tokens > 17:  # a reset may overtake what was sent before it
        assert (spent.input_tokens, spent.output_tokens, spent.requests, spent.retries) == (67, 32, 3, 1)


class Guard:
    """A policy that asks a service over HTTP about every tool call."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def intercept(self, context: Any) -> Any:
        """Deny what the service flags; whatever goes wrong is raised."""
        if context["interception_point"] != "pre_tool_call":
            return ALLOW
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(self.url, json=dict(context["tool_call"]["args"]))
        answer.raise_for_status()
        flagged = answer.json()["flagged"]
        if not isinstance(flagged, bool):
            raise TypeError("flagged is no boolean")
        return Verdict.deny("flagged") if flagged else ALLOW


FAILURES: dict[str, HttpReply] = {
    "500": HttpReply.error(500, "broken"),
    "no field": HttpReply.json({}),
    "garbage": HttpReply(parts=[b"<html>"], framing="length"),
    "reset": HttpReply(status=0, end="reset"),
    "cut": HttpReply(parts=[b'{"flagged": fa'], end="cut"),
    "timeout": HttpReply(parts=[b"{", PAUSE]),
    "wrong type": HttpReply.json({"flagged": "yes"}),
    "empty body": HttpReply(framing="length"),
}


@both_ways
@pytest.mark.parametrize("composition", ["sequential/run_all", "parallel/strictest"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_B29_a_service_that_fails_blocks(how: str, composition: str, failure: HttpReply) -> None:
    """A guard behind HTTP that answers anything but a clear no problem keeps the call from running."""
    ran: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    call = sse(chunk(calls=[piece(0, "a", "pay", "{}")], finish="tool_calls"))
    timeout = 0.1 if PAUSE in failure.parts else 10.0
    async with FaultServer([failure]) as service, FaultServer([call, DONE]) as server:
        agent = Agent(
            "clerk",
            model=OpenAIModel("m", base_url=server.base_url),
            tools=[pay],
            interceptors=[Guard(service.base_url)],
            governance=Governance(composition=composition, timeout=timeout),
        )
        played = await play(agent, how=how, clock=Waits())
    expected = "host_error:interceptor_timeout" if PAUSE in failure.parts else "host_error:interceptor_failed"
    assert (ran, played.status, played.reason) == ([], "blocked", expected)
    judged = [record for record in played.records if record["interception_point"] == "pre_tool_call"]
    assert [record["verdict"]["decision"] for record in judged] == ["deny"]
    assert_valid([played.messages])
