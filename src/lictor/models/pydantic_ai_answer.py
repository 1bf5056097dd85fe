"""An answer that came through pydantic-ai, put into our words: pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lictor.errors import ModelError
from lictor.models.answer import LONGEST_ANSWER, TextPieces
from lictor.models.calls import MOST_CALLS
from lictor.models.messages import well_formed
from lictor.models.pricing import Price
from lictor.models.protocol import Call, HostedCall, ModelEvent, ModelResponse, ReasoningDelta, TextDelta
from lictor.models.untrusted import fields, text
from lictor.runs import Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse as Given
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse
    from pydantic_ai.usage import RequestUsage

__all__ = ["GivenAnswer"]

# For this one the library says "stop" where the stream ended without a word; the provider's own word tells them apart.
GUESSING = "OpenAIStreamedResponse"
MADE_UP = "pyd_ai"  # how ids begin that the library gives to calls without one


class GivenAnswer:
    """Collects the events of one streamed response, or takes a whole one.

    Arguments:
        price: for the cost in the usage; None takes what the provider reports.
    """

    def __init__(self, price: Price | None = None) -> None:
        self._price = price
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._ids: dict[int, str] = {}  # of the calls that are under way, by part
        self._stream: StreamedResponse | None = None

    @property
    def usage(self) -> Usage | None:
        """What the provider has said so far."""
        return None if self._stream is None else _usage(self._stream.usage, self._price)

    def watch(self, stream: StreamedResponse) -> None:
        """The stream whose events will be fed."""
        self._stream = stream

    def feed(self, event: ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        """The deltas in an event.

        Raises ModelError: `too_large`; `ambiguous_calls`, the library has put two calls into one.
        """
        kind, piece = _piece(event)
        if kind in ("tool-call", "tool_call"):
            self._check_call(event)
        if kind == "text" and (shown := self._text.add(piece)):
            yield TextDelta(shown)
        if kind == "thinking" and (shown := self._reasoning.add(piece)):
            yield ReasoningDelta(shown)
        if self._text.size + self._reasoning.size > LONGEST_ANSWER:
            raise ModelError("too_large", f"the answer has more than {LONGEST_ANSWER} characters")

    def _check_call(self, event: Any) -> None:
        """Two calls that a gateway gave one index: the library joins them, and only the second id tells."""
        given = event.part if event.event_kind == "part_start" else event.delta
        first = self._ids.setdefault(event.index, given.tool_call_id or "")
        if given.tool_call_id and first and given.tool_call_id != first and not first.startswith(MADE_UP):
            told = f"the tool calls at part {event.index} cannot be told apart: {first!r} and {given.tool_call_id!r}"
            raise ModelError("ambiguous_calls", told, retryable=True)

    def end(self) -> Iterator[ModelEvent]:
        """The last deltas and the response of the stream. Raises ModelError as `whole` does."""
        if self._stream is None:
            raise ModelError("stream_cut", "there was no stream", retryable=True)
        if rest := self._reasoning.end():
            yield ReasoningDelta(rest)
        if rest := self._text.end():
            yield TextDelta(rest)
        guesses = any(cls.__name__ == GUESSING for cls in type(self._stream).__mro__)
        yield self.whole(self._stream.get(), guessed=guesses)

    def whole(self, given: Given, *, guessed: bool = False) -> ModelResponse:
        """The response.

        Arguments:
            given: the library's response.
            guessed: whether its finish reason means nothing without the provider's own word for it.

        Raises ModelError: `stream_cut` without a finish reason (models without an address need none),
        `server_error`, `too_large`.
        """
        details = fields(given.provider_details)
        calls = tuple(_call(part) for part in given.parts if part.part_kind == "tool-call")
        if len(calls) > MOST_CALLS or sum(len(call.arguments) for call in calls) > LONGEST_ANSWER:
            raise ModelError(
                "too_large", f"the answer has {len(calls)} tool calls, or arguments beyond {LONGEST_ANSWER}"
            )
        return ModelResponse(
            _said(given, "text"),
            calls,
            _finish(given, details, has_calls=bool(calls), guessed=guessed),
            _usage(given.usage, self._price),
            _said(given, "thinking"),
            well_formed(text(details.get("refusal"))) or None,
            given.model_name,
            tuple(_hosted(given)),
        )


def _piece(event: ModelResponseStreamEvent) -> tuple[str, str]:
    """Of which kind a piece of a part is, and its text."""
    if event.event_kind == "part_start":
        return event.part.part_kind, text(getattr(event.part, "content", None))
    if event.event_kind == "part_delta":
        return event.delta.part_delta_kind, text(getattr(event.delta, "content_delta", None))
    return "", ""


def _said(given: Given, kind: str) -> str | None:
    """The text of all parts of one kind, None if there is none."""
    pieces = [text(getattr(part, "content", None)) for part in given.parts if part.part_kind == kind]
    return well_formed("".join(pieces)) or None


def _finish(given: Given, details: Any, *, has_calls: bool, guessed: bool) -> str:
    """The finish reason in our words; a word the library does not know is passed on."""
    word, known = text(details.get("finish_reason")), given.finish_reason
    if known == "error":
        raise ModelError("server_error", f"the provider broke off its answer: {word or 'error'}", retryable=True)
    if given.state != "complete":
        return "incomplete"
    if known is None and not word and given.provider_url is None:
        return "tool_calls" if has_calls else "stop"  # a function or a test model: nothing can be cut
    if (known is None or guessed) and not word:
        raise ModelError("stream_cut", "the answer ended without a finish reason", retryable=True)
    return "tool_calls" if known == "tool_call" else known or word


def _call(part: Any) -> Call:
    """A call with its arguments as text; an object that the provider had parsed is written out."""
    args = part.args
    written = args if isinstance(args, str) else "" if args is None else json.dumps(args, ensure_ascii=False)
    return Call(part.tool_call_id or None, well_formed(part.tool_name), well_formed(written))


def _hosted(given: Given) -> Iterator[HostedCall]:
    """Calls that the provider ran on its own side, with their results where it shows them."""
    from pydantic_core import to_jsonable_python

    results = {part.tool_call_id: part.content for part in given.parts if part.part_kind == "builtin-tool-return"}
    for part in given.parts:
        if part.part_kind == "builtin-tool-call":
            arguments, result = part.args_as_dict(), results.get(part.tool_call_id)
            yield HostedCall(part.tool_name, arguments, to_jsonable_python(result, fallback=str))


def _usage(usage: RequestUsage, price: Price | None) -> Usage | None:
    """The provider's numbers; None where it said nothing."""
    if getattr(usage, "unmeasured_requests", 0) or not usage.has_values():
        return None
    spent, made, cached = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens
    cost = price.cost(spent, made, cached) if price else float(getattr(usage, "cost", None) or 0.0)
    return Usage(spent, made, cached, cost_usd=cost)
