"""The agent context (§4): the frozen mapping interceptors see, and how foreign ones are admitted."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from lictor.errors import PathError, ValueDomainError
from lictor.hooks.path import parse_path, replace_at
from lictor.hooks.points import (
    CONTEXT_INVALID,
    FIELDS,
    SPEC,
    TARGETS,
    TRANSFORM_INVALID,
    TRANSFORM_TARGET_FORBIDDEN,
    TRANSFORMABLE,
)
from lictor.hooks.verdict import Transform
from lictor.values import MAX_DEPTH, FrozenDict, FrozenList, canonical_json, freeze, thaw

__all__ = ["MAX_BYTES", "AgentContext", "Context", "Head", "plain_copy", "read_context", "transformed"]

MAX_BYTES: Final = 5 * 1024 * 1024  # §12.3: serialised context, the target counted once

_SPEC: Final = re.compile(r"agent-hooks/[0-9]+\.[0-9]+")
_FRAMEWORK: Final = re.compile(r"[a-z0-9_-]+")
_NAMESPACE: Final = re.compile(r"[a-z][a-z0-9_]*")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_ROLES: Final = ("user", "system", "external")
REASONS: Final = ("completed", "error", "cancelled")


class Head:
    """What the contexts of one session share: the canonical bytes of their fixed parts (§10.2).

    `agent` is that member's value; `session` the members `session` and `spec`, which are always side
    by side. `prefix` is where identity keeps how far it has hashed the session's messages.
    """

    __slots__ = ("agent", "prefix", "session")

    def __init__(self, agent: bytes, session: bytes, spec: bytes = SPEC.encode()) -> None:
        self.agent = agent
        self.session = b'"session":%b,"spec":"%b"' % (session, spec)
        self.prefix: Any = None


class Context(FrozenDict):
    """The read-only mapping an interceptor gets (§4).

    A `dict` whose writes raise; `thaw(context)` or `copy.deepcopy(context)` gives a plain one. Being
    of this class means: checked against §4, frozen, `target` is the very object of its field. Only
    `ContextBuilder` and `read_context` make them.
    """

    __slots__ = ("_exact", "_head", "_jcs")

    _exact: bool  # a builder made it: its fields hold the required members and no others
    _head: Head
    _jcs: str | None  # the jcs-sha256 identity once it is known


AgentContext: TypeAlias = Context


def read_context(value: object, *, aliased: bool = True) -> Context:
    """Check a context that somebody else built and return it frozen (§4, §6.3).

    Args:
        value: a dict with the members of §4.
        aliased: refuse a `target` that differs from the field it stands for (§4.2); a redacted
            context (§9) may differ.

    Raises:
        ValueDomainError: with the path of the first member that is wrong; never with content.
    """
    if not isinstance(value, dict):
        raise ValueDomainError("$", f"a context is a JSON object, not {type(value).__name__}")
    fields: FrozenDict = freeze(dict(value))
    _check_core(fields)
    point = fields["interception_point"]
    _check_fields(point, fields)
    place = TARGETS[point]
    held = fields[place[0]] if len(place) == 1 else fields[place[0]][place[1]]
    target = fields["target"]
    size = len(canonical_json(fields)) - len(canonical_json(target))
    if size > MAX_BYTES:
        raise ValueDomainError("$", f"{size} bytes; {MAX_BYTES} are allowed")
    if aliased:
        if canonical_json(held) != canonical_json(target):
            raise ValueDomainError("$.target", f"differs from {'.'.join(place)}, whose value it must be")
        fields = FrozenDict({**fields, "target": held})
    return make_context(fields, make_head(fields["agent"], fields["session"], fields["spec"]))


def make_context(fields: dict[str, Any], head: Head) -> Context:
    """Return `fields`, whose values are frozen and checked, as a context."""
    context = fields if type(fields) is Context else Context(fields)
    context._exact = False
    context._head = head
    context._jcs = None
    return context


def make_head(agent: FrozenDict, session: FrozenDict, spec: str = SPEC) -> Head:
    """Return the projections of `agent` and `session`, and `spec` (§10.2)."""
    who = {"id": agent["id"], "framework": agent["framework"]}
    return Head(canonical_json(who), canonical_json({"id": session["id"]}), spec.encode())


def plain_copy(context: Context) -> dict[str, Any]:
    """Return a mutable deep copy in which `target` is again an alias of its field (§4.3, §7)."""
    copied: dict[str, Any] = {key: None if key == "target" else thaw(item) for key, item in context.items()}
    place = TARGETS[context["interception_point"]]
    held = context[place[0]] if len(place) == 1 else context[place[0]][place[1]]
    if held is context["target"]:
        copied["target"] = copied[place[0]] if len(place) == 1 else copied[place[0]][place[1]]
    else:
        copied["target"] = thaw(context["target"])
    return copied


def transformed(context: Context, transform: Transform) -> Context:
    """Return `context` with `transform` applied to the target and its field, and nothing else (§5.2).

    Raises:
        PathError: its `reason` is the `host_error:*` to record.
    """
    point = context["interception_point"]
    if point not in TRANSFORMABLE:
        raise PathError(TRANSFORM_TARGET_FORBIDDEN, f"{point} has nothing to transform (§3)")
    target = replace_at(context["target"], parse_path(transform.path), transform.value)
    place = TARGETS[point]
    if getattr(target, "_height", 0) + len(place) > MAX_DEPTH:
        raise PathError(CONTEXT_INVALID, f"nested deeper than {MAX_DEPTH} levels")
    name = place[0]
    field = target if len(place) == 1 else freeze({**context[name], place[1]: target})
    try:
        _check_field(point, name, field)
    except ValueDomainError as error:
        raise PathError(TRANSFORM_INVALID, f"{error.path}: {error.problem}") from None
    return make_context(Context(context, **{name: field, "target": target}), context._head)


# ---- §4.1 and §4.2 ----------------------------------------------------------------------------


def _check_core(fields: FrozenDict) -> None:
    point = fields.get("interception_point")
    if not isinstance(point, str) or point not in TARGETS:
        raise ValueDomainError("$.interception_point", f"must be one of {', '.join(TARGETS)}")
    _match(fields, "spec", _SPEC, "agent-hooks/MAJOR.MINOR")
    _match(fields, "timestamp", _TIMESTAMP, "an RFC 3339 instant")
    sequence = fields.get("sequence")
    if type(sequence) is not int or sequence < 0:
        raise ValueDomainError("$.sequence", "must be an integer of at least 0")
    agent = _object("$.agent", fields.get("agent"))
    check_name("$.agent.id", agent.get("id"))
    _match(agent, "framework", _FRAMEWORK, "lowercase letters, digits, '_' and '-'", "$.agent")
    check_name("$.session.id", _object("$.session", fields.get("session")).get("id"))
    if "target" not in fields:
        raise ValueDomainError("$.target", "is missing")
    if "extensions" in fields and not all(map(_NAMESPACE.fullmatch, _object("$.extensions", fields["extensions"]))):
        raise ValueDomainError("$.extensions", "a namespace is a lowercase name (§4.6)")


def _check_fields(point: str, fields: FrozenDict) -> None:
    for name in FIELDS[point]:
        if name not in fields:
            raise ValueDomainError(f"$.{name}", "is missing")
        _check_field(point, name, fields[name])


def _check_field(point: str, name: str, value: Any) -> None:
    members = FIELDS[point][name]
    if members and type(value) is not FrozenDict and not isinstance(value, dict):
        raise ValueDomainError(f"$.{name}", "must be an object")
    for member in members:
        if member not in value:
            raise ValueDomainError(f"$.{name}.{member}", "is missing")
    _CHECKS[name](value)


def _object(path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueDomainError(path, "must be an object")
    return value


def _match(fields: dict[str, Any], name: str, pattern: re.Pattern[str], what: str, path: str = "$") -> None:
    value = fields.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueDomainError(f"{path}.{name}", f"must be {what}")


def check_name(path: str, value: object) -> None:
    """Raise unless `value` is a string with something in it."""
    if not isinstance(value, str) or not value:
        raise ValueDomainError(path, "must be a string that is not empty")


def _check_agent_init(value: dict[str, Any]) -> None:
    tools = value["tools_registered"]
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise ValueDomainError("$.agent_init.tools_registered", "must be an array of strings")


def _check_input(value: dict[str, Any]) -> None:
    if value["role"] not in _ROLES:
        raise ValueDomainError("$.input.role", f"must be one of {', '.join(_ROLES)}")


def _check_model(value: dict[str, Any]) -> None:
    if not isinstance(value["id"], str):
        raise ValueDomainError("$.model.id", "must be a string")


def check_messages(value: object) -> None:
    """Raise unless `value` is an array of `{role, content, …}` (§4.2)."""
    if type(value) is not FrozenList and type(value) is not list and not isinstance(value, list):
        raise ValueDomainError("$.messages", "must be an array")
    for message in value:
        known = type(message) is FrozenDict or isinstance(message, dict)
        if not known or "content" not in message or "role" not in message or type(message["role"]) is not str:
            raise ValueDomainError("$.messages[]", "must be an object with a string `role` and `content`")


def check_response(value: dict[str, Any]) -> bool:
    """Raise unless `value` has `content`, an array of tool calls and a finish reason (§4.2).

    Returns whether that is all it has.
    """
    # Values are frozen here, so the exact types are known, and a subscript costs no function call.
    if "content" not in value or "finish_reason" not in value or type(value["finish_reason"]) is not str:
        raise ValueDomainError("$.response", "needs `content` and a string `finish_reason`")
    if "tool_calls" not in value or type(value["tool_calls"]) is not FrozenList:
        raise ValueDomainError("$.response.tool_calls", "must be an array, empty when there are none")
    for call in value["tool_calls"]:
        if type(call) is not FrozenDict or "name" not in call or type(call["name"]) is not str:
            raise ValueDomainError("$.response.tool_calls[]", "must be an object with a `name`")
        if "args" not in call or type(call["args"]) is not FrozenDict:
            raise ValueDomainError("$.response.tool_calls[].args", "must be an object")
    return not [*value][3:]


def _check_tool_call(value: dict[str, Any]) -> None:
    if type(value["id"]) is not str or not value["id"]:
        raise ValueDomainError("$.tool_call.id", "must be a string that is not empty")
    if type(value["name"]) is not str:
        raise ValueDomainError("$.tool_call.name", "must be a string")
    if type(value["args"]) is not FrozenDict:
        raise ValueDomainError("$.tool_call.args", "must be an object")


def _check_tool_result(value: dict[str, Any]) -> None:
    if not isinstance(value["is_error"], bool):
        raise ValueDomainError("$.tool_result.is_error", "must be a boolean")


def _check_output(value: dict[str, Any]) -> None:
    """`output.content` may be any JSON; that it is there has been checked."""


def _check_summary(value: dict[str, Any]) -> None:
    if value["reason"] not in REASONS:
        raise ValueDomainError("$.summary.reason", f"must be one of {', '.join(REASONS)}")


_CHECKS: Final = {
    "agent_init": _check_agent_init,
    "input": _check_input,
    "messages": check_messages,
    "model": _check_model,
    "output": _check_output,
    "response": check_response,
    "summary": _check_summary,
    "tool_call": _check_tool_call,
    "tool_result": _check_tool_result,
}
