"""A model that refuses what the strictest provider would refuse."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from lictor.agent import problems_of
from lictor.errors import ModelError
from lictor.models import ChatModel, ModelEvent, ToolSpec

__all__ = ["StrictProvider", "message_problems", "request_problems"]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
OPENERS = ("system", "developer", "user")
# `note` on a call is ours; it is dropped where a request leaves the process.
KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
CALL_KEYS = frozenset({"id", "type", "function", "note"})


class StrictProvider:
    """Wraps a ChatModel and refuses, as `bad_request`, every request that some provider would refuse.

    Checked are the history (each call with exactly one result right behind it, ids not empty and
    used once), roles and the order of the first messages, the types of contents, arguments that are
    the text of a JSON object, no unknown fields, and the tools on offer. The fixture `runtime` puts
    it around every script.

    Arguments:
        model: the model that answers what passes.
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.id = model.id
        self.keeps_timeout: bool = getattr(model, "keeps_timeout", False)  # as the loop asks it of a model

    def __repr__(self) -> str:
        return f"StrictProvider({self.model!r})"

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ModelEvent]:
        """Stream what the wrapped model answers (see `ChatModel.respond`).

        Raises ModelError: `bad_request` (400), not retryable, with every problem in the message.
        """
        problems = request_problems(messages, tools)
        if problems:
            raise ModelError("bad_request", "a strict provider refuses this: " + "; ".join(problems), status=400)
        events = cast("AsyncGenerator[ModelEvent]", self.model.respond(messages, tools, settings))
        async with aclosing(events):
            async for event in events:
                yield event


def request_problems(messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()) -> list[str]:
    """What is wrong with a request, one line each; empty when every provider would take it."""
    problems = [] if messages else ["there is no message"]
    problems += _opening(messages)
    problems += message_problems(messages)
    return problems + _tools(tools)


def message_problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with a transcript, one line each: its messages one by one, then how they follow each other."""
    problems = [
        f"message {number}: {problem}" for number, message in enumerate(messages) for problem in _message(message)
    ]
    return problems or problems_of(messages)


def _opening(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Instructions first, then somebody who asks: a history that was cut in the middle shows here."""
    roles = [message.get("role") for message in messages]
    rest = [role for role in roles if role not in ("system", "developer")]
    if roles and (roles[0] not in OPENERS or (rest and rest[0] != "user")):
        return [f"it begins with {', '.join(map(str, roles[:2]))}; the first message after instructions is a user's"]
    return []


def _message(message: Mapping[str, Any]) -> list[str]:
    role = message.get("role")
    known = KEYS.get(role) if isinstance(role, str) else None
    if known is None:
        return [f"the role {role!r} is unknown"]
    problems = [f"a {role} message has no field {key!r}" for key in sorted(set(message) - known)]
    problems += _content(str(role), message)
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list | tuple) and calls):
        return [*problems, "tool_calls is no list with calls in it"]
    return problems + [problem for call in calls or () for problem in _call(call)]


def _content(role: str, message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if role == "assistant" and content is None:
        return [] if message.get("tool_calls") or message.get("refusal") else ["neither content nor calls"]
    if role == "tool":
        linked = isinstance(message.get("tool_call_id"), str) and message["tool_call_id"]
        unlinked = [] if linked else ["a result without tool_call_id"]
        return unlinked if isinstance(content, str) else [*unlinked, f"the content is {_kind(content)}, not text"]
    if isinstance(content, list | tuple):
        parts = [part for part in content if not (isinstance(part, Mapping) and isinstance(part.get("type"), str))]
        return ["a part of the content has no type"] if parts or not content else []
    return [] if isinstance(content, str) else [f"the content is {_kind(content)}, not text"]


def _call(call: object) -> list[str]:
    if not isinstance(call, Mapping):
        return [f"a call is {_kind(call)}"]
    function = call.get("function")
    if not isinstance(function, Mapping) or call.get("type") != "function":
        return [f"call {call.get('id')!r} is no function call"]
    problems = [f"call {call.get('id')!r} has no field {key!r}" for key in sorted(set(call) - CALL_KEYS)]
    if not isinstance(call.get("id"), str) or not call["id"]:
        problems.append(f"call id {call.get('id')!r} is empty or no text")
    if not isinstance(function.get("name"), str) or not NAME.fullmatch(function["name"]):
        problems.append(f"call {call.get('id')!r}: {function.get('name')!r} is no name of a tool")
    if not _is_object(function.get("arguments")):
        problems.append(f"call {call.get('id')!r}: the arguments are not the text of a JSON object")
    return problems


def _is_object(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _tools(tools: Sequence[ToolSpec]) -> list[str]:
    names = [tool.get("name") for tool in tools]
    problems = [f"the tool {name!r} is offered twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    for tool in tools:
        if not isinstance(tool.get("name"), str) or not NAME.fullmatch(tool["name"]):
            problems.append(f"{tool.get('name')!r} is no name of a tool")
        schema = tool.get("schema")
        if schema is not None and not (isinstance(schema, Mapping) and schema.get("type") == "object"):
            problems.append(f"the schema of {tool.get('name')!r} describes no object")
    return problems


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__
