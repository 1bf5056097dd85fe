"""From a model response to what the run may do with it; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import orjson

from lictor.agent.results import error_result, whole_text
from lictor.agent.tools import parse_arguments
from lictor.errors import ToolArgumentsInvalid
from lictor.models import ModelResponse
from lictor.values import freeze

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
FIT = re.compile(r"(?!call_[0-9]+$)[A-Za-z0-9_-]{1,64}")  # an id that a provider takes back, and that is none of ours
NO_TOOLS: Mapping[str, Any] = {}
NONE: Set[str] = frozenset()
NO_CALLS: Sequence[Any] = freeze([])
# What providers write when nothing is missing, when the answer was cut, and when it was withheld.
COMPLETE = frozenset({
    "stop", "tool_calls", "function_call", "end_turn",
    "complete", "completed", "eos", "eos_token", "stop_sequence", "tool_call", "tool_use",
})  # fmt: skip
CUT = frozenset({"length", "incomplete", "max_length", "max_output_tokens", "max_tokens", "model_length"})
WITHHELD = frozenset({"content_filter", "content_filtered", "guardrail_intervened", "refusal", "safety"})
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


def propose(
    response: ModelResponse, numbered: int, used: Set[str] = NONE, tools: Mapping[str, Any] = NO_TOOLS
) -> tuple[Proposed, ...]:
    """The calls of a response under ids that are unique in the history.

    The provider's id stays where it is fit, alone in the response and not among those `used`; otherwise
    the call gets one of ours, `call_7` (30-agent, 8). `tools` say how each tool reads its arguments.
    """
    calls = response.calls
    if not calls:
        return ()
    if not calls[1:]:
        id = calls[0].id
        own_id = id if id and id not in used and FIT.fullmatch(id) else f"call_{numbered}"
        return (_proposed(calls[0], own_id, tools),)
    given = [call.id for call in calls]
    return tuple(
        [
            _proposed(
                call,
                id if id and given.count(id) == 1 and id not in used and FIT.fullmatch(id) else f"call_{numbered + i}",
                tools,
            )
            for i, (id, call) in enumerate(zip(given, calls, strict=True))
        ]
    )


def _proposed(call: Any, own_id: str, tools: Mapping[str, Any]) -> Proposed:
    given, name = call.arguments, call.name if call.name.isascii() else _whole(call.name)
    try:
        args = parse_arguments(given, "", tools[name].binding.validate if name in tools else None)
    except ToolArgumentsInvalid as exc:
        raw = given if isinstance(given, str) else repr(given)
        return Proposed(own_id, call.id, name, "{}", {}, _whole(raw[:RAW_SHOWN]), exc.problems)
    text = (given if args else "{}") if type(given) is str else orjson.dumps(args).decode()
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
        "tool_calls": shown or NO_CALLS,
        "finish_reason": response.finish,
    }


def revise(
    target: Mapping[str, Any], calls: tuple[Proposed, ...], numbered: int
) -> tuple[Any, tuple[Proposed, ...], str]:
    """Content, calls and finish reason after a transform of the response; added calls get ids of their own."""
    known = {call.id: call for call in calls}
    revised: list[Proposed] = []
    for item in target["tool_calls"]:
        if item.get("hosted"):
            continue
        given = item.get("id")
        before = known.pop(given, None) if isinstance(given, str) else None
        if before is not None and before.name == item["name"] and before.args == item["args"]:
            revised.append(before)
            continue
        own_id = before.id if before else f"call_{numbered}_{len(revised)}"
        revised.append(Proposed(own_id, None, item["name"], orjson.dumps(item["args"]).decode(), item["args"]))
    return target["content"], tuple(revised), target["finish_reason"]


def fault_of(content: Any, calls: tuple[Proposed, ...], finish: str) -> str | None:
    """Why a response cannot be used: a word of the closed list of reasons, or None.

    A response that was cut or withheld runs none of its calls; one that ended for a reason nobody
    knows is no success and runs none either, since it may have been cut (30-agent, 11).
    """
    if finish not in COMPLETE:
        finish = str(finish).lower()  # a transform may have made it anything
        if finish in CUT:
            return "truncated"
        if finish in WITHHELD:
            return "content_filter"
        if finish not in COMPLETE and (calls or content):
            return "no_answer"
    return None if calls or content else "empty_answer"


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
