"""What a protocol says: whose turn it is. Pure, so that a run that is folded again goes the same way."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from lictor.team.state import Outcome, Record

__all__ = ["ASK", "Ask", "Finish", "Go", "Move", "Route", "RouteState", "Unroutable"]


class RouteState(NamedTuple):
    """What a protocol may know of a run.

    Arguments:
        members: their names, in the order of the definition.
        task: the task, as `input` let it through.
        outcomes: of every task so far, in the order they ended.
        chosen: tasks so far, skipped ones too.
        records: the trace so far.
        turn, handoffs: how many there were.
    """

    members: tuple[str, ...]
    task: str
    outcomes: tuple[Outcome, ...]
    chosen: int
    records: tuple[Record, ...]
    turn: int
    handoffs: int


class Ask(NamedTuple):
    """The supervisor decides."""


class Go(NamedTuple):
    """These members work next, side by side; `handoff` counts against `max_handoffs`."""

    members: tuple[str, ...]
    instruction: str
    handoff: bool = False


class Finish(NamedTuple):
    """The answer, before its verdict."""

    answer: str


class Unroutable(NamedTuple):
    """Nobody is next, and there is no answer; `reason` is one of the closed list, `by` who caused it."""

    reason: str | None
    by: str | None = None
    error: str | None = None


ASK = Ask()
Move: TypeAlias = Ask | Go | Finish | Unroutable


class Route(Protocol):
    """A protocol: `next` is a function of what happened, without await, clock or chance.

    `supervised` says that a supervisor with a model decides; then `next` gives `ASK`.
    """

    @property
    def name(self) -> str: ...

    @property
    def supervised(self) -> bool: ...

    def next(self, state: RouteState, event: Record | None) -> Move: ...
