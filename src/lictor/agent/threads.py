"""Worker threads for tools that block.

Not a `ThreadPoolExecutor`: a tool that hangs after its call was given up would keep one of a fixed
number of workers for good, and the process from ending. Here an idle worker is reused, a new one
is started when there is none, and all are daemons.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_thread"]

IDLE_SECONDS = 10.0
DRAIN_SECONDS = 5.0

_lock = threading.Lock()
_idle: list[_Worker] = []


class _Worker(threading.Thread):
    """One thread; `busy` from the moment work is handed over until its outcome is delivered.

    (`lictor.testing.VirtualClock` never jumps while a thread has a true `busy`.)
    """

    def __init__(self) -> None:
        super().__init__(name="lictor-tool", daemon=True)
        self.busy = True
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def give(self, work: Callable[[], None]) -> None:
        self.busy = True
        self._inbox.put(work)

    def run(self) -> None:
        while True:
            try:
                work = self._inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with _lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
                continue  # work is being handed over right now
            work()
            del work  # it holds the tool's arguments
            self.busy = False
            with _lock:
                _idle.append(self)


def _hand_over(work: Callable[[], None]) -> None:
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is None:
        worker = _Worker()
        worker.give(work)
        worker.start()
    else:
        worker.give(work)


def _forget_workers() -> None:
    """After a fork none of the parent's threads lives in the child."""
    global _lock  # noqa: PLW0603 - it may be held by a thread that is gone
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


async def in_thread(
    call: Callable[[], Any],
    late: Callable[[str], object] | None = None,
    drained: Callable[[], bool] = lambda: True,
) -> Any:
    """Run `call` in a worker thread with this task's context variables, and wait for it.

    Cancelling the wait does not stop the thread: it is waited for up to `DRAIN_SECONDS` more, unless
    `drained()` says not to, so that a run does not end before its effects. What the thread returns
    is dropped, and `late` is told ("returned" or "raised NAME") in the event loop, if that still runs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: Any, error: BaseException | None) -> None:
        if future.done():
            if late is not None:
                late("returned" if error is None else f"raised {type(error).__name__}")
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(call)
        except StopIteration as stop:  # a future refuses it
            error = RuntimeError("the tool raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # noqa: BLE001 - it belongs to the one who waits
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:  # the loop is closed; nobody waits
            return

    _hand_over(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _drain(future, late, drained())
        raise


async def _drain(future: asyncio.Future[Any], late: Callable[[str], object] | None, wait: bool) -> None:
    """Wait, within bounds, for a thread whose call was given up; say how it ended, or let it go."""
    if not future.done() and wait:
        await asyncio.wait([future], timeout=DRAIN_SECONDS)
    if not future.done():
        future.cancel()
        return
    error = None if future.cancelled() else future.exception()
    if late is not None:
        late("returned" if error is None else f"raised {type(error).__name__}")
