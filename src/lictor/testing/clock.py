"""Time that tests own."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lictor.testing.idle import IdleLoop, busy_threads, idle_loop
from lictor.values import Clock

__all__ = ["VirtualClock"]

PATIENCE = 0.25  # real seconds that `settle` waits for a worker thread: a tool that hangs never ends


@dataclass(slots=True, order=True)  # budget: a sleeper is marked when it wakes
class _Sleeper:
    due: int  # microseconds since the epoch
    jump: bool  # False sorts first: no jump onto an instant that holds a deadline
    serial: int
    future: asyncio.Future[None] = field(compare=False)
    loop: IdleLoop = field(compare=False)

    @property
    def gone(self) -> bool:
        return self.future.done() or self.loop.over

    def wake(self) -> None:
        if self.loop.thread == threading.get_ident():
            self._finish()
        else:
            self.loop.call(self._finish)

    def _finish(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class VirtualClock(Clock):
    """A clock that stands still until somebody moves it, or until nothing else is left to happen.

    `await clock.advance(60)` moves it and wakes sleepers in order; between two of them everything
    runs until it waits again. Without it, when every task waits and only sleepers of this clock are
    left, time jumps to the next one, so that a test of a one-hour backoff takes no time. It never
    jumps while

    - a socket is connected or connecting, a pipe or a child process is watched by a loop (a listening
      socket alone is no work);
    - a worker thread has work (any `ThreadPoolExecutor`, tools, a thread with a true attribute
      `busy`);
    - a task waits in a real `asyncio.sleep`;
    - `hold()` says so, or `advance` is moving the clock;
    - another event loop that sleeps on this clock is busy;

    and never onto or over an instant that `sleep(seconds, jump=False)` waits for: deadlines of the
    docket pass only by `advance`. With a connection kept open, use `await clock.next_sleep()` and
    `advance`.

    One clock serves many event loops, in one thread after the other or in several at once. The loops
    must be asyncio's own.

    Args:
        start: the first instant, RFC 3339 or seconds since the epoch.
        autojump: False for a clock that only `advance` moves.

    Raises:
        ValueError: `start` has no time zone or is no time.
    """

    def __init__(self, start: str | float = "2026-01-01T00:00:00Z", *, autojump: bool = True) -> None:
        super().__init__()
        if isinstance(start, str):
            instant = datetime.fromisoformat(start)
            if instant.tzinfo is None:
                raise ValueError(f"start={start!r} has no time zone; end it with Z")
            start = instant.timestamp()
        self._start = self._now = round(start * 1_000_000)
        self._autojump = autojump
        self._lock = threading.RLock()
        self._sleepers: list[_Sleeper] = []
        self._serial = itertools.count()
        self._awaited: list[_Sleeper] = []
        self._settlers: list[tuple[IdleLoop, asyncio.Future[None]]] = []
        self._loops: weakref.WeakSet[IdleLoop] = weakref.WeakSet()
        self._moving = 0
        self._held = 0

    def now(self) -> float:
        """Return seconds since the epoch, to the microsecond."""
        return self._now / 1_000_000

    def timestamp(self) -> str:
        """Return now as RFC 3339 UTC with milliseconds, never a rounding off."""
        instant = datetime.fromtimestamp(self._now // 1_000_000, UTC)
        return f"{instant:%Y-%m-%dT%H:%M:%S}.{self._now // 1000 % 1000:03d}Z"

    def monotonic(self) -> float:
        """Return seconds since the start."""
        return (self._now - self._start) / 1_000_000

    async def sleep(self, seconds: float, *, jump: bool = True) -> None:
        """Wait until the clock has moved on by `seconds`.

        Args:
            seconds: how long; 0 and less only let other tasks run.
            jump: False for a deadline: only `advance` reaches it.
        """
        loop = self._join()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._now + round(seconds * 1_000_000)
        with self._lock:
            heapq.heappush(self._sleepers, _Sleeper(due, jump, next(self._serial), future, loop))
            while self._awaited:
                self._awaited.pop().wake()
        await future

    async def advance(self, by: float | timedelta) -> None:
        """Move the clock on by `by` (seconds or a timedelta), waking every sleeper on the way.

        Sleepers wake in the order of their instants, each instant once everything before has settled;
        those that come to sleep on the way count too. After the last one everything has settled.

        Raises:
            ValueError: `by` is negative; time does not go back.
        """
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"advance({by!r}): time does not go back")
        target = self._now + round(seconds * 1_000_000)
        self._moving += 1
        try:
            await self.settle()
            while (first := self._first()) is not None and first.due <= target:
                self._move(first.due)
                await self.settle()
            self._now = max(self._now, target)
        finally:
            self._moving -= 1

    async def settle(self) -> None:
        """Wait, without moving the clock, until every task waits and no worker thread has work.

        A thread that works on is given a quarter of a real second. Sockets are not waited for.
        """
        loop = self._join()
        entry = (loop, asyncio.get_running_loop().create_future())
        with self._lock:
            self._settlers.append(entry)
        try:
            await entry[1]
        finally:
            with self._lock:
                if entry in self._settlers:
                    self._settlers.remove(entry)

    async def next_sleep(self) -> float:
        """Wait in real time until a task sleeps on this clock; return the seconds until it wakes."""
        while (first := self._first()) is None:
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with self._lock:
                self._awaited.append(_Sleeper(0, False, 0, arrival, self._join()))
            await arrival
        return (first.due - self._now) / 1_000_000

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep the clock from jumping, for work that it cannot see."""
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1

    # ---- what an idle loop asks (`lictor.testing.idle.Listener`) ----

    def waits(self) -> bool:
        """Tell whether anything depends on an idle loop: a sleeper, or somebody who wants it settled."""
        return bool(self._settlers) or self._first() is not None

    def idle(self, loop: IdleLoop, since: float) -> None:
        """Let those go on who waited for `loop` to settle; else jump, if nothing speaks against it."""
        with self._lock:
            if self._settlers:
                self._settle(loop, since)
                return
            others = [each for each in self._loops if each is not loop and not each.over]
            if loop.reason or not all(each.blocked and not each.reason for each in others):
                return
            if self._held or self._moving or not self._autojump:
                return
            first = self._first()
            if first is not None and first.jump:
                self._move(first.due)

    def _settle(self, loop: IdleLoop, since: float) -> None:
        others = [each for each in self._loops if each is not loop and not each.over]
        if since < PATIENCE and (busy_threads() or not all(each.blocked for each in others)):
            return
        mine = [entry for entry in self._settlers if entry[0] is loop]
        for entry in mine:
            self._settlers.remove(entry)
            if not entry[1].done():
                entry[1].set_result(None)

    def _join(self) -> IdleLoop:
        loop = idle_loop()
        loop.listeners.add(self)
        self._loops.add(loop)
        return loop

    def _first(self) -> _Sleeper | None:
        with self._lock:
            while self._sleepers and self._sleepers[0].gone:
                heapq.heappop(self._sleepers)
            return self._sleepers[0] if self._sleepers else None

    def _move(self, instant: int) -> None:
        """Set the clock and wake everybody who is due."""
        with self._lock:
            self._now = max(self._now, instant)
            while (first := self._first()) is not None and first.due <= self._now:
                heapq.heappop(self._sleepers)
                first.wake()
