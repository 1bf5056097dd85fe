"""Knowing when an asyncio event loop has nothing left to do.

asyncio has no public word for "idle". The one exact moment is inside the loop: it calls
`selector.select(timeout)` with a timeout other than 0 only when no callback is ready. `IdleLoop`
listens there, on the loop's own selector, and then looks at what could still wake the loop by
itself: sockets and pipes in the selector, worker threads, threads that wait for child processes,
real `asyncio.sleep`s. `asyncio.timeout` does not count: it guards work, it is none.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

__all__ = ["IdleLoop", "Listener", "busy_threads", "idle_loop"]

POLL_SECONDS = 0.02  # a thread may end without a word to the loop; then this finds out

_lock = threading.RLock()
_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, IdleLoop] = weakref.WeakKeyDictionary()
_executor_worker: Any = getattr(concurrent.futures.thread, "_worker", None)
_wake_sleep: Any = getattr(asyncio.futures, "_set_result_unless_cancelled", None)


class Listener(Protocol):
    """Who is told that a loop is idle."""

    def waits(self) -> bool:
        """Tell whether being idle is of interest now."""
        ...

    def idle(self, loop: IdleLoop, since: float) -> None:
        """Make something ready, or leave it: `loop` is about to block, idle for `since` real seconds."""
        ...


def idle_loop() -> IdleLoop:
    """Give the watcher of the running loop, attached at first use.

    Raises:
        RuntimeError: the loop is not one of asyncio's selector loops (uvloop, for one).
    """
    loop = asyncio.get_running_loop()
    with _lock:
        known = _loops.get(loop)
        if known is None:
            known = _loops[loop] = IdleLoop(loop)
        return known


class IdleLoop:
    """One event loop, watched where it blocks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        inner: Any = loop
        try:
            self._ready: Any = inner._ready
            self._selector: Any = inner._selector
            self._own_socket: Any = inner._ssock
        except AttributeError as error:
            raise RuntimeError(
                f"a virtual clock needs asyncio's own selector event loop, not {type(loop).__name__}"
            ) from error
        self._loop = weakref.ref(loop)
        self._select: Callable[[float | None], list[Any]] = self._selector.select
        self._selector.select = self._watched_select
        self._since = 0.0
        self.listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.thread = threading.get_ident()
        self.blocked = False  # it waits in `select`, and nothing was ready when it began to
        self.reason: str | None = None  # what could end that wait by itself

    @property
    def over(self) -> bool:
        """Whether the loop runs no more."""
        loop = self._loop()
        return loop is None or not loop.is_running()

    def call(self, callback: Callable[[], None]) -> None:
        """Run `callback` in this loop, from any thread."""
        loop = self._loop()
        if loop is None:
            return
        with _lock:
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # closed meanwhile
                return
            self.blocked = False

    def _watched_select(self, timeout: float | None) -> list[Any]:
        """Stand in for `selector.select`: a timeout other than 0 means that no callback is ready."""
        listeners = [each for each in self.listeners if each.waits()]
        if timeout == 0 or not listeners:
            self._since = 0.0
            return self._select(timeout)
        events = self._select(0)
        if events:
            self._since = 0.0
            return events
        self.thread = threading.get_ident()
        self._since = self._since or time.monotonic()
        self.reason = self.pending()
        for each in listeners:
            each.idle(self, time.monotonic() - self._since)
        with _lock:
            self.blocked = not self._ready
        if self._ready:
            self._since = 0.0
            return self._select(0)
        try:
            return self._select(POLL_SECONDS if timeout is None else min(timeout, POLL_SECONDS))
        finally:
            self.blocked = False

    def pending(self) -> str | None:
        """Name what could wake this loop without a virtual sleeper: None when there is nothing."""
        for key in list(self._selector.get_map().values()):
            if key.fd != self._own_socket.fileno() and not _only_listens(key.fd):
                return "socket"
        if busy_threads():
            return "thread"
        loop: Any = self._loop()
        for handle in list(getattr(loop, "_scheduled", ())):
            if not handle.cancelled() and handle._callback is _wake_sleep:
                return "asyncio.sleep"
        return None


def busy_threads() -> list[threading.Thread]:
    """List the threads that work for somebody.

    Counted are workers of any `ThreadPoolExecutor` that have work, `asyncio`'s threads that wait for
    a child process, and every thread with a true attribute `busy` (those of tools have one). A
    thread that itself runs a watched, idle loop is none.
    """
    with _lock:
        looping = {each.thread for each in _loops.values() if each.blocked}
    frames = sys._current_frames()
    return [
        thread
        for thread in threading.enumerate()
        if thread.ident != threading.get_ident()
        and thread.ident not in looping
        and (_is_busy(thread) or _executes(frames.get(thread.ident or 0)))
    ]


def _is_busy(thread: threading.Thread) -> bool:
    if getattr(thread, "busy", False) is True:
        return True
    return thread.name.startswith(("waitpid-", "asyncio-waitpid-"))  # the first is Python 3.11's name


def _executes(frame: FrameType | None) -> bool:
    """Whether a thread's stack holds an executor's worker that has work, or is about to take it."""
    inner = True
    while frame is not None:
        if _executor_worker is not None and frame.f_code is _executor_worker.__code__:
            names = frame.f_locals
            queue = names.get("work_queue")
            return not inner or names.get("work_item") is not None or bool(queue is not None and queue.qsize())
        inner = False
        frame = frame.f_back
    return False


def _only_listens(fd: int) -> bool:
    """Whether a file descriptor is a listening socket: by itself it is nobody's work."""
    try:
        found = socket.socket(fileno=fd)
    except OSError:
        return False  # a pipe
    try:
        return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
    finally:
        found.detach()
