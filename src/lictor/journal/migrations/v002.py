"""The second schema: entries lie in the order of their writing, folded states, more indexes. Never edited.

In the first schema the key of `event` held the payloads: every new run split pages all over the file.
"""

from __future__ import annotations

__all__ = ["STATEMENTS"]

COLUMNS = "root, cursor, run, seq, kind, version, at, payload, digest, prev, hash"

STATEMENTS = (
    "DROP INDEX event_root",
    "ALTER TABLE event RENAME TO event_v001",
    """CREATE TABLE event (
        root TEXT NOT NULL, cursor INTEGER NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
        version INTEGER NOT NULL, at REAL NOT NULL, payload BLOB, digest BLOB NOT NULL, prev BLOB NOT NULL,
        hash BLOB NOT NULL)""",
    f"INSERT INTO event ({COLUMNS}) SELECT {COLUMNS} FROM event_v001 ORDER BY root, cursor",  # noqa: S608 - our own names
    "DROP TABLE event_v001",
    "CREATE UNIQUE INDEX event_run ON event (run, seq)",
    "CREATE UNIQUE INDEX event_root ON event (root, cursor)",
    """CREATE TABLE snapshot (
        run TEXT PRIMARY KEY, root TEXT NOT NULL, seq INTEGER NOT NULL, cursor INTEGER NOT NULL,
        version INTEGER NOT NULL, head BLOB NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL)""",
    "CREATE INDEX snapshot_root ON snapshot (root)",
    "CREATE INDEX refusal_root ON refusal (root_run)",
    "CREATE INDEX run_wake ON run (key) WHERE wake = 1",
    "CREATE INDEX run_owner ON run (owner) WHERE owner IS NOT NULL",
)
