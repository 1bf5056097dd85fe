"""Records on their way to the sink (§10.3)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lictor.hooks.emission import Emission, undelivered
from lictor.hooks.waiting import settled

__all__ = ["Delivery"]


class Delivery:
    """Hands records to one sink and counts what it did not take; gates that share it count together.

    Args:
        sink: gets every record; sync or async.
        required: an undelivered record blocks its emission.
        timeout: seconds for an async sink; None for no limit.
    """

    __slots__ = ("_required", "_sink", "_timeout", "lost")

    def __init__(self, sink: Callable[[Mapping[str, Any]], Any] | None, required: bool, timeout: float | None) -> None:
        self._sink = sink
        self._required = required
        self._timeout = timeout
        self.lost = 0

    async def of(self, emission: Emission) -> Emission:
        """The emission, its record delivered; undelivered it is counted, and blocks if the sink is required."""
        if self._sink is None:
            return emission
        try:
            pending = self._sink(emission.record)
            if pending is not None and inspect.isawaitable(pending):
                async with asyncio.timeout(self._timeout):
                    await settled(pending)
        except asyncio.CancelledError:
            self.lost += 1
            raise
        except Exception as error:  # noqa: BLE001 - a sink must not take the emission down (§10.3)
            self.lost += 1
            if self._required:
                return undelivered(emission, error)
        return emission
