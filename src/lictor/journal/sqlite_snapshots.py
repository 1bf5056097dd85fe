"""Snapshots in SQLite: the newest of each run, bound to the log that it was folded from."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from lictor.journal.chain import digest_of
from lictor.journal.entry import Snapshot

if TYPE_CHECKING:
    from lictor.journal.sqlite import SqliteStore

__all__ = ["Snapshots"]

READ = """SELECT s.seq, s.cursor, s.version, s.head, s.body, s.digest FROM snapshot AS s
    JOIN event AS e ON e.run = s.run AND e.seq = s.seq AND e.hash = s.head WHERE s.run = ?"""
LAST = "SELECT seq, hash, (SELECT max(cursor) FROM event WHERE root = ?1) FROM event WHERE run = ?1 ORDER BY seq DESC"
WRITE = """INSERT OR REPLACE INTO snapshot (run, root, seq, cursor, version, head, body, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class Snapshots:
    """A snapshot is a cache: what does not fit is not there. With an audit key its digest is keyed."""

    __slots__ = ("_key", "_store")

    def __init__(self, store: SqliteStore, key: bytes | None) -> None:
        self._store = store
        self._key = key

    def get(self, run_id: str) -> Snapshot | None:
        """The snapshot of a root run if it is whole and its last entry is in the log."""
        for seq, cursor, version, head, body, digest in self._store.read(READ, (run_id,)):
            if not all(isinstance(each, bytes) for each in (head, body, digest)):
                return None
            if hmac.compare_digest(self._digest(run_id, seq, cursor, version, head, body), digest):
                return Snapshot(seq, cursor, version, bytes(body))
        return None

    def put(self, run_id: str, version: int, body: bytes) -> int:
        """Replace the snapshot of a root run, within a transaction that wrote its log; how far that had come."""
        seq, head, cursor = self._store.read(LAST + " LIMIT 1", (run_id,))[0]
        digest = self._digest(run_id, seq, cursor, version, head, body)
        with self._store.transaction() as db:
            db.execute(WRITE, (run_id, run_id, seq, cursor, version, head, body, digest))
        return int(cursor)

    def _digest(self, run_id: str, seq: int, cursor: int, version: int, head: bytes, body: bytes) -> bytes:
        return digest_of(f"{run_id}\n{seq}\n{cursor}\n{version}\n".encode() + head + body, self._key)
