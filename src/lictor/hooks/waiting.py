"""Awaiting what others wrote, so that their own cancellations are told from ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["_CancelledByItself", "settled"]

T = TypeVar("T")


class _CancelledByItself(Exception):
    """The awaited code raised CancelledError although nobody cancelled the waiting task."""


async def settled(awaitable: Awaitable[T]) -> T:
    """Await and return; a CancelledError that is not a cancellation of this task becomes an exception."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await awaitable
    except asyncio.CancelledError:
        if task is None or task.cancelling() > before:
            raise
        raise _CancelledByItself from None
