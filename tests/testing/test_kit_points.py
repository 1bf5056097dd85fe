"""Crash and pause points of the kit."""

import asyncio
import threading

import pytest

from lictor import Agent, Runtime, tool
from lictor.errors import DefinitionError, InvariantBroken, SimulatedCrash
from lictor.journal import MemoryStore
from lictor.testing import ScriptedModel, call, crash_at, faults, pause_at, say

ran: list[str] = []


@tool
async def act() -> str:
    """Act."""
    ran.append(threading.current_thread().name)
    return "done"


def agent() -> Agent:
    ran.clear()
    return Agent("clerk", model=ScriptedModel([call("act"), say("done"), say("done again")]), tools=[act])


async def test_a_crash_ends_a_run_without_a_runtime():
    """The crash comes out of `Agent.run` as itself; nobody turns it into an outcome."""
    with crash_at("effect.after") as crash, pytest.raises(SimulatedCrash, match=r"effect\.after"):
        await agent().run("go")
    assert crash.reached
    assert len(ran) == 1


async def test_a_crash_leaves_what_a_killed_process_would_leave():
    """Nothing is written from the point on: the effect happened, its result is not recorded."""
    store = MemoryStore()
    async with Runtime(store) as runtime:
        with crash_at("effect.after"):
            run = await runtime.start(agent(), "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    kinds = [entry.kind for entry in store.entries(run.id)]
    assert kinds[-1] == "tool_started"
    assert len(ran) == 1


async def test_a_point_may_be_passed_before_it_crashes():
    """`after=1` lets the first pass by."""
    twice = Agent("clerk", model=ScriptedModel([[call("act"), call("act")], say("done")]), tools=[act])
    ran.clear()
    with crash_at("effect.before", after=1), pytest.raises(SimulatedCrash):
        await twice.run("go")
    assert len(ran) <= 1


async def test_a_crash_that_never_came_fails_the_test():
    """A test whose crash point is not on its way tests nothing, and says so."""
    with pytest.raises(InvariantBroken, match=r"'adopt\.after' was armed and never reached"), crash_at("adopt.after"):
        await agent().run("go")
    assert (await agent().run("go")).status == "completed"


async def test_what_goes_wrong_in_the_block_is_what_is_told():
    """Another error in the block is not hidden behind the crash that did not come."""
    with pytest.raises(ZeroDivisionError), crash_at("adopt.after"):
        _ = 1 / 0


@pytest.mark.parametrize("arm", [crash_at, pause_at])
def test_an_unknown_point_is_refused_with_the_list(arm):
    """A misspelt point is an error at once, with the names there are."""
    told = r"unknown crash point 'effect\.atfer'.*effect\.after"
    with pytest.raises(DefinitionError, match=told), arm("effect.atfer"):
        pass


def test_the_points_are_those_of_the_product():
    """`lictor.testing.faults.POINTS` lists every point with what is true there."""
    assert "effect.after" in faults.POINTS
    assert all(faults.POINTS.values())


async def test_a_paused_worker_stands_while_others_go_on():
    """A worker in a thread stands at the point; meanwhile this loop works, then the worker finishes."""
    store = MemoryStore()
    clerk = agent()

    async def work() -> str:
        async with Runtime(store) as runtime:
            return (await (await runtime.start(clerk, "go", key="k")).result()).status

    with pause_at("effect.after") as pause:
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(asyncio.to_thread(asyncio.run, work()))
            await pause.reached()
            await pause.reached()  # still there
            assert len(ran) == 1
            async with Runtime(store, drive=False) as reader:
                run = await reader.start(clerk, "go", key="k")
                assert run.status == "running"
            assert not worker.done()
            pause.release()
    assert worker.result() == "completed"


async def test_a_pause_on_the_thread_that_has_to_release_it_is_an_error():
    """Where it could never be released, it says so instead of hanging."""
    with pause_at("effect.before"), pytest.raises(SimulatedCrash, match=r"another one: asyncio\.to_thread"):
        await agent().run("go")


async def test_the_end_of_the_block_releases():
    """A test that forgets to release leaves no thread behind."""
    with pause_at("effect.after") as pause:
        worker = asyncio.ensure_future(asyncio.to_thread(asyncio.run, agent().run("go")))
        await pause.reached()
    assert (await worker).status == "completed"


async def test_waiting_for_a_point_that_is_not_reached_ends(monkeypatch):
    """`reached()` gives up with the name of the point."""
    monkeypatch.setattr("lictor.testing.points.PATIENCE", 0.01)
    with pause_at("adopt.before") as pause, pytest.raises(InvariantBroken, match=r"'adopt\.before' was not reached"):
        await pause.reached()
