"""What a log holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["ERASED", "Entry", "Positioned", "Snapshot"]

ERASED: Mapping[str, Any] = {"erased": True}
"""The payload of an entry whose own was erased."""


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


class Snapshot(NamedTuple):
    """What the entries of a run up to number `seq` were folded to: JSON of its room, of a version it knows.

    `cursor` is how far the log of its root had come.
    """

    seq: int
    cursor: int
    version: int
    body: bytes
