"""`hierarchical`: a supervisor decides after every step who works next, and when it is done."""

from __future__ import annotations

from dataclasses import dataclass

from lictor.team.route.command import ASK, Move, RouteState
from lictor.team.state import Record

__all__ = ["Hierarchical"]


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """The default. The supervisor's model decides by calling `assign`, `delegate` or `finish`."""

    name: str = "hierarchical"
    supervised: bool = True

    def next(self, state: RouteState, event: Record | None) -> Move:
        """Ask the supervisor, always: its limits and gates are in front of it."""
        return ASK
