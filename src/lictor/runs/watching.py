"""Watchers: told what happened, without any power over it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable

from lictor.errors import DefinitionError
from lictor.runs.driver import drive
from lictor.runs.events import Ending, Event, follow
from lictor.runs.live import LiveRun
from lictor.runs.machine import Driven

__all__ = ["Watcher", "check_watchers", "watched"]

PATIENCE = 1.0


@runtime_checkable
class Watcher(Protocol):
    """Sees the events of a run and of those below it. Never a gate: it cannot hold or change anything.

    One that raises, or takes longer than a second for an event, is detached (`watcher_detached` in
    the log) and the run goes on.
    """

    def observe(self, event: Event, /) -> Awaitable[None] | None: ...


def check_watchers(watchers: Sequence[Any]) -> tuple[Any, ...]:
    """The watchers as given; raises DefinitionError for what cannot observe."""
    if isinstance(watchers, str) or not isinstance(watchers, Sequence):
        raise DefinitionError(f"watchers={watchers!r}: give a list")
    for watcher in watchers:
        if not callable(getattr(watcher, "observe", watcher)):
            raise DefinitionError(f"{watcher!r} is no watcher: give it observe(event), or make it a function")
    return tuple(watchers)


async def watched(run: Driven, watchers: Sequence[Any]) -> None:
    """Drive a stint while the watchers follow it; each gets every event once, in order."""
    if not watchers:
        await drive(run)
        return
    live = run.live
    ending = Ending()
    after = live.store.cursor(live.root) if live.woken else 0
    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        for watcher in watchers:
            group.create_task(_feed(live, watcher, after, ending))
        try:
            await drive(run)
        except BaseException as exc:  # noqa: BLE001 - raised again, as it is, when the watchers are done
            failure = exc
        ending.set()
    if failure is not None:
        raise failure


async def _feed(live: LiveRun[Any], watcher: Any, after: int, ending: Ending) -> None:
    observe = getattr(watcher, "observe", watcher)
    async for event in follow(live.store, live.root, after, ending):
        if not any(step.run_id == live.run_id for step in event.path):
            continue
        try:
            answer = observe(event)
            if inspect.isawaitable(answer):
                async with asyncio.timeout(PATIENCE):
                    await answer
        except Exception as exc:  # noqa: BLE001 - a watcher is foreign code; it is detached and the run goes on
            name = getattr(watcher, "__qualname__", type(watcher).__qualname__)
            live.record("watcher_detached", {"watcher": name, "error": type(exc).__name__})
            return
