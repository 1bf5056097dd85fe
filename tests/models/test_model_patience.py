"""How long a call may wait: over all its waits, and not for its end."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from lictor.models import patience
from lictor.models.patience import Patience, let_go


async def forever():
    """Wait for what never comes."""
    await asyncio.Event().wait()


async def test_waits_add_up():
    """What one wait has used is gone for the next; what happens between them is not counted."""
    mine = Patience(0.05)
    assert await mine.wait(asyncio.sleep(0, "x")) == "x"
    with pytest.raises(TimeoutError, match=r"no whole answer within 0.05 s"):
        await mine.wait(forever())
    assert mine.left == 0.0
    with pytest.raises(TimeoutError):
        await mine.wait(forever())


async def test_a_timeout_of_somebody_else_stays_their_own():
    """A TimeoutError that what was awaited raises itself keeps its words."""

    async def late():
        raise TimeoutError("the provider said so")

    with pytest.raises(TimeoutError, match="the provider said so"):
        await Patience(60).wait(late())


async def test_without_a_limit_it_waits():
    """None waits as long as it takes."""
    assert await Patience(None).wait(asyncio.sleep(0, "x")) == "x"


async def test_what_does_not_close_is_left_behind(monkeypatch):
    """Entering is bounded by what is left, leaving by a few seconds of its own; errors pass through both."""
    monkeypatch.setattr(patience, "CLOSING", 0.01)
    left = []

    @asynccontextmanager
    async def stuck():
        try:
            yield "in"
        finally:
            left.append(1)
            await forever()

    async with Patience(60).entered(stuck()) as value:
        assert value == "in"
    with pytest.raises(KeyError):
        async with Patience(60).entered(stuck()):
            raise KeyError
    assert left == [1, 1]
    await let_go(forever())


async def test_what_does_not_open_is_given_up():
    """A context that never opens is a timeout."""

    @asynccontextmanager
    async def closed():
        await forever()
        yield

    with pytest.raises(TimeoutError):
        async with Patience(0.01).entered(closed()):
            pass
