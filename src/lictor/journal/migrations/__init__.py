"""Schemas of stores that are written down: numbered, append-only."""

from __future__ import annotations

from lictor.journal.migrations.v001 import STATEMENTS as V001
from lictor.journal.migrations.v002 import STATEMENTS as V002

__all__ = ["MIGRATIONS", "VERSION"]

MIGRATIONS: tuple[tuple[str, ...], ...] = (V001, V002)
VERSION = len(MIGRATIONS)
