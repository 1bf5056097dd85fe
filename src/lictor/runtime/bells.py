"""Waiting for news of a run without polling."""

from __future__ import annotations

import asyncio

__all__ = ["Bells"]


class Bells:
    """One-shot wake-ups by run id."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}

    async def wait(self, run_id: str) -> None:
        """Wait until somebody rings for this run."""
        bell = asyncio.Event()
        self._waiting.setdefault(run_id, []).append(bell)
        await bell.wait()

    def ring(self, run_id: str, everybody: bool = False) -> None:
        """Wake whoever waits for this run, or for any when the engine is gone."""
        for name in list(self._waiting) if everybody else [run_id]:
            for bell in self._waiting.pop(name, ()):
                bell.set()
