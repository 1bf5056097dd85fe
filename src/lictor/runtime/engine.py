"""The local engine: stints as tasks of this process, one for each root run at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from lictor.docket import Docket
from lictor.errors import LostLease, SimulatedCrash, StoreError
from lictor.values import Clock

__all__ = ["LocalEngine"]


def _nothing(root: str) -> None:
    return None


class LocalEngine:
    """Submits stints and the one timer for deadlines.

    A run that waits holds no task. A submission while a stint of the same root is under way makes
    it run once more afterwards, so that no wake-up is lost.
    """

    def __init__(self, clock: Clock, docket: Docket, stint: Callable[[str], Awaitable[None]]) -> None:
        self._clock = clock
        self._docket = docket
        self._stint = stint
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at: float | None = None
        self._beat: asyncio.Task[None] | None = None
        self.crash: SimulatedCrash | None = None
        self.failed: dict[str, StoreError] = {}
        self.on_idle: Callable[[str], None] = _nothing
        self.on_drop: Callable[[str], None] = _nothing
        self.on_fail: Callable[[str], None] = _nothing

    async def open(self, beat: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Start taking stints; `beat` runs beside them."""
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._beat = None if beat is None else self._group.create_task(beat())

    async def close(self, grace: float) -> None:
        """Take no more stints, stop the timer, wait up to `grace` seconds, then drop what still runs.

        A dropped stint writes nothing more: its run stays `running` and is adopted by the next
        Runtime over the store, as after a crash.
        """
        group, self._group = self._group, None
        if self._timer is not None:
            self._timer.cancel()
        if group is None:
            return
        tasks = list(self._tasks.items())
        if tasks:
            await asyncio.wait([task for _, task in tasks], timeout=0 if self.crash else grace)
        for root, task in tasks:
            if not task.done():
                self.on_drop(root)
                task.cancel()
        if self._beat is not None:
            self._beat.cancel()
        await group.__aexit__(None, None, None)

    @property
    def running(self) -> bool:
        """Whether stints are taken."""
        return self._group is not None and self.crash is None

    def active(self, root: str) -> bool:
        """Whether a stint of this root is under way."""
        return root in self._tasks

    def drop(self, root: str) -> None:
        """End a stint whose run is another driver's now."""
        self.on_drop(root)
        task = self._tasks.get(root)
        if task is not None:
            task.cancel()

    def submit(self, root: str) -> None:
        """Run a stint of `root`, now or right after the one under way."""
        if not self.running or self._group is None:
            return
        if root in self._tasks:
            self._again.add(root)
            return
        self.failed.pop(root, None)
        self._tasks[root] = self._group.create_task(self._run(root))

    async def _run(self, root: str) -> None:
        try:
            while True:
                self._again.discard(root)
                await self._stint(root)
                if root not in self._again:
                    break
        except SimulatedCrash as exc:
            self.crash = exc
            for other, task in self._tasks.items():
                if other != root:
                    self.on_drop(other)
                    task.cancel()
        except LostLease:
            self.on_drop(root)  # it is another driver's now, which tells how it ends
        except StoreError as exc:
            self.failed[root] = exc  # for whoever waits; the run stays as it is stored and can be resumed
            self.on_fail(root)
        finally:
            del self._tasks[root]
            with contextlib.suppress(StoreError):
                if self._docket.deadlines_changed:
                    self.watch_deadlines()
            self.on_idle(root)

    def watch_deadlines(self) -> None:
        """Set the timer to the earliest deadline of the docket."""
        due = self._docket.next_deadline()
        if (
            not self.running
            or self._group is None
            or due is None
            or (self._timer_at is not None and self._timer_at <= due)
        ):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._group.create_task(self._expire(due))

    async def _expire(self, due: float) -> None:
        await self._clock.sleep(max(0.0, due - self._clock.now()), jump=False)
        self._timer = self._timer_at = None
        with contextlib.suppress(StoreError):  # the next look at the store sets the timer again
            self._docket.expire_due()
            self.watch_deadlines()
