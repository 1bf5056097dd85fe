"""The file of a SQLite store: opened, brought to our schema, and what its errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from lictor.errors import DefinitionError, NewerSchema, OlderSchema, StoreError
from lictor.journal.chain import key_mark, relink
from lictor.journal.migrations import MIGRATIONS
from lictor.journal.migrations import VERSION as SCHEMA

__all__ = ["BUSY_SECONDS", "Migrated", "migrate_file", "open_file", "path_of", "store_error", "store_errors"]

BUSY_SECONDS = 5.0
"""How long a write waits for another process before it gives up."""

ADVICE = {
    "SQLITE_BUSY": "another process holds it; try again",
    "SQLITE_LOCKED": "another process holds it; try again",
    "SQLITE_FULL": "the disk is full; nothing was written",
    "SQLITE_READONLY": "the file cannot be written; check its owner and the folder's",
    "SQLITE_CANTOPEN": "the file cannot be opened; does the folder exist?",
    "SQLITE_NOTADB": "the file is no SQLite database",
    "SQLITE_CORRUPT": "the file is damaged; restore a backup",
    "SQLITE_IOERR": "the disk failed; nothing was written",
}


def path_of(url: str) -> Path:
    """The file that a URL names. Raises DefinitionError."""
    if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
        raise DefinitionError(f"{url!r}: write sqlite:///file.db, or sqlite:////absolute/path.db")
    return Path(url.removeprefix("sqlite:///"))


@contextlib.contextmanager
def store_errors(path: Path) -> Generator[None]:
    """Raise what SQLite reports within the block as StoreError that says what to do."""
    try:
        yield
    except sqlite3.Error as exc:
        raise store_error(path, exc) from exc


def store_error(path: Path, exc: sqlite3.Error) -> StoreError:
    """What SQLite reports, as an error that says what to do."""
    name = getattr(exc, "sqlite_errorname", "") or type(exc).__name__
    told = next((text for start, text in ADVICE.items() if name.startswith(start)), str(exc))
    return StoreError(f"store {path}: {told} ({name})")


class Migrated(NamedTuple):
    """What a migration did: the schema a store had and the one it has; 0 for a file that had none."""

    before: int
    after: int


def open_file(path: Path, migrate: bool, audit_key: bytes | None = None) -> sqlite3.Connection:
    """A connection to a file that has our schema and this key. Raises StoreError, NewerSchema, OlderSchema."""
    return _opened(path, migrate, audit_key)[0]


def migrate_file(path: Path, audit_key: bytes | None = None) -> Migrated:
    """Bring a file to our schema; nothing happens when it has it. Raises StoreError, NewerSchema."""
    db, before = _opened(path, True, audit_key)
    db.close()
    return Migrated(before, SCHEMA)


def _opened(path: Path, migrate: bool, audit_key: bytes | None) -> tuple[sqlite3.Connection, int]:
    with store_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with store_errors(path):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            before = _prepare(db, path, migrate)
            _check_key(db, path, audit_key)
    except BaseException:
        db.close()
        raise
    return db, before


def _prepare(db: sqlite3.Connection, path: Path, migrate: bool) -> int:
    """Make the schema, or check that it is ours; which one it was."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise NewerSchema(f"{path} has schema {version}, this Lictor knows {SCHEMA}; upgrade Lictor")
    if version == SCHEMA:
        return version
    if version and not migrate:
        raise OlderSchema(f"{path} has schema {version}, this Lictor needs {SCHEMA}; run `lictor migrate`")
    if version == 0 and db.execute("SELECT 1 FROM sqlite_master WHERE name IN ('event', 'run')").fetchone():
        version = db.execute("PRAGMA user_version").fetchone()[0]  # another process may be making it right now
        if version == 0:
            raise StoreError(f"store {path}: the file belongs to another program; give Lictor a file of its own")
    db.execute("BEGIN IMMEDIATE")
    before: int = db.execute("PRAGMA user_version").fetchone()[0]
    for statements in MIGRATIONS[before:]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")
    return before


def _check_key(db: sqlite3.Connection, path: Path, audit_key: bytes | None) -> None:
    """Refuse to write a chain with another key than the rest of it; the first writer says which one it is."""
    mark = key_mark(audit_key)
    sql = "SELECT value FROM meta WHERE key = 'audit_key'"
    known = db.execute(sql).fetchone()
    if known is None:
        _check_entry(db, path, audit_key)
        db.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('audit_key', ?)", (mark,))
        known = db.execute(sql).fetchone()
    if known[0] != mark:
        raise StoreError(f"store {path}: {KEY_ADVICE[bool(mark), bool(known[0])]}")


def _check_entry(db: sqlite3.Connection, path: Path, audit_key: bytes | None) -> None:
    """A store from before says nothing of its key: an entry of it does."""
    sql = "SELECT root, cursor, run, seq, kind, at, prev, digest, version, hash FROM event LIMIT 1"
    for *place, prev, digest, version, hashed in db.execute(sql):
        if relink(prev, tuple(place), digest, audit_key, version) != hashed:
            raise StoreError(f"store {path}: {KEY_ADVICE[audit_key is not None, True]}")


KEY_ADVICE = {
    (False, True): "its log is keyed; set LICTOR_AUDIT_KEY to the key it was written with",
    (True, True): "LICTOR_AUDIT_KEY is not the key that its log was written with",
    (True, False): "its log was begun without a key; unset LICTOR_AUDIT_KEY, or start a new store with it",
}
"""By whether a key was given, and whether the store has one."""
