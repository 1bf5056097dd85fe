"""The first schema. Never edited: a change is a new migration."""

from __future__ import annotations

__all__ = ["STATEMENTS"]

STATEMENTS = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE event (
        root TEXT NOT NULL, cursor INTEGER NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
        version INTEGER NOT NULL, at REAL NOT NULL, payload BLOB, digest BLOB NOT NULL, prev BLOB NOT NULL,
        hash BLOB NOT NULL, PRIMARY KEY (run, seq)) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX event_root ON event (root, cursor)",
    """CREATE TABLE run (
        key TEXT PRIMARY KEY, body BLOB NOT NULL, status TEXT NOT NULL, start_key TEXT, conversation TEXT,
        owner TEXT, fence INTEGER NOT NULL DEFAULT 0, lease REAL NOT NULL DEFAULT 0,
        wake INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX run_status ON run (status)",
    "CREATE UNIQUE INDEX run_start_key ON run (start_key) WHERE start_key IS NOT NULL",
    """CREATE TABLE request (
        key TEXT PRIMARY KEY, body BLOB NOT NULL, status TEXT NOT NULL, root_run TEXT NOT NULL, run_id TEXT NOT NULL,
        step TEXT NOT NULL, deadline REAL)""",
    "CREATE INDEX request_status ON request (status, deadline)",
    "CREATE INDEX request_run ON request (run_id, step)",
    "CREATE INDEX request_root ON request (root_run)",
    "CREATE TABLE standing (key TEXT PRIMARY KEY, body BLOB NOT NULL, binding TEXT NOT NULL)",
    "CREATE INDEX standing_binding ON standing (binding)",
    "CREATE TABLE refusal (key TEXT PRIMARY KEY, body BLOB NOT NULL, request TEXT NOT NULL, root_run TEXT NOT NULL)",
    "CREATE INDEX refusal_request ON refusal (request)",
    "CREATE TABLE held (key TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE conversation (key TEXT PRIMARY KEY, body BLOB NOT NULL, owner TEXT)",
    "CREATE TABLE signal (key TEXT PRIMARY KEY, body BLOB NOT NULL, root_run TEXT NOT NULL)",
)
