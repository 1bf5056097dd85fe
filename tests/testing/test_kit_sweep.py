"""The sweep names what is wrong in a store, and accuses nothing that is in order."""

import json
import sqlite3
from contextlib import closing

import pytest

from lictor import Agent, Runtime, tool
from lictor.console import query
from lictor.models import ScriptedModel, call, say
from lictor.testing import sweep


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


helper = Agent("helper", model=ScriptedModel([call("pay", amount=2), say("helped")], id="h"), tools=[pay])
SCRIPT = [call("pay", amount=1), call("helper", task="help"), say("done")]
clerk = Agent("clerk", model=ScriptedModel(SCRIPT), tools=[pay, helper])


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/s.db"


async def filled(url):
    """A store with a run that waits in a nested run, one that has ended, and one that was cancelled; their ids."""
    ids = []
    async with Runtime(url, definitions={"clerk": clerk}) as runtime:
        for _ in range(3):
            run = await runtime.start(clerk, "go")
            ids.append(run.id)
            [request] = (await run.result()).requests
            await runtime.docket.decide(request.id, "approve", by="human:ana")
            [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "reject", by="human:ana")
        await run.result()
        await runtime.commands.cancel(ids[1], by="human:ana")
        await (await runtime.run(ids[1])).result()
    return ids


async def swept(url):
    async with Runtime(url, drive=False) as runtime:
        return await sweep(runtime)


async def test_a_store_in_order_is_not_accused(url):
    """Waiting, finished and cancelled runs, with runs below them, break nothing."""
    await filled(url)
    assert await swept(url) == []


BROKEN = {
    "its log ends with no outcome": (
        "UPDATE run SET status = 'completed', body = put(body, 'status', 'completed') WHERE key = '{wait}'"
    ),
    "it waits and has an outcome": (
        "UPDATE run SET status = 'waiting', body = put(body, 'status', 'waiting') WHERE key = '{over}'"
    ),
    "it is running and nobody drives it": (
        "UPDATE run SET status = 'running', body = put(body, 'status', 'running') WHERE key = '{wait}'"
    ),
    "it is waiting and nobody drives it": ("UPDATE run SET wake = 1 WHERE key = '{wait}'"),
    "have gaps or doubles": ("DELETE FROM event WHERE run = '{over}' AND seq = 3"),
    "there is no run": ("DELETE FROM run WHERE key = '{wait}'"),
    "was not used up": ("UPDATE request SET body = put(body, 'consumed_at', NULL) WHERE root_run = '{over}'"),
    "which is rejected": (
        "UPDATE request SET body = put(body, 'status', 'rejected') WHERE root_run = '{wait}' AND status='approved'"
    ),
    "is open after its end": (
        "UPDATE request SET status = 'pending', body = put(body, 'status', 'pending') WHERE root_run = '{over}'"
    ),
    "executed twice": (
        "UPDATE event SET payload = put(payload, 'call', 'call_0') WHERE root = '{over}' AND kind = 'tool_started'"
    ),
}


@pytest.mark.parametrize("told", BROKEN)
async def test_what_is_broken_is_named(url, told):
    """Each promise that somebody breaks in the file is one line, with the run in it."""
    wait, _, over = await filled(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.create_function("put", 3, lambda body, name, value: json.dumps({**json.loads(body), name: value}).encode())
        assert db.execute(BROKEN[told].format(wait=wait, over=over)).rowcount > 0
    found = await swept(url)
    assert [line for line in found if told in line] != [], found


async def test_health_has_what_is_broken(url):
    """`lictor doctor` asks the same question, runs that wait for a driver aside."""
    wait, _, over = await filled(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.execute(f"UPDATE run SET wake = 1 WHERE key = '{wait}'")
        db.execute(f"DELETE FROM event WHERE run = '{over}' AND seq = 3")
    async with Runtime(url, drive=False) as runtime:
        found = await query.health(runtime)
    assert (found["undriven"], found["stale_leases"]) == ([wait], [])
    assert found["broken"] != []
    assert all(over in line for line in found["broken"])
