"""A handle on a run: reads, waits, never drives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lictor.errors import DefinitionError
from lictor.runs import Ending, Event, RunResult
from lictor.runs import follow as read_events

if TYPE_CHECKING:
    from lictor.runtime.runtime import Runtime

__all__ = ["Run"]


class Run:
    """One root run of a Runtime; any number of handles may exist."""

    __slots__ = ("_runtime", "id")

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self._runtime = runtime
        self.id = run_id

    def __repr__(self) -> str:
        return f"Run({self.id!r}, status={self.status!r})"

    @property
    def status(self) -> str:
        """`queued, running, waiting, cancelling`, or the terminal status."""
        return self._runtime.row(self.id).status

    @property
    def runtime(self) -> Runtime:
        """The Runtime it was asked of."""
        return self._runtime

    @property
    def user(self) -> Any:
        """Whom the run is for, as given at the start."""
        return self._runtime.row(self.id).user

    @property
    def conversation(self) -> str | None:
        """The conversation it belongs to."""
        return self._runtime.row(self.id).conversation

    @property
    def resumable_here_only(self) -> tuple[str, ...]:
        """What of it has no import path (`module:qualname`): another process may hold something else under that name.

        Lambdas, closures and what is defined in `__main__`; empty over a store in memory. Also in the
        payload of `run_started`.
        """
        first = self._runtime.store.entries(self.id)[0]
        return tuple(first.payload.get("resumable_here_only", ()))

    async def result(self, wait: str = "park") -> RunResult:
        """The outcome; with `wait="park"` (default) also when the run parks, as `suspended`.

        `blocked` is returned like every other outcome.
        """
        if wait not in ("park", "end"):
            raise DefinitionError(f"result(wait={wait!r}): use 'park' or 'end'")
        return await self._runtime.wait(self.id, wait)

    async def events(self, after: int | str | None = None, follow: bool = False) -> AsyncGenerator[Event]:
        """Events behind the cursor `after` (None: all; text as in `Last-Event-ID`), of nested runs too.

        Ends when the run parks or ends; with `follow=True` it goes past parks, to the end.
        Raises DefinitionError for a cursor that is no whole number.
        """
        behind = _cursor(after)
        ending = Ending()
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(self._end("end" if follow else "park", ending))
            async with aclosing(read_events(self._runtime.store, self.id, behind, ending)) as events:
                try:
                    async for event in events:
                        yield event
                except GeneratorExit:  # closed by its reader, which a task group would make an error of
                    pass
            waiter.cancel()

    async def _end(self, wait: str, ending: Ending) -> None:
        await self._runtime.settled(self.id, wait, ending.stir)
        ending.set()


def _cursor(after: int | str | None) -> int:
    text = str(after or 0).strip()
    if not text.isascii() or not text.isdigit():
        raise DefinitionError(f"events(after={after!r}): give the cursor of an event")
    return int(text)
