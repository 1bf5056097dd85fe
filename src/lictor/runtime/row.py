"""What a store keeps of a root run beside its log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lictor.errors import DefinitionError, NotSerializable
from lictor.journal import Table
from lictor.runs import User

__all__ = ["RUNS", "SIGNALS", "RunRow", "Signal", "check_json", "checked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A root run: what it was started with, and how far it is.

    `status` is `queued`, `running`, `waiting`, `cancelling`, or terminal. `policy` is the
    fingerprint it was started under, `wiring` that of how its agent is put together, `source` where its
    definition was loaded from (`file.py:name`). `erased`: when what it said and did was erased.
    Everything is JSON.
    """

    run_id: str
    definition: str
    task: Any
    created: float
    status: str = "queued"
    key: str | None = None
    user: User | str | None = None
    conversation: str | None = None
    context: Mapping[str, Any] | None = None
    history: str = "run"
    limits: Mapping[str, Any] = field(default_factory=dict)
    approval_deadline: float | None = None
    policy: str | None = None
    wiring: str | None = None
    source: str | None = None
    lost_records: int = 0
    messages: tuple[Mapping[str, Any], ...] = ()
    numbered: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    erased: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A stop or cancel of a run that another process drives; that one carries it out."""

    id: str
    root_run: str
    cause: Mapping[str, Any]


RUNS: Table[RunRow] = Table(
    name="run",
    kind=RunRow,
    columns={
        "status": lambda row: row.status,
        "start_key": lambda row: row.key,
        "conversation": lambda row: row.conversation,
    },
)
SIGNALS: Table[Signal] = Table(name="signal", kind=Signal, columns={"root_run": lambda row: row.root_run})


def checked(row: RunRow) -> RunRow:
    """The row of a run that is about to start. Raises DefinitionError, NotSerializable for what cannot be kept."""
    if row.history not in ("run", "call"):
        raise DefinitionError(f"history={row.history!r}: use 'run' (store after output) or 'call' (after each call)")
    check_json(row.task, "task")
    check_json(dict(row.user.attributes) if isinstance(row.user, User) else row.user, "user")
    check_json(dict(row.context) if row.context is not None else None, "context")
    return row


def check_json(value: Any, path: str) -> None:
    """Raise NotSerializable, naming the path, for anything that JSON cannot hold."""
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotSerializable(path, "not a finite number")
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotSerializable(path, f"the key {key!r} is no text")
            check_json(item, f"{path}.{key}")
        return
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            check_json(item, f"{path}[{number}]")
        return
    raise NotSerializable(path, f"{type(value).__name__} is no JSON")
