"""From a model response to what the run may do with it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from lictor.agent.results import error_result, whole_text
from lictor.agent.tools import parse_arguments
from lictor.errors import ToolArgumentsInvalid
from lictor.models import ModelResponse

__all__ = [
    "REASK",
    "Proposed",
    "assistant_message",
    "fault_of",
    "invalid_arguments",
    "propose",
    "response_context",
    "revise",
    "unknown_tool",
]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNFIT = re.compile(r"[^A-Za-z0-9_-]")
COMPLETE = frozenset({"stop", "tool_calls", "function_call", "end_turn"})
RAW_SHOWN = 2000
REASK = {
    "empty_answer": "Your last answer was empty. Answer the question or call a tool.",
    "truncated": "Your last answer was cut off before its end and was not used. Answer again, more briefly.",
    "content_filter": "Your last answer was withheld by a filter. Answer again in other words.",
    "no_answer": "Your last answer could not be used.",
}


class Proposed(NamedTuple):
    """A call as the model proposes it. `raw` is set when the arguments are no JSON object."""

    id: str
    provider_id: str | None
    name: str
    arguments: str
    args: Mapping[str, Any]
    raw: str | None = None
    problems: tuple[str, ...] = ()


_tuple = tuple.__new__


def propose(response: ModelResponse, numbered: int) -> tuple[Proposed, ...]:
    """The calls of a response under ids of our own; the provider's are only hints (30-agent, 8)."""
    if not response.calls:
        return ()
    return tuple([_proposed(call, f"call_{numbered + i}") for i, call in enumerate(response.calls)])


def _proposed(call: Any, own_id: str) -> Proposed:
    given, name = call.arguments, call.name if call.name.isascii() else _whole(call.name)
    try:
        args = parse_arguments(given)
    except ToolArgumentsInvalid as exc:
        raw = given if isinstance(given, str) else repr(given)
        return Proposed(own_id, call.id, name, "{}", {}, _whole(raw[:RAW_SHOWN]), exc.problems)
    text = (given or "{}") if type(given) is str else orjson.dumps(args).decode()
    return _tuple(Proposed, (own_id, call.id, name, text, args, None, ()))


def _whole(text: Any) -> Any:
    """Text that can be stored and sent: a lone surrogate would spoil every later request (G15)."""
    return text if not isinstance(text, str) or text.isascii() else whole_text(text)[0]


def response_context(response: ModelResponse, calls: tuple[Proposed, ...]) -> dict[str, Any]:
    """`response` of `post_model_call` (§4.2); provider-hosted calls are marked, unparsable arguments shown raw."""
    shown: list[dict[str, Any]] = []
    for call in calls:
        item: dict[str, Any] = {"id": call.id, "name": call.name, "args": call.args}
        if call.raw is not None:
            item["raw"] = call.raw
        shown.append(item)
    for number, hosted in enumerate(response.hosted):
        shown.append(
            {
                "id": f"hosted_{number}",
                "name": hosted.name,
                "args": hosted.arguments if isinstance(hosted.arguments, dict) else {},
                "hosted": True,
            }
        )
    content = response.content if response.refusal is None else response.refusal
    return {
        "content": content if content is None or content.isascii() else _whole(content),
        "tool_calls": shown,
        "finish_reason": response.finish,
    }


def revise(target: Mapping[str, Any], calls: tuple[Proposed, ...]) -> tuple[Any, tuple[Proposed, ...], str]:
    """Content, calls and finish reason after a transform of the response."""
    known = {call.id: call for call in calls}
    revised: list[Proposed] = []
    for item in target["tool_calls"]:
        if item.get("hosted"):
            continue
        before = known.get(item.get("id", ""))
        if before is not None and before.name == item["name"] and before.args == item["args"]:
            revised.append(before)
            continue
        own_id = before.id if before else f"{calls[-1].id if calls else 'call'}_{len(revised)}"
        revised.append(Proposed(own_id, None, item["name"], orjson.dumps(item["args"]).decode(), item["args"]))
    return target["content"], tuple(revised), target["finish_reason"]


def fault_of(content: Any, calls: tuple[Proposed, ...], finish: str) -> str | None:
    """Why a response cannot be used: a word of the closed list of reasons, or None.

    A response that was cut or filtered runs none of its calls; an unknown finish reason is no
    success (30-agent, 11).
    """
    if finish == "length":
        return "truncated"
    if finish == "content_filter":
        return "content_filter"
    if calls:
        return None
    if not content:
        return "empty_answer"
    return None if finish in COMPLETE else "no_answer"


def assistant_message(content: Any, calls: tuple[Proposed, ...]) -> dict[str, Any]:
    """The message that is stored, in the OpenAI chat shape.

    A name that no tool can have is stored in a form that every provider takes back.
    """
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": _carried(call.name), "arguments": call.arguments}}
            for call in calls
        ]
    return message


def _carried(name: str) -> str:
    return name if NAME.fullmatch(name) else UNFIT.sub("_", name)[:64] or "unnamed"


def unknown_tool(call: Proposed, names: tuple[str, ...]) -> dict[str, Any]:
    """The error result for a name that is not registered exactly so."""
    listed = ", ".join(names) or "none"
    return error_result("unknown_tool", call.name, f"there is no tool {call.name!r}; the tools are: {listed}")


def invalid_arguments(call: Proposed, problems: tuple[str, ...]) -> dict[str, Any]:
    """The error result for arguments that do not fit."""
    return error_result("invalid_arguments", call.name, "; ".join(problems))
