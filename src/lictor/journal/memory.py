"""The store of `memory:`: nothing survives the process, everything else holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any, TypeVar

from lictor.journal.entry import ERASED, Entry, Positioned, Snapshot
from lictor.journal.log import Log
from lictor.journal.owners import is_alive
from lictor.journal.table import MemoryTable, Rows, Table

__all__ = ["MemoryStore"]

R = TypeVar("R")
UNDER_WAY = frozenset({"queued", "running", "cancelling"})

_placed: Callable[[type[Positioned], tuple[int, str, Entry]], Positioned] = tuple.__new__


class _Root:
    """What the runs below one root share: their logs, their common order, and who watches.

    A root without children needs no order of its own: it is made with the first child.
    """

    __slots__ = ("callbacks", "logs", "order")

    def __init__(self) -> None:
        self.logs: dict[str, Log] = {}
        self.order: list[tuple[str, Entry]] | None = None
        self.callbacks: list[Callable[[Entry], None]] = []

    def listen(self, only: str | None = None) -> None:
        """Let every log, or only that of one run, tell just whom it has to tell."""
        for run_id, log in self.logs.items() if only is None else [(only, self.logs[only])]:
            found: list[Callable[[Entry], None]] = []
            if self.order is not None:
                found.append(self._ordering(run_id, self.order))
            log.listeners = (*found, *self.callbacks)

    @staticmethod
    def _ordering(run_id: str, order: list[tuple[str, Entry]]) -> Callable[[Entry], None]:
        return lambda entry: order.append((run_id, entry))


class MemoryStore:
    """Logs and rows in plain dicts. Two Runtimes over one MemoryStore see the same runs."""

    __slots__ = ("_leases", "_logs", "_roots", "_tables", "_woken")

    url = "memory:"
    durable = False
    durability = "none"

    def __init__(self) -> None:
        self._logs: dict[str, Log] = {}
        self._roots: dict[str, _Root] = {}
        self._tables: dict[str, MemoryTable[Any]] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._woken: set[str] = set()

    def log(self, run_id: str, root: str) -> Log:
        """The log of `run_id`, to append to; empty when new."""
        if run_id in self._logs:
            return self._logs[run_id]
        log = self._logs[run_id] = Log()
        if run_id != root or root in self._roots:
            shared = self._root(root)
            first = shared.order is None
            if shared.order is None:
                shared.order = [(root, entry) for entry in self.entries(root)]
            shared.logs[run_id] = log
            shared.listen(None if first else run_id)
        return log

    def _root(self, root: str) -> _Root:
        """What the runs below `root` share; made when there is a second one, or somebody watches."""
        if root not in self._roots:
            self._roots[root] = _Root()
            if root in self._logs:
                self._roots[root].logs[root] = self._logs[root]
        return self._roots[root]

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]:
        """The entries of one run with `seq > after`, in order."""
        return self._logs[run_id].entries[after + 1 :] if run_id in self._logs else ()

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]:
        """The entries of a root and all runs below it with `cursor > after`, in order."""
        shared = self._roots.get(root)
        places: Iterable[tuple[int, str, Entry]]
        if shared is None or shared.order is None:
            places = zip(count(after + 1), repeat(root), self.entries(root, after - 1))
        else:
            found = shared.order[after:]
            places = zip(count(after + 1), [run_id for run_id, _ in found], [entry for _, entry in found])
        return list(map(_placed, repeat(Positioned), places))

    def table(self, table: Table[R]) -> Rows[R]:
        """The rows of one kind."""
        if table.name not in self._tables:
            self._tables[table.name] = MemoryTable(table)
        return self._tables[table.name]

    @contextlib.contextmanager
    def transaction(self, root: str | None = None, *, sure: bool = False) -> Generator[None]:
        """What one thread does between two awaits is one transaction anyway."""
        yield

    def claim(self, root: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew the lease of a root run; False while another live driver holds it."""
        holder, until = self._leases.get(root, (owner, 0.0))
        if holder != owner and until >= now and is_alive(holder):
            return False
        self._leases[root] = (owner, now + seconds)
        self._woken.discard(root)
        return True

    def release(self, root: str, owner: str) -> None:
        """Give a lease back."""
        if self._leases.get(root, ("", 0.0))[0] == owner:
            del self._leases[root]

    def holder(self, root: str, now: float) -> str | None:
        """Who holds the lease of a root run."""
        holder, until = self._leases.get(root, ("", 0.0))
        return holder if holder and until >= now and is_alive(holder) else None

    def lost(self, root: str) -> bool:
        """Whether another driver took over; within one process nobody writes behind our back."""
        return False

    def discard(self, root: str) -> None:
        """Everything is written at once, so there is nothing to drop."""

    def wake(self, root: str) -> None:
        """Mark a root run as having something to do."""
        self._woken.add(root)

    def renew(self, owner: str, now: float, seconds: float) -> None:
        """Prolong every lease of `owner`."""
        for root, (holder, _) in self._leases.items():
            if holder == owner:
                self._leases[root] = (owner, now + seconds)

    def woken(self, owner: str, now: float) -> list[str]:
        """Root runs that have something to do, and that `owner` drives or nobody."""
        runs: Any = self._tables.get("run")
        under_way = [] if runs is None else [key for key in runs if runs[key].status in UNDER_WAY]
        ours = [root for root in self._woken if self.holder(root, now) == owner]
        return [*ours, *(root for root in {*under_way, *self._woken, *self._leases} if self.holder(root, now) is None)]

    def idle(self, root: str, now: float) -> bool:
        """Whether a root run has nothing to do, and nobody drives it."""
        return root not in self._woken and self.holder(root, now) is None

    def append_outside(self, run_id: str, root: str, kind: str, payload: Mapping[str, Any], at: float) -> bool:
        """Add to a log from beside its driver; within one process that is always possible."""
        self.log(run_id, root).append(kind, payload, at)
        return True

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """No other process sees this store, so nothing ever changes behind our back."""
        return lambda: None

    def close(self) -> None:
        """Nothing to close; another Runtime may go on with it."""

    def cursor(self, root: str) -> int:
        """How many entries there are below a root."""
        shared = self._roots.get(root)
        return len(self.entries(root)) if shared is None or shared.order is None else len(shared.order)

    def appended(self, root: str) -> Mapping[str, Log]:
        """The logs below a root."""
        return {run_id: self._logs[run_id] for run_id in (root, *self._root(root).logs)}

    def snapshot(self, run_id: str) -> Snapshot | None:
        """Memory keeps none: whoever needs the state reads it from the log, which costs no more."""
        return None

    def keep(self, run_id: str, version: int, body: bytes) -> None:
        """Memory keeps none."""

    def erase(self, root: str) -> int:
        """Take the payloads out of the logs below a root."""
        count = 0
        for run_id, log in self.appended(root).items():
            count += len(log.entries)
            log.entries[:] = [entry._replace(payload=ERASED) for entry in log.entries]
            shared = self._roots[root]
            if shared.order is not None:
                shared.order[:] = [
                    (name, entry._replace(payload=ERASED) if name == run_id else entry) for name, entry in shared.order
                ]
        return count

    def shred(self) -> None:
        """What is not referred to is gone."""

    def grows(self, root: str, callback: Callable[[], None] | None) -> None:
        """Memory keeps none."""

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `callback` with the entry after each append below `root`; returns what undoes it."""
        shared = self._root(root)
        shared.callbacks.append(callback)
        shared.listen()

        def undo() -> None:
            if callback in shared.callbacks:
                shared.callbacks.remove(callback)
                shared.listen()

        return undo

    async def barrier(self, root: str) -> None:
        """Memory has nothing to wait for."""
