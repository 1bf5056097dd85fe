"""Lictor runs LLM agents and makes every verdict stick."""

from __future__ import annotations

from lictor.agent import Agent, DenyRepeats, Tool, ToolContext, tool
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
from lictor.runtime import Run, Runtime

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
    "Mask",
    "MaxCalls",
    "OpenAIModel",
    "Run",
    "RunResult",
    "Runtime",
    "ScriptedModel",
    "Tool",
    "ToolContext",
    "Transform",
    "Usage",
    "User",
    "Verdict",
    "interceptor",
    "tool",
]
