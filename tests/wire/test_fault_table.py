"""What can go wrong on the wire, over the whole loop, plain and streamed: the table of docs/models.md.

Each row ends in its documented outcome: a failed call is asked again or ends the run with its code,
what is unclear runs no tool, what is only odd is understood, and nothing that is half passes for an answer.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from driving import both_ways, play
from overwire import BOTH, CALLS, DONE, READ, WRITE, Waits, served, tools

from lictor import Agent, OpenAIModel, Usage, tool
from lictor.models.answer import LONGEST_ANSWER
from lictor.models.calls import MOST_CALLS
from lictor.models.failures import RETRYABLE
from lictor.testing import PAUSE, FaultServer, HttpReply
from lictor.testing.wire import chunk, envelope, piece, sse, usage

pytestmark = pytest.mark.wire

ATTEMPTS = 3
PIECES = [each + b"\n\n" for each in CALLS.split(b"\n\n")[:-1]]  # one event each: text, text, heads, tails, finish, …
FINISHED = 5  # so many of them hold the finish reason
HALF = b'data: {"choices": [{"ind'
JSON = {"Content-Type": "application/json"}


def reply(*parts: Any, **fields: Any) -> HttpReply:
    """A streamed answer in these parts."""
    return HttpReply(parts=parts, **fields)


def typed(kind: str, body: bytes, status: int = 200) -> HttpReply:
    """An answer of another content type."""
    return HttpReply(parts=[body], status=status, headers={"Content-Type": kind}, framing="length")


def moved(status: int) -> HttpReply:
    """A redirect to an address that would answer."""
    return HttpReply(status=status, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"}, framing="length")


def calling(*pieces: dict[str, Any], finish: str | None = "tool_calls", **fields: Any) -> bytes:
    """An answer with these pieces of calls in one delta."""
    return sse(chunk(calls=pieces, **fields), *([chunk(finish=finish)] if finish else []))


def headed(index: Any, id: Any, p: int, **more: Any) -> dict[str, Any]:
    """A whole call of `read`, with whatever index and id (a marker leaves them out)."""
    given = {"index": index, "id": id, "type": "function", **more}
    return {
        **{key: value for key, value in given.items() if value is not ...},
        "function": {"name": "read", "arguments": f'{{"p": {p}}}'},
    }


# ---- answers that do not count: asked again, and the end of the run after three --------------------

FAILED: dict[str, tuple[HttpReply | bytes, str]] = {
    "500": (HttpReply.error(500, "broken"), "server_error"),
    "502 with a page": (typed("text/html", b"<html>", status=502), "server_error"),
    "503": (HttpReply.error(503, "busy"), "server_error"),
    "408": (HttpReply.error(408, "late"), "timeout"),
    "409": (HttpReply.error(409, "twice"), "conflict"),
    "429": (HttpReply.error(429, "slowly"), "rate_limit"),
    "no answer, cut": (reply(status=0, framing="close", end="cut"), "connect"),
    "no answer, reset": (reply(status=0, framing="close", end="reset"), "connect"),
    "nothing in the body": (reply(), "stream_cut"),
    "only [DONE]": (sse(), "stream_cut"),
    "no finish reason, text": (sse(chunk("Half an ans")), "stream_cut"),
    "no finish reason, calls": (calling(READ, WRITE, finish=None), "stream_cut"),
    "no finish reason, no [DONE]": (sse(chunk(calls=[READ]), done=False), "stream_cut"),
    "a line that is no JSON": (sse(chunk("x"), b"oops", chunk(finish="stop")), "bad_response"),
    "a line that is cut": (sse(chunk(calls=[READ]), b'{"choices": [{"in', chunk(finish="stop")), "bad_response"),
    "a line that is no UTF-8": (sse(chunk("x"), b"\xff\xfe", chunk(finish="stop")), "bad_response"),
    "a line that is no object": (sse(chunk(calls=[READ]), b"[1]", chunk(finish="stop")), "bad_response"),
    "a line too deep": (sse(b"[" * 100_000), "bad_response"),
    "a number too long": (sse(b'{"choices": [], "created": ' + b"9" * 5000 + b"}"), "bad_response"),
    "a call that is no object": (calling(READ, 7), "bad_response"),  # type: ignore[arg-type]
    "an error object": (sse(chunk("Half"), {"error": {"message": "lost"}}), "server_error"),
    "an error object after a call": (sse(chunk(calls=[READ]), {"error": {"message": "lost"}}), "server_error"),
    "an error text": (sse({"error": "overloaded"}), "server_error"),
    "an object that is an error": (sse({"object": "error", "message": "lost", "code": 500}), "server_error"),
    "an error event": (b'event: error\ndata: {"message": "lost"}\n\n', "stream_cut"),
    "an error with a status": (sse({"error": {"message": "slowly", "code": 429}}), "rate_limit"),
    "an error on the choice": (
        sse(chunk("Half"), envelope({"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "lost"}})),
        "server_error",
    ),
    "one index, open heads": (
        calling(piece(0, "a", "read", ""), piece(0, "b", "read", ""), piece(0, arguments='{"p": 1}')),
        "ambiguous_calls",
    ),
    "one index, a tail at another": (
        calling(piece(0, "a", "read", '{"p": 1}'), piece(0, "b", "read", ""), piece(1, arguments='{"p": 2}')),
        "ambiguous_calls",
    ),
    "one index, no second head": (calling(READ, piece(0, arguments='{"p": 2}')), "ambiguous_calls"),
    "no head at all": (calling(piece(0, arguments='{"p": 1}')), "ambiguous_calls"),
    "a page": (typed("text/html", b"<html>log in</html>"), "bad_response"),
    "a page without a type": (typed("", b"log in"), "bad_response"),
    "events that say they are JSON": (typed("application/json", CALLS), "bad_response"),
    "JSON that is cut": (typed("application/json", b'{"choices": [{"in'), "bad_response"),
    "JSON that is no object": (typed("application/json", b'"Done."'), "bad_response"),
    "JSON with an error": (typed("application/json", b'{"error": {"message": "no"}}'), "server_error"),
    "JSON without choices": (typed("application/json", b'{"detail": "no"}'), "stream_cut"),
    "JSON without a finish": (typed("application/json", b'{"choices": [{"message": {"content": "x"}}]}'), "stream_cut"),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize(("fault", "code"), FAILED.values(), ids=FAILED)
async def test_a_failed_answer_is_asked_for_again(how: str, fault: Any, code: str) -> None:
    """Nothing of the failed answer is left, the next one counts, and its calls run once."""
    done = await served([fault, CALLS, DONE], how)
    assert (done.outcome, done.played.answer) == (("completed", None), "Done.")
    assert (done.codes, sorted(done.ran)) == ([code], BOTH)
    assert [len(request["messages"]) for request in done.requests] == [1, 1, 4]
    assert (done.played.usage.requests, done.played.usage.retries) == (3, 1)
    assert (done.played.usage.input_tokens, done.played.usage.output_tokens) == (17, 23)


@pytest.mark.parametrize(("fault", "code"), FAILED.values(), ids=FAILED)
async def test_what_a_failed_answer_released_is_taken_back(fault: Any, code: str) -> None:
    """Where text is released as it comes, a failed attempt ends with `stream_reset`, and what is left is the answer."""
    done = await served([fault, CALLS, DONE], "streamed", stream="incremental")
    assert (done.outcome, done.played.answer, done.codes) == (("completed", None), "Done.", [code])
    assert sorted(done.ran) == BOTH
    told = [event for event in done.played.events if event.kind in ("model_delta", "stream_reset")]
    resets = [number for number, event in enumerate(told) if event.kind == "stream_reset"]
    assert len(resets) <= 1
    shown = [event.payload["text"] for event in told[: resets[0]]] if resets else []
    assert bool(shown) is bool(resets)
    rest = "".join(event.payload["text"] for event in told[resets[0] + 1 :]) if resets else ""
    assert not resets or rest == "Let me see: naïve 🍸.Done."


@both_ways
@pytest.mark.parametrize(("fault", "code"), FAILED.values(), ids=FAILED)
async def test_three_failed_answers_end_the_run(how: str, fault: Any, code: str) -> None:
    """The run fails with the code of the last one, may be resumed, and no tool has run."""
    done = await served([fault] * ATTEMPTS, how)
    assert (done.outcome, done.played.answer) == (("failed", f"model_error:{code}"), None)
    assert (done.codes, done.ran) == ([code] * ATTEMPTS, [])
    assert len(done.requests) == ATTEMPTS
    assert [message["role"] for message in done.played.messages] == ["user"]
    assert done.played.result is None or done.played.result.resumable


@both_ways
@pytest.mark.parametrize("end", ["cut", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("count", range(len(PIECES)))
async def test_a_connection_cut_anywhere_runs_nothing(how: str, count: int, framing: str, end: str) -> None:
    """Cut before, in or after a call, the answer does not count, unless the body has no length and the finish came."""
    sent = b"".join(PIECES[:count]) + (HALF if count < FINISHED else b"")
    headers = {"Content-Length": "100000"} if framing == "length" else {}
    whole = count >= FINISHED and (framing, end) == ("close", "cut")
    rest = [DONE] if whole else [CALLS, DONE]
    done = await served([HttpReply(parts=[sent], headers=headers, framing=framing, end=end), *rest], how)
    assert (done.outcome, sorted(done.ran)) == (("completed", None), BOTH)
    assert done.codes == ([] if whole else ["stream_cut"])


@both_ways
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_after_the_last_event_a_cut_is_no_matter(how: str, framing: str) -> None:
    """With `[DONE]` the answer is whole, whatever becomes of the connection."""
    headers = {"Content-Length": "100000"} if framing == "length" else {}
    done = await served([HttpReply(parts=[CALLS], headers=headers, framing=framing, end="cut"), DONE], how)
    assert (done.outcome, sorted(done.ran), done.codes) == (("completed", None), BOTH, [])


@both_ways
async def test_a_silent_provider_is_given_up(how: str) -> None:
    """Nothing within the timeout, from the start or amid a call: `timeout`, three times, and no tool runs."""
    for before in ([], [PIECES[0], PIECES[2]]):
        done = await served([reply(*before, PAUSE)] * ATTEMPTS, how, settings={"timeout": 0.03})
        assert done.outcome == ("failed", "model_error:timeout")
        assert (done.codes, done.ran) == (["timeout"] * ATTEMPTS, [])


@both_ways
async def test_drops_do_not_extend_the_timeout(how: str) -> None:
    """A provider that sends a little again and again is bounded by the same timeout, so the model needs no other."""
    drops = [each for _ in range(50_000) for each in (sse(chunk("x"), done=False),)]
    done = await served([reply(*drops, PAUSE)] * ATTEMPTS, how, settings={"timeout": 0.05})
    assert done.outcome == ("failed", "model_error:timeout")


@both_ways
@pytest.mark.parametrize(
    ("wait", "waited"), [("7", 7.0), ("0.25", 0.25), ("0", 0.0), ("-3", 0.0), ("9999", 60.0), ("soon", None)]
)
async def test_retry_after_is_waited_for(how: str, wait: str, waited: float | None) -> None:
    """The wait is what the provider says, up to a minute; else half a second to one, doubled each time."""
    busy = HttpReply.error(429, "slowly", retry_after=wait)
    done = await served([busy, busy, DONE], how)
    assert (done.outcome, done.codes) == (("completed", None), ["rate_limit"] * 2)
    if waited is None:
        assert 0.25 <= done.waits[0] <= 0.5 <= done.waits[1] <= 1.0
    else:
        assert done.waits == [waited] * 2


# ---- answers that will never count: the run ends at once ---------------------------------------------

FINAL: dict[str, tuple[HttpReply | bytes, str]] = {
    "400": (HttpReply.error(400, "no"), "bad_request"),
    "401": (HttpReply.error(401, "no"), "auth"),
    "403": (HttpReply.error(403, "no"), "auth"),
    "404": (HttpReply.error(404, "no"), "bad_request"),
    "422": (HttpReply.error(422, "no"), "bad_request"),
    "429, no quota": (HttpReply.error(429, "pay", code="insufficient_quota"), "rate_limit"),
    "301": (moved(301), "bad_request"),
    "302": (moved(302), "bad_request"),
    "307": (moved(307), "bad_request"),
    "308": (moved(308), "bad_request"),
    "an error that no retry cures": (sse({"error": {"message": "no", "code": 401}}), "auth"),
    "too many calls": (calling(*(headed(n, f"i{n}", n) for n in range(MOST_CALLS + 1))), "too_large"),
    "a text too long": (sse(*(chunk("x" * 2**20) for _ in range(LONGEST_ANSWER // 2**20 + 1))), "too_large"),
    "arguments too long": (
        calling(READ, *(piece(0, arguments=" " * 2**20) for _ in range(LONGEST_ANSWER // 2**20 + 1))),
        "too_large",
    ),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize(("fault", "code"), FINAL.values(), ids=FINAL)
async def test_a_final_failure_ends_the_run(how: str, fault: Any, code: str) -> None:
    """One request, one failed attempt, no tool, and the run cannot be resumed."""
    done = await served([fault, DONE], how)
    assert (done.outcome, done.played.answer) == (("failed", f"model_error:{code}"), None)
    assert (done.codes, done.ran, len(done.requests)) == ([code], [], 1)
    assert done.played.result is None or not done.played.result.resumable


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """What was judged for one address is not sent to another; the error names where it points to."""
    async with FaultServer([DONE]) as other:
        headers = {"Location": f"{other.base_url}/chat/completions"}
        done = await served([HttpReply(status=status, headers=headers, framing="length")])
        assert other.requests == []
        assert f"points to {other.base_url}" in str(done.played.error)


# ---- answers that are odd but clear -------------------------------------------------------------------

UNDERSTOOD: dict[str, tuple[HttpReply | bytes, list[tuple[str, Any]]]] = {
    "several calls in one delta": (calling(READ, WRITE), BOTH),
    "finish stop": (calling(READ, finish="stop"), [("read", 1)]),
    "finish of another API": (calling(READ, finish="tool_use"), [("read", 1)]),
    "one id twice": (calling(headed(0, "a", 1), headed(1, "a", 2)), [("read", 1), ("read", 2)]),
    "one id and one index twice": (calling(headed(0, "a", 1), headed(0, "a", 2)), [("read", 1), ("read", 2)]),
    "the same call twice": (calling(headed(0, "a", 1), headed(1, "a", 1)), [("read", 1), ("read", 1)]),
    "empty ids": (calling(headed(0, "", 1), headed(1, "", 2)), [("read", 1), ("read", 2)]),
    "ids null": (calling(headed(0, None, 1), headed(1, None, 2)), [("read", 1), ("read", 2)]),
    "no ids": (calling(headed(0, ..., 1), headed(1, ..., 2)), [("read", 1), ("read", 2)]),
    "ids that are numbers": (calling(headed(0, 7, 1), headed(1, 7, 2)), [("read", 1), ("read", 2)]),
    "no indexes": (calling(headed(..., "a", 1), headed(..., "b", 2)), [("read", 1), ("read", 2)]),
    "indexes that are no numbers": (calling(headed("x", "a", 1), headed("y", "b", 2)), [("read", 1), ("read", 2)]),
    "two heads at one index": (calling(headed(0, "a", 1), headed(0, "b", 2)), [("read", 1), ("read", 2)]),
    "arguments as an object": (calling(piece(0, "a", "read", {"p": 1})), [("read", 1)]),
    "an id that was used before": (calling(headed(0, "call_0", 1)), [("read", 1)]),
    "text next to calls": (sse(chunk("Let me see.", calls=[READ]), chunk(finish="tool_calls")), [("read", 1)]),
    "choices after the first": (
        sse(envelope({"index": 0, "delta": {"tool_calls": [READ]}}, {"index": 1, "delta": {"tool_calls": [WRITE]}}),
            chunk(finish="tool_calls")),
        [("read", 1)],
    ),
    "comments and other fields": (b": hi\n\nevent: message\nid: 7\nretry: 10\n" + calling(READ), [("read", 1)]),
    "carriage returns": (calling(READ).replace(b"\n", b"\r\n"), [("read", 1)]),
    "no space after data": (calling(READ).replace(b"data: ", b"data:"), [("read", 1)]),
    "a mark of byte order in a text": (sse(chunk("\ufeff", calls=[READ]), chunk(finish="stop")), [("read", 1)]),
    "no [DONE]": (sse(chunk(calls=[READ]), chunk(finish="stop"), done=False), [("read", 1)]),
    "events as plain text": (typed("text/plain", calling(READ)), [("read", 1)]),
    "one JSON document": (
        HttpReply.json(
            envelope({"message": {"content": None, "tool_calls": [headed(..., "a", 1)]}, "finish_reason": "stop"})
        ),
        [("read", 1)],
    ),
    "two finish reasons": (
        sse(chunk(calls=[READ]), chunk(finish="stop"), chunk(finish="tool_calls")),
        [("read", 1)],
    ),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize(("odd", "ran"), UNDERSTOOD.values(), ids=UNDERSTOOD)
async def test_what_is_odd_but_clear_is_understood(how: str, odd: Any, ran: list[tuple[str, Any]]) -> None:
    """The calls run once each, in their order under ids of our own, and their results go back."""
    done = await served([odd, DONE], how)
    assert (done.outcome, done.codes, sorted(done.ran)) == (("completed", None), [], sorted(ran))
    assert len(done.told) == len(ran)
    ids = [message["tool_call_id"] for message in done.requests[-1]["messages"] if message["role"] == "tool"]
    assert all(ids)
    assert len({*ids}) == len(ran)


@both_ways
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
async def test_wherever_an_answer_is_split_the_run_is_the_same(how: str, step: int) -> None:
    """Text, two calls and characters of several bytes, parted at every single byte: the same run each time."""
    small = sse(
        *({"choices": [{**choice, "index": 0}]} for choice in (
            {"delta": {"content": "naïve 🍸"}},
            {"delta": {"tool_calls": [piece(0, "a", "read", '{"p":'), piece(1, "b", "write")]}},
            {"delta": {"tool_calls": [piece(1, arguments='{"q": "é🍸"}'), piece(0, arguments=" 1}")]}},
            {"delta": {}, "finish_reason": "tool_calls"},
        ))
    )  # fmt: skip
    ran: list[Any] = []
    offsets = range(1, len(small), step)
    entries = [each for offset in offsets for each in (reply(small[:offset], small[offset:]), DONE)]
    async with FaultServer(entries) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        for offset in offsets:
            ran.clear()
            clerk = Agent("clerk", model=model, tools=tools(ran))
            played = await play(clerk, how=how, clock=Waits())
            assert (played.status, sorted(ran), played.usage.requests) == ("completed", BOTH, 2), offset
            assert played.messages[1]["content"] == "naïve 🍸"
    assert server.connections == 1


@both_ways
async def test_an_answer_byte_by_byte_is_the_same_answer(how: str) -> None:
    """Every byte in a piece of its own changes nothing."""
    done = await served([CALLS, DONE], how, split=1)
    assert (done.outcome, sorted(done.ran), done.codes) == (("completed", None), BOTH, [])


# ---- answers that say nothing, or not all ------------------------------------------------------------

UNUSABLE: dict[str, tuple[bytes, str]] = {
    "empty choices": (sse(envelope(), usage(5, 0)), "empty_answer"),
    "null content": (sse(chunk(None), chunk(finish="stop")), "empty_answer"),
    "empty content": (sse(chunk(""), chunk(finish="stop")), "empty_answer"),
    "finish tool_calls without calls": (sse(chunk(finish="tool_calls")), "empty_answer"),
    "the old function_call": (
        sse(chunk(function_call={"name": "read", "arguments": "{}"}), chunk(finish="function_call")),
        "empty_answer",
    ),
    "only reasoning": (sse(chunk(reasoning_content="hm"), chunk(finish="stop")), "empty_answer"),
    "length amid text": (sse(chunk("Half an ans"), chunk(finish="length")), "truncated"),
    "length amid a call": (calling(READ, piece(1, "b", "write", '{"q": "h'), finish="length"), "truncated"),
    "length after a whole call": (calling(READ, finish="length"), "truncated"),
    "length, then stop": (sse(chunk("Half"), chunk(finish="length"), chunk(finish="stop")), "truncated"),
    "another word for length": (calling(READ, finish="MAX_TOKENS"), "truncated"),
    "content filter": (calling(READ, finish="content_filter", content="Half"), "content_filter"),
    "another word for the filter": (sse(chunk("Half"), chunk(finish="SAFETY")), "content_filter"),
    "an unknown finish reason": (sse(chunk("Half"), chunk(finish="sensitive")), "no_answer"),
    "an unknown finish reason, calls": (calling(READ, finish="sensitive"), "no_answer"),
    "a finish reason that is no text": (sse(chunk("Half"), chunk(finish=7)), "no_answer"),  # type: ignore[arg-type]
}  # fmt: skip


@both_ways
@pytest.mark.parametrize(("empty", "reason"), UNUSABLE.values(), ids=UNUSABLE)
async def test_an_answer_that_cannot_be_used_is_asked_for_again(how: str, empty: bytes, reason: str) -> None:
    """Nothing of it is stored or runs; the next request says what was wrong, the third one in a row ends the run."""
    done = await served([empty, CALLS, DONE], how)
    assert (done.outcome, done.codes, sorted(done.ran)) == (("completed", None), [], BOTH)
    assert [message["role"] for message in done.requests[1]["messages"]] == ["user", "user"]
    assert "Half" not in str(done.played.messages)
    assert (done.played.usage.requests, done.played.usage.retries) == (3, 0)
    ended = await served([empty] * 3, how)
    assert (ended.outcome, ended.played.answer, ended.ran) == (("failed", reason), None, [])
    assert len(ended.requests) == 3


@both_ways
async def test_a_refusal_is_the_end_with_its_text(how: str) -> None:
    """A refusal is no answer and not asked again: the run fails, and its error says what the model said."""
    done = await served([sse(chunk(refusal="I will "), chunk(refusal="not."), chunk(finish="stop"))], how)
    assert done.outcome == ("failed", "content_filter")
    assert "the model refused: I will not." in str(done.played.error)
    assert done.played.answer is None


@tool(effect="pure")
async def now() -> str:
    """Say what time it is."""
    return "noon"


# ---- calls that cannot run: the model is told ----------------------------------------------------------

TOLD: dict[str, tuple[bytes, str]] = {
    "arguments cut, finish tool_calls": (calling(piece(0, "a", "write", '{"q": "abc')), "invalid_arguments"),
    "arguments that are no JSON": (calling(piece(0, "a", "write", "q=abc")), "invalid_arguments"),
    "arguments null": (calling(piece(0, "a", "write", "null")), "invalid_arguments"),
    "arguments doubly encoded": (calling(piece(0, "a", "write", '"{\\"q\\": \\"x\\"}"')), "invalid_arguments"),
    "arguments with a key twice": (calling(piece(0, "a", "write", '{"q": "x", "q": "y"}')), "invalid_arguments"),
    "no arguments where some are needed": (calling(piece(0, "a", "write", "")), "invalid_arguments"),
    "half a character in arguments": (calling(piece(0, "a", "write", '{"q": "\\ud83c"}')), "invalid_arguments"),
    "two objects as arguments": (calling(piece(0, "a", "write", '{"q": "x"}{"q": "y"}')), "invalid_arguments"),
    "huge arguments, cut": (calling(piece(0, "a", "write", '{"q": "' + "x" * 3_000_000)), "invalid_arguments"),
    "a tool that is not there": (calling(piece(0, "a", "erase", "{}")), "unknown_tool"),
    "half a character in the name": (calling(piece(0, "a", "wr\ud83c", "{}")), "unknown_tool"),
    "no name": (calling(piece(0, "a", None, '{"p": 1}')), "unknown_tool"),
    "two names glued": (calling(piece(0, "a", "readread", '{"p": 1}')), "unknown_tool"),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize(("odd", "error"), TOLD.values(), ids=TOLD)
async def test_a_call_that_cannot_run_is_told_to_the_model(how: str, odd: bytes, error: str) -> None:
    """The tool does not run, nothing is repaired, the result is a short error, and the run goes on."""
    done = await served([odd, DONE], how)
    assert (done.outcome, done.codes, done.ran) == (("completed", None), [], [])
    (told,) = done.told
    assert json.loads(told)["error"] == error
    assert len(told) < 1000
    (stored,) = done.requests[-1]["messages"][1]["tool_calls"]
    assert isinstance(json.loads(stored["function"]["arguments"]), dict)


@both_ways
@pytest.mark.parametrize("raw", ["", " ", "\n", "{ }", "{}"])
async def test_no_arguments_are_an_empty_object_in_the_history(how: str, raw: str) -> None:
    """What means no arguments is stored as `{}`, the one form that every provider takes back."""
    done = await served([calling(piece(0, "a", "now", raw)), DONE], how, tools=[now])
    assert (done.outcome, done.told) == (("completed", None), ["noon"])
    (stored,) = done.requests[-1]["messages"][1]["tool_calls"]
    assert stored["function"]["arguments"] == "{}"


@both_ways
async def test_half_characters_in_text_are_replaced(how: str) -> None:
    """A pair that two events share is one character, a lone half is U+FFFD, in the answer and in the history."""
    body = sse(chunk("a\ud83c"), chunk("\udf78 b\ud83c", calls=[READ]), chunk(finish="stop"))
    done = await served([body, sse(chunk("c\ud83c"), chunk(finish="stop"))], how)
    assert (done.outcome, done.played.answer) == (("completed", None), "c\ufffd")
    assert done.requests[1]["messages"][1]["content"] == "a🍸 b\ufffd"


@both_ways
async def test_huge_outputs_arrive_whole_or_not_at_all(how: str) -> None:
    """Two million characters are an answer, and an argument; more than a gate judges is blocked, never cut."""
    big = "x" * 2_000_000
    asked = calling(piece(0, "a", "write", '{"q": "'), piece(0, arguments=big), piece(0, arguments='"}'))
    done = await served([asked, sse(chunk(big), chunk(finish="stop"))], how)
    assert (done.outcome, done.ran, len(done.played.answer)) == (("completed", None), [("write", big)], len(big))
    over = await served([sse(*(chunk("x" * 1_000_000) for _ in range(6)), chunk(finish="stop"))], how)
    assert (over.outcome, over.played.answer) == (("blocked", "host_error:context_invalid"), None)


# ---- what it costs ---------------------------------------------------------------------------------------


@both_ways
async def test_D17_usage_of_a_failed_attempt_counts(how: str) -> None:
    """What the provider said of a broken answer is booked: in the event, in the sum, against the budget."""
    broken = sse(chunk("par"), usage(100, 5, 40), chunk(calls=[piece(0, "a", "read", '{"p":')]), done=False)
    errors = sse({"error": {"message": "lost"}, **usage(30, 3)})
    faults: list[Any] = [HttpReply(parts=[broken], end="cut"), errors, CALLS, DONE]
    done = await served(faults, how)
    assert (done.outcome, done.codes, sorted(done.ran)) == (("completed", None), ["stream_cut", "server_error"], BOTH)
    told = [Usage.of(event.payload["usage"]) for event in done.played.events if event.kind == "model_retry"]
    assert told == [Usage(100, 5, 40, requests=1, retries=1), Usage(30, 3, requests=1, retries=1)]
    assert done.played.usage == Usage(147, 31, 45, requests=4, retries=2, tool_calls=2)
    assert "par" not in str(done.played.messages)


# ---- the table in the docs ---------------------------------------------------------------------------------


async def test_what_the_docs_promise_is_what_the_table_proves() -> None:
    """Every code is in the table of docs/models.md with whether it may be tried again, as here."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| .* \| (yes|no)\b", page, re.MULTILINE))
    assert listed == {code: "yes" if retryable else "no" for code, retryable in RETRYABLE.items()}
    assert {code for _, code in FAILED.values()} == {code for code in RETRYABLE if RETRYABLE[code]}
    final = {code for code in RETRYABLE if not RETRYABLE[code]} - {"script_exhausted"}
    assert {code for _, code in FINAL.values()} == {*final, "rate_limit"}
