"""The loop at its eight points: their order, what a transform changes, what a deny stops, and that nothing leaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Seen, Strict, asked, both_ways, play, policy, tools_said

from lictor import ALLOW, Agent, Runtime, Verdict, tool
from lictor.hooks import POINTS
from lictor.models import call, say


@tool
async def work(n: int) -> str:
    """Work."""
    return f"did {n}"


ORDER = [
    "agent_startup",
    "input",
    "pre_model_call",
    "post_model_call",
    "pre_tool_call",
    "post_tool_call",
    "pre_model_call",
    "post_model_call",
    "output",
    "agent_shutdown",
]


@both_ways
async def test_the_order_of_points(how: str) -> None:
    """Each point comes when the contract says, with numbers that count up without a gap."""
    seen = Seen()
    agent = Agent("clerk", model=Strict([call("work", n=1), say("done")]), tools=[work], interceptors=[seen])
    played = await play(agent, how=how)
    assert seen.order == ORDER
    assert [record["interception_point"] for record in played.records] == ORDER
    assert [record["sequence"] for record in played.records] == list(range(len(ORDER)))
    assert {record["session_id"] for record in played.records} == {played.run_id}


@both_ways
async def test_a_batch_is_judged_before_any_of_it_runs(how: str) -> None:
    """Every pre_tool_call of a response comes before the first effect, and each call has its own pair."""
    seen = Seen()
    started: list[tuple[int, int]] = []

    @tool
    async def count(n: int) -> str:
        started.append((n, seen.order.count("pre_tool_call")))
        return str(n)

    batch = [call("count", n=n) for n in range(4)]
    agent = Agent("clerk", model=Strict([batch, say("done")]), tools=[count], interceptors=[seen])
    played = await play(agent, how=how)
    assert sorted(started) == [(n, 4) for n in range(4)]
    pre = [call_id for point, call_id, _ in seen.points if point == "pre_tool_call"]
    post = [call_id for point, call_id, _ in seen.points if point == "post_tool_call"]
    assert (pre, sorted(map(str, post))) == ([f"call_{n}" for n in range(4)], [f"call_{n}" for n in range(4)])
    assert tools_said(played.messages) == ["0", "1", "2", "3"]


async def test_what_a_context_says_of_its_run() -> None:
    """`extensions.lictor` carries root, parent, path, user and context; nested runs have their own session."""
    found: list[Any] = []

    def look(context: Any) -> Any:
        found.append((context["session"]["id"], context["agent"]["id"], context["extensions"]["lictor"]))
        return ALLOW

    inner = Agent("inner", model=Strict([say("in")], id="inner"))
    outer = Agent(
        "outer",
        model=Strict([call("inner", task="t"), say("out")]),
        tools=[inner],
        interceptors=[policy("input", look)],
    )
    await outer.run("go", user="u1", context={"tenant": 7}, run_id="r")
    (outer_id, outer_name, outer_about), (inner_id, inner_name, inner_about) = found
    assert (outer_id, outer_name, inner_name) == ("r", "outer", "inner")
    assert inner_id != outer_id
    assert (outer_about["root"], outer_about["parent"], outer_about["path"]) == ("r", None, ["outer"])
    assert (inner_about["root"], inner_about["parent"], inner_about["path"]) == ("r", "r", ["outer", "inner"])
    assert outer_about["user"] == {"id": "u1"}
    assert inner_about["context"] == {"tenant": 7}


async def test_a_model_request_says_what_it_is_for() -> None:
    """Every `pre_model_call` of an agent's run, nested ones included, has the purpose `agent` (05-api)."""
    found: list[Any] = []

    def look(context: Any) -> Any:
        found.append((context["agent"]["id"], context["extensions"]["lictor"]["purpose"]))
        return ALLOW

    inner = Agent("inner", model=Strict([say("in")], id="inner"))
    script = Strict([call("inner", task="t"), say("out")])
    await Agent("outer", model=script, tools=[inner], interceptors=[policy("pre_model_call", look)]).run("go")
    assert found == [("outer", "agent"), ("inner", "agent"), ("outer", "agent")]


@both_ways
async def test_policies_are_asked_from_the_outside_in(how: str) -> None:
    """Runtime, agent, per-run, and the approval of a gated tool last; each under its qualified name."""

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    def passing(name: str) -> Any:
        return policy("pre_tool_call", lambda c: ALLOW, name)

    agent = Agent(
        "clerk", model=Strict([call("pay"), say("x")]), tools=[pay], interceptors=[passing("b"), (passing("a"), -1)]
    )
    async with Runtime(interceptors=[passing("top")]) as runtime:
        run = await runtime.start(agent, "go", interceptors={"mine": passing("c")})
        result = await run.result()
        record = next(r for r in result.records if r["interception_point"] == "pre_tool_call")
        assert [slot["name"] for slot in record["verdicts"]] == [
            "lictor/deny-repeats",
            "lictor/loop-breaker",
            "runtime/top",
            "agent:clerk/a",
            "agent:clerk/b",
            "run/mine",
            "lictor/approval",
        ]


async def test_an_object_reached_twice_runs_once_and_per_run_policies_do_not_stick() -> None:
    """The outermost place counts; a policy given to one run is not asked in the next."""
    seen = Seen()
    agent = Agent("clerk", model=Strict([say("ok")]), interceptors=[seen])
    await agent.run("go", interceptors=[seen])
    once = len(seen.points)
    await agent.run("go")
    assert len(seen.points) == 2 * once
    plain = Agent("plain", model=Strict([say("ok")]))
    await plain.run("go", interceptors=[seen])
    before = len(seen.points)
    await plain.run("go")
    assert len(seen.points) == before


async def test_a_run_without_policies_says_so() -> None:
    """The explicit pass `lictor/allow-all` is in every record of a run that has no policy, and in no other."""
    played = await play(Agent("clerk", model=Strict([say("ok")])))
    assert all("lictor/allow-all" in [slot["name"] for slot in record["verdicts"]] for record in played.records)
    governed = await play(Agent("clerk", model=Strict([say("ok")]), interceptors=[Seen()]))
    assert "allow-all" not in str(governed.records)


# ---- transforms ------------------------------------------------------------------------------------


@both_ways
async def test_a_transform_at_input_changes_what_is_stored(how: str) -> None:
    """The model and the transcript get the changed task; the original is nowhere."""
    model = Strict([say("ok")])
    change = policy("input", lambda c: Verdict.transform("$target.content", "clean"))
    played = await play(Agent("clerk", model=model, interceptors=[change]), "dirty-task", how)
    assert asked(model).messages == ({"role": "user", "content": "clean"},)
    assert "dirty-task" not in played.text


@both_ways
async def test_a_transform_at_pre_model_call_changes_that_request_only(how: str) -> None:
    """The changed messages go to the model; transcript and later requests keep their own."""
    model = Strict([call("work", n=1), say("ok")])

    def judge(context: Any) -> Any:
        messages = [dict(message) for message in context["target"]]
        return Verdict.replace([*messages, {"role": "user", "content": "extra"}]) if len(messages) == 1 else ALLOW

    played = await play(
        Agent("clerk", model=model, tools=[work], interceptors=[policy("pre_model_call", judge)]), how=how
    )
    assert asked(model, 0).messages[-1] == {"role": "user", "content": "extra"}
    assert "extra" not in str(asked(model, 1).messages)
    assert "extra" not in str(played.messages)


@both_ways
async def test_a_transform_at_post_model_call_is_the_response(how: str) -> None:
    """Changed text and calls are what is stored and what runs; a dropped call never runs, an added one does."""
    ran: list[int] = []

    @tool
    async def do(n: int) -> str:
        ran.append(n)
        return f"did {n}"

    def judge(context: Any) -> Any:
        target = context["target"]
        if not target["tool_calls"]:
            return ALLOW
        first = target["tool_calls"][0]
        calls = [
            {**first, "args": {"n": 10}},
            {"name": "do", "args": {"n": 20}},
            dict(first),
            {"id": first["id"], "name": "do", "args": {"n": 30}},
        ]
        return Verdict.replace({"content": "changed", "tool_calls": calls, "finish_reason": "tool_calls"})

    model = Strict(
        [say("one", calls=[call("do", n=1), call("do", n=2)]), say("two", calls=[call("do", n=1)]), say("ok")]
    )
    agent = Agent("clerk", model=model, tools=[do], interceptors=[policy("post_model_call", judge)])
    played = await play(agent, how=how)
    assert played.status == "completed"
    assert sorted(ran) == sorted([10, 20, 1, 30] * 2)
    assert played.messages[1]["content"] == "changed"
    ids = [message["tool_call_id"] for message in played.messages if message["role"] == "tool"]
    assert len(set(ids)) == 8
    assert tools_said(played.messages)[:4] == ["did 10", "did 20", "did 1", "did 30"]


@both_ways
async def test_calls_that_a_policy_adds_to_a_text_get_ids_of_their_own(how: str) -> None:
    """Ids stay unique through several responses with added calls."""

    def judge(context: Any) -> Any:
        target = context["target"]
        if target["content"] != "more":
            return ALLOW
        return Verdict.replace({**target, "tool_calls": [{"name": "work", "args": {"n": 9}}]})

    model = Strict([call("work", n=1), say("more"), say("more"), call("work", n=2), say("ok")])
    agent = Agent("clerk", model=model, tools=[work], interceptors=[policy("post_model_call", judge)])
    played = await play(agent, how=how)
    assert tools_said(played.messages) == ["did 1", "did 9", "did 9", "did 2"]


@both_ways
async def test_a_transform_at_pre_tool_call_is_what_runs(how: str) -> None:
    """The tool gets the changed arguments, and the stored call shows them with a note."""
    change = policy("pre_tool_call", lambda c: Verdict.transform("$target.n", 7))
    played = await play(
        Agent("clerk", model=Strict([call("work", n=1), say("ok")]), tools=[work], interceptors=[change]), how=how
    )
    (stored,) = played.messages[1]["tool_calls"]
    assert (played.result_of(), json.loads(stored["function"]["arguments"]), stored["note"]) == (
        "did 7",
        {"n": 7},
        "changed by policy",
    )


@both_ways
async def test_a_transform_that_does_not_fit_the_tool_runs_nothing(how: str) -> None:
    """Arguments that a policy made unfit are an error result; the tool never sees them."""
    change = policy("pre_tool_call", lambda c: Verdict.transform("$target.n", "many"))
    played = await play(
        Agent("clerk", model=Strict([call("work", n=1), say("ok")]), tools=[work], interceptors=[change]),
        how=how,
        sure=False,
    )
    assert json.loads(played.result_of())["error"] == "invalid_arguments"


@both_ways
@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("agent_startup", "agent_shutdown")])
async def test_a_transform_that_cannot_be_applied_fails_the_step(how: str, point: str) -> None:
    """A path that is not there is a host error and nothing goes on with half a change."""
    change = policy(point, lambda c: Verdict.transform("$target.nowhere.at.all", 1))
    agent = Agent("clerk", model=Strict([call("work", n=1), say("ok")]), tools=[work], interceptors=[change])
    played = await play(agent, how=how)
    assert (played.status, played.reason) == ("blocked", "host_error:transform_invalid")


@both_ways
async def test_a_transform_at_output_is_the_answer(how: str) -> None:
    """Caller, transcript and events get the changed answer, also a structured one."""
    change = policy("output", lambda c: Verdict.transform("$target.content", '{"n": 2}'))
    agent = Agent("clerk", model=Strict([say('{"n": 1}')]), interceptors=[change], output_type=dict[str, int])
    played = await play(agent, how=how)
    assert played.status == "completed"
    assert played.messages[-1]["content"] == '{"n": 2}'
    if how == "plain":
        assert played.answer == {"n": 2}
    spoiled = agent.with_(interceptors=[policy("output", lambda c: Verdict.transform("$target.content", "no json"))])
    played = await play(spoiled, how=how)
    assert (played.status, played.reason) == ("failed", "no_answer")


# ---- denies ----------------------------------------------------------------------------------------

CANARY = "CANARY-1"


@both_ways
@pytest.mark.parametrize("point", POINTS)
async def test_a_deny_at_each_point(how: str, point: str) -> None:
    """Outside tools a deny ends the run `blocked` with its reason; at a tool the loop goes on; nothing denied leaks."""

    @tool
    async def read(text: str) -> str:
        return CANARY if point == "post_tool_call" else "fine"

    def judge(context: Any) -> Any:
        leaks = point in ("agent_startup", "agent_shutdown") or CANARY in json.dumps(context["target"])
        return Verdict.deny("not_this", "a reason for people") if leaks else ALLOW

    said = CANARY if point in ("output", "post_model_call") else "fine"
    text = CANARY if point == "pre_tool_call" else "x"
    instructions = CANARY if point == "pre_model_call" else "be nice"
    model = Strict([call("read", text=text), say(said)])
    agent = Agent("clerk", model=model, tools=[read], instructions=instructions, interceptors=[policy(point, judge)])
    played = await play(agent, CANARY if point == "input" else "go", how)
    if point in ("pre_tool_call", "post_tool_call"):
        assert (played.status, played.answer) == ("completed", "fine")
        told = json.loads(played.result_of())
        assert told == {"error": "denied", "reason": "not_this", "message": "a reason for people"}
    elif point == "agent_shutdown":
        assert played.status == "completed"
    else:
        assert (played.status, played.reason, played.by) == ("blocked", "not_this", "agent:clerk/policy")
        assert played.answer is None
    if point != "pre_tool_call":  # the model's own response is stored, its call was what was denied
        assert CANARY not in played.text
    assert len(model.requests) == {"agent_startup": 0, "input": 0, "pre_model_call": 0, "post_model_call": 2}.get(
        point, 2
    )


@both_ways
@pytest.mark.parametrize("history", ["run", "call"])
async def test_what_a_denied_output_leaves_in_the_transcript(how: str, history: str) -> None:
    """Stored after `output` the denied answer is gone; with `history="call"` it stays, as asked for (seed 003)."""
    guard = policy("output", lambda c: Verdict.deny("no"))
    model = Strict([call("work", n=1), say("the answer")])
    played = await play(Agent("clerk", model=model, tools=[work], interceptors=[guard]), how=how, history=history)
    assert played.status == "blocked"
    contents = [message["content"] for message in played.messages]
    assert contents == ["go", None, "did 1", *(["the answer"] if history == "call" else [])]


async def test_a_blocked_run_raises_its_emission() -> None:
    """`InterceptionBlocked` carries the verdict and the record as the seed shows, and the result."""
    agent = Agent(
        "clerk", model=Strict([say("x")]), interceptors=[policy("output", lambda c: Verdict.deny("no", "why"))]
    )
    played = await play(agent)
    assert played.blocked is not None
    emission: Any = played.blocked.result
    assert (emission.verdict.reason, emission.verdict.message) == ("no", "why")
    assert emission.record["interception_point"] == "output"
    assert (emission.target, emission.context) == (None, None)
    assert str(played.blocked) == "blocked: no (why)"


@both_ways
async def test_a_denied_result_is_dropped(how: str) -> None:
    """The error for the model has reason and message; what the tool returned is in no request, record or event."""
    model = Strict([call("work", n=4711), say("ok")])
    guard = policy("post_tool_call", lambda c: Verdict.deny("private"))
    played = await play(Agent("clerk", model=model, tools=[work], interceptors=[guard]), how=how)
    assert json.loads(played.result_of())["reason"] == "private"
    assert "did 4711" not in played.text
    assert "did 4711" not in str(model.requests)
