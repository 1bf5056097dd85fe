"""The store of `sqlite:///file.db`: one file on a local disk, many processes of one host.

Entries of the log are queued and written within a few milliseconds by one writer thread, or at
once where something waits for them (`barrier`, every write of a row). One transaction holds all
that was queued. WAL, `synchronous=NORMAL`: what is written survives a killed process. Opened for
more (`power`), transactions that must be `sure` are committed with `synchronous=FULL`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson

from lictor.errors import StoreError
from lictor.journal.chain import START
from lictor.journal.entry import ERASED, Entry, Positioned, Snapshot
from lictor.journal.log import Log
from lictor.journal.owners import is_alive
from lictor.journal.sqlite_events import Queued
from lictor.journal.sqlite_file import BUSY_SECONDS, path_of
from lictor.journal.sqlite_logs import End, LogCache
from lictor.journal.sqlite_snapshots import Snapshots
from lictor.journal.sqlite_table import SqliteTable
from lictor.journal.sqlite_writing import SqliteWriting
from lictor.journal.table import Rows, Table
from lictor.values import freeze

__all__ = ["SqliteStore"]

R = TypeVar("R")
FLUSH_SECONDS = 0.01
WOKEN = """SELECT key, owner, lease, wake FROM run WHERE rowid IN (
    SELECT rowid FROM run WHERE wake = 1 UNION SELECT rowid FROM run WHERE owner IS NOT NULL
    UNION SELECT rowid FROM run WHERE status IN ('queued', 'running', 'cancelling')) ORDER BY rowid"""


class SqliteStore(SqliteWriting):
    """One SQLite file.

    Arguments:
        url: `sqlite:///relative.db` or `sqlite:////absolute.db`.
        audit_key: keys the chain (`LICTOR_AUDIT_KEY`).
        migrate: bring an older schema up to date; otherwise it is refused with OlderSchema.
        power: intents, decisions and outcomes survive a loss of power, not only a killed process.

    Raises StoreError (NewerSchema, OlderSchema) when the file cannot be used; says what to do.
    """

    durable = True

    def __init__(self, url: str, *, audit_key: bytes | None = None, migrate: bool = True, power: bool = False) -> None:
        super().__init__(path_of(url), audit_key, migrate, power)
        self.url = url
        self.durability = "power" if power else "process"
        self._wanted = threading.Event()
        self._pause = threading.Event()
        self._changed: list[Callable[[], None]] = []
        self._closed = False
        self._logs = LogCache(self._events, self._wanted)
        self._snapshots = Snapshots(self, audit_key)
        self._tables: dict[str, SqliteTable[Any]] = {}
        self._writer = threading.Thread(target=self._write_on, name="lictor-store", daemon=True)
        self._writer.start()

    # writing

    def _write_on(self) -> None:
        """The writer thread: what nobody waits for is written all the same, soon; others' writes are noticed.

        An error is left to whoever waits for a write: the entries stay queued and are tried again.
        """
        version = 0
        while True:
            self._wanted.wait(None if not self._changed else FLUSH_SECONDS)
            self._wanted.clear()
            if self._events.waiting:
                self._pause.wait(FLUSH_SECONDS)
            if self._closed:
                return
            with contextlib.suppress(StoreError):
                self.flush()
                seen = self._version()
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
            self._after_commit.append(partial(self._take, root, (owner, fence)))
        return True

    def _take(self, root: str, fence: tuple[str, int]) -> None:
        if self._events.fences.get(root) != fence:
            self._events.doubt(root)
            for run_id in self._logs.runs(root):
                log = self._logs.get(run_id)
                if log is not None and not self._logs.fits(run_id, log, self._end(run_id)):
                    self._logs.drop(run_id)
                    self._events.forget(root)
        self._logs.drive(root)
        self._events.fences[root] = fence
        self._events.lost.discard(root)

    def release(self, root: str, owner: str) -> None:
        """Give a lease back; everything queued is written first."""
        with self.transaction() as db:
            self._events.write()
            db.execute("UPDATE run SET owner = NULL, lease = 0 WHERE key = ? AND owner = ?", (root, owner))
            self._after_commit.append(partial(self._let_go, root))

    def _let_go(self, root: str) -> None:
        self._events.fences.pop(root, None)
        self._logs.rest(root)

    def _forget(self, root: str) -> None:
        """Read the logs of a root anew next time: another process may have written to them."""
        self._logs.forget(root)
        super()._forget(root)

    def holder(self, root: str, now: float) -> str | None:
        """Who holds the lease of a root run."""
        for (owner,) in self.read("SELECT owner FROM run WHERE key = ? AND lease >= ?", (root, now)):
            return owner if owner is not None and is_alive(owner) else None
        return None

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
        return [
            key
            for key, holder, lease, wake in self.read(WOKEN)
            if (wake and holder == owner) or holder is None or lease < now or not is_alive(holder)
        ]

    def idle(self, root: str, now: float) -> bool:
        """Whether a root run has nothing to do, and nobody drives it."""
        woken = self.read("SELECT wake FROM run WHERE key = ?", (root,))
        return not (woken and woken[0][0]) and self.holder(root, now) is None

    def append_outside(self, run_id: str, root: str, kind: str, payload: Mapping[str, Any], at: float) -> bool:
        """Add to a log from beside its driver: here if we drive it, else in a transaction of its own.

        False when another process drives it: then only that process may write its log.
        """
        if root in self._events.fences:
            self.log(run_id, root).append(kind, payload, at)
            return True
        with self.transaction() as db:
            owner, lease = db.execute("SELECT owner, lease FROM run WHERE key = ?", (root,)).fetchone() or (None, 0)
            if owner is not None and lease >= at and is_alive(owner):
                return False
            self._forget(root)
            self._events.insert([Queued(root, run_id, Entry(self._end(run_id).size, kind, payload, at))])
            self._forget(root)
        return True

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, from the store's thread, soon after another process wrote to the file."""
        self._changed.append(callback)
        self._wanted.set()
        return lambda: self._changed.remove(callback)

    def _version(self) -> int:
        """A number that changes whenever another process wrote to the file."""
        return int(self.read("PRAGMA data_version")[0][0])

    # reading

    def log(self, run_id: str, root: str) -> Log:
        """The log of `run_id`, to append to."""
        known = self._current(run_id)
        if known is not None:
            return known
        self.flush()
        return self._logs.add(run_id, root, self._end(run_id))

    def _current(self, run_id: str) -> Log | None:
        """The log as we hold it, unless another process added to it: we drive it, or the file ends as we know."""
        log = self._logs.get(run_id)
        if log is None or log.root in self._events.fences:
            return log
        self.flush()
        return log if self._logs.fits(run_id, log, self._end(run_id)) else None

    def _end(self, run_id: str) -> End:
        """Where the log of a run ends in the file."""
        for seq, chained in self.read("SELECT seq, hash FROM event WHERE run = ? ORDER BY seq DESC LIMIT 1", (run_id,)):
            return End(seq + 1, bytes(chained))
        return End(0, START)

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]:
        """The entries of one run with `seq > after`, in order."""
        log = self._current(run_id)
        if log is None:
            self.flush()
            return self._stored(run_id, after)
        if after + 1 >= log.start:
            return log.entries[after + 1 - log.start :]
        return [*self._stored(run_id, after, log.start), *log.entries]

    def _stored(self, run_id: str, after: int, until: int = 1 << 60) -> list[Entry]:
        sql = "SELECT seq, kind, payload, at FROM event WHERE run = ? AND seq > ? AND seq < ? ORDER BY seq"
        found = self.read(sql, (run_id, after, until))
        return [Entry(seq, kind, _loaded(payload), at) for seq, kind, payload, at in found]

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]:
        """The entries of a root and all runs below it with `cursor > after`, in order."""
        self.flush()
        sql = "SELECT cursor, run, seq, kind, payload, at FROM event WHERE root = ? AND cursor > ? ORDER BY cursor"
        return [
            Positioned(cursor, run, Entry(seq, kind, _loaded(payload), at))
            for cursor, run, seq, kind, payload, at in self.read(sql, (root, after))
        ]

    def cursor(self, root: str) -> int:
        """How many entries there are below a root."""
        self.flush()
        return int(self.read("SELECT coalesce(max(cursor), 0) FROM event WHERE root = ?", (root,))[0][0])

    def appended(self, root: str) -> Mapping[str, Log]:
        """The logs below a root as far as this process holds them."""
        return self._logs.below(root)

    def snapshot(self, run_id: str) -> Snapshot | None:
        """What the log of a run was last folded to, if it is whole and about the log as it is."""
        return self._snapshots.get(run_id)

    def keep(self, run_id: str, version: int, body: bytes) -> None:
        """Store what the log of a root run is folded to, with everything appended so far."""
        with self.transaction(run_id):
            cursor = self._snapshots.put(run_id, version, body)
        self._logs.grown(run_id, cursor)

    def erase(self, root: str) -> int:
        """Take the payloads out of the logs below a root; what they were folded to goes too."""
        with self.transaction() as db:
            db.execute("DELETE FROM snapshot WHERE root = ?", (root,))
            done = db.execute("UPDATE event SET payload = NULL WHERE root = ? AND payload IS NOT NULL", (root,))
            self._forget(root)
            return done.rowcount

    def grows(self, root: str, callback: Callable[[], None] | None) -> None:
        """Call `callback` within an append whenever the log below a root has doubled since the last snapshot."""
        known = None if callback is None else self._snapshots.get(root)
        self._logs.grows(root, callback, 0 if known is None else known.cursor, self.cursor(root) if callback else 0)

    def table(self, table: Table[R]) -> Rows[R]:
        """The rows of one kind."""
        if table.name not in self._tables:
            self._tables[table.name] = SqliteTable(self, table)
        return self._tables[table.name]

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `callback` with each entry that this process appends below `root`; returns what undoes it."""
        return self._logs.watch(root, callback)

    def close(self) -> None:
        """Write what is queued and close the file."""
        if self._closed:
            return
        self._closed = True
        self._wanted.set()
        self._pause.set()
        try:
            self.flush()
        finally:
            self._writer.join(timeout=BUSY_SECONDS)
            self._db.close()


def _loaded(payload: bytes | None) -> Any:
    return ERASED if payload is None else freeze(orjson.loads(payload))
