"""How long one model call may wait for its provider, over all the waits it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeVar

__all__ = ["Patience", "let_go"]

T = TypeVar("T")
CLOSING = 5.0  # seconds for letting a connection go, after which it is left to the event loop


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

    @asynccontextmanager
    async def entered(self, context: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
        """Enter `context` for the time that is left, and leave it without waiting for long. Raises TimeoutError."""
        value = await self.wait(context.__aenter__())
        try:
            yield value
        except BaseException as error:
            await let_go(context.__aexit__(type(error), error, error.__traceback__))
            raise
        await let_go(context.__aexit__(None, None, None))


async def let_go(closing: Awaitable[object]) -> None:
    """Await the end of something that holds a connection, but not for long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING):
            await closing
