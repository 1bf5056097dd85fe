"""MCP over stdio, against a real process of a server written with the `mcp` package."""

import asyncio
import json

import pytest
from driving import asked, cancelled, decided, park, play, reopened, tools_said
from mcp_servers import Ledger, alive, shop

from lictor import Agent, Mask, Runtime, ScriptedModel
from lictor.models import call, say
from lictor.testing import invariants


@pytest.fixture
def ledger(tmp_path):
    """Where the shop writes."""
    return Ledger(tmp_path)


def clerk(script, *tools, **options):
    """An agent with a scripted model."""
    return Agent("clerk", model=ScriptedModel(script), tools=tools, **options)


CALLS = [
    call("lookup_order", order_id=42),
    call("prices"),
    call("picture", kind="small"),
    call("picture", kind="large"),
    call("order_of", lines=[{"item": "lamp"}], express=True),
    call("order_of", lines=[{"thing": "lamp"}]),
    call("order_of", lines=[], color="red"),
    call("order_of"),
    call("broken"),
    call("catalogue", size=100_000),
    call("catalogue", size=5_000_000),
    call("counted", upto=3),
]


async def test_tools_are_listed_and_called(ledger):
    """Text, structured content, pictures, errors and large results reach the model in their documented forms."""
    agent = clerk(
        [CALLS, say("Fertig — 完了.")], shop(ledger), interceptors=[Mask("Monday", points=["post_tool_call"])]
    )
    played = await play(agent)
    assert (played.status, played.answer) == ("completed", "Fertig — 完了.")
    lookup, prices, small, large, ordered, wrong, unknown, missing, broken, long, huge, counted = map(
        read, tools_said(played.messages)
    )
    assert "grüße, 東京 🚚" in lookup
    assert "Monday" not in lookup
    assert prices == {"lamp": 3.5, "sofa": 250.0}
    assert small[0] == {"type": "text", "text": "a lamp"}
    assert {key: small[1][key] for key in ("type", "mimeType", "size")} == {
        "type": "image",
        "mimeType": "image/png",
        "size": 24,
    }
    assert large[1] == {"type": "image", "mimeType": "image/png", "size": 100_008}
    assert ordered == {"lines": 1, "express": True, "id": str(2**60)}
    assert (wrong["error"], wrong["reason"]) == ("tool_failed", "is_error")
    assert "lines.0.item" in wrong["message"]
    assert unknown["error"] == missing["error"] == "invalid_arguments"
    assert "color: there is no such argument" in unknown["message"]
    assert "lines: required, but missing" in missing["message"]
    assert broken["message"].endswith("the shop is closed — wegen Umbau")
    assert long.startswith("beginx")
    assert "\n[cut: " in long
    assert (huge["error"], huge["reason"]) == ("tool_failed", "too_large")
    assert counted == "done"
    progress = [event.payload["progress"] for event in played.events if "progress" in event.payload]
    assert progress == [{"progress": float(n), "total": 3.0, "message": "counting"} for n in (1, 2, 3)]
    assert not alive(ledger.pids[0])


def read(said):
    """A result as JSON where it is some."""
    try:
        return json.loads(said)
    except ValueError:
        return said


async def test_a_tool_list_that_changes_counts_from_the_next_model_call(ledger):
    """What the server adds is sent next and can be called; what it took away is an unknown tool."""
    agent = clerk([call("restock"), [call("umbrella", colour="red"), call("prices")], say("Done.")], shop(ledger))
    played = await play(agent)
    names = [[item["name"] for item in asked(agent.models[0], number).tools] for number in (0, 1)]
    assert "prices" in names[0]
    assert "umbrella" not in names[0]
    assert "umbrella" in names[1]
    assert "prices" not in names[1]
    assert played.result_of(1) == "a red umbrella"
    assert json.loads(played.result_of(2))["error"] == "unknown_tool"


async def test_a_server_that_dies_in_a_call_is_started_again_for_the_next(ledger):
    """A call that the server died in may have run; the next call gets a new process."""
    agent = clerk([call("die"), call("lookup_order", order_id=1), say("Done.")], shop(ledger))
    played = await play(agent)
    lost = json.loads(played.result_of(0))
    assert (lost["error"], lost["reason"]) == ("unknown", "server_lost")
    assert lost["message"] == "MCP server 'shop' went away during the call; it may have run"
    assert "order 1 left" in played.result_of(1)
    assert (played.status, len(ledger.pids), ledger.lines) == ("completed", 2, ["die"])
    assert not any(map(alive, ledger.pids))


async def test_an_approved_call_runs_in_a_new_process_after_the_park(ledger):
    """While a run waits for a person its server is gone; the decision starts another, in another Runtime too."""
    server = shop(ledger, tools={"refund": {"requires_approval": True, "responders": ["human:ana"]}})
    agent = clerk([call("refund", order_id=42, amount=30.5, reason="zu spät"), say("Paid.")], server["refund"])
    async with Runtime() as first:
        run, result = await park(first, agent)
        [request] = result.requests
        assert request.shown.arguments == {"order_id": 42, "amount": 30.5, "reason": "zu spät"}
        assert (len(ledger.pids), alive(ledger.pids[0]), ledger.lines) == (1, False, [])
    async with reopened(first, agent) as second:
        result = await decided(second, await second.run(run.id), (request.id, "approve", {}))
        assert (result.status, result.answer) == ("completed", "Paid.")
        assert (len(ledger.pids), ledger.lines) == (2, ["refund 42 30.5 zu spät"])
        assert not any(map(alive, ledger.pids))
        await invariants(result)


async def test_a_slow_tool_is_given_up_and_the_server_told(ledger):
    """A call past its timeout is an error result, the server is told to stop, and goes on serving."""
    server = shop(ledger, tools={"slow": {"timeout": 0.3}})
    played = await play(clerk([call("slow"), call("lookup_order", order_id=1), say("Done.")], server))
    late = json.loads(played.result_of(0))
    assert (late["error"], late["reason"]) == ("tool_failed", "timeout")
    assert late["message"] == "slow did not finish within 0.3 s"
    assert "order 1 left" in played.result_of(1)
    assert (ledger.lines, len(ledger.pids)) == (["slow begins", "slow was cancelled"], 1)


async def test_cancelling_the_caller_ends_the_call_and_the_server(ledger):
    """A run that is cancelled in a call closes it, and the process is gone when the caller goes on."""
    reached = asyncio.Event()
    agent = clerk([call("slow")], shop(ledger))

    async def watch():
        """Set `reached` when the server has begun."""
        while "slow begins" not in ledger.lines:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0)
        reached.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        played = await cancelled(agent, reached)
    assert (played.status, json.loads(played.result_of())["error"]) == ("cancelled", "cancelled")
    assert ledger.lines == ["slow begins", "slow was cancelled"]
    assert not alive(ledger.pids[0])
