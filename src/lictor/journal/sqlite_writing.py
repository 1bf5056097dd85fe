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

    def __init__(self, path: Path, audit_key: bytes | None, migrate: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._after_commit: list[Callable[[], None]] = []
        self._db = open_file(path, migrate, audit_key)
        self._events = EventQueue(self._db, audit_key)

    def transaction(self, root: str | None = None) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Everything queued, and what the block does, in one transaction; nested blocks join it.

        When the block fails, what it did and appended is gone; what was queued before waits on.
        With `root`, raises LostLease when another driver took that root over.
        """
        return self._transaction(root, appends=True)

    @contextlib.contextmanager
    def _transaction(self, root: str | None, appends: bool) -> Generator[sqlite3.Connection]:
        with self._lock:
            if self._db.in_transaction:
                self._check_fence(root)
                yield self._db
                return
            own: int | None = None
            try:
                with store_errors(self.path):
                    self._db.execute("BEGIN IMMEDIATE")
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
            hooks, self._after_commit = self._after_commit, []
            for hook in hooks:
                hook()

    def _roll_back(self, own: int | None) -> None:
        self._after_commit.clear()
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
        with self._transaction(None, appends=False):
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
