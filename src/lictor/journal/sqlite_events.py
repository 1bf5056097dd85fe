"""Entries on their way into the file: queued, chained, and held back when the lease is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from lictor.journal.chain import START, VERSION, link
from lictor.journal.entry import Entry

__all__ = ["EventQueue", "Queued"]

INSERT = (
    "INSERT INTO event (root, cursor, run, seq, kind, version, at, payload, digest, prev, hash) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Queued(NamedTuple):
    """An entry and where it belongs."""

    root: str
    run: str
    entry: Entry


class EventQueue:
    """What waits to be written, and the leases (fences) that allow it.

    Appends come from the event loop while the writer thread takes: the list in `waiting` is never
    replaced by another one, or an entry could land in the list that was just taken.
    """

    def __init__(self, db: sqlite3.Connection, key: bytes | None) -> None:
        self._db = db
        self._key = key
        self.waiting: list[Queued] = []
        self.taken: list[Queued] = []
        self.fences: dict[str, tuple[str, int]] = {}
        self.lost: set[str] = set()
        self._tails: dict[str, dict[str, bytes]] = {}
        self._cursors: dict[str, int] = {}

    def write(self) -> None:
        """Write what waits; within a transaction."""
        count = len(self.waiting)
        if not count:
            return
        queue = self.waiting[:count]
        del self.waiting[:count]
        self.taken += queue
        owned = {root: self.owned(root) for root in {item.root for item in queue}}
        self.insert([item for item in queue if owned[item.root]])

    def insert(self, items: Sequence[Queued]) -> None:
        """Write entries whoever holds the lease; within a transaction."""
        self._db.executemany(INSERT, self._rows(items))

    def commit(self) -> None:
        """What was taken is written."""
        self.taken.clear()

    def rollback(self, own: int | None) -> set[str]:
        """Nothing of what was taken is written: it waits again.

        `own` says how much of it the transaction found; what came later belonged to the block that
        failed and goes with it. None: all of it was there before. The roots of what went.
        """
        gone: list[Queued] = []
        if own is None:
            self.waiting[:0] = self.taken
        else:
            gone = [*self.taken[own:], *self.waiting]
            self.waiting[:] = self.taken[:own]
        self.taken.clear()
        self._tails.clear()
        self._cursors.clear()
        return {item.root for item in gone}

    def discard(self, root: str) -> None:
        """Write nothing of what waits for a root."""
        self.waiting[:] = [item for item in self.waiting if item.root != root]

    def forget(self, root: str) -> None:
        """Look into the file again for where the logs of a root end: another process may write to them."""
        self._tails.pop(root, None)
        self._cursors.pop(root, None)

    def known(self, root: str, run: str) -> bytes | None:
        """The hash of the last entry of a run as we know it, and none when we do not."""
        return self._tails.get(root, {}).get(run)

    def know(self, root: str, run: str, tail: bytes) -> None:
        """The last entry of a run, as the file has it now."""
        self._tails.setdefault(root, {})[run] = tail

    def doubt(self, root: str) -> None:
        """Look into the file again for how far the order below a root is."""
        self._cursors.pop(root, None)

    def owned(self, root: str) -> bool:
        """Whether this process may write the log of `root`: its lease is still the one it took (the fence)."""
        if root not in self.fences:
            return root not in self.lost
        found = self._db.execute("SELECT owner, fence FROM run WHERE key = ?", (root,)).fetchone()
        if found is not None and tuple(found) == self.fences[root]:
            return True
        self.lost.add(root)
        self.fences.pop(root, None)
        return False

    def _rows(self, items: Sequence[Queued]) -> list[tuple[Any, ...]]:
        """Entries as the file has them, each chained to the one before it."""
        dumps, key, found = orjson.dumps, self._key, []
        for root, run, (seq, kind, payload, at) in items:
            tails = self._tails.get(root)
            if tails is None:
                tails = self._tails[root] = {}
            prev = tails[run] if run in tails else self._tail(run)
            cursor = self._cursors[root] = (self._cursors[root] if root in self._cursors else self._cursor(root)) + 1
            data = dumps(payload)
            digest, chained = link(prev, (root, cursor, run, seq, kind, at), data, key)
            tails[run] = chained
            found.append((root, cursor, run, seq, kind, VERSION, at, data, digest, prev, chained))
        return found

    def _tail(self, run: str) -> bytes:
        found = self._db.execute("SELECT hash FROM event WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)).fetchone()
        return START if found is None else bytes(found[0])

    def _cursor(self, root: str) -> int:
        found = self._db.execute("SELECT max(cursor) FROM event WHERE root = ?", (root,)).fetchone()
        return found[0] or 0
