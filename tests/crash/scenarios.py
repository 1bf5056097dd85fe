"""Crashes and races as functions: tests play them as they are, and again without the guard that each one needs."""

import asyncio
import signal

from shopfloor import Racer, effects_fit, holds, race, stopped

from lictor import Agent, Runtime, tool
from lictor.models import ScriptedModel, call, say
from lictor.testing import sweep


def clerk(shop, **options):
    """An agent that pays once a person agrees; each payment is a line in the file of effects."""

    @tool(requires_approval=True, **options)
    async def pay(amount: int) -> str:
        """Pay."""
        with shop.effects.open("a") as file:
            file.write("pay\n")
        return "paid"

    return Agent("clerk", model=ScriptedModel([call("pay", amount=5), say("Done.")]), tools=[pay])


async def parked(runtime, agent):
    """A run that waits for its approval, and that request."""
    run = await runtime.start(agent, "pay")
    [request] = (await run.result()).requests
    return run, request


async def die(shop, point):
    """Run a worker until it is killed at a point, deciding what it asks."""
    process = shop.worker("start", LICTOR_CRASH_AT=point)
    await shop.decide_until(process)
    assert process.returncode == -signal.SIGKILL, process.communicate()[0]


async def restarted(shop, point, twice=()):
    """A worker dies at a point; the same start in a new process finishes the run."""
    await die(shop, point)
    process = shop.worker("start")
    await shop.decide_until(process)
    assert process.communicate()[0].split("\n")[1] == "completed All done."
    effects_fit(shop, twice)
    assert (await holds(shop)).answer == "All done."


async def zombie(shop, point, twice=()):
    """A worker is stopped at a point; another one takes over and finishes; the first one wakes up.

    `point` as in LICTOR_PAUSE_AT; with `written ` before it, once all that the worker appended is in the file.
    """
    mutation, shop.mutation = shop.mutation, ""
    peer = shop.worker("serve")
    shop.mutation = mutation
    assert peer.stdout.readline() == "open\n"
    peer.send_signal(signal.SIGSTOP)
    written, _, rest = point.rpartition("written ")
    first = shop.worker("start", **{"WRITE_AND_PAUSE_AT" if written + rest != point else "LICTOR_PAUSE_AT": rest})
    async with Runtime(shop.url, drive=False) as runtime:
        async with asyncio.timeout(20):
            while not stopped(first.pid):
                await shop.decide(runtime)
                await asyncio.sleep(0.02)  # budget: the other side is a real process
        await asyncio.sleep(0.7)  # budget: the lease of a stopped process has to run out
    peer.send_signal(signal.SIGCONT)
    await shop.decide_until(peer)
    assert peer.communicate()[0] == "completed All done.\n"
    before, done = shop.stored(), shop.done()
    first.send_signal(signal.SIGCONT)
    told = first.communicate(timeout=20)[0]
    assert (shop.stored(), shop.done()) == (before, done), "the one that came back wrote something"
    assert told.split("\n")[1] == "completed All done."
    effects_fit(shop, twice)
    assert (await holds(shop)).answer == "All done."


async def late_decider(shop):
    """A decider stands still between its look and its write; another one decides meanwhile."""
    agent = clerk(shop)
    async with asyncio.timeout(60), Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
        mutation, shop.mutation = shop.mutation, ""
        quick = Racer(shop)
        shop.mutation = mutation
        slow = Racer(shop, LICTOR_PAUSE_AT="settle.before")
        decision = {"do": "decide", "request": request.id, "verb": "approve", "by": "human:slow"}
        slow.go(0, decision)
        await slow.stands()
        [first] = await race((quick, [decision | {"verb": "reject", "by": "human:quick"}]))
        assert first["error"] is None
        assert (await run.result("end")).status == "completed"
        slow.goes_on()
        [second] = await slow.outcomes()
        assert second["error"] == "AlreadyDecided", "two deciders were told yes"
        assert str((await runtime.docket.get(request.id)).resolution.decided_by) == "human:quick"
        assert [each["by"] for each in await runtime.docket.refusals(run=run.id)] == ["human:slow"]
        assert shop.done()["pay"] == 0
        assert await sweep(runtime) == []


async def slow_tool(shop):
    """One worker drives, in a tool that takes longer than a lease; another one sees the run all the time."""
    first = shop.worker("start", SLOW="2")
    assert first.stdout.readline() == "open\n"
    second = shop.worker("serve", SLOW="2")
    await shop.decide_until(first)
    await shop.decide_until(second)
    effects_fit(shop)
    assert [kind for kind, _, _ in shop.asked] == ["tool_call"], "somebody was asked about an effect that nobody lost"
    await holds(shop)


async def nothing_happens(shop):
    """One worker, from start to end."""
    await shop.decide_until(shop.worker("start"))
    effects_fit(shop)
    await holds(shop)
