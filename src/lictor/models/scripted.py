"""A model that follows a script: the double for tests, demos and benchmarks."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias, cast

from lictor.errors import DefinitionError, ModelError
from lictor.models.failures import RETRYABLE, by_status
from lictor.models.protocol import (
    Call,
    HostedCall,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolSpec,
)
from lictor.runs import Usage

__all__ = ["Entry", "Reply", "ScriptedModel", "call", "chunks", "fail", "hosted", "say"]

WORDS = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an entry fails; the fields are those of ModelError."""

    code: str
    status: int | None
    retry_after: float | None

    def error(self) -> ModelError:
        """The error to raise; a new one each time."""
        what = self.code if self.status is None else f"{self.code} ({self.status})"
        return ModelError(
            self.code,
            f"scripted failure: {what}",
            status=self.status,
            retry_after=self.retry_after,
            retryable=RETRYABLE[self.code],
        )


@dataclass(frozen=True, slots=True)  # budget: positional, made by the functions below
class Reply:
    """An entry ready to be streamed: its events, and the failure that follows them instead of a response."""

    events: tuple[ModelEvent, ...]
    failure: Failure | None = None

    @property
    def response(self) -> ModelResponse:
        """The last event. Raises DefinitionError: the entry fails."""
        last = self.events[-1] if self.events else None
        if not isinstance(last, ModelResponse):
            raise DefinitionError("fail(...) stands alone: it cannot be one of the calls of a response")
        return last


Answer: TypeAlias = Reply | str | Sequence[Reply]
Asked: TypeAlias = Callable[[ModelRequest], Answer | Awaitable[Answer]]
Entry: TypeAlias = Answer | Asked


def say(
    text: str | None,
    *,
    calls: Iterable[Reply | Call] = (),
    reasoning: str | None = None,
    finish: str = "stop",
    usage: Usage | None = None,
    refusal: str | None = None,
) -> Reply:
    """Answer with text, streamed word by word.

    Arguments:
        text: the content; None for none.
        calls: what `call` returns, or Calls, to ask for next to the text.
        reasoning: reasoning, streamed before the text.
        finish: the finish reason, as it is.
        usage: the usage to report.
        refusal: the text of a refusal.
    """
    asked = [one for each in calls for one in (each.response.calls if isinstance(each, Reply) else (each,))]
    response = ModelResponse(text, tuple(asked), finish, usage, reasoning, refusal)
    return _reply(WORDS.findall(text or ""), response)


def call(
    tool: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    id: str | None = None,
    usage: Usage | None = None,
    **args: Any,
) -> Reply:
    """Ask for one tool call; a list of these asks for several at once.

    Arguments:
        tool: the tool's name.
        arguments: a mapping, or raw text for arguments that need not be JSON.
        id: the provider's id, none by default.
        usage: the usage to report.
        args: the arguments, as keywords.

    Raises DefinitionError: both `arguments` and keywords.
    """
    if arguments is not None and args:
        raise DefinitionError(f"call({tool!r}) has arguments twice: give a mapping or keywords")
    given = args if arguments is None else arguments
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return Reply((ModelResponse(None, (Call(id, tool, text),), "tool_calls", usage),))


def chunks(pieces: Sequence[str], *, finish: str = "stop", usage: Usage | None = None) -> Reply:
    """Answer with text, streamed in exactly these pieces."""
    return _reply(pieces, ModelResponse("".join(pieces), (), finish, usage))


def hosted(name: str, args: Any, result: Any) -> Reply:
    """Report a call that the provider ran itself; in a list with `say` it comes with an answer."""
    return Reply((ModelResponse(None, hosted=(HostedCall(name, args, result),)),))


def fail(
    status: int | None = None, retry_after: float | None = None, *, code: str | None = None, text: str = ""
) -> Reply:
    """Fail like a provider.

    Arguments:
        status: an HTTP status, which decides the code; without status and code the connection fails.
        retry_after: seconds, as from a Retry-After header.
        code: a code of ModelError (`stream_cut`, `timeout`, …) instead.
        text: what is streamed before the failure.

    Raises DefinitionError: an unknown code.
    """
    chosen = code or ("connect" if status is None else by_status(status))
    if chosen not in RETRYABLE:
        raise DefinitionError(f"fail(code={chosen!r}): write one of {', '.join(sorted(RETRYABLE))}")
    events = tuple(TextDelta(piece) for piece in WORDS.findall(text))
    return Reply(events, Failure(code=chosen, status=status, retry_after=retry_after))


class ScriptedModel:
    """A model whose n-th response is the n-th entry of its script. Implements `ChatModel`.

    Which entry is served is up to `settings["position"]` (0 if absent), not to a counter in here: a
    new process goes on where the old one stood. Past the end: ModelError `script_exhausted`.

    Arguments:
        entries: `say`, `call`, a list of calls, `fail`, `chunks`, `hosted`, plain text, or a (sync or
            async) function of the `ModelRequest` that returns one of these.
        id: the model's id.

    `requests` holds every ModelRequest received, oldest first.

    Raises DefinitionError: something else among the entries.
    """

    def __init__(self, entries: Iterable[Entry], *, id: str = "scripted") -> None:
        self.id = id
        self.requests: list[ModelRequest] = []
        self._script: list[Reply | Asked] = [entry if callable(entry) else _compiled(entry) for entry in entries]

    keeps_timeout = True
    """It bounds its own waiting by `settings["timeout"]`, so that the loop need not."""

    def __repr__(self) -> str:
        return f"ScriptedModel(<{len(self._script)} entries>, id={self.id!r})"

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ModelEvent]:
        """Stream the entry at `settings["position"]` (see `ChatModel.respond`).

        Raises ModelError: the entry is a failure, or there is none.
        """
        position: int = settings.get("position", 0)
        request = ModelRequest(tuple(messages), tuple(tools), dict(settings), position)
        self.requests.append(request)
        if not 0 <= position < len(self._script):
            told = f"{self.id} has {len(self._script)} entries and was asked at position {position}"
            raise ModelError("script_exhausted", told)
        entry = self._script[position]
        reply = entry if isinstance(entry, Reply) else await _asked(entry, request)
        for event in reply.events:
            yield event
        if reply.failure is not None:
            raise reply.failure.error()


async def _asked(entry: Asked, request: ModelRequest) -> Reply:
    answer = entry(request)
    if isinstance(answer, Awaitable):
        try:
            async with asyncio.timeout(request.settings.get("timeout")):
                answer = await answer
        except TimeoutError as error:
            raise ModelError("timeout", "the scripted function did not answer in time", retryable=True) from error
    return _compiled(answer)


def _compiled(entry: object) -> Reply:
    """An entry that is no function, ready to be streamed."""
    if isinstance(entry, Reply):
        return entry
    if isinstance(entry, str):
        return say(entry)
    members = cast("Sequence[object]", entry) if isinstance(entry, list | tuple) else ()
    parts = [each for each in members if isinstance(each, Reply)]
    if not parts or len(parts) < len(members):
        raise DefinitionError(
            f"a script cannot hold {entry!r}: write say, chunks, call, a list of calls, hosted, fail, text, a function"
        )
    return _merged(parts)


def _merged(replies: Sequence[Reply]) -> Reply:
    """Several replies as one: texts joined, calls and hosted calls in order, usage summed."""
    parts = [each.response for each in replies]
    texts = [part.content for part in parts if part.content is not None]
    usages = [part.usage for part in parts if part.usage is not None]
    calls = tuple(one for part in parts for one in part.calls)
    whole = replace(
        parts[-1],
        content="".join(texts) if texts else None,
        calls=calls,
        finish="tool_calls" if calls else parts[-1].finish,
        usage=reduce(add, usages) if usages else None,
        hosted=tuple(one for part in parts for one in part.hosted),
    )
    return Reply((*(event for each in replies for event in each.events[:-1]), whole))


def _reply(pieces: Iterable[str], response: ModelResponse) -> Reply:
    thoughts = (ReasoningDelta(piece) for piece in WORDS.findall(response.reasoning or ""))
    return Reply((*thoughts, *(TextDelta(piece) for piece in pieces if piece), response))
