"""What every store can do; rooms keep their rows in its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lictor.journal.entry import Entry, Positioned
from lictor.journal.log import Log

__all__ = ["Store"]


class Store(Protocol):
    """One database: logs of runs, and tables of rows by key.

    An append is visible at once to this process; `barrier` returns when everything appended so far
    would survive a killed process (a no-op where nothing can survive).
    """

    @property
    def url(self) -> str: ...

    def log(self, run_id: str, root: str) -> Log: ...

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]: ...

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]: ...

    def table(self, name: str) -> dict[str, Any]: ...

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]: ...

    async def barrier(self) -> None: ...
