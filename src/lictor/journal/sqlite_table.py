"""Rows of one kind in SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lictor.journal.table import Table

if TYPE_CHECKING:
    from lictor.journal.sqlite import SqliteStore

__all__ = ["SqliteTable"]

R = TypeVar("R")


class SqliteTable(Generic[R]):
    """A table with a JSON body and the declared columns. Reads see what other processes wrote."""

    __slots__ = ("_adapter", "_columns", "_conditions", "_kept", "_name", "_store", "_upsert")

    def __init__(self, store: SqliteStore, table: Table[R]) -> None:
        from pydantic import TypeAdapter

        self._store = store
        self._name = table.name
        self._columns = table.columns
        self._adapter: TypeAdapter[R] = TypeAdapter(table.kind)
        self._conditions: dict[tuple[str, ...], str] = {}
        names = ", ".join(("key", "body", *table.columns))
        marks = ", ".join("?" * (2 + len(table.columns)))
        changes = ", ".join(f"{name} = excluded.{name}" for name in ("body", *table.columns))
        insert = f"INSERT INTO {table.name} ({names}) VALUES ({marks}) ON CONFLICT (key) DO"  # noqa: S608 - our own names
        self._upsert = {"add": f"{insert} NOTHING", "set": f"{insert} UPDATE SET {changes}"}
        self._kept: dict[str, tuple[bytes, R]] = {}

    def _write(self, row: R) -> bytes:
        return self._adapter.dump_json(row)

    def _read(self, key: str, body: bytes) -> R:
        """The row of a body; the same object while the body is the same."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != body:
            if len(self._kept) > 10_000:
                self._kept.clear()
            kept = self._kept[key] = (body, self._adapter.validate_json(body))
        return kept[1]

    def _select(self, where: str, values: tuple[Any, ...]) -> list[R]:
        sql = f"SELECT key, body FROM {self._name} {where}"  # noqa: S608 - the name is our own
        return [self._read(key, bytes(body)) for key, body in self._store.read(sql, values)]

    def get(self, key: str) -> R | None:
        """The row, or None."""
        found = self._select("WHERE key = ?", (key,))
        return found[0] if found else None

    def __getitem__(self, key: str) -> R:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter([key for (key,) in self._store.read(f"SELECT key FROM {self._name} ORDER BY rowid")])  # noqa: S608

    def values(self) -> list[R]:
        """All rows, oldest first."""
        return self._select("ORDER BY rowid", ())

    def find(self, **equal: Any) -> list[R]:
        """Rows whose declared columns have these values, oldest first."""
        return self._select(f"WHERE {self._where(equal)} ORDER BY rowid", tuple(equal.values()))

    def least(self, column: str, **equal: Any) -> Any:
        """The least value of a column among the rows that `find` gives, None aside; None when there is none."""
        if column not in self._columns:
            raise KeyError(column)
        where = self._where(equal)
        sql = f"SELECT min({column}) FROM {self._name} WHERE {where} AND {column} IS NOT NULL"  # noqa: S608
        return self._store.read(sql, tuple(equal.values()))[0][0]

    def upto(self, column: str, limit: Any, **equal: Any) -> list[R]:
        """The rows that `find` gives whose column has a value up to `limit`."""
        if column not in self._columns:
            raise KeyError(column)
        where = self._where(equal)
        return self._select(f"WHERE {where} AND {column} <= ? ORDER BY rowid", (*equal.values(), limit))

    def _where(self, columns: Mapping[str, Any]) -> str:
        """The condition that declared columns have given values.

        Rows are looked up by the first one: an index of another (a status that many rows have) would be a detour.
        """
        names = tuple(columns)
        if names not in self._conditions:
            unknown = columns.keys() - self._columns.keys()
            if unknown:
                raise KeyError(*unknown)
            first, others = names[:1], names[1:]
            parts = [*(f"{name} IS ?" for name in first), *(f"+{name} IS ?" for name in others)]
            self._conditions[names] = " AND ".join(parts) or "TRUE"
        return self._conditions[names]

    def _values(self, key: str, row: R) -> tuple[Any, ...]:
        return (key, self._write(row), *[read(row) for read in self._columns.values()])

    def __setitem__(self, key: str, row: R) -> None:
        with self._store.transaction() as db:
            db.execute(self._upsert["set"], self._values(key, row))

    def add(self, key: str, row: R) -> R:
        """Insert a row unless there is one; the one that is there."""
        with self._store.transaction() as db:
            db.execute(self._upsert["add"], self._values(key, row))
            return self[key]

    def swap(self, key: str, before: R, after: R) -> bool:
        """Replace a row if it still is `before` (compare-and-set)."""
        sets = ", ".join(f"{name} = ?" for name in ("body", *self._columns))
        sql = f"UPDATE {self._name} SET {sets} WHERE key = ?"  # noqa: S608 - the name is our own
        with self._store.transaction() as db:
            now = self.get(key)
            # As rows, not as bytes: 5 and 5.0 are written differently and are one deadline.
            if now is None or not (now is before or now == before):
                return False
            db.execute(sql, (*self._values(key, after)[1:], key))
            return True

    def remove(self, key: str) -> None:
        """Forget a row; nothing happens when there is none."""
        with self._store.transaction() as db:
            db.execute(f"DELETE FROM {self._name} WHERE key = ?", (key,))  # noqa: S608 - the name is our own
        self._kept.pop(key, None)
