"""`handoff`: one member is active and may transfer the work to another; whoever answers ends the run."""

from __future__ import annotations

from dataclasses import dataclass

from lictor.team.route.command import Finish, Go, Move, RouteState, Unroutable
from lictor.team.state import Record

__all__ = ["Handoff"]


@dataclass(frozen=True, slots=True)
class Handoff:
    """Agent to agent: members call `transfer_to(member, note)`; the first one of the definition begins.

    A transfer to nobody costs a hand-off and the sender is told whom there is; what the receiver gets
    is the task and the sender's note, never its output.

    Arguments:
        first: who begins, instead of the first member.
    """

    first: str | None = None
    name: str = "handoff"
    supervised: bool = False

    def next(self, state: RouteState, event: Record | None) -> Move:
        """The receiver of the last transfer, or the end."""
        if not state.outcomes:
            return Go((self.first or state.members[0],), "")
        last = state.outcomes[-1]
        if last.to is not None:
            if last.to not in state.members:
                names = ", ".join(name for name in state.members if name != last.member)
                return Go(
                    (last.member,), f"There is no member {last.to!r} to transfer to; the others are {names}.", True
                )
            return Go((last.to,), last.note, True)
        if last.status == "completed":
            return Finish(str(last.answer))
        if last.status == "skipped":
            earlier = [outcome for outcome in state.outcomes[:-1] if outcome.status == "completed"]
            if earlier and earlier[-1].to is not None:  # back to the sender, who may choose another
                return Go((earlier[-1].member,), f"{last.member} may not work on this ({last.reason}); go on without.")
        return Unroutable(last.reason, f"member:{last.member}", f"{last.member} ended {last.status}")
