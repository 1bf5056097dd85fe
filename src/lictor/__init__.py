"""Lictor runs LLM agents and makes every verdict stick."""

from __future__ import annotations

import typing as _typing

from lictor.agent import Agent, DenyRepeats, LoopBreaker, Tool, ToolContext, tool
from lictor.docket import Actor
from lictor.errors import InterceptionBlocked, LictorError
from lictor.hooks import (
    ALLOW,
    AgentContext,
    AllowTools,
    Composition,
    Context,
    Decision,
    DenyTools,
    Evidence,
    Gate,
    Governance,
    Interceptor,
    Mask,
    MaxCalls,
    Transform,
    Verdict,
    interceptor,
)
from lictor.models import OpenAIModel, ScriptedModel
from lictor.runs import Budget, Event, RunResult, Usage, User

if _typing.TYPE_CHECKING:
    from lictor.adapters import MCPServer
    from lictor.runtime import Run, Runtime
    from lictor.team import Team, TeamInterceptor

__all__ = [
    "ALLOW",
    "Actor",
    "Agent",
    "AgentContext",
    "AllowTools",
    "Budget",
    "Composition",
    "Context",
    "Decision",
    "DenyRepeats",
    "DenyTools",
    "Event",
    "Evidence",
    "Gate",
    "Governance",
    "InterceptionBlocked",
    "Interceptor",
    "LictorError",
    "LoopBreaker",
    "MCPServer",
    "Mask",
    "MaxCalls",
    "OpenAIModel",
    "Run",
    "RunResult",
    "Runtime",
    "ScriptedModel",
    "Team",
    "TeamInterceptor",
    "Tool",
    "ToolContext",
    "Transform",
    "Usage",
    "User",
    "Verdict",
    "interceptor",
    "tool",
]


def __getattr__(name: str) -> _typing.Any:
    """Import what few programs need only when it is asked for: `import lictor` stays cheap."""
    if name in ("Run", "Runtime"):
        from lictor import runtime

        return getattr(runtime, name)
    if name == "MCPServer":
        from lictor import adapters

        return adapters.MCPServer
    if name in ("Team", "TeamInterceptor"):
        from lictor import team

        return getattr(team, name)
    raise AttributeError(f"module 'lictor' has no attribute {name!r}")
