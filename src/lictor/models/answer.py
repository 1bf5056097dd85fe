"""One streamed answer put together from its chunks: pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lictor.errors import ModelError
from lictor.models.calls import CallAssembly
from lictor.models.failures import in_stream
from lictor.models.logprobs import token_logprobs
from lictor.models.messages import well_formed
from lictor.models.pricing import Price
from lictor.models.protocol import ModelEvent, ModelResponse, ReasoningDelta, TextDelta, TokenLogprob
from lictor.models.untrusted import count, fields, is_object, items, text
from lictor.runs import Usage

__all__ = ["LONGEST_ANSWER", "Answer", "TextPieces"]

LONGEST_ANSWER = 16 * 2**20
"""Characters of text, reasoning and arguments that one answer may have: three times what a gate judges."""
ORDINARY = (None, "stop", "tool_calls", "function_call")


class TextPieces:
    """Text in pieces; half a character at the end of a piece waits for its other half."""

    __slots__ = ("_half", "_pieces", "size")

    def __init__(self) -> None:
        self._half = ""
        self._pieces: list[str] = []
        self.size = 0  # characters

    def add(self, piece: str) -> str:
        """Take a piece; returns what may be shown now."""
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = well_formed(piece[: len(piece) - len(self._half)])
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)
        return piece

    def end(self) -> str:
        """What was still waiting."""
        rest, self._half = well_formed(self._half), ""
        if rest:
            self._pieces.append(rest)
        return rest

    def whole(self) -> str | None:
        """All of it, None if there was none."""
        return "".join(self._pieces) or None


class Answer:
    """Collects the chunks of one chat completion; only the first choice counts.

    Arguments:
        price: for the cost in the usage; None leaves it at 0.0.
    """

    def __init__(self, price: Price | None = None) -> None:
        self._price = price
        self._text = TextPieces()
        self._reasoning = TextPieces()
        self._refusal = TextPieces()
        self._calls = CallAssembly()
        self._logprobs: list[TokenLogprob] = []
        self._finish: str | None = None
        self.usage: Usage | None = None  # as far as it was told
        self._model: str | None = None
        self._has_begun = False
        self._has_choice = False

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Take one chunk (or a whole completion) and give the deltas in it.

        Raises ModelError: an error object, calls that cannot be told apart, a chunk that is none, or an
        answer beyond LONGEST_ANSWER.
        """
        if not is_object(chunk):
            raise ModelError("bad_response", f"a chunk of the answer is a {type(chunk).__name__}", retryable=True)
        given = fields(chunk)
        if usage := fields(given.get("usage")):
            self.usage = _usage(usage, self._price)
        if given.get("error") or given.get("object") == "error":
            raise in_stream(given.get("error") or given)
        self._has_begun = self._has_begun or "choices" in given
        self._model = text(given.get("model")) or self._model
        for position, choice in enumerate(map(fields, items(given.get("choices")))):
            index = choice.get("index")
            if (position if index is None else index) == 0:
                yield from self._take(choice)

    def end(self) -> Iterator[ModelEvent]:
        """The last deltas, if half a character was waiting, and the response.

        Raises ModelError: `stream_cut`, the answer has no finish reason.
        """
        if not self._has_begun or (self._has_choice and self._finish is None):
            raise ModelError("stream_cut", "the answer ended without a finish reason", retryable=True)
        if rest := self._reasoning.end():
            yield ReasoningDelta(rest)
        if rest := self._text.end():
            yield TextDelta(rest)
        self._refusal.end()
        yield ModelResponse(
            self._text.whole(),
            self._calls.calls(),
            self._finish or "empty",
            self.usage,
            self._reasoning.whole(),
            self._refusal.whole(),
            self._model,
            logprobs=tuple(self._logprobs),
        )

    def _take(self, choice: Mapping[str, Any]) -> Iterator[ModelEvent]:
        self._has_choice = True
        finish = choice.get("finish_reason")
        if choice.get("error") or finish == "error":
            raise in_stream(choice.get("error"))
        yield from self._take_delta(fields(choice.get("delta") or choice.get("message")))
        self._logprobs += token_logprobs(choice.get("logprobs"))
        if finish and self._finish in ORDINARY:  # what says that something is wrong is not taken back
            self._finish = str(finish)

    def _take_delta(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        content = delta.get("content")
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning")) or _part(content, "thinking")
        if shown := self._reasoning.add(thought):
            yield ReasoningDelta(shown)
        if shown := self._text.add(text(content) or _part(content, "text")):
            yield TextDelta(shown)
        self._refusal.add(text(delta.get("refusal")))
        for piece in items(delta.get("tool_calls")):
            self._calls.add(piece)
        if self._text.size + self._reasoning.size + self._refusal.size + self._calls.size > LONGEST_ANSWER:
            raise ModelError("too_large", f"the answer has more than {LONGEST_ANSWER} characters")


def _part(content: object, kind: str, *, nested: bool = False) -> str:
    """The text of the content parts of one kind (`{"type": "text", "text": …}`); parts may hold parts, once."""
    parts = [part.get(kind) for part in map(fields, items(content)) if part.get("type") == kind]
    return "".join(text(part) or ("" if nested else _part(part, "text", nested=True)) for part in parts)


def _usage(usage: Mapping[str, Any], price: Price | None) -> Usage:
    """The provider's numbers; what is missing or no number counts as 0."""
    cached = count(fields(usage.get("prompt_tokens_details")).get("cached_tokens"))
    spent, made = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    cost = price.cost(spent, made, cached) if price else 0.0
    return Usage(input_tokens=spent, output_tokens=made, cached_tokens=cached, cost_usd=cost)
