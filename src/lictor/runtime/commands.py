"""The one door for commands; callers in this process are trusted (`via=library`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lictor.docket import Actor
from lictor.runs import Cause

if TYPE_CHECKING:
    from lictor.runtime.runtime import Runtime

__all__ = ["Commands"]


class Commands:
    """Stop and cancel, by an actor."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def stop(self, run_id: str, *, reason: str, by: Actor | str) -> None:
        """End a run as `stopped` with this reason; tools that already run may finish."""
        actor = Actor.of(by)
        await self._runtime.interrupt(run_id, Cause("stopped", reason, str(actor), graceful=True))

    async def cancel(self, run_id: str, *, by: Actor | str) -> None:
        """End a run as `cancelled`; what runs is cancelled, every open call is answered."""
        actor = Actor.of(by)
        await self._runtime.interrupt(run_id, Cause("cancelled", None, str(actor)))
