"""The logs of a SQLite store as this process holds them: what it appended, and the newest it looked at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from lictor.journal.entry import Entry
from lictor.journal.log import Log
from lictor.journal.sqlite_events import EventQueue, Queued

__all__ = ["End", "LogCache"]

MOST_ROOTS = 64
MOST_ENTRIES = 2_000
LEAST_GROWTH = 256  # shorter logs are folded as fast as a snapshot is read
_queued = tuple.__new__


class End(NamedTuple):
    """How many entries the file has of a run, and the hash of the last one."""

    size: int
    hash: bytes


class Growth:
    """How many entries there are below a root, and from how many on another snapshot is due."""

    __slots__ = ("callback", "due", "size")

    def __init__(self, size: int, due: int, callback: Callable[[], None]) -> None:
        self.size = size
        self.due = due
        self.callback = callback


class LogCache:
    """Logs by run; those below a root come and go together.

    A log holds only what was appended here: what was in the file before is read when somebody wants it. Of roots
    that nobody drives here some of the latest are kept, as long as the file ends as we know.
    """

    __slots__ = ("_callbacks", "_events", "_growth", "_idle", "_logs", "_roots", "_wanted")

    def __init__(self, events: EventQueue, wanted: threading.Event) -> None:
        self._events = events
        self._wanted = wanted
        self._logs: dict[str, Log] = {}
        self._roots: dict[str, list[str]] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._growth: dict[str, Growth] = {}
        self._callbacks: dict[str, list[Callable[[Entry], None]]] = {}

    def get(self, run_id: str) -> Log | None:
        """The log of a run, if it is held."""
        return self._logs.get(run_id)

    def runs(self, root: str) -> list[str]:
        """The runs below a root whose logs are held."""
        return list(self._roots.get(root, ()))

    def add(self, run_id: str, root: str, end: End) -> Log:
        """Hold a log that goes on where the file ends."""
        self.drop(run_id)
        log = Log()
        log.root = root
        log.start = log.size = end.size
        self._events.know(root, run_id, end.hash)
        self._logs[run_id] = log
        self._roots.setdefault(root, []).append(run_id)
        self._listen(log, run_id, root)
        if root not in self._events.fences:
            self.rest(root)
        return log

    def fits(self, run_id: str, log: Log, end: End) -> bool:
        """Whether the file ends where this log does, with the entry that we wrote."""
        return log.size == end.size and self._events.known(log.root, run_id) == end.hash

    def below(self, root: str) -> dict[str, Log]:
        """The logs below a root that are held."""
        return {run_id: self._logs[run_id] for run_id in self._roots.get(root, ())}

    def drop(self, run_id: str) -> None:
        """Hold one log no longer."""
        log = self._logs.pop(run_id, None)
        if log is not None:
            self._roots[log.root].remove(run_id)

    def forget(self, root: str) -> None:
        """Hold no log below a root."""
        self._idle.pop(root, None)
        for run_id in self._roots.pop(root, ()):
            self._logs.pop(run_id, None)

    def drive(self, root: str) -> None:
        """A root is driven here: its logs stay."""
        self._idle.pop(root, None)

    def rest(self, root: str) -> None:
        """Nobody drives a root here any more: its logs stay while they are small and new."""
        self._idle[root] = None
        self._idle.move_to_end(root)
        if sum(len(self._logs[run_id].entries) for run_id in self._roots.get(root, ())) > MOST_ENTRIES:
            self._let_go(root)
        while len(self._idle) > MOST_ROOTS:
            self._let_go(next(iter(self._idle)))

    def _let_go(self, root: str) -> None:
        self.forget(root)
        self._events.forget(root)

    # who is told of new entries, and of many

    def grows(self, root: str, callback: Callable[[], None] | None, before: int, size: int) -> None:
        """Tell when a log of `size` entries has twice as many as at the last snapshot, `before`; or do not any more."""
        if callback is None:
            self._growth.pop(root, None)
        else:
            self._growth[root] = Growth(size, max(LEAST_GROWTH, 2 * before), callback)
        self._relisten(root)

    def grown(self, root: str, size: int) -> None:
        """There is a snapshot of the first `size` entries."""
        growth = self._growth.get(root)
        if growth is not None:
            growth.due = max(LEAST_GROWTH, 2 * size)

    def _listen(self, log: Log, run_id: str, root: str) -> None:
        put, wanted = self._events.waiting.append, self._wanted
        growth = self._growth.get(root)

        def queue(entry: Entry) -> None:
            put(_queued(Queued, (root, run_id, entry)))
            if not wanted.is_set():
                wanted.set()
            if growth is not None:
                growth.size += 1
                if growth.size >= growth.due:
                    growth.due = growth.size * 2  # told once; whoever makes the snapshot says how far it came
                    growth.callback()

        log.listeners = (queue, *self._callbacks.get(root, ()))

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `callback` with each entry that this process appends below `root`; returns what undoes it."""
        callbacks = self._callbacks.setdefault(root, [])
        callbacks.append(callback)
        self._relisten(root)

        def undo() -> None:
            if callback in callbacks:
                callbacks.remove(callback)
                self._relisten(root)
            if not callbacks and self._callbacks.get(root) is callbacks:
                del self._callbacks[root]

        return undo

    def _relisten(self, root: str) -> None:
        for run_id in self._roots.get(root, ()):
            self._listen(self._logs[run_id], run_id, root)
