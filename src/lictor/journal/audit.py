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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from lictor.errors import StoreError
from lictor.journal.chain import START, VERSION, digest_of, relink
from lictor.journal.sqlite_file import path_of, store_errors

__all__ = ["AuditReport", "Checkpoint", "checkpoints", "verify"]

COLUMNS = "run, seq, kind, version, payload, digest, prev, hash"


class Checkpoint(NamedTuple):
    """How far a run's log had come: kept outside the store, it shows a tail that was cut."""

    seq: int
    hash: str


class _Row(NamedTuple):
    """An entry as it is in the file."""

    run: str
    seq: int
    kind: str
    version: int
    payload: bytes | None
    digest: bytes
    prev: bytes
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What a check found.

    Arguments:
        runs, entries: how many were checked.
        erased: payloads that were erased (retention); their digests still hold.
        changed: what is there and is not as it was written, one line each.
        missing: what was there and is not any more, one line each.
    """

    runs: int
    entries: int
    erased: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether everything that is there is as it was written."""
        return not self.changed

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as order and checkpoints can tell."""
        return not self.missing


def checkpoints(url: str) -> dict[str, Checkpoint]:
    """Where the log of every run in a store file ends now. Raises StoreError."""
    sql = (
        "SELECT run, seq, hash FROM event AS e WHERE seq = (SELECT max(seq) FROM event WHERE run = e.run) ORDER BY run"
    )
    return {run: Checkpoint(seq, bytes(chained).hex()) for run, seq, chained in _rows(url, sql)}


def verify(
    url: str,
    *,
    audit_key: bytes | None = None,
    known: Mapping[str, Checkpoint | Sequence[Any]] | None = None,
    root: str | None = None,
) -> AuditReport:
    """Check the chain of every run in a store file.

    Arguments:
        url: `sqlite:///file.db`; other processes may go on writing to it.
        audit_key: the key that the logs were written with.
        known: what `checkpoints` gave earlier, also after a way through JSON.
        root: only this root run and the runs below it; `known` then names no others.

    Raises StoreError when the file cannot be read.
    """
    only = () if root is None else (root,)
    below = "" if root is None else "WHERE root = ?"
    sql = f"SELECT {COLUMNS} FROM event {below} ORDER BY run, seq"  # noqa: S608 - both are ours
    rows = [_Row(*row[:4], *map(_as_bytes, row[4:])) for row in _rows(url, sql, only)]
    changed: list[str] = []
    missing: list[str] = []
    ends = {run: Checkpoint(int(point[0]), str(point[1])) for run, point in (known or {}).items()}
    found = {run: list(of_run) for run, of_run in groupby(rows, itemgetter(0))}
    for run, of_run in found.items():
        changed += _changes(run, of_run, audit_key)
        missing += _gaps(run, of_run)
    for run, point in ends.items():
        _compare(run, point, found.get(run, []), changed, missing)
    sql = f"SELECT root, max(cursor), count(*) FROM event {below} GROUP BY root"  # noqa: S608
    for name, cursor, count in _rows(url, sql, only):
        if cursor != count:
            missing.append(f"root {name}: {cursor - count} entries of its {cursor} are missing")
    this = "" if root is None else "key = ? AND"
    sql = f"SELECT key FROM run WHERE {this} key NOT IN (SELECT run FROM event) ORDER BY key"  # noqa: S608
    for (run,) in _rows(url, sql, only):
        missing.append(f"run {run}: its whole log is missing")
    erased = sum(row.payload is None for row in rows)
    return AuditReport(
        runs=len(found), entries=len(rows), erased=erased, changed=tuple(changed), missing=tuple(missing)
    )


def _rows(url: str, sql: str, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    path = path_of(url)
    if not path.exists():
        raise StoreError(f"store {path}: there is no such file")
    with store_errors(path), contextlib.closing(_read_only(path)) as db:
        return db.execute(sql, given).fetchall()


def _as_bytes(stored: Any) -> Any:
    """A column of bytes, also when somebody put something else there: it then matches no digest."""
    return stored if stored is None or isinstance(stored, bytes) else f"no bytes: {stored!r}".encode()


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _changes(run: str, rows: Iterable[_Row], key: bytes | None) -> list[str]:
    """Entries whose payload, place or fields are not the ones that were hashed."""
    problems: list[str] = []
    prev, expected = START, 0
    for row in rows:
        where = f"run {run}, entry {row.seq}"
        if row.payload is not None and not hmac.compare_digest(digest_of(row.payload, key), row.digest):
            problems.append(f"{where}: its content was changed")
        if row.version != VERSION:
            problems.append(f"{where}: its version is {row.version!r}, not {VERSION}")
        if row.seq == expected and row.prev != prev:
            problems.append(f"{where}: it does not follow the entry before it")
        if not hmac.compare_digest(relink(row.prev, run, row.seq, row.kind, row.digest, key), row.hash):
            problems.append(f"{where}: it was changed, moved or written by somebody else")
        prev, expected = row.hash, row.seq + 1
    return problems


def _gaps(run: str, rows: Iterable[_Row]) -> list[str]:
    problems: list[str] = []
    expected = 0
    for row in rows:
        if row.seq != expected:
            gap = f"entry {expected}" if row.seq == expected + 1 else f"entries {expected} to {row.seq - 1}"
            problems.append(f"run {run}: {gap} missing")
        expected = row.seq + 1
    return problems


def _compare(run: str, point: Checkpoint, rows: Sequence[_Row], changed: list[str], missing: list[str]) -> None:
    """Hold a log against where it had come to."""
    at = next((row for row in rows if row.seq == point.seq), None)
    if at is None:
        last = rows[-1].seq if rows else -1
        if last < point.seq:
            missing.append(f"run {run}: its tail is cut after entry {last}, it had come to {point.seq}")
    elif bytes(at.hash).hex() != point.hash:
        changed.append(f"run {run}, entry {point.seq}: it is another one than at the checkpoint")
