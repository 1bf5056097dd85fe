"""Servers with bad manners: silent, dying, untidy ones, and ones that will not end. Nothing hangs, nothing stays."""

import asyncio
import copy
import dataclasses
import json
import logging
import os
import signal
import sys

import pytest
from driving import Seen, asked, decided, park, play
from mcp_servers import SERVERS, alive, rude, use

from lictor import Agent, Runtime, ScriptedModel
from lictor.adapters import MCPServer, mcp_program
from lictor.errors import ToolError
from lictor.models import call, say


def clerk(script, *tools, **options):
    """An agent with a scripted model."""
    return Agent("clerk", model=ScriptedModel(script), tools=tools, **options)


async def test_answers_that_no_tool_should_give():
    """Each form of a result, and each way of not giving one, is what docs/mcp.md says."""
    server = copy.copy(rude("plain", tools={"hang": {"timeout": 0.2}}))
    tools = await server.open()
    try:
        assert await use(tools, "nothing") == ""
        assert await use(tools, "mixed") == [
            {"lamps": 3},
            {"type": "image", "mimeType": "image/png", "size": 3, "data": "AAEC"},
        ]
        assert await use(tools, "linked") == [
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain", "size": 3},
            {"type": "resource", "uri": "file:///b.txt", "mimeType": "text/plain", "text": "b"},
            {"type": "resource", "uri": "file:///c.bin", "size": 3, "data": "AAEC"},
            {"type": "audio", "mimeType": "audio/wav", "size": 3, "data": "AAEC"},
        ]
        failed = await failure(tools, "failed")
        assert (failed.reason, failed.message, failed.kind) == ("is_error", "no lamps", "tool_failed")
        assert failed.more["details"] == {"lamps": 0}
        refused = await failure(tools, "refused")
        assert (refused.reason, refused.more) == ("protocol_error", {"code": -32602})
        assert (await failure(tools, "nonsense")).reason == "bad_result"
        with pytest.raises(TimeoutError):
            await use(tools, "hang")
        assert await use(tools, "asks") == "-32600"  # what a server asks of its client is refused
        assert await use(tools, "grow") == "grown"
        assert "grown" in [tool.name for tool in await server.listed()]
        lost = await failure(tools, "die")
        assert (lost.reason, lost.kind) == ("server_lost", "unknown")
        gone = await failure(await server.listed(), "grown")
        assert (gone.reason, gone.kind) == ("tool_changed", "not_run")
    finally:
        await server.close()


async def failure(tools, name):
    """The ToolError of a call."""
    with pytest.raises(ToolError) as failed:
        await use(tools, name)
    return failed.value


async def test_a_pure_tool_that_was_lost_simply_failed():
    """Where running twice does not matter nobody is told that it may have run."""
    server = copy.copy(rude("plain", default_effect="pure"))
    tools = await server.open()
    lost = await failure(tools, "die")
    assert (lost.reason, lost.kind) == ("server_lost", "tool_failed")
    await server.close()


async def test_a_server_that_died_meanwhile_is_started_again_without_an_error():
    """A process that is killed between two calls costs nothing but the start of another."""
    server = copy.copy(rude("plain"))
    tools = await server.open()
    first = int(await use(tools, "pid"))
    os.kill(first, signal.SIGKILL)
    while not server._link._connection.lost:  # noqa: ASYNC110 - nobody is told before the next call
        await asyncio.sleep(0)
    again = int(await use(tools, "pid"))
    assert again != first
    assert not alive(first)
    await server.close()
    assert not alive(again)


async def test_a_server_that_lists_no_more_is_given_up():
    """A list that is not answered costs one wait: the old list stands, and the next call starts the server anew."""
    server = copy.copy(rude("plain"))
    tools = await server.open()
    connection = server._link._connection
    connection.address = dataclasses.replace(connection.address, timeout=0.1)
    first = await use(tools, "mute")
    with pytest.raises(TimeoutError):
        await server.listed()
    assert await server.listed() == tools
    assert await use(tools, "pid") != first
    await server.close()


async def test_a_call_that_is_given_up_while_the_server_is_started_again_spoils_nothing():
    """The start that the call waited for is given up with it; the next call starts the server."""
    server = copy.copy(rude("plain", tools={"pid": {"timeout": 0.001}}))
    tools = await server.open()
    await failure(tools, "die")
    with pytest.raises(TimeoutError):
        await use(tools, "pid")
    assert await use(tools, "nothing") == ""
    await server.close()


async def test_what_cannot_be_a_tool_is_left_out(caplog):
    """Names, doubles and schemas that do not fit are left out and noted; lines that are no JSON are passed over."""
    caplog.set_level(logging.INFO, "lictor.adapters.mcp")
    agent = clerk([[call("wide", size=3), call("twice"), call("wide", sise=3)], say("Done.")], rude("untidy"))
    played = await play(agent)
    assert [item["name"] for item in asked(agent.models[0]).tools] == ["wide", "twice"]
    notes = [event.payload["text"] for event in played.events if event.kind == "note"]
    assert [note.partition("left out: ")[2].partition(":")[0] for note in notes] == ["twice", "so.fa", "deep"]
    assert "pass name=" in notes[1]
    assert [played.result_of(0), played.result_of(1)] == ["wide", "once"]
    assert json.loads(played.result_of(2))["error"] == "invalid_arguments"
    assert "rude: no message, passed over: b'hello, I am rude" in caplog.text


async def test_a_name_that_models_cannot_use_can_be_declared_another():
    """`name` in the declaration gives a tool a name that fits."""
    agent = clerk([say("Done.")], rude("untidy", tools={"so.fa": {"name": "sofa"}})["so.fa"])
    assert (await play(agent)).status == "completed"
    assert [item["name"] for item in asked(agent.models[0]).tools] == ["sofa"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (lambda: rude("silent", timeout=0.2), "it did not answer within 0.2 s"),
        (lambda: rude("exits", env={"SHOP_KEY": "sk-secret"}), "exit code 1; cannot open the shop: no key in [hidden]"),
        (lambda: MCPServer("rude", command=["/nowhere/orders-mcp"]), "there is no '/nowhere/orders-mcp'"),
        (lambda: rude("plain", tools={"refnd": {}}), "tool source 'rude' has no tool refnd; it has: refused, nonsense"),
        (lambda: rude("plain")["refnd"], "tool source 'rude' has no tool refnd; it has: refused, nonsense"),
    ],
)
async def test_a_server_that_cannot_be_used_fails_the_run_before_its_first_model_call(server, words):
    """The failure names the server and says why, without secrets."""
    agent = clerk([say("Done.")], server())
    played = await play(agent)
    assert (played.status, played.reason, agent.models[0].requests) == ("failed", "tool_source", [])
    assert "'rude'" in played.error
    assert words in played.error


async def test_names_of_two_servers_that_clash_are_told_apart_by_a_prefix():
    """Both servers and the way out are named; with a prefix both are used."""
    played = await play(clerk([say("Done.")], rude("plain"), rude("plain", name="other")))
    assert (played.status, played.reason) == ("failed", "tool_source")
    assert "two tools are named 'refused': tool source 'rude' and tool source 'other'" in played.error
    assert 'prefix="other_"' in played.error
    apart = clerk(
        [[call("pid"), call("other_pid")], say("Done.")], rude("plain"), rude("plain", name="other", prefix="other_")
    )
    played = await play(apart)
    assert (played.status, played.result_of(0) != played.result_of(1)) == ("completed", True)


async def test_a_policy_knows_a_tool_by_the_name_that_is_registered():
    """With a prefix the gate, the log and the model all see the prefixed name; the bare one is unknown."""
    seen = Seen()
    agent = clerk([[call("r_pid"), call("pid")], say("Done.")], rude("plain", prefix="r_"), interceptors=[seen])
    played = await play(agent)
    assert [event.payload["tool"] for event in played.events if event.kind == "tool_started"] == ["r_pid"]
    assert json.loads(played.result_of(1))["error"] == "unknown_tool"


async def test_a_server_that_will_not_end_is_ended_with_its_children(monkeypatch):
    """Neither the end of its input nor SIGTERM ends it: SIGKILL does, and takes its children along."""
    monkeypatch.setattr(mcp_program, "GRACE_SECONDS", 0.2)
    server = copy.copy(rude("stubborn"))
    tools = await server.open()
    pids = [int(await use(tools, "pid")), int(tools[1].name.removeprefix("child_"))]
    assert all(map(alive, pids))
    await server.close()
    assert not any(map(alive, pids))


async def test_what_a_crashed_server_leaves_behind_is_ended(monkeypatch):
    """A child in the server's process group is gone after `close`, although its parent died before."""
    monkeypatch.setattr(mcp_program, "GRACE_SECONDS", 0.2)
    server = copy.copy(rude("stubborn"))
    tools = await server.open()
    pid, child = int(await use(tools, "pid")), int(tools[1].name.removeprefix("child_"))
    os.kill(pid, signal.SIGKILL)
    assert alive(child)
    await server.close()
    assert not alive(child)


async def test_a_message_that_has_no_end_is_not_kept(monkeypatch):
    """A line beyond the limit is not read to its end: the server is given up, and started again for the next call."""
    monkeypatch.setattr(mcp_program, "MOST_LINE", 2000)
    server = copy.copy(rude("plain"))
    tools = await server.open()
    first = await use(tools, "pid")
    lost = await failure(tools, "huge")
    assert lost.reason == "server_lost"
    assert await use(tools, "pid") != first
    await server.close()
    assert not alive(int(first))


async def test_two_cancellations_leave_no_process(monkeypatch):
    """A caller that is cancelled again while the server is being ended still leaves nothing behind."""
    monkeypatch.setattr(mcp_program, "GRACE_SECONDS", 0.3)
    pids, reached = [], asyncio.Event()

    async def hang(request):
        pids.extend(int(tool["name"].removeprefix("child_")) for tool in request.tools if "child_" in tool["name"])
        reached.set()
        await asyncio.Event().wait()

    agent = clerk([hang], rude("stubborn"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.run("go"))
        await reached.wait()
        task.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    assert pids
    assert not any(map(alive, pids))


async def test_a_server_that_is_gone_on_resume_costs_the_call_and_not_the_run(tmp_path):
    """After a park the server cannot be started any more: the approved call was not run, and the run goes on."""
    start = tmp_path / "start"
    start.symlink_to(sys.executable)
    command = [str(start), "-S", str(SERVERS / "rude.py"), "plain"]
    server = MCPServer("rude", command=command, tools={"pid": {"requires_approval": True}})
    agent = clerk([call("pid"), say("Done.")], server["pid"])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        start.unlink()
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        assert (result.status, result.answer) == ("completed", "Done.")
        [said] = [json.loads(m["content"]) for m in result.trace.messages if m["role"] == "tool"]
        assert (said["error"], said["reason"]) == ("not_run", "source_lost")
