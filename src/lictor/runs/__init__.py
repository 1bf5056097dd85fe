"""Runs: a pure machine folded from a log, and the one driver that carries out what is due."""

from __future__ import annotations

from lictor.runs.driver import drive
from lictor.runs.events import Ending, Event, Telling, follow, follow_driven
from lictor.runs.ledger import DEFAULT_MAX_TOKENS, NOTHING, Budget, Ledger, Reservation
from lictor.runs.live import LiveRun
from lictor.runs.machine import DONE, PARKED, Command, Driven, Machine, Performer
from lictor.runs.outcome import STATUSES, TERMINAL, Cause, RunResult, Status, Step, Trace
from lictor.runs.usage import NO_USAGE, Usage
from lictor.runs.user import User
from lictor.runs.watching import Watcher, check_watchers, watched

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "DONE",
    "NOTHING",
    "NO_USAGE",
    "PARKED",
    "STATUSES",
    "TERMINAL",
    "Budget",
    "Cause",
    "Command",
    "Driven",
    "Ending",
    "Event",
    "Ledger",
    "LiveRun",
    "Machine",
    "Performer",
    "Reservation",
    "RunResult",
    "Status",
    "Step",
    "Telling",
    "Trace",
    "Usage",
    "User",
    "Watcher",
    "check_watchers",
    "drive",
    "follow",
    "follow_driven",
    "watched",
]
