"""The file of a SQLite store: opened, brought to our schema, and what its errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from lictor.errors import DefinitionError, NewerSchema, OlderSchema, StoreError
from lictor.journal.migrations import MIGRATIONS
from lictor.journal.migrations import VERSION as SCHEMA

__all__ = ["BUSY_SECONDS", "open_file", "path_of", "store_errors"]

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
        name = getattr(exc, "sqlite_errorname", "") or type(exc).__name__
        told = next((text for start, text in ADVICE.items() if name.startswith(start)), str(exc))
        raise StoreError(f"store {path}: {told} ({name})") from exc


def open_file(path: Path, migrate: bool) -> sqlite3.Connection:
    """A connection to a file that has our schema. Raises StoreError, NewerSchema, OlderSchema."""
    with store_errors(path):
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with store_errors(path):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            _prepare(db, path, migrate)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, migrate: bool) -> None:
    """Make the schema, or check that it is ours."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise NewerSchema(f"{path} has schema {version}, this Lictor knows {SCHEMA}; upgrade Lictor")
    if version == SCHEMA:
        return
    if version and not migrate:
        raise OlderSchema(f"{path} has schema {version}, this Lictor needs {SCHEMA}; run `lictor migrate`")
    if version == 0 and db.execute("SELECT 1 FROM sqlite_master WHERE name IN ('event', 'run')").fetchone():
        version = db.execute("PRAGMA user_version").fetchone()[0]  # another process may be making it right now
        if version == 0:
            raise StoreError(f"store {path}: the file belongs to another program; give Lictor a file of its own")
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")
