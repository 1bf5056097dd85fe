"""What a tool may know about the call it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["ToolContext"]


class ToolContext:
    """The call a tool serves; given to the parameter annotated with this class, unseen by the model.

    Args:
        user: who the run is for, as of its start (`User` or None). Look live roles up in `deps`.
        context: the run's stored JSON.
        deps: the object given to `start` or `run`; never stored.
        run_id, root_run: this run and the outermost one.
        path: steps from the root run to here.
        call_id: our id of the call; the provider's is never used.
        idempotency_key: the same for every attempt of this call: pass it on to the outside system.
        attempt: 1 for the first start of this call.
        workspace: directory of a crew member, else None.
        emit: takes what the tool reports on its way.
        late: told ("returned", "raised ValueError") when a thread ends after its call was given up.

    Every argument has a default, so tests write `ToolContext(deps=shop)`.
    """

    __slots__ = (
        "_emit",
        "_loop",
        "attempt",
        "call_id",
        "context",
        "deps",
        "idempotency_key",
        "late",
        "path",
        "root_run",
        "run_id",
        "user",
        "workspace",
    )

    def __init__(  # noqa: PLR0913 - the fields are the interface
        self,
        *,
        user: Any = None,
        context: Any = None,
        deps: Any = None,
        run_id: str = "",
        root_run: str = "",
        path: tuple[Any, ...] = (),
        call_id: str = "",
        idempotency_key: str = "",
        attempt: int = 1,
        workspace: Any = None,
        emit: Callable[[Any], object] | None = None,
        late: Callable[[str], object] | None = None,
    ) -> None:
        self.user = user
        self.context = context
        self.deps = deps
        self.run_id = run_id
        self.root_run = root_run
        self.path = path
        self.call_id = call_id
        self.idempotency_key = idempotency_key
        self.attempt = attempt
        self.workspace = workspace
        self.late = late
        self._emit = emit
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, progress: Any) -> None:
        """Report progress (any JSON value) to whoever follows the run's events.

        Safe from a tool that runs in a worker thread. Never fails a tool: without a listener, or
        after the run is gone, it does nothing.
        """
        if self._emit is None:
            return
        if self._loop is None:
            self._emit(progress)
            return
        try:
            self._loop.call_soon_threadsafe(self._emit, progress)
        except RuntimeError:  # the loop is closed: the call was given up
            return

    def in_thread_of(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say that the tool runs in a worker thread and `loop` takes what it reports."""
        self._loop = loop
