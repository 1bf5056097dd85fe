"""The one driver: from wake to park, hand-over or end."""

from __future__ import annotations

import asyncio
from typing import Any

from lictor.errors import SimulatedCrash, StoreError
from lictor.runs.flights import Flights
from lictor.runs.live import LiveRun
from lictor.runs.machine import Driven
from lictor.runs.outcome import Cause

__all__ = ["drive"]

NONE: frozenset[str] = frozenset()


async def drive(run: Driven) -> None:
    """Drive one stint of a run.

    Returns when the run is finished or when everything that is left waits for somebody. The
    caller's cancellation ends the run as `cancelled` (recorded, shutdown emitted) and is raised
    again afterwards; a fault in a handler ends it as `failed`. A fault of a durable store is raised:
    the run stays as it is stored, and its next driver goes on from there.
    """
    live = run.live
    held: set[str] = set()
    cancelled: asyncio.CancelledError | None = None
    try:
        if live.woken and not live.finished:  # its outcome may be written, and only its row left to settle
            live.record("stint_started", {})
    except SimulatedCrash:
        live.crash()
        raise
    steps = run.steps
    while True:
        try:
            due = live.due
            if due and due[0] is due[-1] and not held:  # one command: no task, and no function call to find out
                held |= NONE if await steps[due[0].kind](run, due[0]) else {due[0].key}
            elif (not due and live.finished) or await _round(run, held):
                break
        except asyncio.CancelledError as exc:
            cancelled = _absorbed(live, exc, cancelled)
        except SimulatedCrash:
            live.crash()
            raise
        except Exception as exc:  # noqa: BLE001 - the last line: a fault in a shell ends the run, typed and recorded
            held.clear()
            _fail(live, exc)
    if cancelled is not None:
        raise cancelled


async def _round(run: Driven, held: set[str]) -> bool:
    """Do what is due; True when the stint is over."""
    live = run.live
    due = [command for command in live.due if command.key not in held]
    if not due:
        return live.finished or not await run.collect()
    if len(due) > 1:
        await Flights(run, held).together()
    elif not await run.steps[due[0].kind](run, due[0]):
        held.add(due[0].key)
    return False


def _absorbed(
    live: LiveRun[Any], exc: asyncio.CancelledError, before: asyncio.CancelledError | None
) -> asyncio.CancelledError | None:
    """Take a cancellation in: an interrupt is only a wake-up, the caller's ends the run.

    A second one by the caller, or one after a crash, goes up at once.
    """
    if live.crashed:
        raise exc
    if live.interrupts:
        live.interrupts -= 1
        exc_to_raise = before
    elif before is not None:
        raise exc
    else:
        if not live.finished:  # it may have come to its end in this very moment
            live.record("cause", Cause("cancelled", by="caller").json())
        exc_to_raise = exc
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return exc_to_raise


def _fail(live: LiveRun[Any], exc: Exception) -> None:
    """Record a fault as the cause; a fault while ending for that very fault is raised instead.

    So is a fault of a store that outlives us: a disk that is full for a moment is no end of a run.
    """
    while isinstance(exc, ExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    if isinstance(exc, StoreError) and live.store.durable:
        live.crash()
        raise exc
    if live.failing:
        raise exc
    live.failing = True
    live.record("cause", Cause("failed", by=None, error=f"{type(exc).__name__}: {exc}").json())
