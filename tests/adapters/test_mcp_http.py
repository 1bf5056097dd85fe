"""MCP over streamable HTTP: a real server of the `mcp` package, and small ones that answer what they should not."""

import asyncio
import contextlib
import copy
import json

import pytest
from driving import decided, park, play
from mcp_servers import Ledger, shop_over_http, use

from lictor import Agent, Runtime, ScriptedModel
from lictor.adapters import MCPServer
from lictor.errors import ToolError
from lictor.models import call, say

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a running shop, and its ledger."""
    ledger = Ledger(tmp_path_factory.mktemp("shop"))
    process, url = shop_over_http(ledger)
    yield url, ledger
    process.kill()
    process.wait()


def clerk(script, *tools):
    """An agent with a scripted model."""
    return Agent("clerk", model=ScriptedModel(script), tools=tools)


async def test_tools_are_listed_and_called(served):
    """Several calls at once over HTTP give what they give over stdio."""
    calls = [call("lookup_order", order_id=n) for n in range(3)]
    wrong = [call("picture", kind="small"), call("broken"), call("lookup_order", order="x")]
    played = await play(clerk([[*calls, *wrong], say("Done.")], MCPServer("shop", url=served[0])))
    assert played.status == "completed"
    assert [f"order {n} left" in played.result_of(n) for n in range(3)] == [True] * 3
    assert json.loads(played.result_of(3))[1]["size"] == 24
    assert [json.loads(played.result_of(n))["error"] for n in (4, 5)] == ["tool_failed", "invalid_arguments"]


async def test_an_approved_call_goes_over_a_new_connection(served):
    """A parked run holds no connection; what was approved is called once."""
    url, ledger = served
    server = MCPServer("shop", url=url, tools={"refund": {"requires_approval": True}})
    async with Runtime() as runtime:
        run, result = await park(runtime, clerk([call("refund", order_id=7, amount=1), say("Paid.")], server))
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
    assert (result.status, ledger.lines) == ("completed", ["refund 7 1.0 "])


async def test_a_slow_tool_is_given_up(served):
    """A call past its timeout is an error result, and the connection goes on."""
    server = MCPServer("shop", url=served[0], tools={"slow": {"timeout": 0.3}})
    played = await play(clerk([call("slow"), call("lookup_order", order_id=1), say("Done.")], server))
    assert json.loads(played.result_of(0))["reason"] == "timeout"
    assert "order 1 left" in played.result_of(1)


async def test_a_server_that_dies_in_a_call_and_stays_away(tmp_path):
    """The call may have run; the next ones were not run, and the run goes on."""
    ledger = Ledger(tmp_path)
    process, url = shop_over_http(ledger)
    try:
        script = [call("die"), call("lookup_order", order_id=1), say("Done.")]
        played = await play(clerk(script, MCPServer("shop", url=url)))
    finally:
        process.kill()
        process.wait()
    lost, gone = json.loads(played.result_of(0)), json.loads(played.result_of(1))
    assert (lost["error"], lost["reason"]) == ("unknown", "server_lost")
    assert (gone["error"], gone["reason"]) == ("not_run", "server_unreachable")
    assert (played.status, ledger.lines) == ("completed", ["die"])
    again = await play(clerk([say("Hi.")], MCPServer("shop", url=url)))
    assert (again.status, again.reason) == ("failed", "tool_source")
    assert "MCP server 'shop' could not be opened: ConnectError" in again.error


# ---- servers that answer what they should not ------------------------------------------------------


class OldServer:
    """A server of the older protocol in this process: sessions, and whatever `odd` says about calls."""

    def __init__(self, odd="", status=200):
        self.odd = odd
        self.status = status
        self.sessions = 0
        self.forgets = False
        self.seen = []
        self.url = ""

    async def __aenter__(self):
        self.stack = contextlib.AsyncExitStack()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp?key=sk-secret"
        self.server = server
        self.writers = set()
        return self

    async def __aexit__(self, *exc):
        self.server.close()
        for writer in self.writers:
            writer.close()

    async def _serve(self, reader, writer):
        self.writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = head.partition("content-length: ")[2].partition("\r\n")[0]
                body = json.loads(await reader.readexactly(int(length))) if length and length != "0" else {}
                session = head.partition("mcp-session-id: ")[2].partition("\r\n")[0]
                await self._answer(writer, head.split()[0], body, session)

    async def _answer(self, writer, verb, body, session):
        self.seen.append(body.get("method", verb))
        number, method = body.get("id"), body.get("method")
        if self.status != 200:
            return self._write(writer, self.status, "text/plain", b"no")
        if verb == "delete" and self.odd == "never ends":
            return None
        if verb != "post":
            return self._write(writer, 405, "text/plain", b"")
        if number is None:
            return self._write(writer, 202, "text/plain", b"")
        if method == "initialize":
            self.sessions += 1
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
            return self._result(writer, number, about, session=f"s{self.sessions}")
        if method == "tools/list":
            return self._result(writer, number, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
        if method == "tools/call":
            return self._call(writer, number, session)
        return self._write(writer, 404, "text/plain", b"")

    def _call(self, writer, number, session):
        if self.forgets and session == "s1":
            return self._write(writer, 404, "text/plain", b"")
        if self.odd == "html":
            return self._write(writer, 200, "text/html", b"<p>down</p>")
        if self.odd == "broken":
            return self._write(writer, 200, "application/json", b'{"jsonrpc": "2.0", ')
        if self.odd == "error":
            return self._write(writer, 503, "text/plain", b"busy")
        if self.odd == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n")
            return writer.close()
        return self._result(writer, number, {"content": [{"type": "text", "text": f"in {session}"}]})

    def _result(self, writer, number, result, session=None):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        self._write(writer, 200, "application/json", body, session)

    def _write(self, writer, status, kind, body, session=None):
        more = f"mcp-session-id: {session}\r\n" if session else ""
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        writer.write(head.encode() + body)


@pytest.mark.parametrize(
    ("odd", "kind", "reason"),
    [
        ("html", "tool_failed", "protocol_error"),
        ("broken", "tool_failed", "protocol_error"),
        ("error", "tool_failed", "protocol_error"),
        ("cut", "unknown", "server_lost"),
    ],
)
async def test_answers_that_are_no_mcp(odd, kind, reason):
    """Pages, broken JSON, error statuses and cut streams are tool errors; the connection goes on."""
    async with OldServer(odd) as old:
        server = copy.copy(MCPServer("old", url=old.url, headers={"Authorization": "Bearer sk-secret"}))
        tools = await server.open()
        with pytest.raises(ToolError) as failed:
            await use(tools, "go")
        assert (failed.value.kind, failed.value.reason) == (kind, reason)
        assert "sk-secret" not in str(failed.value)
        old.odd = ""
        assert await use(tools, "go") == "in s1"
        await server.close()


async def test_a_session_that_the_server_forgot_is_begun_again():
    """A call that a restarted server refused, because it knows the session no more, is sent again in a new one."""
    async with OldServer() as old:
        server = copy.copy(MCPServer("old", url=old.url))
        tools = await server.open()
        assert await use(tools, "go") == "in s1"
        old.forgets = True
        assert await use(tools, "go") == "in s2"
        await server.close()
        assert old.seen.count("tools/call") == 3
        assert old.seen[-1] == "delete"


@pytest.mark.parametrize("status", [401, 500])
async def test_an_error_status_on_opening_is_told(status):
    """The failed run says which status the server answered, and no secret."""
    async with OldServer(status=status) as old:
        played = await play(clerk([say("Hi.")], MCPServer("old", url=old.url)))
        assert (played.status, played.reason) == ("failed", "tool_source")
        assert f"(HTTP status {status})" in played.error
        assert "sk-secret" not in played.error


async def test_a_server_that_does_not_answer_the_goodbye_holds_nothing(monkeypatch):
    """The end of the session is told the server, and not waited for longer than some seconds."""
    from lictor.adapters import mcp_connection

    monkeypatch.setattr(mcp_connection, "CLOSE_SECONDS", 0.2)
    async with OldServer("never ends") as old:
        server = copy.copy(MCPServer("old", url=old.url))
        await server.open()
        await server.close()
        assert old.seen[-1] == "delete"


async def test_a_cancelled_goodbye_is_not_waited_for_for_ever(monkeypatch):
    """A caller that is cancelled while the session is ended goes on cancelled, with nothing left running."""
    from lictor.adapters import mcp_connection

    monkeypatch.setattr(mcp_connection, "CLOSE_SECONDS", 0.2)
    async with OldServer("never ends") as old:
        server = copy.copy(MCPServer("old", url=old.url))

        async def opened_and_closed():
            await server.open()
            reached.set()
            await server.close()

        reached = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(opened_and_closed())
            await reached.wait()
            task.cancel()
        assert task.cancelled()
        assert server._link._connection.lost
