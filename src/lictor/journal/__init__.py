"""The append-only log every run is a fold of, and the rows that belong to it."""

from __future__ import annotations

from lictor.journal.entry import Entry, Positioned
from lictor.journal.log import Log
from lictor.journal.memory import MemoryStore
from lictor.journal.opening import open_store, verify_logs
from lictor.journal.owners import is_alive, new_owner, retire
from lictor.journal.store import Store
from lictor.journal.table import MemoryTable, Rows, Table

__all__ = [
    "Entry",
    "Log",
    "MemoryStore",
    "MemoryTable",
    "Positioned",
    "Rows",
    "Store",
    "Table",
    "is_alive",
    "new_owner",
    "open_store",
    "retire",
    "verify_logs",
]
