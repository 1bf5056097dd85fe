"""What a log holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Entry", "Positioned"]


class Entry(NamedTuple):
    """One thing that happened in one run.

    `seq` counts from 0 without gaps within the run, `at` is seconds since the epoch, `payload` is
    JSON and is never changed after the append.
    """

    seq: int
    kind: str
    payload: Mapping[str, Any]
    at: float


class Positioned(NamedTuple):
    """An entry with its place in the log of its root run: `cursor` counts over all runs below the root."""

    cursor: int
    run_id: str
    entry: Entry
