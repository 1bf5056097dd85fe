"""The pytest plugin: `async def` tests need no marker, and the fixture `runtime` is there.

It is found through the entry point `pytest11`. Tests that another plugin claims by its own marker or
mode (pytest-asyncio, anyio, trio) are left to it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from lictor.testing.driven import DrivenRuntime

__all__ = ["lictor_store", "pytest_configure", "pytest_pyfunc_call", "pytest_runtest_call", "runtime"]

DRIVEN = pytest.StashKey[DrivenRuntime]()
TIMEOUT = "lictor_timeout"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{TIMEOUT}(seconds): fail an async test that takes longer, in real time")


@pytest.fixture
def lictor_store() -> str:
    """The store of the fixture `runtime`, as a URL. Define your own to test over a file, or over both:

    `@pytest.fixture(params=["memory:", "file"])` and
    `def lictor_store(request, tmp_path): return request.param.replace("file", f"sqlite:///{tmp_path}/lictor.db")`.
    """
    return "memory:"


@pytest.fixture
def runtime(request: pytest.FixtureRequest, lictor_store: str) -> DrivenRuntime:
    """A Runtime over a fresh store, with a virtual clock, scripts and crashes (`lictor.testing.DrivenRuntime`).

    The store is that of the fixture `lictor_store`. When the test is over it is closed and its runs are checked
    (`lictor.testing.invariants`).
    """
    if not inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        raise pytest.UsageError(f"{request.node.name} uses the fixture 'runtime' and is no `async def` test")
    driven = request.node.stash[DRIVEN] = DrivenRuntime(lictor_store)
    return driven


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Make the test close its runtime itself: only the loop it ran in can."""
    driven = item.stash.get(DRIVEN, None)
    if driven is not None and isinstance(item, pytest.Function):
        item.obj = _closing(item.obj, driven)
    return (yield)


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    marker = pyfuncitem.get_closest_marker(TIMEOUT)
    seconds = marker.args[0] if marker is not None and marker.args else None

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test(**arguments)

    with asyncio.Runner() as runner:
        runner.run(bounded())
    return True


def _closing(test: Callable[..., Awaitable[object]], driven: DrivenRuntime) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def closing(*args: Any, **kwargs: Any) -> None:
        try:
            await test(*args, **kwargs)
            await driven.check()
        finally:
            await driven.close()

    return closing
