"""The closed tables of AGENT-HOOKS-0.1: points (§3), their targets (§4.2), reserved reasons (§11)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["FIELDS", "POINTS", "RESERVED_REASONS", "SPEC", "TARGETS", "TRANSFORMABLE", "Point"]

SPEC: Final = "agent-hooks/0.1"


class Point(StrEnum):
    """The eight points (§3), for those who are used to an enumeration; each is its name."""

    AGENT_STARTUP = "agent_startup"
    INPUT = "input"
    PRE_MODEL_CALL = "pre_model_call"
    POST_MODEL_CALL = "post_model_call"
    PRE_TOOL_CALL = "pre_tool_call"
    POST_TOOL_CALL = "post_tool_call"
    OUTPUT = "output"
    AGENT_SHUTDOWN = "agent_shutdown"


# Where `target` lives at each point: the field it is an alias of (§4.2, §4.3).
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "agent_startup": ("agent_init",),
    "input": ("input",),
    "pre_model_call": ("messages",),
    "post_model_call": ("response",),
    "pre_tool_call": ("tool_call", "args"),
    "post_tool_call": ("tool_result", "value"),
    "output": ("output",),
    "agent_shutdown": ("summary",),
}

POINTS: Final[tuple[str, ...]] = tuple(TARGETS)

# §3: there is nothing to rewrite before a session begins and after it ended.
TRANSFORMABLE: Final[frozenset[str]] = frozenset(POINTS) - {"agent_startup", "agent_shutdown"}

# §10.2: the conditional fields of each point and their required members, both in sorted order; an
# empty tuple means the whole field.
FIELDS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "agent_startup": {"agent_init": ("tools_registered",)},
    "input": {"input": ("content", "role")},
    "pre_model_call": {"messages": (), "model": ("id",)},
    "post_model_call": {"model": ("id",), "response": ("content", "finish_reason", "tool_calls")},
    "pre_tool_call": {"tool_call": ("args", "id", "name")},
    "post_tool_call": {"tool_call": ("args", "id", "name"), "tool_result": ("is_error", "value")},
    "output": {"output": ("content",)},
    "agent_shutdown": {"summary": ("reason",)},
}

CONTEXT_INVALID: Final = "host_error:context_invalid"
INTERCEPTOR_FAILED: Final = "host_error:interceptor_failed"
INTERCEPTOR_TIMEOUT: Final = "host_error:interceptor_timeout"
VERDICT_INVALID: Final = "host_error:verdict_invalid"
TRANSFORM_INVALID: Final = "host_error:transform_invalid"
TRANSFORM_TARGET_FORBIDDEN: Final = "host_error:transform_target_forbidden"
TRANSFORM_CONFLICT: Final = "host_error:transform_conflict"
COMPOSITION_DISAGREEMENT: Final = "host_error:composition_disagreement"
APPROVAL_RESOLVER_FAILED: Final = "host_error:approval_resolver_failed"
APPROVAL_UNRESOLVED: Final = "host_error:approval_unresolved"
APPROVAL_IDENTITY_MISMATCH: Final = "host_error:approval_identity_mismatch"
ADAPTER_UNSUPPORTED: Final = "host_error:adapter_unsupported"
STREAMING_UNSUPPORTED: Final = "host_error:streaming_unsupported"
NO_INTERCEPTOR: Final = "host_error:no_interceptor"

RESERVED_REASONS: Final[frozenset[str]] = frozenset(
    {
        CONTEXT_INVALID,
        INTERCEPTOR_FAILED,
        INTERCEPTOR_TIMEOUT,
        VERDICT_INVALID,
        TRANSFORM_INVALID,
        TRANSFORM_TARGET_FORBIDDEN,
        TRANSFORM_CONFLICT,
        COMPOSITION_DISAGREEMENT,
        APPROVAL_RESOLVER_FAILED,
        APPROVAL_UNRESOLVED,
        APPROVAL_IDENTITY_MISMATCH,
        ADAPTER_UNSUPPORTED,
        STREAMING_UNSUPPORTED,
        NO_INTERCEPTOR,
    }
)
