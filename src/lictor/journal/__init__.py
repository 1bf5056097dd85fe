"""The append-only log every run is a fold of, and the rows that belong to it."""

from __future__ import annotations

from lictor.journal.entry import Entry, Positioned
from lictor.journal.log import Log
from lictor.journal.memory import MemoryStore
from lictor.journal.store import Store

__all__ = ["Entry", "Log", "MemoryStore", "Positioned", "Store"]
