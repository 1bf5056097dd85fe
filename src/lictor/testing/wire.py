"""The bytes of OpenAI chat completions, right and wrong: what a FaultServer sends.

`sse(chunk("Hel"), chunk("lo"), chunk(finish="stop"))` is the body of a streamed answer, and whatever a
real gateway breaks can be broken in it: leave a part out, double it, cut the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MODEL", "chunk", "envelope", "piece", "sse", "usage"]

MODEL = "test-model"
"""The name that every chunk carries."""


def sse(*chunks: Mapping[str, Any] | bytes, done: bool = True) -> bytes:
    """An event stream with one event for each chunk.

    Arguments:
        chunks: objects, sent as JSON; bytes are sent as they are.
        done: whether `[DONE]` ends it.
    """
    lines = [each if isinstance(each, bytes) else _line(each) for each in chunks]
    return b"".join(b"data: %b\n\n" % line for line in [*lines, *([b"[DONE]"] if done else [])])


def chunk(
    content: str | None = None, *, calls: Iterable[Mapping[str, Any]] = (), finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk with one choice.

    Arguments:
        content: a piece of text.
        calls: pieces of tool calls, see `piece`.
        finish: the finish reason, in the last chunk.
        more: further fields of the delta (`refusal`, `reasoning_content`, …).
    """
    delta = {"content": content, "tool_calls": [*calls], **more}
    filled = {name: value for name, value in delta.items() if value is not None and value != []}
    return envelope({"index": 0, "delta": filled, "finish_reason": finish})


def piece(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    """A piece of a tool call, with only the fields that are given; the first one of a call has an id and a name."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {"index": index, "id": id, "function": function}
    return {key: value for key, value in fields.items() if value is not None}


def usage(spent: int, made: int, cached: int = 0) -> dict[str, Any]:
    """The chunk with the usage, which has no choices: tokens read, tokens written, tokens that were cached."""
    numbers = {"prompt_tokens": spent, "completion_tokens": made, "total_tokens": spent + made}
    return envelope(usage={**numbers, "prompt_tokens_details": {"cached_tokens": cached}})


def envelope(*choices: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A chunk around any choices, with further fields of its own (`usage`, `error`, …)."""
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return {**frame, "choices": [*choices], **fields}


def _line(chunk: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8; with escapes where a text holds half a character, which UTF-8 cannot."""
    try:
        return json.dumps(chunk, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(chunk).encode()
