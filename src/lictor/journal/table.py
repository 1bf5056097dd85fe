"""Rows of one kind, as rooms declare them and stores keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["MemoryTable", "Rows", "Table"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Generic[R]):
    """What a room keeps by key.

    Arguments:
        name: of the table in every store.
        kind: the type of a row; a store that writes rows down makes JSON of it and back (pydantic).
        columns: column -> how to get it from a row; the ones that `find` may ask for.
    """

    name: str
    kind: Any
    columns: Mapping[str, Callable[[R], Any]] = field(default_factory=dict)


class Rows(Protocol[R]):
    """The rows of one table: a mapping from key to row, with two verbs more.

    Writes are visible at once to this process, and to others when the store has written them down.
    """

    def __getitem__(self, key: str) -> R: ...
    def __setitem__(self, key: str, row: R) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def get(self, key: str) -> R | None: ...
    def values(self) -> list[R]: ...
    def find(self, **equal: Any) -> list[R]: ...
    def least(self, column: str, **equal: Any) -> Any: ...
    def upto(self, column: str, limit: Any, **equal: Any) -> list[R]: ...
    def add(self, key: str, row: R) -> R: ...
    def swap(self, key: str, before: R, after: R) -> bool: ...
    def remove(self, key: str) -> None: ...


class MemoryTable(Generic[R]):
    """Rows in a dict."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, table: Table[R]) -> None:
        self._columns = table.columns
        self._rows: dict[str, R] = {}

    def __getitem__(self, key: str) -> R:
        return self._rows[key]

    def __setitem__(self, key: str, row: R) -> None:
        self._rows[key] = row

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._rows))

    def get(self, key: str) -> R | None:
        """The row, or None."""
        return self._rows.get(key)

    def values(self) -> list[R]:
        """All rows, oldest first."""
        return list(self._rows.values())

    def find(self, **equal: Any) -> list[R]:
        """Rows whose declared columns have these values, oldest first."""
        wanted = [(self._columns[name], value) for name, value in equal.items()]
        return [row for row in self._rows.values() if all(read(row) == value for read, value in wanted)]

    def least(self, column: str, **equal: Any) -> Any:
        """The least value of a column among the rows that `find` gives, None aside; None when there is none."""
        read = self._columns[column]
        return min([value for value in map(read, self.find(**equal)) if value is not None], default=None)

    def upto(self, column: str, limit: Any, **equal: Any) -> list[R]:
        """The rows that `find` gives whose column has a value up to `limit`."""
        read = self._columns[column]
        return [row for row in self.find(**equal) if (value := read(row)) is not None and value <= limit]

    def add(self, key: str, row: R) -> R:
        """Insert a row unless there is one; the one that is there."""
        return self._rows.setdefault(key, row)

    def swap(self, key: str, before: R, after: R) -> bool:
        """Replace a row if it still is `before` (compare-and-set)."""
        if self._rows.get(key) != before:
            return False
        self._rows[key] = after
        return True

    def remove(self, key: str) -> None:
        """Forget a row; nothing happens when there is none."""
        self._rows.pop(key, None)
