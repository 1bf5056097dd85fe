"""From a URL to a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lictor.errors import DefinitionError
from lictor.journal.memory import MemoryStore
from lictor.journal.store import Store

if TYPE_CHECKING:
    from lictor.journal.audit import AuditReport

__all__ = ["open_store", "verify_logs"]


def open_store(url: str, *, migrate: bool = True) -> Store:
    """Open `memory:` or `sqlite:///file.db`.

    The environment variable `LICTOR_AUDIT_KEY` keys the chain of every log.
    Raises DefinitionError for anything else, StoreError when the store cannot be used.
    """
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:"):
        from lictor.journal.sqlite import SqliteStore

        return SqliteStore(url, audit_key=_key(), migrate=migrate)
    raise DefinitionError(f"store {url!r}: use memory: or sqlite:///file.db")


def verify_logs(url: str, *, root: str | None = None) -> AuditReport | None:
    """Whether the logs of a store are as they were written; None for `memory:`, which keeps no chain.

    Arguments:
        url: `sqlite:///file.db`; `LICTOR_AUDIT_KEY` is the key they were written with.
        root: only this root run and the runs below it.

    Raises StoreError when the file cannot be read.
    """
    if not url.startswith("sqlite:"):
        return None
    from lictor.journal.audit import verify

    return verify(url, audit_key=_key(), root=root)


def _key() -> bytes | None:
    key = os.environ.get("LICTOR_AUDIT_KEY")
    return key.encode() if key else None
