"""What a root run is folded to, as versioned JSON: a cache of the log, never more (20-durability).

A snapshot that is missing, damaged, of another version or not about this log means: fold from the
start. Everything in it comes from entries, so that folding the entries after it gives the same as folding all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from lictor.agent.calls import CallState
from lictor.agent.machine import AgentState, Wait
from lictor.errors import ValueDomainError
from lictor.journal import Entry
from lictor.runs import NO_USAGE, Cause, Usage
from lictor.values import freeze

if TYPE_CHECKING:
    from lictor.agent.session import Session

__all__ = ["VERSION", "Beside", "Folding", "beside_after", "from_json", "snapshot", "to_json"]

VERSION = 1
"""Goes up when a fold gives something else for the same entries."""
PLAIN = (
    "phase", "step", "numbered", "positions", "feedback", "reasks", "retries_in_row", "retries", "misses", "invalid",
    "denied", "pending", "released", "source", "answered", "finished",
)  # fmt: skip
FIELDS = [*AgentState._fields, *CallState._fields]
ONE_CALL = Usage(tool_calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a session folds from the log beside the state of its machine.

    Arguments:
        sequence: the number of the next emission.
        labels: result labels by interceptor.
        usage, children: of this run and all below it.
        started: when the run was started, in seconds since the epoch.
    """

    labels: Mapping[str, tuple[str, ...]]
    sequence: int = 0
    usage: Usage = NO_USAGE
    children: int = 0
    started: float = 0.0


class Folding:
    """Keeps `Beside` up to date for a root run while it is driven, by looking at each entry once, when asked."""

    __slots__ = ("_read", "_root", "beside")

    def __init__(self, root: str, beside: Beside, read: Mapping[str, int]) -> None:
        self._root = root
        self._read = dict(read)
        self.beside = beside

    def take(self, run_id: str, start: int, entries: list[Entry]) -> None:
        """Take the entries of a run that were not taken before; the first of them has the number `start`."""
        fresh = entries[max(0, self._read.get(run_id, start) - start) :]
        if fresh:
            self._read[run_id] = fresh[-1].seq + 1
            self.beside = beside_after(self.beside, fresh, own=run_id == self._root)


def snapshot(session: Session) -> None:
    """Have the store keep what a root run is folded to now; between two entries, while it is driven."""
    live, folding = session.live, session.folding
    if folding is None or live.crashed:
        return
    for run_id, log in live.store.appended(live.run_id).items():
        folding.take(run_id, log.start, log.entries)
    body = to_json(live.machine, live.state, folding.beside)
    if body is not None:
        live.store.keep(live.run_id, VERSION, body)


def beside_after(beside: Beside, entries: Iterable[Entry], *, own: bool) -> Beside:
    """What further entries make of it; `own` are those of the root run itself."""
    usage, labels = beside.usage, dict(beside.labels)
    sequence, children, started = beside.sequence, beside.children, beside.started
    for entry in entries:
        kind = entry.kind
        if kind == "verdict" and own:
            sequence = max(sequence, entry.payload["record"]["sequence"] + 1)
        elif kind in ("model_finished", "model_retry"):
            usage += Usage.of(entry.payload.get("usage"))
        elif kind == "tool_started":
            usage += ONE_CALL
        elif kind == "labels" and own:
            name = entry.payload["interceptor"]
            labels[name] = tuple(dict.fromkeys((*labels.get(name, ()), *entry.payload["labels"])))
        elif kind == "run_started":
            started, children = (entry.at, children) if own else (started, children + 1)
    return replace(
        beside, sequence=sequence, labels=labels, usage=usage, children=children, started=started
    )  # fmt: skip


def to_json(machine: Any, state: AgentState, beside: Beside) -> bytes | None:
    """A snapshot; None when the state is none that can be written down."""
    start = machine.begin()
    before = len(start.messages)
    if state.messages[:before] != start.messages or state.extra is not None:  # a team's is short: it is folded anew
        return None
    found: dict[str, Any] = {name: getattr(state, name) for name in PLAIN}
    found["messages"] = state.messages[before:]
    found["ids"] = sorted(state.ids - start.ids)
    found["calls"] = [call._asdict() for call in state.calls]
    # Their results, which may be long, are among the messages.
    found["recent"] = [[step, [call._asdict() | {"content": None} for call in calls]] for step, calls in state.recent]
    found["waits"] = {key: wait._asdict() for key, wait in state.waits.items()}
    found["cause"] = None if state.cause is None else state.cause.json()
    about = {
        "sequence": beside.sequence,
        "labels": {name: list(labels) for name, labels in beside.labels.items()},
        "usage": beside.usage.json(),
        "children": beside.children,
        "started": beside.started,
    }
    try:
        return orjson.dumps({"fields": FIELDS, "beside": about, "state": found})
    except TypeError:  # an integer or a text that only this process can hold
        return None


def from_json(machine: Any, body: bytes) -> tuple[AgentState, Beside] | None:
    """Back from a snapshot; None when it was made of other fields than ours."""
    try:
        given = freeze(orjson.loads(body))
        if list(given["fields"]) != FIELDS:
            return None
        return _state(machine, given["state"]), _beside(given["beside"])
    except (ValueError, KeyError, TypeError, AttributeError, ValueDomainError):
        return None


def _state(machine: Any, given: Mapping[str, Any]) -> AgentState:
    start = machine.begin()
    plain = {name: given[name] for name in PLAIN}
    plain["feedback"] = tuple(plain["feedback"])
    for name in ("pending", "released"):
        plain[name] = None if plain[name] is None else tuple(plain[name])
    results = {
        message["tool_call_id"]: message["content"] for message in given["messages"] if message["role"] == "tool"
    }
    return AgentState(
        **plain,
        messages=(*start.messages, *given["messages"]),
        ids=start.ids | frozenset(given["ids"]),
        calls=_calls(given["calls"]),
        recent=tuple([(step, _calls(calls, results)) for step, calls in given["recent"]]),
        waits={key: Wait(**wait) for key, wait in given["waits"].items()},
        cause=None if given["cause"] is None else Cause.of(given["cause"]),
    )


def _calls(given: Iterable[Mapping[str, Any]], results: Mapping[str, str] | None = None) -> tuple[CallState, ...]:
    """Back from a snapshot; with `results`, those of finished calls by id."""
    calls = [CallState(**call) for call in given]
    return tuple(calls if results is None else [call._replace(content=results[call.id]) for call in calls])


def _beside(given: Mapping[str, Any]) -> Beside:
    return Beside(
        sequence=given["sequence"],
        labels={name: tuple(labels) for name, labels in given["labels"].items()},
        usage=Usage.of(given["usage"]),
        children=given["children"],
        started=float(given["started"]),
    )
