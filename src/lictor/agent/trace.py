"""What a run did, folded from its log, in any status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lictor.agent.calls import NESTED
from lictor.agent.machine import AgentMachine
from lictor.journal import Entry
from lictor.runs import NO_USAGE, Usage

__all__ = ["AgentTrace", "trace_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTrace:
    """A run as its log tells it.

    Arguments:
        run_id: the run.
        status: `running`, `waiting`, the terminal status, or `erased`.
        messages: the transcript in the OpenAI chat shape, without instructions; never what was denied.
        records: interception records, in order.
        steps: (kind, payload) of everything recorded, for people and tests.
        usage: of this run's own model calls.
    """

    run_id: str
    status: str
    messages: tuple[Mapping[str, Any], ...]
    records: tuple[Mapping[str, Any], ...]
    steps: tuple[tuple[str, Mapping[str, Any]], ...]
    usage: Usage


def trace_of(run_id: str, entries: Sequence[Entry], history: Sequence[Mapping[str, Any]] = ()) -> AgentTrace:
    """Fold a log into its trace; of an erased one only the kinds of its entries are left, and that it is over."""
    if any("erased" in entry.payload for entry in entries):
        steps = tuple([(entry.kind, entry.payload) for entry in entries])
        return AgentTrace(run_id=run_id, status="erased", messages=(), records=(), steps=steps, usage=NO_USAGE)
    machine = AgentMachine(history=tuple(history))
    state = machine.begin()
    usage = NO_USAGE
    status = "running"
    for entry in entries:
        if entry.kind in machine.kinds:
            state, _ = machine.advance(state, entry)
        if entry.kind in ("model_finished", "model_retry"):
            usage = usage + Usage.of(entry.payload.get("usage"))
        if entry.kind == "run_finished":
            status = entry.payload["status"]
    if status == "running" and (machine.waiting(state) or any(call.status == NESTED for call in state.calls)):
        status = "waiting"
    return AgentTrace(
        run_id=run_id,
        status=status,
        messages=state.messages,
        records=tuple([entry.payload["record"] for entry in entries if entry.kind == "verdict"]),
        steps=tuple([(entry.kind, entry.payload) for entry in entries]),
        usage=usage,
    )
