"""`audit verify`: whether the logs in a store file are as they were written (20-durability, audit).

Pure: reads the file, opens nothing else, changes nothing. Two separate answers: *intact* (what is
there was not changed) and *complete* (nothing is missing). A cut tail leaves an intact chain, so
only a checkpoint that was kept elsewhere shows it. Without a key, whoever can write the file can
also write a whole chain anew; with one (`LICTOR_AUDIT_KEY`) that takes the key.
"""

from __future__ import annotations

import contextlib
import hmac
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from lictor.errors import StoreError
from lictor.journal.chain import START, VERSIONS, digest_of, key_mark, relink
from lictor.journal.sqlite_file import path_of, store_errors

__all__ = ["AuditReport", "Checkpoint", "StoredFile", "checkpoints", "verify"]

COLUMNS = "root, cursor, run, seq, kind, version, at, payload, digest, prev, hash"
CLOSINGS = frozenset({"tool_finished", "call_closed"})


class Checkpoint(NamedTuple):
    """How far a run's log had come: kept outside the store, it shows a tail that was cut."""

    seq: int
    hash: str


class _Row(NamedTuple):
    """An entry as it is in the file."""

    root: str
    cursor: int
    run: str
    seq: int
    kind: str
    version: int
    at: float
    payload: bytes | None
    digest: bytes
    prev: bytes
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What a check found.

    Arguments:
        runs, entries: how many logs and entries were checked; a decided request has a log of its own.
        erased: payloads that were erased (retention); their digests still hold.
        changed: what is there and is not as it was written, one line each.
        missing: what was there and is not any more, one line each.
        open_calls: calls of runs under way that were started and have no result yet.
        key: `ok`, or `missing` or `wrong` when the store was written with another audit key.
    """

    runs: int = 0
    entries: int = 0
    erased: int = 0
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    open_calls: tuple[str, ...] = ()
    key: str = "ok"

    @property
    def intact(self) -> bool:
        """Whether everything that is there is as it was written."""
        return not self.changed

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as order, open calls and checkpoints can tell."""
        return not self.missing


class StoredFile:
    """A store file as it is, read only; raises StoreError when it cannot be read."""

    def __init__(self, url: str) -> None:
        self.path = path_of(url)
        if not self.path.exists():
            raise StoreError(f"store {self.path}: there is no such file")
        with store_errors(self.path):
            self._db = _read_only(self.path)

    def __enter__(self) -> StoredFile:
        with store_errors(self.path):
            self._db.execute("BEGIN")  # everything below is one state of the file, whatever others write
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, as they are read."""
        with store_errors(self.path):
            yield from self._db.execute(sql, values)


def checkpoints(url: str) -> dict[str, Checkpoint]:
    """Where the log of every run in a store file ends now. Raises StoreError."""
    sql = (
        "SELECT run, seq, hash FROM event AS e WHERE seq = (SELECT max(seq) FROM event WHERE run = e.run) ORDER BY run"
    )
    with StoredFile(url) as file:
        return {run: Checkpoint(seq, bytes(chained).hex()) for run, seq, chained in file.rows(sql)}


def verify(
    url: str,
    *,
    audit_key: bytes | None = None,
    known: Mapping[str, Checkpoint | Sequence[Any]] | None = None,
    roots: Collection[str] | None = None,
) -> AuditReport:
    """Check the chain of every run in a store file.

    Arguments:
        url: `sqlite:///file.db`; other processes may go on writing to it.
        audit_key: the key that the logs were written with.
        known: what `checkpoints` gave earlier, also after a way through JSON.
        roots: only the logs below these; everything unless given.

    Raises StoreError when the file cannot be read.
    """
    ends = {run: Checkpoint(int(point[0]), str(point[1])) for run, point in (known or {}).items()}
    with StoredFile(url) as file:
        check = _Check(audit_key, ends)
        for each in [None] if roots is None else roots:
            check.logs(file, each)
        if roots is None:
            check.absent(file)
        else:
            check.gone(roots)
        return replace(check.report(), key=_key_state(file, audit_key))


class _Check:
    """Goes through a file run by run and keeps what it finds."""

    def __init__(self, key: bytes | None, ends: Mapping[str, Checkpoint]) -> None:
        self._key = key
        self._ends = ends
        self._seen: set[str] = set()
        self._entries = self._erased = 0
        self._changed: list[str] = []
        self._missing: list[str] = []
        self._open: list[str] = []

    def report(self) -> AuditReport:
        """What was found so far."""
        return AuditReport(
            runs=len(self._seen),
            entries=self._entries,
            erased=self._erased,
            changed=tuple(self._changed),
            missing=tuple(self._missing),
            open_calls=tuple(self._open),
        )

    def logs(self, file: StoredFile, root: str | None) -> None:
        """The logs below one root, or all."""
        where, values = ("", ()) if root is None else (" WHERE root = ?", (root,))
        rows = (_row(*row) for row in file.rows(f"SELECT {COLUMNS} FROM event{where} ORDER BY run, seq", *values))  # noqa: S608
        for run, of_run in groupby(rows, itemgetter(2)):
            self._log(run, of_run)
        sql = f"SELECT root, max(cursor), count(*) FROM event{where} GROUP BY root"  # noqa: S608
        for name, cursor, count in file.rows(sql, *values):
            if cursor != count:
                self._missing.append(f"root {name}: {cursor - count} entries of its {cursor} are missing")

    def gone(self, roots: Iterable[str]) -> None:
        """Roots that a checkpoint knows, without any entry."""
        for run in set(roots) & self._ends.keys() - self._seen:
            self._missing.append(f"run {run}: its tail is cut after entry -1, it had come to {self._ends[run].seq}")

    def absent(self, file: StoredFile) -> None:
        """Logs that are not there at all."""
        for run, point in self._ends.items():
            if run not in self._seen:
                self._missing.append(f"run {run}: its tail is cut after entry -1, it had come to {point.seq}")
        for (run,) in file.rows("SELECT key FROM run WHERE key NOT IN (SELECT run FROM event) ORDER BY key"):
            self._missing.append(f"run {run}: its whole log is missing")

    def _log(self, run: str, rows: Iterable[_Row]) -> None:
        self._seen.add(run)
        calls = _Calls()
        prev, expected, point = START, 0, self._ends.get(run)
        for row in rows:
            self._entries += 1
            self._erased += row.payload is None
            if row.seq != expected:
                gap = f"entry {expected}" if row.seq == expected + 1 else f"entries {expected} to {row.seq - 1}"
                self._missing.append(f"run {run}: {gap} missing")
            self._changed += _changes(row, prev if row.seq == expected else None, self._key)
            if point is not None and row.seq == point.seq and bytes(row.hash).hex() != point.hash:
                self._changed.append(f"run {run}, entry {row.seq}: it is another one than at the checkpoint")
            calls.take(row)
            prev, expected = row.hash, row.seq + 1
        if point is not None and expected <= point.seq:
            self._missing.append(f"run {run}: its tail is cut after entry {expected - 1}, it had come to {point.seq}")
        if calls.over:
            self._missing += [f"run {run}: call {call} was started, and the run ended without its result"
                              for call in calls.open]  # fmt: skip
        else:
            self._open += [f"run {run}: call {call}" for call in calls.open]


def _row(*columns: Any) -> _Row:
    """An entry whose bytes are bytes, also where somebody put something else: that then matches no digest."""
    stored = [
        each if each is None or isinstance(each, bytes) else f"no bytes: {each!r}".encode() for each in columns[7:]
    ]
    return _Row(*columns[:7], *stored)


class _Calls:
    """The calls of one run that were started and have no result; nothing of it is known once payloads are erased."""

    def __init__(self) -> None:
        self.open: dict[str, None] = {}
        self.over = False

    def take(self, row: _Row) -> None:
        """One entry more."""
        self.over = row.kind == "run_finished" or (self.over and row.kind != "resumed")
        if row.kind != "tool_started" and row.kind not in CLOSINGS:
            return
        try:
            call = str(orjson.loads(row.payload or b"{}")["call"])
        except (ValueError, KeyError, TypeError):  # erased, or damaged, which is told elsewhere
            self.open.clear()
            return
        if row.kind == "tool_started":
            self.open[call] = None
        else:
            self.open.pop(call, None)


def _key_state(file: StoredFile, key: bytes | None) -> str:
    """Whether the store was written with this key; a store from before says nothing."""
    for (mark,) in file.rows("SELECT value FROM meta WHERE key = 'audit_key'"):
        if mark != key_mark(key):
            return "missing" if key is None else "wrong"
    return "ok"


def _read_only(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(sqlite3.OperationalError):
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    raise StoreError(f"store {path}: the file cannot be opened")


def _changes(row: _Row, prev: bytes | None, key: bytes | None) -> list[str]:
    """How the payload, place or fields of an entry are not the ones that were hashed; `prev` where that is known."""
    problems: list[str] = []
    where = f"run {row.run}, entry {row.seq}"
    if row.payload is not None and not hmac.compare_digest(digest_of(row.payload, key), row.digest):
        problems.append(f"{where}: its content was changed")
    if row.version not in VERSIONS:
        problems.append(f"{where}: its version is {row.version!r}, not one of {', '.join(map(str, VERSIONS))}")
    if prev is not None and row.prev != prev:
        problems.append(f"{where}: it does not follow the entry before it")
    place = (row.root, row.cursor, row.run, row.seq, row.kind, row.at)
    if not hmac.compare_digest(relink(row.prev, place, row.digest, key, row.version), row.hash):
        problems.append(f"{where}: it was changed, moved or written by somebody else")
    return problems
