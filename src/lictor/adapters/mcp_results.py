"""What an MCP server answers to a call, as a tool's result: text, JSON, or an error.

The forms are documented in docs/mcp.md. Nothing here knows the `mcp` package but by its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from lictor.agent import safe_value
from lictor.errors import NotSerializable, ToolError

if TYPE_CHECKING:
    from mcp.types import CallToolResult

__all__ = ["MOST_DATA", "MOST_RESULT", "value_of"]

MOST_DATA = 8 * 1024
"""Bytes of an image, a recording or a file that are shown to a model; of larger ones it is told the size."""

MOST_RESULT = 4 * 1024 * 1024
"""Bytes of a whole result; the contract's contexts end at 5 MiB, and a foreign server must not end a run."""


def value_of(result: CallToolResult) -> Any:
    """The value of a result.

    Raises:
        ToolError: `is_error` (the server says that the tool failed), `too_large`, `bad_result`.
    """
    value = _error(result) if result.is_error else _value(result)
    try:
        size = len(orjson.dumps(safe_value(value)[0]))
    except NotSerializable as exc:
        raise ToolError("bad_result", f"the server's answer cannot be used: {exc}") from exc
    if size > MOST_RESULT:
        raise ToolError("too_large", f"the server's answer has {size:,} bytes; at most {MOST_RESULT:,} are taken")
    if result.is_error:
        raise ToolError("is_error", **value)
    return value


def _value(result: CallToolResult) -> Any:
    """Structured content before text, which then only repeats it; what is neither is never left out."""
    parts = [_part(part) for part in result.content]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    others = [part for part in parts if part["type"] != "text"]
    structured = _structured(result)
    if others:
        return parts if structured is None else [structured, *others]
    if structured is not None:
        return structured
    return "\n".join(texts)


def _structured(result: CallToolResult) -> Any:
    """`structuredContent`; the wrapping that servers put around what is no object is taken off again."""
    given = result.structured_content
    if isinstance(given, Mapping) and set(given) == {"result"}:
        return given["result"]
    return given


def _error(result: CallToolResult) -> dict[str, Any]:
    parts = [_part(part) for part in result.content]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    others = [part for part in parts if part["type"] != "text"]
    more: dict[str, Any] = {"message": "\n".join(texts) or "the server says that it failed, and not why"}
    if others:
        more["content"] = others
    if result.structured_content is not None:
        more["details"] = result.structured_content
    return more


def _part(part: Any) -> dict[str, Any]:
    """One block of content as JSON (docs/mcp.md, results)."""
    kind: str = part.type
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": part.mime_type, **_data(part.data)}
    if kind == "resource_link":
        return _known(type=kind, uri=part.uri, name=part.name, mimeType=part.mime_type, size=part.size)
    resource = part.resource
    about = _known(type=kind, uri=resource.uri, mimeType=resource.mime_type)
    if hasattr(resource, "text"):
        return {**about, "text": resource.text}
    return {**about, **_data(resource.blob)}


def _data(base64: str) -> dict[str, Any]:
    """Size in bytes, and the data itself (base64, as sent) where there is little of it."""
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return {"size": size} if size > MOST_DATA else {"size": size, "data": base64}


def _known(**fields: Any) -> dict[str, Any]:
    return {name: str(value) if name == "uri" else value for name, value in fields.items() if value is not None}
