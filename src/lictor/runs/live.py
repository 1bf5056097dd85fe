"""A run while somebody drives it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from lictor.journal import Entry, Log, Store
from lictor.runs.ledger import Ledger
from lictor.runs.machine import Command, Machine
from lictor.runs.outcome import Cause, Step
from lictor.values import Clock

__all__ = ["LiveRun"]

S = TypeVar("S")
_entry = tuple.__new__


class Process:
    """Who drives the runs of one tree, as far as a crash is simulated: once `gone`, nobody does."""

    gone = False


class LiveRun(Generic[S]):
    """The log of one run, the state folded from it, and what is due.

    `record` is the only way anything enters the log: it appends, then advances the machine. `woken`
    says that the log was there before, so that another stint begins.
    """

    __slots__ = (
        "_advance",
        "_kinds",
        "_log",
        "_now",
        "_process",
        "clock",
        "due",
        "failing",
        "interrupts",
        "ledger",
        "machine",
        "path",
        "root",
        "run_id",
        "state",
        "store",
        "task",
        "wake",
        "woken",
    )

    def __init__(
        self,
        *,
        run_id: str,
        path: tuple[Step, ...],
        store: Store,
        clock: Clock,
        ledger: Ledger,
        machine: Machine[S],
    ) -> None:
        self.run_id = run_id
        self.path = path
        self.root = path[0].run_id
        self.store = store
        self.clock = clock
        self.ledger = ledger
        self.machine = machine
        self.state: S = machine.begin()
        self.due: Sequence[Command] = ()
        self.failing = False
        self.woken = False
        self.interrupts = 0
        self.task: asyncio.Task[Any] | None = None
        self.wake: asyncio.Event | None = None
        self._log = store.log(run_id, self.root)
        self._advance = machine.advance
        self._now = time.time if type(clock) is Clock else clock.now
        self._kinds = machine.kinds
        self._process = Process()

    def join(self, parent: LiveRun[Any]) -> None:
        """Live and die with the process that drives `parent`."""
        self._process = parent._process

    def refold(self, entries: Sequence[Entry], state: S | None = None) -> None:
        """Rebuild the state from the log, as after a crash; from `state` on, if there is one from before `entries`."""
        self.state, self.due, self.woken = self.machine.begin() if state is None else state, (), True
        for entry in entries:
            if entry.kind in self._kinds:
                self.state, self.due = self._advance(self.state, entry)

    def record(self, kind: str, payload: Mapping[str, Any], at: float | None = None) -> None:
        """Append an entry (`Log.append`, spelt out) and advance the machine.

        `at` is now unless given. After a simulated crash nothing is written and nobody goes on: it
        raises CancelledError.
        """
        if self._process.gone:
            raise asyncio.CancelledError("the process that drove this run is gone")
        log = self._log
        entry = _entry(Entry, (log.size, kind, payload, self._now() if at is None else at))
        log.size += 1
        log.entries.append(entry)
        for listener in log.listeners:
            listener(entry)
        if kind in self._kinds:
            self.state, self.due = self._advance(self.state, entry)

    def history(self) -> Callable[[], Sequence[Entry]]:
        """A way to the log as it is now, which is read only when somebody wants it."""
        log, size = self._log, self._log.size
        if log.start:  # the earlier ones are in a file
            return lambda: self.store.entries(self.run_id)[:size]
        entries = log.entries
        return lambda: entries[:size]

    def holds(self, log: Log) -> bool:
        """Whether `log` is what this run appends to."""
        return self._log is log

    @property
    def finished(self) -> bool:
        """Whether the terminal outcome is recorded."""
        return self.machine.finished(self.state)

    def crash(self) -> None:
        """From here on no run of this tree writes anything, as if their process were gone."""
        self._process.gone = True

    @property
    def crashed(self) -> bool:
        """Whether `crash` was called."""
        return self._process.gone

    def interrupt(self, cause: Cause) -> None:
        """End the run for `cause`: what is in flight and no longer due is cancelled."""
        before = self.state
        if self._process.gone or self.finished:
            return
        self.record("cause", cause.json())
        if self.state is before:  # it ends already; the first cause wins
            return
        if self.wake is not None:
            self.wake.set()
        elif self.task is not None and not cause.graceful:
            self.interrupts += 1
            self.task.cancel()

    def poke(self) -> None:
        """Something outside changed (a decision): look again."""
        if self.wake is not None:
            self.wake.set()
