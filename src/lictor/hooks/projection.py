"""The bytes an identity is computed over: the closed projection of a context (§10.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson
from orjson import Fragment

from lictor.errors import ValueDomainError
from lictor.hooks.context import MAX_BYTES, Context
from lictor.hooks.points import FIELDS
from lictor.values import FrozenDict, FrozenList, canonical_bytes, canonical_json

__all__ = ["CallPieces", "call_pieces", "preimage"]

_SCALARS: Final = frozenset({str, int, bool, type(None)})
_dumps = orjson.dumps


def preimage(context: Context, compat: str | None = None) -> bytes:
    """Return the canonical bytes of the closed projection of `context`.

    Raises:
        ValueDomainError: a lone surrogate, or more than 5 MiB with the target counted once (§12.3).
    """
    value = context["target"]
    kind = type(value)
    try:
        if compat is None and (kind is FrozenDict or kind is FrozenList):
            target: Any = Fragment(value._canon or canonical_bytes(value))
        else:
            target = _piece(value, compat)
        data = _dumps(_LAYOUTS[context["interception_point"]](context, target, compat))
    except orjson.JSONEncodeError:
        raise _surrogate() from None
    if data[MAX_BYTES:]:
        _check_size(len(data) - len(canonical_json(value)))
    return data


def _surrogate() -> ValueDomainError:
    return ValueDomainError("$", "a string holds a lone surrogate")


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ValueDomainError("$", f"{size} bytes; {MAX_BYTES} are allowed")


def _piece(value: Any, compat: str | None) -> Any:
    """Return what orjson will write as the canonical bytes of `value`."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if compat is None and (kind is FrozenDict or kind is FrozenList):
        return Fragment(value._canon or canonical_bytes(value))
    return Fragment(canonical_json(value, compat=compat))


# ---- pre_model_call, the one that grows -------------------------------------------------------


class CallPieces(NamedTuple):
    """The preimage of a `pre_model_call` is `opening messages middle messages closing`."""

    opening: bytes
    messages: bytes
    middle: bytes
    closing: bytes


def call_pieces(context: Context) -> CallPieces:
    """Return the pieces for a context whose target is its messages.

    Each message brings the bytes it already has, so nothing is serialised twice, and the pieces can
    be hashed without being joined.

    Raises:
        ValueDomainError: as `preimage`.
    """
    head = context._head
    try:
        opening = _dumps({"agent": head.agent, "interception_point": "pre_model_call"})
        messages = b",".join([message._canon or canonical_bytes(message) for message in context["messages"]])
        middle = _dumps(
            {
                "model": {"id": context["model"]["id"]},
                "sequence": context["sequence"],
                "session": head.session,
                "spec": context["spec"],
            }
        )
        closing = _dumps({"timestamp": context["timestamp"]})
    except orjson.JSONEncodeError:
        raise _surrogate() from None
    _check_size(len(opening) + len(messages) + len(middle) + len(closing))
    return CallPieces(
        opening[:-1] + b',"messages":[', messages, b"]," + middle[1:-1] + b',"target":[', b"]," + closing[1:]
    )


# ---- the layouts ------------------------------------------------------------------------------
# Members are written in sorted order, so that nothing is sorted at run time; a field that holds
# nothing beyond its required members is the target's own bytes.


def _field(context: Context, name: str, target: Any, compat: str | None) -> Any:
    value = context[name]
    members = FIELDS[context["interception_point"]][name]
    if value is context["target"] and len(value) == len(members):
        return target
    return {member: _piece(value[member], compat) for member in members}


def _agent_startup(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    return {
        "agent": context._head.agent,
        "agent_init": target if context._exact else _field(context, "agent_init", target, compat),
        "interception_point": "agent_startup",
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
    }


def _input(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    return {
        "agent": context._head.agent,
        "input": target if context._exact else _field(context, "input", target, compat),
        "interception_point": "input",
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
    }


def _pre_model_call(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    messages = context["messages"]
    return {
        "agent": context._head.agent,
        "interception_point": "pre_model_call",
        "messages": target if messages is context["target"] else _piece(messages, compat),
        "model": {"id": context["model"]["id"]},
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
    }


def _post_model_call(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    return {
        "agent": context._head.agent,
        "interception_point": "post_model_call",
        "model": {"id": context["model"]["id"]},
        "response": target if context._exact else _field(context, "response", target, compat),
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
    }


def _pre_tool_call(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    call = context["tool_call"]
    args = call["args"]
    return {
        "agent": context._head.agent,
        "interception_point": "pre_tool_call",
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
        "tool_call": {
            "args": target if args is context["target"] else _piece(args, compat),
            "id": call["id"],
            "name": call["name"],
        },
    }


def _post_tool_call(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    call = context["tool_call"]
    result = context["tool_result"]
    value = result["value"]
    return {
        "agent": context._head.agent,
        "interception_point": "post_tool_call",
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
        "tool_call": {"args": _piece(call["args"], compat), "id": call["id"], "name": call["name"]},
        "tool_result": {
            "is_error": result["is_error"],
            "value": target if value is context["target"] else _piece(value, compat),
        },
    }


def _output(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    return {
        "agent": context._head.agent,
        "interception_point": "output",
        "output": target if context._exact else _field(context, "output", target, compat),
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "target": target,
        "timestamp": context["timestamp"],
    }


def _agent_shutdown(context: Context, target: Any, compat: str | None) -> dict[str, Any]:
    return {
        "agent": context._head.agent,
        "interception_point": "agent_shutdown",
        "sequence": context["sequence"],
        "session": context._head.session,
        "spec": context["spec"],
        "summary": target if context._exact else _field(context, "summary", target, compat),
        "target": target,
        "timestamp": context["timestamp"],
    }


_LAYOUTS: Final[dict[str, Callable[[Context, Any, str | None], dict[str, Any]]]] = {
    "agent_startup": _agent_startup,
    "input": _input,
    "pre_model_call": _pre_model_call,
    "post_model_call": _post_model_call,
    "pre_tool_call": _pre_tool_call,
    "post_tool_call": _post_tool_call,
    "output": _output,
    "agent_shutdown": _agent_shutdown,
}
