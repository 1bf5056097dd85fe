"""From a URL to a store."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lictor.errors import DefinitionError
from lictor.journal.memory import MemoryStore
from lictor.journal.store import Store

if TYPE_CHECKING:
    from lictor.journal.audit import AuditReport, Checkpoint, StoredFile
    from lictor.journal.sqlite_file import Migrated

__all__ = ["audit_store", "checkpoints_of", "migrate_store", "open_store", "read_file"]


def open_store(url: str, *, migrate: bool = True, durability: str = "process") -> Store:
    """Open `memory:` or `sqlite:///file.db`.

    Arguments:
        migrate: bring an older schema up to date; otherwise it is refused with OlderSchema.
        durability: `process`: what is committed survives a killed process. `power`: intents of tools that may
            run once, decisions and outcomes of runs also survive a loss of power, if the disk keeps its word.

    The environment variable `LICTOR_AUDIT_KEY` keys the chain of every log.
    Raises DefinitionError for anything else, StoreError when the store cannot be used.
    """
    if durability not in ("process", "power"):
        raise DefinitionError(f"durability={durability!r}: use 'process' or 'power'")
    if url == "memory:":
        if durability == "power":
            raise DefinitionError("durability='power' needs a file: memory: survives nothing")
        return MemoryStore()
    if url.startswith("sqlite:"):
        from lictor.journal.sqlite import SqliteStore

        return SqliteStore(url, audit_key=_audit_key(), migrate=migrate, power=durability == "power")
    raise DefinitionError(f"store {url!r}: use memory: or sqlite:///file.db")


def _audit_key() -> bytes | None:
    key = os.environ.get("LICTOR_AUDIT_KEY")
    return key.encode() if key else None


# What follows looks at files only; it is imported when somebody asks.


def migrate_store(url: str) -> Migrated:
    """Bring the file of a store to the schema of this Lictor; `before` and `after` say what was done.

    Nothing happens when it has it. Raises NewerSchema, StoreError.
    """
    from lictor.journal.sqlite_file import migrate_file, path_of

    return migrate_file(path_of(url), _audit_key())


def audit_store(
    url: str, *, known: Mapping[str, Sequence[Any]] | None = None, roots: Collection[str] | None = None
) -> AuditReport:
    """Check the chain of every log in a store file, with the key in `LICTOR_AUDIT_KEY`.

    Arguments:
        known: what `checkpoints_of` gave earlier.
        roots: only the logs below these.

    Raises StoreError when the file cannot be read.
    """
    from lictor.journal.audit import verify

    return verify(url, audit_key=_audit_key(), known=known, roots=roots)


def checkpoints_of(url: str) -> dict[str, Checkpoint]:
    """Where the log of every run in a store file ends now: kept elsewhere, it shows later what was cut."""
    from lictor.journal.audit import checkpoints

    return checkpoints(url)


def read_file(url: str) -> StoredFile:
    """A store file as it is, read only."""
    from lictor.journal.audit import StoredFile

    return StoredFile(url)
