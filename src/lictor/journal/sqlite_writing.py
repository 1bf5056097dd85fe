"""Transactions over the file of a SQLite store: what is queued, rows, and the fence, all or nothing."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from lictor import faults
from lictor.errors import LostLease, StoreError
from lictor.journal.sqlite_events import EventQueue
from lictor.journal.sqlite_file import open_file, store_error, store_errors

__all__ = ["SqliteWriting"]


class SqliteWriting:
    """The connection of one store object, shared by its threads under one lock."""

    def __init__(self, path: Path, audit_key: bytes | None, migrate: bool, power: bool) -> None:
        self.path = path
        self._power = power
        self._owes_sync = self._unsynced = False
        self._lock = threading.RLock()
        self._after_commit: list[Callable[[], None]] = []
        self._db = open_file(path, migrate, audit_key)
        self._events = EventQueue(self._db, audit_key)

    def transaction(
        self, root: str | None = None, *, sure: bool = False
    ) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Everything queued, and what the block does, in one transaction; nested blocks join it.

        When the block fails, what it did and appended is gone; what was queued before waits on. With
        `sure` it survives a loss of power too, if the store was opened for that.
        With `root`, raises LostLease when another driver took that root over.
        """
        return self._transaction(root, appends=True, sure=sure)

    @contextlib.contextmanager
    def _transaction(self, root: str | None, appends: bool, sure: bool = False) -> Generator[sqlite3.Connection]:
        sure = sure and self._power
        with self._lock:
            if self._db.in_transaction:
                self._owes_sync |= sure
                self._check_fence(root)
                yield self._db
                return
            own: int | None = None
            try:
                with store_errors(self.path):
                    if self._power:  # the same connection: what it wrote before is in the same file, and goes along
                        self._db.execute("PRAGMA synchronous = FULL" if sure else "PRAGMA synchronous = NORMAL")
                    self._db.execute("BEGIN IMMEDIATE")
                    before = self._db.total_changes
                    self._events.write()
                    own = len(self._events.taken) if appends else None
                    self._check_fence(root)
                    yield self._db
                    self._events.write()
                    faults.reach("append.before")
                    self._db.execute("COMMIT")
            except BaseException:
                self._roll_back(own)
                raise
            self._events.commit()
            faults.reach("append.after")
            wrote = self._db.total_changes != before
            hooks, self._after_commit = self._after_commit, []
            for hook in hooks:
                hook()
            if self._power:
                self._account(sure, wrote)

    def _account(self, sure: bool, wrote: bool) -> None:
        """Have the disk keep what was committed before, where this commit owes that and did not do it.

        A commit that writes nothing waits for nothing; what it is to make sure was written by the writer thread. Or a
        block that was sure was within one that was not.
        """
        kept = sure and wrote
        self._unsynced = not kept and (wrote or self._unsynced)
        owes, self._owes_sync = sure or self._owes_sync, False
        if owes and self._unsynced:
            with store_errors(self.path):
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('synced', '')")
            self._unsynced = False

    def _roll_back(self, own: int | None) -> None:
        self._after_commit.clear()
        self._owes_sync = False
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                self._db.execute("ROLLBACK")
        for root in self._events.rollback(own):
            self._forget(root)

    def _check_fence(self, root: str | None) -> None:
        if root is not None and not self._events.owned(root):
            raise LostLease(f"another driver took over run {root}")

    def flush(self) -> None:
        """Write what is queued, now."""
        if self._events.waiting:
            with self._transaction(None, appends=False):
                pass

    async def barrier(self, root: str) -> None:
        """Return when everything appended so far would survive a killed process.

        Raises LostLease when another driver took over `root`: then nothing may be done any more.
        """
        with self._transaction(None, appends=False, sure=True):
            owned = self._events.owned(root)
        if not owned:
            raise LostLease(f"another driver took over run {root}")

    def lost(self, root: str) -> bool:
        """Whether another driver took over: nothing is written any more of what we append to this root."""
        return root in self._events.lost

    def discard(self, root: str) -> None:
        """Drop what is queued for a root: its log is what another process finds."""
        with self._lock:
            self._events.discard(root)
            self._forget(root)

    def shred(self) -> None:
        """Write the file anew, so that nothing of what was deleted is left in it or beside it.

        Raises StoreError when another process keeps it from being done; it may be tried again.
        """
        with self._lock, store_errors(self.path):
            self._db.execute("VACUUM")
            busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StoreError(f"store {self.path}: others read it, so that what was erased is still in its WAL")

    def read(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """The rows of a query."""
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as exc:
                raise store_error(self.path, exc) from exc

    def _forget(self, root: str) -> None:
        """Read the logs of a root anew next time."""
        self._events.forget(root)
