"""`none`: nobody is routed; every member works on the task once, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from lictor.team.route.command import Finish, Go, Move, RouteState, Unroutable
from lictor.team.state import Record

__all__ = ["Unrouted"]


@dataclass(frozen=True, slots=True)
class Unrouted:
    """The answer is the one answer there is, or a JSON object with each member's by name."""

    name: str = "none"
    supervised: bool = False

    def next(self, state: RouteState, event: Record | None) -> Move:
        """All at once; then what they came to, in the order of the definition."""
        if state.chosen == 0:
            return Go(state.members, "")
        answers = {outcome.member: outcome.answer for outcome in state.outcomes if outcome.status == "completed"}
        if not answers:
            return Unroutable("no_answer")
        ordered = {name: answers[name] for name in state.members if name in answers}
        if len(ordered) == 1:
            return Finish(str(*ordered.values()))
        return Finish(orjson.dumps(ordered).decode())
