"""The kit for tests of agents and policies: scripts instead of models, crashes, time, and checks.

With pytest nothing needs to be set up: `async def` tests run, and the fixture `runtime` is there
(`lictor.testing.plugin`).
"""

from __future__ import annotations

from lictor import faults
from lictor.models import ModelRequest, ScriptedModel, call, chunks, fail, hosted, say
from lictor.testing import conformance
from lictor.testing.clock import VirtualClock
from lictor.testing.driven import DrivenRuntime
from lictor.testing.faultserver import PAUSE, FaultServer, HttpReply
from lictor.testing.invariants import invariants
from lictor.testing.judging import context, judge
from lictor.testing.points import crash_at, pause_at
from lictor.testing.strict import StrictProvider
from lictor.testing.sweep import sweep

__all__ = [
    "PAUSE",
    "DrivenRuntime",
    "FaultServer",
    "HttpReply",
    "ModelRequest",
    "ScriptedModel",
    "StrictProvider",
    "VirtualClock",
    "call",
    "chunks",
    "conformance",
    "context",
    "crash_at",
    "fail",
    "faults",
    "hosted",
    "invariants",
    "judge",
    "pause_at",
    "say",
    "sweep",
]
