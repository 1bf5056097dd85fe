"""Crash and pause points for tests within one process; the names are those of `lictor.faults.POINTS`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

from lictor import faults
from lictor.errors import InvariantBroken, SimulatedCrash

__all__ = ["CrashPoint", "PausePoint", "crash_at", "pause_at"]

PATIENCE = 10.0  # real seconds that somebody waits at or for a pause before the test is given up


class CrashPoint:
    """A crash that waits for its point. `reached` says whether it happened."""

    def __init__(self, point: str, after: int = 0) -> None:
        self.point = point
        self.reached = False
        self.disarm = faults.arm(point, self._crash, after)

    def _crash(self) -> None:
        self.reached = True
        raise SimulatedCrash(self.point)

    def must_be_reached(self) -> None:
        """Raise InvariantBroken if it never happened: then the test tested nothing."""
        if not self.reached:
            raise InvariantBroken(f"the crash point {self.point!r} was armed and never reached", ())


@contextmanager
def crash_at(point: str, *, after: int = 0) -> Generator[CrashPoint]:
    """Raise SimulatedCrash the next time `point` is reached, once.

    What was driven writes nothing from there on, as if its process were gone; a new Runtime over the
    same store finds what a killed process would have left. The fixture `runtime` does all of that.

    Arguments:
        point: one of `faults.POINTS`.
        after: how many times the point is passed before.

    Raises DefinitionError for an unknown point, InvariantBroken at the end if it was never reached.
    """
    armed = CrashPoint(point, after)
    try:
        yield armed
    finally:
        armed.disarm()
    armed.must_be_reached()


class PausePoint:
    """A point where whoever comes along stands still until it is released."""

    def __init__(self, point: str, after: int = 0) -> None:
        self.point = point
        self._creator = threading.get_ident()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._here = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.disarm = faults.arm(point, self._stand, after)

    def _stand(self) -> None:
        if threading.get_ident() == self._creator:
            raise SimulatedCrash(
                f"pause_at({self.point!r}) was reached on the thread that has to release it, and would stand for "
                "ever; drive what should pause in another one: asyncio.to_thread(asyncio.run, ...)"
            )
        with self._lock:
            self._here = True
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            loop.call_soon_threadsafe(_wake, future)
        if not self._released.wait(PATIENCE):
            raise SimulatedCrash(f"nobody released pause_at({self.point!r}) within {PATIENCE:g} s")

    async def reached(self) -> None:
        """Wait until somebody stands at the point; other tasks go on. Raises InvariantBroken after 10 s."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._here:
                return
            self._waiting.append((loop, future))
        try:
            async with asyncio.timeout(PATIENCE):
                await future
        except TimeoutError:
            raise InvariantBroken(f"the pause point {self.point!r} was not reached within {PATIENCE:g} s", ()) from None

    def release(self) -> None:
        """Let whoever stands there go on."""
        self._released.set()


@contextmanager
def pause_at(point: str, *, after: int = 0) -> Generator[PausePoint]:
    """Stop the thread that reaches `point` until `release()`, or the end of the block.

    The point is a plain call inside the product, so it stops a thread, not a task. Drive what should
    stand in a thread with a loop of its own, and look at the store from here::

        with pause_at("effect.after") as pause:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(asyncio.run, drive()))
                await pause.reached()
                ...                       # what others do meanwhile
                pause.release()

    Arguments:
        point: one of `faults.POINTS`.
        after: how many times the point is passed before.

    Raises DefinitionError for an unknown point; on the thread of the test itself SimulatedCrash.
    """
    pause = PausePoint(point, after)
    try:
        yield pause
    finally:
        pause.disarm()
        pause.release()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
