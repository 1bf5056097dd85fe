"""The append-only log every run is a fold of, and the rows that belong to it."""

from __future__ import annotations

from lictor.journal.entry import ERASED, Entry, Positioned, Snapshot
from lictor.journal.log import Log
from lictor.journal.memory import MemoryStore
from lictor.journal.opening import audit_store, checkpoints_of, migrate_store, open_store, read_file
from lictor.journal.owners import is_alive, new_owner, retire
from lictor.journal.store import Store
from lictor.journal.table import MemoryTable, Rows, Table

__all__ = [
    "ERASED",
    "Entry",
    "Log",
    "MemoryStore",
    "MemoryTable",
    "Positioned",
    "Rows",
    "Snapshot",
    "Store",
    "Table",
    "audit_store",
    "checkpoints_of",
    "is_alive",
    "migrate_store",
    "new_owner",
    "open_store",
    "read_file",
    "retire",
]
