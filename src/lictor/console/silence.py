"""The audience of `lictor demo --json`: shows nothing and approves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lictor.console.demo import Answer
from lictor.docket import Request
from lictor.errors import LictorError
from lictor.runs import Event

__all__ = ["Silence"]


class Silence:
    """Approves every request as `service:demo`."""

    run_id = ""

    def started(self, run_id: str) -> None:
        """Keep the id, for whoever goes on with the run."""
        self.run_id = run_id

    def elsewhere(self) -> None:
        """Nothing."""

    def event(self, event: Event, detail: Mapping[str, Any]) -> None:
        """Nothing."""

    async def ask(self, request: Request) -> Answer:
        """Approve."""
        return Answer(verb="approve", by="service:demo")

    def refused(self, problem: str) -> None:
        """Asking again would give the same answer."""
        raise LictorError(problem)
