"""Entries on their way into the file: queued, chained, and held back when the lease is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from lictor.journal.chain import START, VERSION, Place, link
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
        self.insert([item for item in queue if self.owned(item.root)])

    def insert(self, items: Sequence[Queued]) -> None:
        """Write entries whoever holds the lease; within a transaction."""
        self._db.executemany(INSERT, [self._row(item) for item in items])

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

    def _row(self, item: Queued) -> tuple[Any, ...]:
        entry = item.entry
        payload = orjson.dumps(entry.payload)
        tails = self._tails.setdefault(item.root, {})
        cursor = self._cursors[item.root] = self._cursor(item.root) + 1
        place = Place(item.root, cursor, item.run, entry.seq, entry.kind, entry.at)
        chained = link(self._tail(tails, item.run), place, payload, self._key)
        tails[item.run] = chained.hash
        return (
            item.root, cursor, item.run, entry.seq, entry.kind, VERSION, entry.at, payload,
            chained.digest, chained.prev, chained.hash,
        )  # fmt: skip

    def _tail(self, tails: dict[str, bytes], run: str) -> bytes:
        if run in tails:
            return tails[run]
        sql = "SELECT hash FROM event WHERE run = ? ORDER BY seq DESC LIMIT 1"
        found = self._db.execute(sql, (run,)).fetchone()
        return START if found is None else bytes(found[0])

    def _cursor(self, root: str) -> int:
        if root in self._cursors:
            return self._cursors[root]
        found = self._db.execute("SELECT max(cursor) FROM event WHERE root = ?", (root,)).fetchone()
        return found[0] or 0
