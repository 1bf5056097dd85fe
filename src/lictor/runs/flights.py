"""Several commands at once."""

from __future__ import annotations

import asyncio

from lictor.errors import SimulatedCrash
from lictor.runs.machine import Command, Driven

__all__ = ["Flights"]


class Flights:
    """The commands of one run that are in flight together, in a task group.

    What becomes due meanwhile is started, what is no longer due is cancelled (its handler records
    how it ended), and an error in one cancels the others.
    """

    __slots__ = ("_dropped", "_flying", "_held", "_live", "_run", "_wake")

    def __init__(self, run: Driven, held: set[str]) -> None:
        self._run = run
        self._live = run.live
        self._held = held
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._dropped: set[str] = set()
        self._wake = asyncio.Event()

    async def together(self) -> None:
        """Perform what is due until nothing is in flight."""
        self._live.wake = self._wake
        try:
            async with asyncio.TaskGroup() as group:
                while self._launch(group):
                    self._wake.clear()
                    await self._wake.wait()
        except BaseExceptionGroup as errors:
            crashes, _ = errors.split(SimulatedCrash)
            if crashes is not None:
                raise SimulatedCrash(str(crashes.exceptions[0])) from None
            raise
        finally:
            self._live.wake = None

    def _launch(self, group: asyncio.TaskGroup) -> bool:
        """Start and cancel so that just what is due is in flight; whether anything is."""
        wanted = {command.key: command for command in self._live.due if command.key not in self._held}
        for key, task in self._flying.items():
            if key not in wanted and key not in self._dropped:
                self._dropped.add(key)
                task.cancel()
        for key, command in wanted.items():
            if key not in self._flying:
                self._flying[key] = group.create_task(self._perform(command))
        return bool(self._flying)

    async def _perform(self, command: Command) -> None:
        live = self._live
        try:
            # A sibling that ran first in this turn of the loop may have ended the run.
            due = any(other.key == command.key for other in live.due)
            if due and not await self._run.steps[command.kind](self._run, command):
                self._held.add(command.key)
        except SimulatedCrash:
            self._live.crash()
            raise
        except asyncio.CancelledError:
            if command.key not in self._dropped:
                raise
        finally:
            del self._flying[command.key]
            self._wake.set()
