"""The store of `memory:`: nothing survives the process, everything else holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lictor.journal.entry import Entry, Positioned

__all__ = ["MemoryLog", "MemoryStore"]

_entry = tuple.__new__  # one call for an entry: this is the hottest line of a run


class _Root:
    """What the runs below one root share: their common order, and who watches it.

    A root without children needs no order of its own: `order` is made with the first child.
    """

    __slots__ = ("callbacks", "order", "run_id")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.order: list[tuple[str, Entry]] | None = None
        self.callbacks: list[Callable[[], None]] = []


class MemoryLog:
    """The log of one run, for whoever writes it."""

    __slots__ = ("_entries", "_root", "_run_id")

    def __init__(self, run_id: str, entries: list[Entry], root: _Root) -> None:
        self._run_id = run_id
        self._entries = entries
        self._root = root

    def append(self, kind: str, payload: Mapping[str, Any], at: float) -> Entry:
        """Add one entry, here and in the order of the root; those who watch the root are told."""
        entries, root = self._entries, self._root
        entry: Entry = _entry(Entry, (len(entries), kind, payload, at))
        entries.append(entry)
        if root.order is not None:
            root.order.append((self._run_id, entry))
        for callback in root.callbacks:
            callback()
        return entry


class MemoryStore:
    """Logs and rows in plain dicts. Two Runtimes over one MemoryStore see the same runs."""

    __slots__ = ("_logs", "_roots", "_tables")

    url = "memory:"

    def __init__(self) -> None:
        self._logs: dict[str, list[Entry]] = {}
        self._roots: dict[str, _Root] = {}
        self._tables: dict[str, dict[str, Any]] = {}

    def log(self, run_id: str, root: str) -> MemoryLog:
        """The log of `run_id`, to append to; empty when new."""
        shared = self._root(root)
        if run_id != root and shared.order is None:
            shared.order = [(root, entry) for entry in self._logs.get(root, ())]
        return MemoryLog(run_id, self._logs.setdefault(run_id, []), shared)

    def _root(self, root: str) -> _Root:
        shared = self._roots.get(root)
        if shared is None:
            shared = self._roots[root] = _Root(root)
        return shared

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]:
        """The entries of one run with `seq > after`, in order."""
        return self._logs.get(run_id, [])[after + 1 :]

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]:
        """The entries of a root and all runs below it with `cursor > after`, in order."""
        shared = self._roots.get(root)
        if shared is None or shared.order is None:
            return [Positioned(entry.seq + 1, root, entry) for entry in self._logs.get(root, [])[after:]]
        return [Positioned(after + number, *item) for number, item in enumerate(shared.order[after:], 1)]

    def table(self, name: str) -> dict[str, Any]:
        """The rows of one kind, by key."""
        return self._tables.setdefault(name, {})

    def watch(self, root: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each append below `root`; returns what undoes it."""
        callbacks = self._root(root).callbacks
        callbacks.append(callback)

        def undo() -> None:
            if callback in callbacks:
                callbacks.remove(callback)

        return undo

    async def barrier(self) -> None:
        """Memory has nothing to wait for."""
