"""How long one model call may wait for its provider, over all the waits it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Patience"]

T = TypeVar("T")


class Patience:
    """A number of seconds that waits use up; what happens between them is not counted.

    Arguments:
        seconds: altogether; None waits as long as it takes.
    """

    __slots__ = ("left", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.left = seconds

    async def wait(self, what: Awaitable[T]) -> T:
        """Await `what` for the time that is left. Raises TimeoutError."""
        if self.left is None:
            return await what
        clock = asyncio.get_running_loop().time
        start = clock()
        limit = asyncio.timeout(self.left)
        try:
            async with limit:
                return await what
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"there was no whole answer within {self.seconds:g} s") from error
            raise
        finally:
            self.left = max(self.left - (clock() - start), 0.0)
