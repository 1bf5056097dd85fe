"""Telling open pages that something changed: server-sent events that carry a version, never content."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from lictor.console import query
from lictor.docket import REQUESTS
from lictor.errors import LictorError, UnknownRequest
from lictor.runtime import RUNS, Runtime

__all__ = ["News"]

TICK = 0.5
"""Seconds after which a page sees what this process itself wrote; what others write it sees at once."""

QUIET = 15.0
"""Seconds of silence after which a sign of life is sent, so that a browser that left is noticed."""


class News:
    """The version of each topic (`inbox`, `runs`, `run:ID`, `request:ID`), and streams of their changes.

    A version is computed once for all who look at it.

    Arguments:
        runtime: whose store is watched.
        leaving: whether the server ends; then every stream ends too.
    """

    def __init__(self, runtime: Runtime, leaving: Callable[[], bool]) -> None:
        self._runtime = runtime
        self._leaving = leaving
        self._bell = asyncio.Event()
        self._known: dict[str, tuple[float, str]] = {}
        self._cursors: dict[str, int] = {}
        self._listens = False

    def version(self, topic: str) -> str:
        """The version of a topic now. Raises UnknownRequest for a topic that does not exist."""
        now = asyncio.get_running_loop().time()
        at, known = self._known.get(topic, (0.0, ""))
        if known and now - at < TICK / 2:
            return known
        told = json.dumps(self._look(topic), default=str)
        known = hashlib.sha256(told.encode()).hexdigest()[:16]
        self._known[topic] = (now, known)
        return known

    def fresh(self, topic: str) -> str:
        """The version of a topic, looked up anew."""
        self._known.pop(topic, None)
        return self.version(topic)

    async def changes(self, topic: str, have: str) -> AsyncIterator[str]:
        """Events of a stream for a page that shows version `have`."""
        self._listen()
        yield "retry: 1000\n\n"
        silent = 0.0
        while not self._leaving():
            with contextlib.suppress(LictorError):  # a store that is busy is looked at again
                now = self.version(topic)
                if now != have:
                    have, silent = now, 0.0
                    yield f"event: changed\ndata: {now}\n\n"
            if silent >= QUIET:
                silent = 0.0
                yield ": still here\n\n"
            silent += TICK
            await self._wait()

    def ring(self) -> None:
        """Something changed: whoever waits looks now."""
        self._known.clear()
        self._bell.set()
        self._bell = asyncio.Event()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(TICK):
                await self._bell.wait()
        except TimeoutError:
            pass

    def _listen(self) -> None:
        """Hear of what other processes write, from the first stream on until the store is closed."""
        if self._listens:
            return
        self._listens = True
        loop = asyncio.get_running_loop()

        def changed() -> None:  # in the store's thread
            with contextlib.suppress(RuntimeError):  # the loop is gone, and so is whoever could look
                loop.call_soon_threadsafe(self.ring)

        self._runtime.store.on_change(changed)

    # what a version covers

    def _look(self, topic: str) -> Any:
        kind, _, name = topic.partition(":")
        if topic == "inbox":
            open_ones = self._runtime.store.table(REQUESTS).find(status="pending")
            return [(each.id, each.digest, each.approvals) for each in open_ones]
        if topic == "runs":
            rows = self._runtime.store.table(RUNS).values()
            return [[(row.run_id, row.status) for row in rows], self._look("inbox")]
        if kind == "run" and self._runtime.store.table(RUNS).get(name) is not None:
            return self._run(name)
        if kind == "request":
            request = self._runtime.docket.find(name)
            return [request.status, request.digest, request.approvals]
        raise UnknownRequest(f"nothing is told about {topic!r}")

    def _run(self, run_id: str) -> Any:
        store = self._runtime.store
        cursor = self._cursors.get(run_id, 0)
        with contextlib.suppress(LookupError, TypeError, ValueError):  # a log that was changed; its page says so
            for item in store.root_entries(run_id, cursor):
                cursor = item.cursor
        self._cursors[run_id] = cursor
        requests = store.table(REQUESTS).find(root_run=run_id)
        told = [(each.id, each.status, each.approvals) for each in requests]
        return [self._runtime.row(run_id).status, cursor, query.driver(self._runtime, run_id), told]
