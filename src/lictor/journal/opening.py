"""From a URL to a store."""

from __future__ import annotations

import os

from lictor.errors import DefinitionError
from lictor.journal.memory import MemoryStore
from lictor.journal.store import Store

__all__ = ["open_store"]


def open_store(url: str, *, migrate: bool = True) -> Store:
    """Open `memory:` or `sqlite:///file.db`.

    The environment variable `LICTOR_AUDIT_KEY` keys the chain of every log.
    Raises DefinitionError for anything else, StoreError when the store cannot be used.
    """
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:"):
        from lictor.journal.sqlite import SqliteStore

        key = os.environ.get("LICTOR_AUDIT_KEY")
        return SqliteStore(url, audit_key=key.encode() if key else None, migrate=migrate)
    raise DefinitionError(f"store {url!r}: use memory: or sqlite:///file.db")
