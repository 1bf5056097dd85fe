"""Field cases of class b: rules reach nested agents and every spelling, and a stop ends the whole batch."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from driving import Strict, both_ways, play, policy, tools_said

from lictor import ALLOW, Agent, DenyTools, Verdict, tool
from lictor.agent import trace_of
from lictor.errors import DefinitionError
from lictor.models import call, say


@both_ways
async def test_B16_what_a_nested_agent_did_stays_when_the_outer_answer_is_denied(how: str) -> None:
    """The nested runs keep their transcripts though the outer answer was denied and is stored nowhere."""
    inner = Agent("inner", model=Strict([lambda request: say(f"about {request.messages[-1]['content']}")] * 2))
    outer_model = Strict([call("inner", task="one"), call("inner", task="two"), say("summary")])
    guard = policy("output", lambda c: Verdict.deny("no") if c["agent"]["id"] == "outer" else ALLOW)
    played = await play(Agent("outer", model=outer_model, tools=[inner], interceptors=[guard]), how=how)
    assert (played.status, played.reason) == ("blocked", "no")
    nested = list(dict.fromkeys(event.run_id for event in played.events if len(event.path) == 2))
    transcripts = [trace_of(run_id, played.store.entries(run_id)).messages for run_id in nested]
    assert [[message["content"] for message in messages] for messages in transcripts] == [
        ["one", "about one"],
        ["two", "about two"],
    ]
    assert "summary" not in played.text


@both_ways
@pytest.mark.parametrize("waiting", ["async hooks", "plain hooks"])
async def test_B19_a_stop_in_a_batch_ends_its_siblings_before_the_run_returns(how: str, waiting: str) -> None:
    """A stop by one call's hook: siblings never start, no effect comes after the return, all are answered."""
    effects: list[str] = []
    gate = asyncio.Event()

    @tool
    async def c1() -> str:
        effects.append("c1")
        return "c1"

    @tool
    async def c2() -> str:
        effects.append("c2")
        return "c2"

    async def judged(context: Any) -> Any:
        if context["tool_call"]["name"] == "c1":
            gate.set()
            return Verdict.stop("enough")
        await gate.wait()
        return ALLOW

    def at_once(context: Any) -> Any:
        return Verdict.stop("enough") if context["tool_call"]["name"] == "c1" else ALLOW

    judge = policy("pre_tool_call", judged if waiting == "async hooks" else at_once)
    for batch in (["c1", "c2"], ["c2", "c1"]):
        gate.clear()
        model = Strict([[call(name) for name in batch], say("unreachable")])
        played = await play(Agent("clerk", model=model, tools=[c1, c2], interceptors=[judge]), how=how)
        assert (played.status, played.reason, played.by) == ("stopped", "enough", "agent:clerk/policy")
        assert effects == []
        reasons = {json.loads(content)["reason"] for content in tools_said(played.messages)}
        assert reasons == {"enough"}


@both_ways
async def test_B19_running_siblings_are_cancelled_or_drained(how: str) -> None:
    """A stop after one tool cancels an async sibling and discards the result of one in a thread."""
    finished: list[str] = []
    started = asyncio.Event()
    thread_runs, thread_goes_on = threading.Event(), threading.Event()

    @tool
    async def quick() -> str:
        await started.wait()
        await asyncio.to_thread(thread_runs.wait, 10)
        return "quick"

    @tool
    async def slow() -> str:
        started.set()
        await asyncio.Event().wait()
        finished.append("slow")
        return "slow"

    @tool
    def threaded() -> str:
        thread_runs.set()
        thread_goes_on.wait(60)
        return "threaded"

    def stop_after_quick(context: Any) -> Any:
        if context["tool_call"]["name"] != "quick":
            return ALLOW
        thread_goes_on.set()
        return Verdict.stop("enough")

    judge = policy("post_tool_call", stop_after_quick)
    batch = [call("quick"), call("slow"), call("threaded")]
    agent = Agent("clerk", model=Strict([batch, say("x")]), tools=[quick, slow, threaded], interceptors=[judge])
    played = await play(agent, how=how)
    assert (played.status, played.reason, finished) == ("stopped", "enough", [])
    results = [json.loads(content) for content in tools_said(played.messages)]
    assert [result["error"] for result in results] == ["denied", "cancelled", "cancelled"]
    closed = [event.payload for event in played.events if event.kind == "call_closed"]
    assert sorted(item["tool"] for item in closed) == ["slow", "threaded"]
    late = [event.payload for event in played.events if event.kind == "note"]
    assert [(item["tool"], item["late"]) for item in late] == [("threaded", "returned")]
    before = len(played.store.entries(played.run_id))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(played.store.entries(played.run_id)) == before


def nested(depth: int, tools: Any, **outer: Any) -> Agent:
    """A chain of agents, each the tool of the one above; every one of them calls `sql` and then delegates."""
    below: Agent | None = None
    for level in range(depth, 0, -1):
        name = f"level{level}"
        steps = [call("sql")] + ([call(below.name, task="run sql")] if below else []) + [say(f"done {level}")]
        own = {} if level > 1 else outer
        below = Agent(name, model=Strict(steps, id=name), tools=[*tools, *([below] if below else [])], **own)
    assert below is not None
    return below


@both_ways
@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_B22_a_rule_of_the_outermost_agent_holds_at_every_depth(how: str, depth: int) -> None:
    """A denied tool runs on no path of nested agents, and each denial carries its path."""
    ran: list[str] = []

    @tool
    async def sql() -> str:
        ran.append("sql")
        return "rows"

    played = await play(nested(depth, [sql], interceptors=[DenyTools("sql")]), how=how)
    assert (played.status, ran) == ("completed", [])
    denials = [event for event in played.events if event.kind == "verdict" and event.payload["decision"] == "deny"]
    assert [[step.name for step in event.path] for event in denials] == [
        [f"level{n + 1}" for n in range(length)] for length in range(1, depth + 1)
    ]
    assert {event.payload["by"] for event in denials} == {"agent:level1/deny-tools"}


@both_ways
async def test_B22_policies_of_a_run_hold_in_nested_agents_too(how: str) -> None:
    """Per-run interceptors are inherited like those of the agent."""
    ran: list[str] = []

    @tool
    async def sql() -> str:
        ran.append("sql")
        return "rows"

    played = await play(nested(3, [sql]), how=how, interceptors=[DenyTools("sql")])
    assert (played.status, ran) == ("completed", [])
    assert sum(event.kind == "verdict" and event.payload["decision"] == "deny" for event in played.events) == 3


def test_B22_a_nested_agent_cannot_bring_its_own_governance() -> None:
    """A member that would compose verdicts in its own way is refused when it is made a tool."""
    from lictor import Governance

    inner = Agent("inner", model=Strict([]), governance=Governance(mode="evaluate_only"))
    with pytest.raises(DefinitionError, match="outermost"):
        Agent("outer", model=Strict([]), tools=[inner])


SPELLINGS = [
    " browser_navigate ",
    "BROWSER_NAVIGATE",
    "mcp__web__browser_navigate",
    "ｂrowser_navigate",
    "Browser.navigate",
    "",
]


@both_ways
@pytest.mark.parametrize("name", SPELLINGS)
async def test_B34_a_name_runs_only_if_it_is_registered_exactly_so(how: str, name: str) -> None:
    """Any other spelling is an unknown tool: nothing runs, and the model is told the valid names."""
    ran: list[str] = []

    @tool
    async def browser_navigate() -> str:
        ran.append("x")
        return "ok"

    @tool(name="Browser_navigate")
    async def other() -> str:
        ran.append("other")
        return "ok"

    model = Strict([call(name), call("browser_navigate"), call("Browser_navigate"), say("done")])
    tools = [browser_navigate, other]
    agent = Agent("clerk", model=model, tools=tools, interceptors=[DenyTools("browser_navigate")])
    played = await play(agent, how=how)
    unknown, denied, allowed = (played.result_of(number) for number in range(3))
    assert json.loads(unknown)["error"] == "unknown_tool"
    assert "browser_navigate, Browser_navigate" in json.loads(unknown)["message"]
    assert json.loads(denied)["error"] == "denied"
    assert (allowed, ran) == ("ok", ["other"])


def test_B34_ambiguous_or_impossible_names_are_refused_when_written() -> None:
    """Two tools of one name, and a name that no provider could carry, are definition errors."""

    @tool
    async def go() -> str:
        return ""

    @tool(name="go")
    async def also() -> str:
        return ""

    with pytest.raises(DefinitionError, match="two tools are named 'go'"):
        Agent("clerk", model=Strict([]), tools=[go, also])
    with pytest.raises(DefinitionError, match="letters, digits"):
        tool(name="Browser.navigate")(lambda: "")
