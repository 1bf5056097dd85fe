"""A run that ends right after a restart: what was under way before, and what nobody had begun with again."""

import asyncio

from lictor import Agent, Runtime, tool
from lictor.errors import RunAborted
from lictor.journal import MemoryStore
from lictor.testing import ScriptedModel, call, invariants, say

RESTARTED = False


@tool(effect="pure")
async def abort() -> str:
    """Wait; after the restart end the whole run at once."""
    if RESTARTED:
        raise RunAborted("enough")
    await asyncio.Event().wait()
    return "never"


async def under_way(request):
    """A model that takes for ever, until the restart."""
    if not RESTARTED:
        await asyncio.Event().wait()
    return say("late")


def boss():
    inner = Agent("inner", model=ScriptedModel([under_way]))
    calls = [call("abort"), call("inner", task="think")]
    return Agent("boss", model=ScriptedModel([calls, say("never")]), tools=[abort, inner])


async def test_a_nested_run_that_nobody_took_up_again_ends_with_its_parent():
    """Its sibling ends the run before it could go on: it is ended all the same, and so is the run."""
    global RESTARTED
    RESTARTED = False
    store, agent = MemoryStore(), boss()
    async with Runtime(store, grace=0.0) as runtime:
        run = await runtime.start(agent, "go")
        async for event in run.events():
            if event.kind == "model_started" and event.run_id != run.id:
                break
    RESTARTED = True
    async with asyncio.timeout(20), Runtime(store, definitions={"boss": agent}) as runtime:
        handle = await runtime.run(run.id)
        result = await handle.result("end")
        assert (result.status, result.error) == ("failed", "enough")
        await invariants(handle)
