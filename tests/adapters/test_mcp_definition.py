"""What is declared about an MCP server: checked where it is written, and without a connection."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from lictor import Agent, ScriptedModel, tool
from lictor.adapters import MCPServer
from lictor.adapters.mcp_schema import tool_schema
from lictor.agent import NO_GOVERNANCE, plan_for
from lictor.errors import DefinitionError, LictorError

SRC = Path(__file__).parents[2] / "src"


def refund_server(**options):
    """A server with one declared tool."""
    tools = {"refund": {"effect": "idempotent", "requires_approval": True, "responders": ["human:ana"], "deadline": 60}}
    return MCPServer("orders", **{"command": ["orders-mcp", "--read-write"], "tools": tools, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "or ders", "command": ["a"]}, "a name is 1 to 64 letters"),
        ({}, "give command=[…] (stdio) or url=… (streamable HTTP)"),
        ({"command": ["a"], "url": "http://x"}, "give command=[…] (stdio) or url=… (streamable HTTP)"),
        ({"command": "orders-mcp --all"}, "give a list"),
        ({"command": []}, "give a list"),
        ({"url": "orders.example"}, "begins with http:// or https://"),
        ({"url": "https://ana:secret@orders.example"}, "put it into headers="),
        ({"url": "https://x", "env": {}}, "use headers= with url="),
        ({"command": ["a"], "headers": {}}, "use env= with command="),
        ({"command": ["a"], "env": {"A": 1}}, "env= takes a mapping of names to texts"),
        ({"command": ["a"], "default_effect": "none"}, "effect='none'"),
        ({"command": ["a"], "timeout": 0}, "use seconds above 0"),
        ({"command": ["a"], "tools": ["refund"]}, "give tool name -> {option: value}"),
        ({"command": ["a"], "tools": {"refund": True}}, "give {option: value}"),
        (
            {"command": ["a"], "tools": {"refund": {"approve": True}}},
            "there is no option approve; they are name",
        ),
        ({"command": ["a"], "tools": {"refund": {"effect": "some"}}}, "effect='some'"),
        ({"command": ["a"], "tools": {"refund": {"responders": "ana"}}}, "write a list"),
        ({"command": ["a"], "tools": {"so.fa": {}}}, "pass name="),
        ({"command": ["a"], "tools": {"a": {"name": "x"}, "b": {"name": "x"}}}, "declared with the same name"),
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_written(options, words):
    """Every option is checked at once, with words that say what to write."""
    with pytest.raises(DefinitionError) as refused:
        MCPServer(**{"name": "orders", **options})
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_names_of_tools_are_the_servers_with_a_prefix_or_declared():
    """A pick is named by the server's name; the model sees the prefix, or the name that is declared."""
    server = MCPServer("orders", command=["a"], prefix="o_", tools={"so.fa": {"name": "sofa"}})
    assert (server["lookup"].name, server["so.fa"].name, server.known) == ("o_lookup", "sofa", ("sofa",))
    with pytest.raises(DefinitionError, match="pass name="):
        server["la.mp"]


def test_names_that_clash_are_refused_at_the_agent():
    """Two servers' tools, a server's and the agent's own, and declared ones may not share a name."""

    @tool
    def refund() -> str:
        """Refund."""
        return ""

    for tools in ([refund, refund_server()], [refund_server()["refund"], refund]):
        with pytest.raises(DefinitionError, match="two tools are named 'refund'"):
            Agent("clerk", model=ScriptedModel([]), tools=tools)
    renamed = [refund, refund_server(tools={}, prefix="mcp_")["refund"]]
    assert Agent("clerk", model=ScriptedModel([]), tools=renamed).sources[0].names == ("mcp_refund",)


def test_secrets_show_nowhere():
    """Environment, headers and what follows `?` are in no representation, declaration or fingerprint."""
    key = "sk-very-secret"
    program = refund_server(env={"KEY": key})
    remote = MCPServer(
        "orders", url=f"https://orders.example/mcp?key={key}", headers={"Authorization": f"Bearer {key}"}
    )
    for server in (program, remote):
        assert key not in f"{server!r} {server.declared()} {server['refund']!r}"
    assert policy_of(program) == policy_of(refund_server())


def policy_of(server):
    """The policy fingerprint of an agent with a server."""
    clerk = Agent("clerk", model=ScriptedModel([]), tools=[server])
    return plan_for(clerk, (), (), NO_GOVERNANCE).policy


def test_the_policy_fingerprint_covers_the_declaration():
    """Command, url, effects and every declaration of a tool change the fingerprint; time limits of the wire do not."""
    variants = [
        refund_server(),
        refund_server(command=["orders-mcp"]),
        refund_server(command=None, url="https://orders.example/mcp"),
        refund_server(default_effect="pure"),
        refund_server(prefix="x_"),
        refund_server(tools={}),
        refund_server(tools={"refund": {"requires_approval": True}}),
        refund_server(tools={"refund": {"requires_approval": True, "read_only": True}}),
    ]
    assert len({policy_of(server) for server in variants}) == len(variants)
    assert policy_of(refund_server(timeout=5)) == policy_of(refund_server())


def test_a_copy_is_not_open():
    """What a stint works with shares the definition, and nothing else."""
    server = refund_server()
    twin = copy.copy(server)
    twin.left_out["x"] = "y"
    assert (server.left_out, twin.name, twin.known) == ({}, "orders", ("refund",))


def test_the_package_is_imported_when_a_server_is_opened():
    """Neither `lictor.adapters` nor a definition brings `mcp` in."""
    code = (
        "import sys; from lictor import Agent, ScriptedModel; from lictor.adapters import MCPServer;"
        "Agent('a', model=ScriptedModel([]), tools=[MCPServer('x', command=['x'])['y']]);"
        "print([name for name in ('mcp', 'anyio', 'httpx2') if name in sys.modules])"
    )
    environment = {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_missing_package_is_named(monkeypatch):
    """Without `mcp` opening says which extra to install."""
    monkeypatch.delitem(sys.modules, "mcp.client.client", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(LictorError, match=r"pip install 'lictor\[mcp\]'"):
        await copy.copy(refund_server()).open()


def test_schemas_are_closed_where_they_list_their_arguments():
    """Names that a server does not list are refused, unless its schema says something about others."""
    listed = {"type": "object", "properties": {"size": {"type": "integer"}}}
    assert tool_schema(listed) == {**listed, "additionalProperties": False}
    for opening in ({"additionalProperties": True}, {"patternProperties": {"^x": {}}}, {"anyOf": [{}]}):
        assert tool_schema({**listed, **opening}) == {**listed, **opening}
    assert tool_schema({"type": "object"}) == {"type": "object"}


def test_bounds_beyond_what_json_readers_agree_on_are_left_out():
    """The range of an int64 is no bound; a property that is named like one stays."""
    wide = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1, "exclusiveMaximum": 10}
    given = {"type": "object", "properties": {"maximum": wide}, "additionalProperties": True}
    assert tool_schema(given)["properties"] == {"maximum": {"type": "integer", "exclusiveMaximum": 10}}
