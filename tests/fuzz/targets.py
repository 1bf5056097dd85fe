"""What must hold for any input, one function for each reader of foreign data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from lictor.agent.arguments import parse_arguments
from lictor.agent.responses import assistant_message, fault_of, propose, response_context
from lictor.errors import ModelError, PathError, ToolArgumentsInvalid, ValueDomainError, VerdictInvalid
from lictor.hooks import Verdict
from lictor.hooks.path import parse_path, replace_at
from lictor.hooks.verdict import read_verdict
from lictor.models import ModelResponse, OpenAIModel, user
from lictor.models.answer import Answer
from lictor.models.failures import RETRYABLE
from lictor.testing import FaultServer, HttpReply
from lictor.values import MAX_SAFE_INTEGER, canonical_json, freeze

TARGET = freeze({"a": [{"b": 1}, "x"], "c-d": {"e": None}, "": {}})


def chunks(given: Iterable[Any]) -> ModelResponse | None:
    """Any JSON values as the chunks of an answer: a response that the loop can take, or a ModelError with a code."""
    answer, failed = Answer(), ""
    found: list[Any] = []
    try:
        found = [event for each in given for event in answer.feed(each)] + list(answer.end())
    except ModelError as error:
        failed = error.code
    if failed:
        assert failed in RETRYABLE
        return None
    assert isinstance(found[-1], ModelResponse)
    usable(found[-1])
    text = "".join(getattr(event, "text", "") for event in found[:-1] if type(event).__name__ == "TextDelta")
    assert text == (found[-1].content or "")
    return found[-1]


def usable(response: ModelResponse) -> None:
    """What the loop does with a response before any gate sees it: never an exception, always what can be stored."""
    calls = propose(response, 0)
    assert len({call.id for call in calls}) == len(calls)
    canonical_json(freeze(response_context(response, calls)))
    message = assistant_message(response.content, calls)
    canonical_json(freeze(message))
    for call in message.get("tool_calls", ()):
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert fault_of(response.content, calls, response.finish) in {
        None, "empty_answer", "truncated", "content_filter", "no_answer",
    }  # fmt: skip


def lines(data: bytes) -> None:
    """The lines of an event stream, as far as they are JSON."""
    values = []
    for line in data.split(b"\n\n"):
        try:
            values.append(json.loads(line.removeprefix(b"data: ")))
        except (ValueError, RecursionError):
            continue
    chunks(values)


def bodies(given: Iterable[bytes]) -> list[ModelResponse | None]:
    """Bodies over a real socket, in pieces of seven bytes: the response, or None for a ModelError with a code."""
    return asyncio.run(_bodies(list(given)))


async def _bodies(given: list[bytes]) -> list[ModelResponse | None]:
    found: list[ModelResponse | None] = []
    async with FaultServer([HttpReply(parts=[body] if body else []) for body in given], split=7) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        for _ in given:
            found.append(await _one(model))
    return found


async def _one(model: OpenAIModel) -> ModelResponse | None:
    failed, last = "", None
    try:
        async for event in model.respond([user("x")], [], {"timeout": 20}):
            last = event
    except ModelError as error:
        failed = error.code
    if failed:
        assert failed in {*RETRYABLE} - {"timeout"}, "it crashes, or it hangs"
        return None
    assert isinstance(last, ModelResponse)
    usable(last)
    return last


def arguments(text: str) -> None:
    """Any text as the arguments of a call: what JSON says, exactly, or an error that says what is wrong."""
    read: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    try:
        read = parse_arguments(text)
    except ToolArgumentsInvalid as error:
        problems = error.problems
    if problems:
        assert all(0 < len(problem) < 500 for problem in problems)
        return
    canonical_json(freeze(read))
    if text.strip():
        assert _same(read, json.loads(text)), text
    else:
        assert read == {}


def _same(read: Any, meant: Any) -> bool:
    """Whether two values are one; long integers are read as their digits."""
    if isinstance(meant, int) and not isinstance(meant, bool) and abs(meant) > MAX_SAFE_INTEGER:
        return bool(read == str(meant))
    if isinstance(meant, dict):
        return read.keys() == meant.keys() and all(_same(read[key], meant[key]) for key in meant)
    if isinstance(meant, list):
        return len(read) == len(meant) and all(map(_same, read, meant))
    return type(read) is type(meant) and bool(read == meant)


def path(text: str) -> None:
    """Any text as a path: it names one place and changes that alone, or it is refused with a reason of the contract."""
    try:
        segments = parse_path(text)
        changed = replace_at(TARGET, segments, "NEW")
    except PathError:
        return
    assert text.startswith("$target")
    assert "NEW" in str(changed)
    assert replace_at(changed, segments, _at(segments)) == TARGET


def _at(segments: tuple[str | int, ...]) -> Any:
    node: Any = TARGET
    for segment in segments:
        node = node[segment]
    return node


def verdict(value: Any) -> None:
    """Any object as a verdict: one that reads back as itself from its wire form, or VerdictInvalid."""
    try:
        read = read_verdict(value)
    except VerdictInvalid:
        return
    assert isinstance(read, Verdict)
    again = read_verdict(json.loads(json.dumps(read.to_wire())))
    assert again.to_wire() == read.to_wire()
    assert again.decision == read.decision
    assert again.liftable == read.liftable


def frozen(value: Any) -> None:
    """Any object as a JSON value: frozen and written, or refused with the place."""
    place = "$"
    try:
        canonical_json(freeze(value))
    except ValueDomainError as error:
        place = error.path
    assert place.startswith("$")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


PROGRAMS: dict[str, Callable[[bytes], None]] = {
    "wire": lines,
    "arguments": lambda data: arguments(data.decode("utf-8", "surrogateescape")),
    "path": lambda data: path("$target" + data.decode("latin-1")),
    "verdict": lambda data: verdict(_json(data)),
}
