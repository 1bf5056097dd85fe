"""HTTP clients: one for each model and event loop, and none left open.

A client belongs to the event loop it was first used in. It lies in an asynchronous generator, because a
loop that shuts down closes those that were started in it (`asyncio.run` does). The client of a model that
is garbage is closed when the next client of that loop is wanted, not by a finalizer: a task that a
finalizer starts may come too late for the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

__all__ = ["Clients"]


class Closable(Protocol):
    """What holds connections."""

    async def close(self) -> None:
        """Let them go."""
        ...


C = TypeVar("C", bound=Closable)


class _Lease(NamedTuple):
    owner: ref[Clients[Any]]
    client: Any
    keeper: AsyncGenerator[None]


# Here and not in the model: when a model is garbage, its client outlives it until it is closed.
_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Lease]] = WeakKeyDictionary()


class Clients(Generic[C]):
    """The clients of one model, by event loop."""

    async def get(self, make: Callable[[], C]) -> C:
        """The client of the running event loop, made by `make` at the first use."""
        leases = _OPEN.setdefault(asyncio.get_running_loop(), [])
        while lost := next((each for each in leases if each.owner() is None), None):
            leases.remove(lost)
            await lost.keeper.aclose()
        mine = self._lease(leases)
        if mine is None:
            client = make()
            mine = _Lease(ref(self), client, _keep(client, leases))
            leases.append(mine)
            await anext(mine.keeper)  # only a generator that was started is closed with its loop
        held: C = mine.client
        return held

    async def aclose(self) -> None:
        """Close the client of the running event loop, if there is one."""
        leases = _OPEN.get(asyncio.get_running_loop(), [])
        mine = self._lease(leases)
        if mine is not None:
            leases.remove(mine)
            await mine.keeper.aclose()

    def _lease(self, leases: list[_Lease]) -> _Lease | None:
        return next((each for each in leases if each.owner() is self), None)


async def _keep(client: Closable, leases: list[_Lease]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        leases[:] = [each for each in leases if each.client is not client]
        await client.close()
