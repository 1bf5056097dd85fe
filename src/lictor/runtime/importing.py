"""Conversations that come from elsewhere: checked, and closed where a call has no result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lictor.agent import error_result, problems_of, render
from lictor.errors import DefinitionError
from lictor.runtime.row import check_json
from lictor.values import freeze

__all__ = ["imported"]

FIELDS: Mapping[str, frozenset[str]] = {
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
UNKNOWN = "the conversation was imported without a result of this call; it may have run, and is not run again"


def imported(messages: Sequence[Mapping[str, Any]]) -> tuple[tuple[Mapping[str, Any], ...], int]:
    """A transcript as a conversation keeps it, and how many calls are in it.

    A call without a result gets one that says so (`{"error": "unknown", "reason": "imported"}`): nothing that
    somebody else began is run here.

    Arguments:
        messages: OpenAI chat shape, oldest first, without instructions; they belong to the agent.

    Raises DefinitionError, naming the message, for what no provider would take, a made-up result for example;
    NotSerializable for what is no JSON.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise DefinitionError(f"messages={type(messages).__name__}: give a list of chat messages")
    kept: list[Mapping[str, Any]] = []
    calls = 0
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        _check(number, message)
        if message["role"] == "tool":
            if message["tool_call_id"] in open_calls:
                open_calls.remove(message["tool_call_id"])
        else:
            kept += _closed(open_calls)
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
            calls += len(open_calls)
        kept.append(message)
    kept += _closed(open_calls)
    problems = problems_of(kept)
    if problems:
        raise DefinitionError(f"imported messages: {problems[0]}")
    return tuple([freeze(dict(message)) for message in kept]), calls


def _closed(open_calls: Sequence[str]) -> list[Mapping[str, Any]]:
    content = render(error_result("unknown", "imported", UNKNOWN))
    return [{"role": "tool", "tool_call_id": call_id, "content": content} for call_id in open_calls]


def _check(number: int, message: Any) -> None:
    where = f"imported message {number}"
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str) or role not in FIELDS:
        raise DefinitionError(
            f"{where}: its role is {role!r}; use user, assistant or tool (instructions are the agent's)"
        )
    more = sorted(set(message) - FIELDS[role])
    if more:
        raise DefinitionError(f"{where}: a message of role {role} has no field {more[0]!r}")
    check_json(dict(message), where)
    content = message.get("content")
    if not (isinstance(content, str | list | tuple) or (content is None and role == "assistant")):
        raise DefinitionError(f"{where}: its content is {type(content).__name__}; give text or content parts")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise DefinitionError(f"{where}: a result needs the tool_call_id of its call")
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        names = isinstance(function, Mapping) and [function.get("name"), function.get("arguments"), call.get("id")]
        if not names or not all(isinstance(each, str) for each in names):
            raise DefinitionError(f"{where}: a call needs id, function.name and function.arguments, all text")
