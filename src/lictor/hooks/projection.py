"""The bytes an identity is computed over: the closed projection of a context (§10.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from lictor.errors import ValueDomainError
from lictor.hooks.context import MAX_BYTES, Context
from lictor.hooks.points import FIELDS
from lictor.values import FrozenDict, FrozenList, canonical_bytes, canonical_json

__all__ = ["CallPieces", "call_pieces", "preimage"]

_dumps = orjson.dumps


def preimage(context: Context, compat: str | None = None) -> bytes:
    """Return the canonical bytes of the closed projection of `context`.

    Raises:
        ValueDomainError: a lone surrogate, or more than 5 MiB with the target counted once (§12.3).
    """
    value = context["target"]
    kind = type(value)
    try:
        if compat is None and (kind is FrozenDict or kind is FrozenList):  # `_piece`, spelt out
            target = value._canon or canonical_bytes(value)
        else:
            target = _piece(value, compat)
        data = _LAYOUTS[context["interception_point"]](context, target, compat)
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
        opening = b'{"agent":%b,"interception_point":"pre_model_call","messages":[' % head.agent
        messages = b",".join([message._canon or canonical_bytes(message) for message in context["messages"]])
        middle = b'],"model":{"id":%b},"sequence":%d,%b,"target":[' % (
            _dumps(context["model"]["id"]),
            context["sequence"],
            head.session,
        )
        closing = b'],"timestamp":%b}' % _dumps(context["timestamp"])
    except orjson.JSONEncodeError:
        raise _surrogate() from None
    _check_size(len(opening) + len(messages) + len(middle) + len(closing))
    return CallPieces(opening, messages, middle, closing)


# ---- the layouts ------------------------------------------------------------------------------
# The whole of each preimage as it is hashed, members in sorted order; a field that holds nothing
# beyond its required members is the target's own bytes.


def _piece(value: Any, compat: str | None) -> bytes:
    kind = type(value)
    if kind is str:
        return _dumps(value)
    if compat is None and (kind is FrozenDict or kind is FrozenList):
        return value._canon or canonical_bytes(value)
    return canonical_json(value, compat=compat)


def _field(context: Context, name: str, target: bytes, compat: str | None) -> bytes:
    value = context[name]
    members = FIELDS[context["interception_point"]][name]
    if value is context["target"] and len(value) == len(members):
        return target
    return canonical_json({member: value[member] for member in members}, compat=compat)


def _agent_startup(context: Context, target: bytes, compat: str | None) -> bytes:
    return (
        b'{"agent":%b,"agent_init":%b,"interception_point":"agent_startup","sequence":%d,%b,"target":%b,"timestamp":%b}'
    ) % (
        context._head.agent,
        target if context._exact else _field(context, "agent_init", target, compat),
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
    )


def _input(context: Context, target: bytes, compat: str | None) -> bytes:
    return b'{"agent":%b,"input":%b,"interception_point":"input","sequence":%d,%b,"target":%b,"timestamp":%b}' % (
        context._head.agent,
        target if context._exact else _field(context, "input", target, compat),
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
    )


def _pre_model_call(context: Context, target: bytes, compat: str | None) -> bytes:
    messages = context["messages"]
    return (
        b'{"agent":%b,"interception_point":"pre_model_call","messages":%b,"model":{"id":%b},"sequence":%d,'
        b'%b,"target":%b,"timestamp":%b}'
    ) % (
        context._head.agent,
        target if messages is context["target"] else _piece(messages, compat),
        _dumps(context["model"]["id"]),
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
    )


def _post_model_call(context: Context, target: bytes, compat: str | None) -> bytes:
    return (
        b'{"agent":%b,"interception_point":"post_model_call","model":{"id":%b},"response":%b,"sequence":%d,'
        b'%b,"target":%b,"timestamp":%b}'
    ) % (
        context._head.agent,
        _dumps(context["model"]["id"]),
        target if context._exact else _field(context, "response", target, compat),
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
    )


def _pre_tool_call(context: Context, target: bytes, compat: str | None) -> bytes:
    call = context["tool_call"]
    args = call["args"]
    return (
        b'{"agent":%b,"interception_point":"pre_tool_call","sequence":%d,%b,'
        b'"target":%b,"timestamp":%b,"tool_call":{"args":%b,%b}}'
    ) % (
        context._head.agent,
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
        target if args is context["target"] else _piece(args, compat),
        _dumps({"id": call["id"], "name": call["name"]})[1:-1],
    )


def _post_tool_call(context: Context, target: bytes, compat: str | None) -> bytes:
    call = context["tool_call"]
    result = context["tool_result"]
    value = result["value"]
    return (
        b'{"agent":%b,"interception_point":"post_tool_call","sequence":%d,%b,'
        b'"target":%b,"timestamp":%b,"tool_call":{"args":%b,%b},'
        b'"tool_result":{"is_error":%b,"value":%b}}'
    ) % (
        context._head.agent,
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
        _piece(call["args"], compat),
        _dumps({"id": call["id"], "name": call["name"]})[1:-1],
        b"true" if result["is_error"] else b"false",
        target if value is context["target"] else _piece(value, compat),
    )


def _output(context: Context, target: bytes, compat: str | None) -> bytes:
    return b'{"agent":%b,"interception_point":"output","output":%b,"sequence":%d,%b,"target":%b,"timestamp":%b}' % (
        context._head.agent,
        target if context._exact else _field(context, "output", target, compat),
        context["sequence"],
        context._head.session,
        target,
        _dumps(context["timestamp"]),
    )


def _agent_shutdown(context: Context, target: bytes, compat: str | None) -> bytes:
    return (
        b'{"agent":%b,"interception_point":"agent_shutdown","sequence":%d,%b,"summary":%b,"target":%b,"timestamp":%b}'
    ) % (
        context._head.agent,
        context["sequence"],
        context._head.session,
        target if context._exact else _field(context, "summary", target, compat),
        target,
        _dumps(context["timestamp"]),
    )


_LAYOUTS: Final[dict[str, Callable[[Context, bytes, str | None], bytes]]] = {
    "agent_startup": _agent_startup,
    "input": _input,
    "pre_model_call": _pre_model_call,
    "post_model_call": _post_model_call,
    "pre_tool_call": _pre_tool_call,
    "post_tool_call": _post_tool_call,
    "output": _output,
    "agent_shutdown": _agent_shutdown,
}
