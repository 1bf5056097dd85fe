"""Wiring: a store, the engine that drives runs, and the one door for commands."""

from __future__ import annotations

from lictor.runtime.auditing import CallAudit
from lictor.runtime.commands import Commands
from lictor.runtime.conversations import Conversation
from lictor.runtime.handle import Run
from lictor.runtime.listing import ChildRun
from lictor.runtime.retention import Pruned, prune
from lictor.runtime.row import RUNS, SIGNALS, RunRow, Signal
from lictor.runtime.runtime import Runtime
from lictor.runtime.targets import definition_of, file_of, file_schema, load_target, yaml_of

__all__ = [
    "RUNS",
    "SIGNALS",
    "CallAudit",
    "ChildRun",
    "Commands",
    "Conversation",
    "Pruned",
    "Run",
    "RunRow",
    "Runtime",
    "Signal",
    "definition_of",
    "file_of",
    "file_schema",
    "load_target",
    "prune",
    "yaml_of",
]
