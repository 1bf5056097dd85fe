"""What every store can do; rooms keep their rows in its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from lictor.journal.entry import Entry, Positioned
from lictor.journal.log import Log
from lictor.journal.table import Rows, Table

__all__ = ["Store"]

R = TypeVar("R")


class Store(Protocol):
    """One database: logs of runs, rows by key, leases of drivers.

    An append is visible at once to this process; `barrier` returns when everything appended so far
    would survive a killed process (a no-op unless `durable`); it raises LostLease when another
    driver took the root over, and so does `transaction` with that root. Rows are written at once.
    `discard` drops what is not written yet, so that the log is as another process would find it.
    `wake` marks a root run as having something to do, `woken` lists those that `owner` drives or
    nobody, `idle` tells that one has nothing to do and no driver; `append_outside` adds to a log that
    this process does not drive, unless another one does.
    """

    @property
    def url(self) -> str: ...

    @property
    def durable(self) -> bool: ...

    def log(self, run_id: str, root: str) -> Log: ...

    def entries(self, run_id: str, after: int = -1) -> Sequence[Entry]: ...

    def root_entries(self, root: str, after: int = 0) -> Sequence[Positioned]: ...

    def table(self, table: Table[R]) -> Rows[R]: ...

    def transaction(self, root: str | None = None) -> AbstractContextManager[object]: ...

    def watch(self, root: str, callback: Callable[[Entry], None]) -> Callable[[], None]: ...

    async def barrier(self, root: str) -> None: ...

    def claim(self, root: str, owner: str, now: float, seconds: float) -> bool: ...

    def release(self, root: str, owner: str) -> None: ...

    def holder(self, root: str, now: float) -> str | None: ...

    def lost(self, root: str) -> bool: ...

    def discard(self, root: str) -> None: ...

    def wake(self, root: str) -> None: ...

    def woken(self, owner: str, now: float) -> list[str]: ...

    def idle(self, root: str, now: float) -> bool: ...

    def renew(self, owner: str, now: float, seconds: float) -> None: ...

    def append_outside(self, run_id: str, root: str, kind: str, payload: Mapping[str, Any], at: float) -> bool: ...

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]: ...

    def close(self) -> None: ...
