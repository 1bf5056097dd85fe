"""The store of `sqlite:///file.db`: one file on a local disk, many processes of one host.

Entries of the log are queued and written within a few milliseconds by one writer thread, or at
once where something waits for them (`barrier`, every write of a row). One transaction holds all
that was queued. WAL, `synchronous=NORMAL`: what is written survives a killed process.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from lictor.errors import LostLease, NewerSchema, OlderSchema, StoreError
from lictor.journal.chain import START, VERSION, link
from lictor.journal.entry import Entry, Positioned
from lictor.journal.log import Log
from lictor.journal.migrations import MIGRATIONS
from lictor.journal.migrations import VERSION as SCHEMA
from lictor.journal.owners import is_alive
from lictor.journal.sqlite_table import SqliteTable
from lictor.journal.table import Rows, Table
from lictor.values import freeze

__all__ = ["SqliteStore"]

R = TypeVar("R")
FLUSH_SECONDS = 0.01
BUSY_SECONDS = 5.0


class _Queued(NamedTuple):
    root: str
    run: str
    entry: Entry


class SqliteStore:
    """One SQLite file.

    Arguments:
        url: `sqlite:///relative.db` or `sqlite:////absolute.db`.
        audit_key: keys the chain (`LICTOR_AUDIT_KEY`).
        migrate: bring an older schema up to date; otherwise it is refused with OlderSchema.

    Raises StoreError (NewerSchema, OlderSchema) when the file cannot be used; says what to do.
    """

    durable = True

    def __init__(self, url: str, *, audit_key: bytes | None = None, migrate: bool = True) -> None:
        self.url = url
        self.path = _path(url)
        self._key = audit_key
        self._lock = threading.RLock()
        self._queue: list[_Queued] = []
        self._writing: list[_Queued] = []
        self._wanted = threading.Event()
        self._pause = threading.Event()
        self._changed: list[Callable[[], None]] = []
        self._closed = False
        self._logs: dict[str, Log] = {}
        self._tails: dict[str, bytes] = {}
        self._cursors: dict[str, int] = {}
        self._fences: dict[str, tuple[str, int]] = {}
        self._callbacks: dict[str, list[Callable[[Entry], None]]] = {}
        self._tables: dict[str, SqliteTable[Any]] = {}
        self._lost: set[str] = set()
        self.fault: StoreError | None = None
        self._db = _open(self.path)
        _prepare(self._db, self.path, migrate)
        self._writer = threading.Thread(target=self._write_on, name="lictor-store", daemon=True)
        self._writer.start()

    # writing

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything queued, and what the block does, in one transaction; nested blocks join it."""
        with self._lock:
            if self._within():
                yield self._db
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._write_queue()
                yield self._db
                self._write_queue()
                self._db.execute("COMMIT")
                self._writing.clear()
            except BaseException as exc:
                if self._within():
                    self._db.execute("ROLLBACK")
                self._queue[:0] = self._writing
                self._writing.clear()
                self._tails.clear()
                self._cursors.clear()
                if isinstance(exc, sqlite3.Error):
                    raise _store_error(exc, self.path) from exc
                raise

    def _within(self) -> bool:
        return self._db.in_transaction

    def flush(self) -> None:
        """Write what is queued, now."""
        if self._queue:
            with self.transaction():
                pass

    async def barrier(self, root: str) -> None:
        """Return when everything appended so far would survive a killed process.

        Raises LostLease when another driver took over `root`: then nothing may be done any more.
        """
        with self.transaction():
            self._owned(root)
        if root in self._lost:
            raise LostLease(f"another driver took over run {root}")

    def _write_queue(self) -> None:
        if not self._queue:
            return
        queue, self._queue = self._queue, []
        self._writing += queue
        rows = [self._row(item) for item in queue if self._owned(item.root)]
        sql = "INSERT INTO event (root, cursor, run, seq, kind, version, at, payload, digest, prev, hash) "
        self._db.executemany(sql + "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _row(self, item: _Queued) -> tuple[Any, ...]:
        entry = item.entry
        payload = orjson.dumps(entry.payload)
        chained = link(self._tail(item.run), item.run, entry.seq, entry.kind, payload, self._key)
        self._tails[item.run] = chained.hash
        cursor = self._cursors[item.root] = self._cursor(item.root) + 1
        return (
            item.root, cursor, item.run, entry.seq, entry.kind, VERSION, entry.at, payload,
            chained.digest, chained.prev, chained.hash,
        )  # fmt: skip

    def _tail(self, run: str) -> bytes:
        if run not in self._tails:
            found = self._db.execute(
                "SELECT hash FROM event WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)
            ).fetchone()
            self._tails[run] = START if found is None else bytes(found[0])
        return self._tails[run]

    def _cursor(self, root: str) -> int:
        if root not in self._cursors:
            found = self._db.execute("SELECT max(cursor) FROM event WHERE root = ?", (root,)).fetchone()
            self._cursors[root] = found[0] or 0
        return self._cursors[root]

    def _owned(self, root: str) -> bool:
        """Whether this process may write the log of `root`: its lease is still the one it took (the fence)."""
        if root not in self._fences:
            return root not in self._lost
        found = self._db.execute("SELECT owner, fence FROM run WHERE key = ?", (root,)).fetchone()
        if found is not None and tuple(found) == self._fences[root]:
            return True
        self._lost.add(root)
        return False

    def lost(self, root: str) -> bool:
        """Whether another driver took over: nothing is written any more of what we append to this root."""
        return root in self._lost

    def _write_on(self) -> None:
        """The writer thread: what nobody waits for is written all the same, soon; others' writes are noticed."""
        version = self._version()
        while True:
            self._wanted.wait(None if not self._changed else FLUSH_SECONDS)
            self._wanted.clear()
            if self._queue:
                self._pause.wait(FLUSH_SECONDS)
            if self._closed:
                return
            try:
                self.flush()
                seen = self._version()
            except StoreError as exc:
                self.fault = exc
                continue
            if seen != version:
                version = seen
                for callback in tuple(self._changed):
                    callback()

    # leases of drivers

    def claim(self, root: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew the lease of a root run; False while another driver holds it.

        Each change of hands raises the fence: what the former driver still wants to write is dropped.
        """
        with self.transaction() as db:
            row = db.execute("SELECT owner, fence, lease FROM run WHERE key = ?", (root,)).fetchone()
            if row is None:
                return False
            holder, fence, lease = row
            if holder not in (None, owner) and lease >= now and is_alive(holder):
                return False
            fence += holder != owner
            sql = "UPDATE run SET owner = ?, lease = ?, fence = ?, wake = 0 WHERE key = ?"
            db.execute(sql, (owner, now + seconds, fence, root))
        if self._fences.get(root) != (owner, fence):
            self._forget(root)
        self._fences[root] = (owner, fence)
        self._lost.discard(root)
        return True

    def release(self, root: str, owner: str) -> None:
        """Give a lease back; everything queued is written first."""
        with self.transaction() as db:
            db.execute("UPDATE run SET owner = NULL, lease = 0 WHERE key = ? AND owner = ?", (root, owner))
        self._fences.pop(root, None)
        self._forget(root)

    def _forget(self, root: str) -> None:
        """Read the logs of a root anew next time: another process may have written to them."""
        for run in [run for run, log in self._logs.items() if log.root == root]:
            del self._logs[run]
            self._tails.pop(run, None)
        self._cursors.pop(root, None)

    def holder(self, root: str, now: float) -> str | None:
        """Who holds the lease of a root run."""
        with self._lock:
            found = self._db.execute("SELECT owner FROM run WHERE key = ? AND lease >= ?", (root, now)).fetchone()
        return found[0] if found is not None and found[0] is not None and is_alive(found[0]) else None

    def wake(self, root: str) -> None:
        """Mark a root run as having something to do."""
        with self.transaction() as db:
            db.execute("UPDATE run SET wake = 1 WHERE key = ?", (root,))

    def renew(self, owner: str, now: float, seconds: float) -> None:
        """Prolong every lease of `owner`."""
        with self.transaction() as db:
            db.execute("UPDATE run SET lease = ? WHERE owner = ?", (now + seconds, owner))

    def woken(self, owner: str, now: float) -> list[str]:
        """Root runs that have something to do, and that `owner` drives or nobody."""
        sql = (
            "SELECT key, owner, lease, wake FROM run WHERE wake = 1 OR status IN ('queued', 'running', 'cancelling') "
            "ORDER BY rowid"
        )
        with self._lock:
            rows = self._db.execute(sql).fetchall()
        return [
            key
            for key, holder, lease, wake in rows
            if (wake and holder == owner) or holder is None or lease < now or not is_alive(holder)
        ]

    def append_outside(self, run_id: str, root: str, kind: str, payload: Mapping[str, Any], at: float) -> bool:
        """Add to a log from beside its driver: here if we drive it, else in a transaction of its own.

        False when another process drives it: then only that process may write its log.
        """
        if root in self._fences:
            self.log(run_id, root).append(kind, payload, at)
            return True
        with self.transaction() as db:
            owner, lease = db.execute("SELECT owner, lease FROM run WHERE key = ?", (root,)).fetchone() or (None, 0)
            if owner is not None and lease >= at and is_alive(owner):
                return False
            self._forget(root)
            seq = db.execute("SELECT count(*) FROM event WHERE run = ?", (run_id,)).fetchone()[0]
            self._queue.append(_Queued(root, run_id, Entry(seq, kind, payload, at)))
            self._write_queue()
            self._forget(root)
        return True

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, from the store's thread, soon after another process wrote to the file."""
        self._changed.append(callback)
        self._wanted.set()
        return lambda: self._changed.remove(callback)

    def _version(self) -> int:
        """A number that changes whenever another process wrote to the file."""
        with self._lock:
            found: int = self._db.execute("PRAGMA data_version").fetchone()[0]
            return found

    # reading

    def log(self, run_id: str, root: str) -> Log:
        """The log of `run_id`, to append to."""
        if run_id not in self._logs:
            log = Log()
            log.root = root
            log.entries = list(self.entries(run_id))
            log.size = len(log.entries)
            self._logs[run_id] = log
            self._listen(log, run_id, root)
        return self._logs[run_id]

    def _listen(self, log: Log, run_id: str, root: str) -> None:
        def queue(entry: Entry) -> None:
            self._queue.append(_Queued(root, run_id, entry))
            if not self._wanted.is_set():
                self._wanted.set()

        log.listeners = (queue, *self._callbacks.get(root, ()))

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]:
        """The entries of one run with `seq > after`, in order."""
        if run_id in self._logs:
            return self._logs[run_id].entries[after + 1 :]
        with self._lock:
            self.flush()
            found = self._db.execute(
                "SELECT seq, kind, payload, at FROM event WHERE run = ? AND seq > ? ORDER BY seq", (run_id, after)
            ).fetchall()
        return [Entry(seq, kind, _loaded(payload), at) for seq, kind, payload, at in found]

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]:
        """The entries of a root and all runs below it with `cursor > after`, in order."""
        with self._lock:
            self.flush()
            found = self._db.execute(
                "SELECT cursor, run, seq, kind, payload, at FROM event WHERE root = ? AND cursor > ? ORDER BY cursor",
                (root, after),
            ).fetchall()
        return [
            Positioned(cursor, run, Entry(seq, kind, _loaded(payload), at))
            for cursor, run, seq, kind, payload, at in found
        ]

    def table(self, table: Table[R]) -> Rows[R]:
        """The rows of one kind."""
        if table.name not in self._tables:
            self._tables[table.name] = SqliteTable(self, table)
        return self._tables[table.name]

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `callback` with each entry that this process appends below `root`; returns what undoes it."""
        callbacks = self._callbacks.setdefault(root, [])
        callbacks.append(callback)
        self._relisten(root)

        def undo() -> None:
            if callback in callbacks:
                callbacks.remove(callback)
                self._relisten(root)

        return undo

    def _relisten(self, root: str) -> None:
        for run_id, log in self._logs.items():
            if log.root == root:
                self._listen(log, run_id, root)

    def close(self) -> None:
        """Write what is queued and close the file."""
        if self._closed:
            return
        self._closed = True
        self._wanted.set()
        self._pause.set()
        self.flush()
        self._writer.join(timeout=BUSY_SECONDS)
        self._db.close()


def _loaded(payload: bytes | None) -> Any:
    return freeze({"erased": True} if payload is None else orjson.loads(payload))


def _path(url: str) -> Path:
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise StoreError(f"{url!r}: write sqlite:///file.db, or sqlite:////absolute/path.db")
    return Path(url.removeprefix("sqlite:///"))


def _open(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as exc:
        raise _store_error(exc, path) from exc
    return db


def _prepare(db: sqlite3.Connection, path: Path, migrate: bool) -> None:
    """Make the schema, or check that it is ours."""
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise NewerSchema(f"{path} has schema {version}, this Lictor knows {SCHEMA}; upgrade Lictor")
        if version == SCHEMA:
            return
        if version and not migrate:
            raise OlderSchema(f"{path} has schema {version}, this Lictor needs {SCHEMA}; run `lictor migrate`")
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("COMMIT")
    except sqlite3.Error as exc:
        raise _store_error(exc, path) from exc


def _store_error(exc: sqlite3.Error, path: Path) -> StoreError:
    """What to do about an error of SQLite."""
    name = getattr(exc, "sqlite_errorname", "") or type(exc).__name__
    advice = {
        "SQLITE_BUSY": "another process holds it; try again",
        "SQLITE_LOCKED": "another process holds it; try again",
        "SQLITE_FULL": "the disk is full; nothing was written",
        "SQLITE_READONLY": "the file cannot be written; check its owner and the folder's",
        "SQLITE_CANTOPEN": "the file cannot be opened; does the folder exist?",
        "SQLITE_NOTADB": "the file is no SQLite database",
        "SQLITE_CORRUPT": "the file is damaged; restore a backup",
        "SQLITE_IOERR": "the disk failed; nothing was written",
    }
    told = next((text for start, text in advice.items() if name.startswith(start)), str(exc))
    return StoreError(f"store {path}: {told} ({name})")
