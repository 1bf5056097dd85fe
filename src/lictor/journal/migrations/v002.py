"""The second schema: folded states, and what start-up looks for has an index. Never edited."""

from __future__ import annotations

__all__ = ["STATEMENTS"]

STATEMENTS = (
    """CREATE TABLE snapshot (
        run TEXT PRIMARY KEY, root TEXT NOT NULL, seq INTEGER NOT NULL, cursor INTEGER NOT NULL,
        version INTEGER NOT NULL, head BLOB NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL)""",
    "CREATE INDEX snapshot_root ON snapshot (root)",
    "CREATE INDEX run_wake ON run (key) WHERE wake = 1",
    "CREATE INDEX run_owner ON run (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX run_driven ON run (key) WHERE status IN ('queued', 'running', 'cancelling')",
)
