"""The log of one run, as its writer holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lictor.journal.entry import Entry

__all__ = ["Log"]

_entry = tuple.__new__


class Log:
    """Entries in order, and who is told of each new one (the store that writes them down, readers).

    `entries` begins with number `start`: a store that has the earlier ones in a file need not hold them.

    A driver appends through its own copy of `append`, which is the hottest code of a run; whoever
    writes has to keep `size` and call every listener.
    """

    __slots__ = ("entries", "listeners", "root", "size", "start")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.listeners: tuple[Callable[[Entry], None], ...] = ()
        self.size = 0
        self.start = 0
        self.root = ""

    def append(self, kind: str, payload: Mapping[str, Any], at: float) -> Entry:
        """Add one entry and tell the listeners."""
        entry: Entry = _entry(Entry, (self.size, kind, payload, at))
        self.size += 1
        self.entries.append(entry)
        for listener in self.listeners:
            listener(entry)
        return entry
