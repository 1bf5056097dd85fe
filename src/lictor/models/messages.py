"""Messages in the shape of OpenAI's chat API, which is the shape Lictor uses inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from lictor.models.protocol import Call

__all__ = ["Message", "assistant", "system", "tool_message", "user", "well_formed"]

Message: TypeAlias = Mapping[str, Any]


def system(text: str) -> dict[str, Any]:
    """A message with instructions."""
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    """A message from the person or program that asks."""
    return {"role": "user", "content": text}


def assistant(content: str | None, calls: Iterable[Call] = ()) -> dict[str, Any]:
    """A message from the model.

    Arguments:
        content: its text; None next to calls.
        calls: the tool calls it asks for. A call without an id is written with the id `""`; a history
            that goes to a provider needs ids of its own (`tool_message` answers them by id).
    """
    message: dict[str, Any] = {"role": "assistant", "content": content}
    listed = [
        {"id": call.id or "", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    if listed:
        message["tool_calls"] = listed
    return message


def tool_message(call_id: str, content: str) -> dict[str, Any]:
    """The result of the call `call_id`, as text."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def well_formed(text: str) -> str:
    """`text` without lone surrogates: a high and a low one in a row become their character, others U+FFFD.

    Python text may hold halves of a UTF-16 pair (JSON escapes bring them in); UTF-8 cannot, and a
    provider refuses every later request of a history that holds one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
