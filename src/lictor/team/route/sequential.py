"""`sequential`: each member once, in the order of the definition, whatever a text asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lictor.team.route.command import Finish, Go, Move, RouteState, Unroutable
from lictor.team.state import Record

__all__ = ["Sequential"]


@dataclass(frozen=True, slots=True)
class Sequential:
    """A pipeline: every stage sees the task and what the stages before it came to.

    Arguments:
        may_fail: members whose failure does not end the run; the next stage goes on without them.
    """

    may_fail: Collection[str] = ()
    name: str = "sequential"
    supervised: bool = False

    def next(self, state: RouteState, event: Record | None) -> Move:
        """The first stage that did not work yet; after the last one, the last answer there was."""
        done = state.outcomes
        if done:
            last = done[-1]
            if last.status not in ("completed", "skipped") and last.member not in self.may_fail:
                return Unroutable(last.reason, f"member:{last.member}", f"{last.member} ended {last.status}")
        if state.chosen < len(state.members):
            return Go((state.members[state.chosen],), "")
        answers = [outcome.answer for outcome in done if outcome.status == "completed"]
        return Finish(str(answers[-1])) if answers else Unroutable("no_answer")
