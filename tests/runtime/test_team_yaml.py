"""team.yaml: what it makes, what it refuses and in which words, and that its schema says the same."""

import json
from pathlib import Path

import jsonschema
import pytest

from lictor import Agent, Budget, LoopBreaker, Runtime, Team
from lictor.console.order import order_of
from lictor.errors import DefinitionError
from lictor.runtime import definition_of, file_schema
from lictor.testing import ScriptedModel, call, say

SHOP = '''
from lictor import ALLOW, TeamInterceptor, Verdict, interceptor, tool
from lictor.models import ScriptedModel, call, say

@interceptor(points=["output"], version="1")
def egress(context):
    return ALLOW

class Permission(TeamInterceptor):
    def __init__(self, role="none"):
        self.role = role
    def should_agent_continue(self, trace, agent):
        return agent.name != "refunds" or self.role == "refund:approve"

def lookup(order: int) -> str:
    """Look an order up."""
    return f"Order {order} left on Monday."

@tool
async def declared(order: int) -> str:
    """Look an order up."""
    return "here"

class Desk:
    name = "desk"
    async def work(self, task):
        return "noted"

desk = Desk()
script = ScriptedModel([say("From a script.")])
'''
TEAM = """
version: 1
agents:
  analyst: {model: openai:a, tools: [shopping:lookup]}
  refunds: {model: openai:b, description: Pays money back.}
team:
  name: orders
  model: openai:c
  members: [analyst, refunds]
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Write a team.yaml beside a module `shopping.py`, and make what it defines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shopping.py").write_text(SHOP)

    def make(text, name=""):
        (tmp_path / "team.yaml").write_text(text)
        return definition_of(f"team.yaml:{name}" if name else "team.yaml")

    yield make
    import sys

    sys.modules.pop("shopping", None)


def refused(make, text, name=""):
    """The words in which a file is refused."""
    with pytest.raises(DefinitionError) as caught:
        make(text, name)
    return str(caught.value)


# ---- what it makes ----------------------------------------------------------------------------


async def test_a_team_of_a_file_runs(made):
    """Members, tools and the supervisor come from the file; models are overridden as for any definition."""
    team = made(TEAM)
    models = {
        "orders": ScriptedModel(
            [call("assign", member="analyst", instruction="look"), call("finish", answer="Monday.")]
        ),
        "analyst": ScriptedModel([call("lookup", order=42), say("It left on Monday.")]),
    }
    async with Runtime(models=models) as runtime:
        run = await runtime.start(team, "Where is 42?")
        result = await run.result()
        trace = await runtime.trace(run.id)
    assert (result.status, result.answer) == ("completed", "Monday.")
    assert [(each.source, each.kind) for each in trace.records] == [
        ("supervisor", "decision"), ("analyst", "output"), ("supervisor", "decision")
    ]  # fmt: skip


def test_options_reach_the_definitions(made):
    """What is written is what the constructors get; what is not written keeps their defaults."""
    team = made("""
version: 1
agents:
  a:
    model: [openai:a, {use: lictor:OpenAIModel, name: b, base_url: "http://localhost:9/v1", api_key: x}]
    instructions: Be brief.
    max_steps: 3
    settings: {temperature: 0.5}
    loop_breaker: {window: 4, on_hit: [stop]}
    deny_repeats: false
    output_type: builtins:int
    tools: [{use: shopping:lookup, name: find, read_only: true, requires_approval: true, responders: ["human:ana"]}]
  b: {model: {use: shopping:script}, loop_breaker: false}
team:
  name: t
  members: [a, b, shopping:desk]
  protocol: {use: lictor.team:Sequential, may_fail: [b]}
  max_turns: 5
  retries: 2
  budget: {max_total_tokens: 1000, max_cost_usd: 1.5, per_member: {max_tool_calls: 3}}
""")
    assert isinstance(team, Team)
    a, b, desk = team.members
    assert (a.instructions, a.max_steps, a.settings, a.output_type) == ("Be brief.", 3, {"temperature": 0.5}, int)
    assert [model.id for model in a.models] == ["openai:a", "openai:b"]
    assert isinstance(a.loop_breaker, LoopBreaker)
    assert (a.loop_breaker.window, a.loop_breaker.on_hit) == (4, ("stop",))
    assert (a.deny_repeats, b.loop_breaker) == (None, None)
    assert b.max_steps == Agent("x", model="openai:x").max_steps
    find = a.tool_table["find"]
    assert (find.read_only, find.requires_approval, find.responders) == (True, True, ("human:ana",))
    assert desk.name == "desk"
    assert (team.route.name, team.route.may_fail) == ("sequential", ["b"])
    assert (team.max_turns, team.retries, team.max_handoffs) == (5, 2, 8)
    assert team.budget == Budget(max_total_tokens=1000, max_cost_usd=1.5, per_member=Budget(max_tool_calls=3))


def test_interceptors_are_named_built_and_ordered(made):
    """An object is taken as it is, a class is built with its options, `index` moves it; built-ins are import paths."""
    team = made(
        TEAM
        + """  interceptors:
    egress: shopping:egress
    cards: {use: lictor:Mask, kind: card, points: [post_tool_call]}
    tools: {use: lictor:DenyTools, names: [wipe]}
    calls: {use: lictor:MaxCalls, tools: [lookup], limit: 3}
    permission: {use: shopping:Permission, role: "refund:approve", index: -1}
"""
    )
    found = {each["name"]: each for each in order_of(team)["interceptors"]}
    names = [name for name in found if name.startswith("team:")]
    assert names == [f"team:orders/{name}" for name in ("permission", "egress", "cards", "tools", "calls")]
    assert found["team:orders/cards"]["points"] == ["post_tool_call"]
    permission, _ = team.interceptors["permission"]
    assert permission.role == "refund:approve"


def test_several_targets_live_in_one_file(made):
    """Teams and agents are targets by name, teams may be members of teams, agents tools of agents; made once each."""
    text = """
version: 1
agents:
  a: {model: openai:a}
  b: {model: openai:b, tools: ["agent:a"]}
teams:
  inner: {members: [a, b], protocol: sequential}
  outer: {members: [inner, b], protocol: none}
"""
    outer = made(text, "outer")
    inner, b = outer.members
    assert [type(each).__name__ for each in (outer, inner, b)] == ["Team", "Team", "Agent"]
    assert inner.members[1] is b
    assert list(b.tool_table) == ["a"]
    assert made(text, "a").name == "a"
    told = refused(made, text)
    assert told == "team.yaml does not say what to run; write team.yaml:NAME; it has inner, outer, a, b"
    assert refused(made, text, "iner") == "there is no 'iner' in team.yaml; did you mean 'inner'?"


def test_servers_are_shared_and_pick_tools(made):
    """`mcp:SERVER/TOOL` is one tool, `mcp:SERVER` all of them; declarations stand at the server."""
    pytest.importorskip("mcp")
    team = made("""
version: 1
mcp:
  orders: {command: [orders-mcp], default_effect: pure, tools: {refund: {effect: once, requires_approval: true}}}
agents:
  a: {model: openai:a, tools: [mcp:orders/lookup_order]}
  b: {model: openai:b, tools: [mcp:orders/refund]}
  c: {model: openai:c, tools: [mcp:orders]}
team: {name: t, members: [a, b, c], protocol: none}
""")
    servers = {id(each.sources[0].source) for each in team.members}
    assert len(servers) == 1
    assert [(each.sources[0].names, each.sources[0].whole) for each in team.members] == [
        (("lookup_order",), False), (("refund",), False), (("refund",), True)
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["loop_breaker: {on_hit: [tell, stop]}", "loop_breaker: false"])
def test_a_team_gets_its_loop_breaker(made, key):
    """The key reaches `Team(loop_breaker=)`, and false takes it out."""
    team = made(TEAM + f"  {key}\n")
    assert getattr(team.loop_breaker, "on_hit", None) == (None if "false" in key else ("tell", "stop"))


# ---- variables --------------------------------------------------------------------------------


def test_variables_are_filled_in(made, monkeypatch):
    """Typed keys take the value as their type, quotes keep a text a text, a default stands after `:-`."""
    monkeypatch.setenv("STEPS", "7")
    monkeypatch.setenv("WORDS", "0123")
    agent = made("""
version: 1
agents:
  a:
    model: openai:${MODEL:-gpt}
    instructions: ${WORDS}
    max_steps: ${STEPS}
    settings:
      seed: ${STEPS}
      user: "${WORDS}"
      stop: $${WORDS}
""")
    assert agent.models[0].id == "openai:gpt"
    assert (agent.instructions, agent.max_steps) == ("0123", 7)
    assert agent.settings == {"seed": 7, "user": "0123", "stop": "${WORDS}"}


def test_a_missing_variable_is_named_with_its_line(made, monkeypatch):
    """Every one of them, so that a file is mended in one go."""
    monkeypatch.delenv("NO_SUCH_MODEL", raising=False)
    told = refused(made, TEAM.replace("openai:a", '"openai:${NO_SUCH_MODEL}"').replace("openai:c", "${NOR_THIS}"))
    assert told == (
        "team.yaml:4: the environment variable NO_SUCH_MODEL is not set; "
        "team.yaml:8: the environment variable NOR_THIS is not set"
    )


def test_words_are_read_as_yaml_1_2_reads_them(made):
    """`on`, `no`, dates and times are texts; numbers, true, false and null are what they look like."""
    agent = made(
        "version: 1\nagents:\n  a: {model: openai:a, settings: {a: no, b: 12:30, c: 1e3, d: true, e: ~, f: 010}}"
    )
    assert agent.settings == {"a": "no", "b": "12:30", "c": 1000.0, "d": True, "e": None, "f": 10}


# ---- what it refuses --------------------------------------------------------------------------

AGENT = "version: 1\nagents:\n  a: {model: openai:a}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": the file is empty; it needs version: 1, agents and a team"),
        ("- 1", ": write keys with values here, not a list"),
        ("agents: {}", ": 'version' is missing"),
        ("version: 2", ":1: version: 2 is not one of 1"),
        ("version: 1", " does not say what to run; it has no agents"),
        (AGENT + "agent: {}", ":4: agent: there is no key 'agent'; did you mean 'agents'?"),
        (AGENT + "colour: red", ":4: colour: there is no key 'colour'; known are version, store, mcp, agents, "
         "team, teams"),
        (AGENT.replace("}", ", instruction: x}"), ":3: agents.a.instruction: there is no key 'instruction'; did "
         "you mean 'instructions'?"),
        (AGENT.replace("}", ", max_steps: many}"), ":3: agents.a.max_steps: input should be a valid integer, "
         "unable to parse string as an integer, not 'many'"),
        (AGENT.replace("}", ", max_steps: -1}"), ":3: agents.a: Agent 'a': max_steps=-1; give a whole number "
         ">= 0"),
        (AGENT.replace("}", ", stream: incrementel}"), ":3: agents.a.stream: 'incrementel' is not one of "
         "buffered, incremental; did you mean 'incremental'?"),
        (AGENT.replace("openai:a", "gpt"), ":3: agents.a: model 'gpt'"),
        (AGENT.replace("}", ", tools: x}"), ":3: agents.a.tools: input should be a valid list, not 'x'"),
        (AGENT.replace("}", ", tools: [mcp:x/y]}"), ":3: agents.a.tools.0: there is no MCP server 'x' under mcp; "
         "there is none"),
        (AGENT.replace("}", ", tools: [shopping:looku]}"), ":3: agents.a.tools.0: there is no 'looku' in "
         "shopping"),
        (AGENT.replace("}", ", tools: [{use: shopping:declared, effect: pure}]}"), ":3: agents.a.tools.0: "
         "'declared' is a tool already"),
        (AGENT.replace("}", ", interceptors: {x: nonsense}}"), ":3: agents.a.interceptors.x: write an import "
         "path, module:name, not nonsense"),
        (AGENT.replace("}", ", interceptors: {x: [1]}}"), ":3: agents.a.interceptors.x: a list cannot stand "
         "here; write 'text', 'mapping'"),
        (AGENT.replace("}", ", interceptors: {x: {kind: card}}}"), ":3: agents.a.interceptors.x: 'use' is "
         "missing"),
        (AGENT.replace("}", ", interceptors: {x: {use: lictor:Mask, kind: cart}}}"), ":3: "
         "agents.a.interceptors.x: Mask takes a pattern, or kind= one of card, email, iban, secret"),
        (AGENT.replace("}", ", interceptors: {x: {use: lictor:Mask, kin: card}}}"), ":3: "
         "agents.a.interceptors.x: Mask.__init__() got an unexpected keyword argument 'kin'"),
        (AGENT.replace("}", ", interceptors: {x: {use: shopping:egress, a: 1}}}"), ":3: "
         "agents.a.interceptors.x: shopping:egress is no class, so it takes no options (a)"),
        (AGENT.replace("}", ", loop_breaker: true}"), ":3: agents.a.loop_breaker: write its options, {} for the "
         "defaults, or false"),
        (AGENT.replace("}", ", budget: {max_token: 1}}"), ":3: agents.a.budget.max_token: there is no key "
         "'max_token'; did you mean 'max_total_tokens'?"),
        (AGENT + "team: {name: t, members: [b]}", ":4: team.members.0: there is no agent or team 'b'; there is "
         "a, t"),
        (AGENT + "team: {name: t, members: [t], protocol: none}", ":4: team: t in t: it stands inside itself"),
        (AGENT + "team: {name: a, members: [a]}", ": two agents or teams are called 'a'"),
        (AGENT + "team: {name: t, members: [a], protocol: swarn, model: openai:x}", ":4: team: Team 't': "
         "protocol='swarn'; choose from"),
        (AGENT + "team: {members: [a]}", ":4: team: 'name' is missing"),
        (AGENT + "mcp: {m: {command: [x], tool: {}}}", ":4: mcp.m.tool: there is no key 'tool'; did you mean "
         "'tools'?"),
        (AGENT.replace("}", ", tools: [mcp:m]}") + "mcp: {m: {}}", ":4: mcp.m: MCPServer 'm': give command="),
        (AGENT + "supervision: {mode: SHADOW}", ":4: supervision: 'supervision' comes later: this version reads "
         "agents and teams; take the section out"),
        (AGENT + "crew: {lead: a}", ":4: crew: 'crew' comes later: this version reads agents and teams"),
        (AGENT + "agents: {}", ":4: the key 'agents' is there twice"),
        (AGENT + "  b: [", ":4: this is no YAML: expected the node content"),
        (AGENT + "x: !!python/object/apply:os.system [ls]", ":4: the tag tag:yaml.org,2002:python/object/apply:"
         "os.system is not used here"),
        (AGENT + "x: &x [*x]", ":4: it is too large, or an alias stands inside itself"),
        (AGENT + "x: " + "[" * 500, ": it is nested too deeply"),
        (AGENT + "? [a]\n: 1", ":4: a key must be a word"),
        (AGENT.replace("}", ", <<: {a: 1}}"), ":3: merge keys (<<) are not read"),
        (AGENT.replace("openai:a", "'${1A}'"), ":3: ${1A} is no variable"),
        (AGENT.replace("openai:a", "${A}"), ":3: this is no YAML: expected ',' or '}', but got '{'; inside { } "
         "and [ ], put ${NAME} in quotes"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(made, text, told):
    """File, line and path of what is wrong, and what to write instead where that can be guessed."""
    said = refused(made, text)
    assert said.startswith(f"team.yaml{told}")
    assert "\n" not in said


def test_problems_are_told_together(made):
    """The first three of them, and how many more there are."""
    told = refused(made, AGENT.replace("}", ", a: 1}") + "".join([f"  b{n}: {{modle: x}}\n" for n in range(4)]))
    assert told.count("team.yaml:") == 3
    assert told.endswith("; and 2 more")


def test_a_small_file_with_many_aliases_is_refused(made):
    """Aliases of aliases cannot fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    assert "it is too large" in refused(made, "\n".join(lines))


def test_a_file_that_is_not_there_is_told(made):
    """Also when what is there is no text."""
    with pytest.raises(DefinitionError, match=r"there is no file other\.yml"):
        definition_of("other.yml")
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DefinitionError, match=r"bytes\.yaml cannot be read"):
        definition_of("bytes.yaml")


# ---- the schema -------------------------------------------------------------------------------


def test_the_schema_accepts_and_refuses_like_the_reader():
    """A whole file fits; an unknown key and a wrong choice do not; keys are explained."""
    schema = file_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {
        "version": 1,
        "agents": {"a": {"model": "openai:a", "loop_breaker": False, "tools": [{"use": "shop:f", "effect": "pure"}]}},
        "team": {"name": "t", "members": ["a"], "budget": {"max_turns": 3, "per_member": {"max_tool_calls": 1}}},
    }
    jsonschema.validate(good, schema)
    for wrong in ({"agent": {}}, {"version": 2}, {"team": {"name": "t", "members": ["a"], "budget": {"turns": 1}}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, **wrong}, schema)
    sections = schema["$defs"]
    for section in ("AgentSection", "TeamSection", "BudgetSection"):
        options = sections[section]["properties"]
        assert [name for name, option in options.items() if not option.get("description")] == [], section
    assert json.dumps(schema)
