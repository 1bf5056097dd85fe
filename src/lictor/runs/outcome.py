"""How a run ends, and what the caller gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from lictor.runs.usage import NO_USAGE, Usage

__all__ = ["STATUSES", "TERMINAL", "Cause", "RunResult", "Status", "Step", "Trace"]

Status = Literal["completed", "suspended", "blocked", "stopped", "exhausted", "cancelled", "failed"]
STATUSES: tuple[str, ...] = ("completed", "suspended", "blocked", "stopped", "exhausted", "cancelled", "failed")
TERMINAL = frozenset(STATUSES) - {"suspended"}


class Step(NamedTuple):
    """One link of a path from the root to a run: who, which run, and the call that started it."""

    name: str
    run_id: str
    call_id: str | None = None


class Cause(NamedTuple):
    """Why a run is ending. The first cause wins.

    `graceful` lets tools that already run finish; otherwise they are cancelled.
    """

    status: str
    reason: str | None = None
    by: str | None = None
    error: str | None = None
    graceful: bool = False
    resumable: bool = False

    def json(self) -> dict[str, Any]:
        """As the payload of an entry."""
        return self._asdict()

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Cause:
        """Back from an entry."""
        return cls(**{name: payload[name] for name in cls._fields if name in payload})


class Trace(Protocol):
    """The view of a run that its room offers (AgentTrace, TeamTrace)."""

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to, or where it waits.

    Arguments:
        status: one of `STATUSES`; all but `suspended` are terminal.
        answer: the final answer, typed by `output_type`; set only when `completed`.
        reason: a word of the closed list, or the reason of the deny or stop that ended the run.
        by: qualified name of the interceptor, or the actor, that ended the run.
        error: text of the fault for `failed`; later faults follow after `; `. For a `blocked` run that
            somebody could have let go on, `no_approver` when nobody could be asked.
        requests: what waits for a decision, when `suspended`.
        usage: summed over every provider request, nested runs included.
        records: the interception records of this run (not of nested ones), in order.
        refusals: decisions on this run's requests that were not taken.
        lost_records: records that a failing sink did not take.
        resumable: a failed run that may have another attempt.
        run_id: the run.
        trace: transcript and steps, as of now.
    """

    status: Status
    answer: Any = None
    reason: str | None = None
    by: str | None = None
    error: str | None = None
    requests: tuple[Any, ...] = ()
    usage: Usage = NO_USAGE
    records: tuple[Mapping[str, Any], ...] = ()
    refusals: tuple[Mapping[str, Any], ...] = ()
    lost_records: int = 0
    resumable: bool = False
    run_id: str = ""
    trace: Any = None
