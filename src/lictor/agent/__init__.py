"""Agents: a model with tools, governed at eight points, with a valid history in every exit."""

from __future__ import annotations

from lictor.agent.assembly import assemble, used_below
from lictor.agent.breaker import LoopBreaker, TraceRecord, TraceView
from lictor.agent.calls import due_calls
from lictor.agent.children import outcome_value
from lictor.agent.definition import Agent
from lictor.agent.folded import snapshot
from lictor.agent.handlers import STEPS
from lictor.agent.held import HELD
from lictor.agent.history import History, Window, blocks, problems_of
from lictor.agent.incremental import Incremental
from lictor.agent.loops import DENIED, LoopEvidence, LoopPolicy, LoopRecord, detect_loop
from lictor.agent.machine import AgentMachine, AgentState
from lictor.agent.modelstep import drop_held
from lictor.agent.places import here_only
from lictor.agent.plan import plan_for, resolve_order
from lictor.agent.repeats import DenyRepeats
from lictor.agent.results import cut, error_result, render, safe_value
from lictor.agent.running import begin, check_resolver, result_of, run_agent, split_limits, stream_agent
from lictor.agent.session import NO_GOVERNANCE, Mediator, Options, Session
from lictor.agent.sources import SourceTool
from lictor.agent.stint import SOURCED_STEPS, stint
from lictor.agent.tools import Tool, ToolContext, ToolSource, fingerprint, foreign_tool, tool, tool_spec
from lictor.agent.trace import AgentTrace, trace_of

__all__ = [
    "DENIED",
    "HELD",
    "NO_GOVERNANCE",
    "SOURCED_STEPS",
    "STEPS",
    "Agent",
    "AgentMachine",
    "AgentState",
    "AgentTrace",
    "DenyRepeats",
    "History",
    "Incremental",
    "LoopBreaker",
    "LoopEvidence",
    "LoopPolicy",
    "LoopRecord",
    "Mediator",
    "Options",
    "Session",
    "SourceTool",
    "Tool",
    "ToolContext",
    "ToolSource",
    "TraceRecord",
    "TraceView",
    "Window",
    "assemble",
    "begin",
    "blocks",
    "check_resolver",
    "cut",
    "detect_loop",
    "drop_held",
    "due_calls",
    "error_result",
    "fingerprint",
    "foreign_tool",
    "here_only",
    "outcome_value",
    "plan_for",
    "problems_of",
    "render",
    "resolve_order",
    "result_of",
    "run_agent",
    "safe_value",
    "snapshot",
    "split_limits",
    "stint",
    "stream_agent",
    "tool",
    "tool_spec",
    "trace_of",
    "used_below",
]
