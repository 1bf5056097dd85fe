"""Field cases of classes e, f and g: accounts add up, records are whole, and odd input breaks nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from driving import Strict, both_ways, decided, park, play, policy, reopened, tools_said

from lictor import ALLOW, Agent, Budget, Mask, Runtime, ScriptedModel, Usage, Verdict, tool
from lictor.errors import NotSerializable, ToolArgumentsInvalid
from lictor.models import Call, ModelResponse, Price, call, fail, say
from lictor.testing.clock import VirtualClock
from lictor.values import digest

TEN = Usage(input_tokens=10, output_tokens=5)


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


# ---- e ---------------------------------------------------------------------------------------------


@both_ways
async def test_E11_a_check_sees_each_new_answer(how: str) -> None:
    """A check that sends the first answer back is asked about the second one, which alone is delivered."""
    saw: list[str] = []

    def judge(context: Any) -> Any:
        saw.append(context["target"]["content"])
        return Verdict.retry("not_good", "say v2") if saw[-1] == "v1" else ALLOW

    model = Strict([say("v1"), say("v2")])
    played = await play(Agent("clerk", model=model, interceptors=[policy("output", judge)]), how=how)
    assert (played.status, played.answer, saw) == ("completed", "v2", ["v1", "v2"])
    assert "v1" not in played.text
    assert model.requests[1].messages[-1]["content"] == "Your answer was not accepted: not_good. say v2"


@both_ways
@pytest.mark.parametrize("nested", [False, True])
async def test_E21_children_started_together_cannot_overdraw(how: str, nested: bool) -> None:
    """Five children that start at once reserve before they ask; those that do not fit are told so."""

    async def slowly(request: Any) -> Any:
        for _ in range(10):
            await asyncio.sleep(0)
        return say("report", usage=Usage(input_tokens=60, output_tokens=40))

    inner = Strict([slowly], id="inner")
    member = Agent("M", model=inner, settings={"max_tokens": 100})
    if nested:
        between = Strict([call("M", task="t"), say("fine", usage=TEN)], id="between")
        member = Agent("between", model=between, tools=[member], settings={"max_tokens": 20})
    leader = Strict([[call(member.name, task="t")] * 5, say("done", usage=TEN)], id="L")
    agent = Agent("L", model=leader, tools=[member], settings={"max_tokens": 20}, budget=Budget(max_total_tokens=500))
    played = await play(agent, how=how)
    told = [json.loads(content) for content in tools_said(played.messages)]
    refused = [item for item in told if item["status"] == "exhausted"]
    assert refused
    assert {item["reason"] for item in refused} == {"budget:max_total_tokens"}
    assert played.usage.total_tokens <= 500
    assert played.usage.total_tokens == sum(
        event.payload["usage"]["total_tokens"] for event in played.events if event.kind == "model_finished"
    )


@both_ways
@pytest.mark.parametrize("priced", [False, True])
async def test_E21_children_started_together_cannot_overspend(how: str, priced: bool) -> None:
    """With 9.90 of 10.00 dollars spent in requests of 0.90, of five dollar children at most one is let in."""

    async def slowly(request: Any) -> Any:
        for _ in range(10):
            await asyncio.sleep(0)
        return say("report", usage=Usage(output_tokens=100, cost_usd=1.0))

    inner = Strict([slowly], id="inner")
    if priced:
        inner.prices = Price(input=0.0, output=10_000.0)  # type: ignore[attr-defined]
    part = Usage(cost_usd=0.9)
    leader = Strict(
        [*[call("look", usage=part)] * 10, [call("M", usage=part, task="t"), *[call("M", task="t")] * 4]], id="L"
    )
    member = Agent("M", model=inner, settings={"max_tokens": 100})
    agent = Agent("L", model=leader, tools=[look, member], budget=Budget(max_cost_usd=10.0), loop_breaker=None)
    played = await play(agent, how=how)
    assert (played.status, played.reason) == ("exhausted", "budget:max_cost_usd")
    assert len(inner.requests) == 0
    assert played.usage.cost_usd == pytest.approx(9.9)
    told = [json.loads(content) for content in tools_said(played.messages) if content != "seen"]
    assert [item["reason"] for item in told] == ["budget:max_cost_usd"] * 5


@both_ways
async def test_E22_recovered_errors_do_not_spoil_a_result(how: str) -> None:
    """A child that retried a model call and recovered from a tool error reports success, once."""

    @tool
    async def flaky() -> str:
        raise ValueError("try something else")

    inner = Strict([fail(503), call("flaky"), say("report")], id="M")
    leader = Strict([call("M", task="t"), say("done")], id="L")
    member = Agent("M", model=inner, tools=[flaky])
    played = await play(Agent("L", model=leader, tools=[member]), how=how, clock=VirtualClock())
    assert json.loads(played.result_of()) == {"status": "completed", "answer": "report"}
    assert (len(leader.requests), played.usage.retries, played.usage.requests) == (2, 1, 5)


@both_ways
async def test_E24_the_limit_of_invalid_calls_is_counted_per_tool(how: str) -> None:
    """A tool called wrongly three times ends the run whatever other tools are called in between."""

    @tool
    async def f(n: int) -> str:
        return "f"

    script = [entry for _ in range(5) for entry in (call("f", n="no number"), call("look"))]
    played = await play(Agent("clerk", model=Strict([*script, say("x")]), tools=[f, look]), how=how)
    assert (played.status, played.reason) == ("failed", "invalid_arguments")
    assert [json.loads(text)["error"] for text in tools_said(played.messages) if text != "seen"] == [
        "invalid_arguments"
    ] * 3


# ---- f ---------------------------------------------------------------------------------------------


def chain(depth: int, gate: Any = None) -> Agent:
    """Agents below each other; each is retried once, gives a cut answer once, and costs 10/5 for every answer."""
    below: Agent | None = None
    for level in range(depth, 0, -1):
        tools = [below] if below else [gate] if gate else []
        deeper = [call(below.name, task="go", usage=TEN)] if below else [call("gate", usage=TEN)] if gate else []
        entries = [fail(500), *deeper, say("cut", finish="length", usage=TEN), say(f"done {level}", usage=TEN)]
        below = Agent(f"level{level}", model=Strict(entries, id=f"m{level}"), tools=tools)
    assert below is not None
    return below


def per_run(events: Any) -> dict[int, int]:
    """Tokens by depth, from the events."""
    sums: dict[int, int] = {}
    for event in events:
        if event.kind in ("model_finished", "model_retry"):
            sums[len(event.path)] = sums.get(len(event.path), 0) + event.payload["usage"]["total_tokens"]
    return sums


@both_ways
async def test_F04_usage_covers_every_request_of_every_agent(how: str) -> None:
    """The total is the sum over all provider requests at every depth, failed and cut ones included."""
    played = await play(chain(4), how=how, clock=VirtualClock())
    answers = 3 + 3 + 3 + 2
    assert played.usage.requests == answers + 4
    assert (played.usage.input_tokens, played.usage.output_tokens) == (10 * answers, 5 * answers)
    assert (played.usage.retries, played.usage.tool_calls) == (4, 3)
    assert per_run(played.events) == {1: 45, 2: 45, 3: 45, 4: 30}


@both_ways
async def test_F04_usage_is_the_same_after_a_pause_and_a_restart(how: str) -> None:
    """A run that was parked at depth four and resumed in another Runtime has the same account."""

    @tool(requires_approval=True)
    async def gate() -> str:
        return "open"

    agent = chain(4, gate)
    async with Runtime(clock=VirtualClock()) as first:
        run, result = await park(first, agent, how=how)
    async with reopened(first, agent) as second:
        request = result.requests[0]
        result = await decided(second, await second.run(run.id), (request.id, "approve", {}), how=how)
    assert result.status == "completed"
    assert (result.usage.total_tokens, result.usage.requests) == (15 * 12, 16)
    assert (result.usage.retries, result.usage.tool_calls) == (4, 4)


@both_ways
@pytest.mark.parametrize("kind", ["raises", "denied result", "too large", "aborts"])
async def test_F10_every_judged_call_keeps_its_identity(how: str, kind: str) -> None:
    """However a call ends, its two records carry session, time and identity, and its closing names the call."""

    @tool
    async def work(n: int) -> Any:
        if kind == "raises":
            raise ValueError("broken")
        return "x" * (6 * 1024 * 1024) if kind == "too large" else "fine"

    denying = policy("post_tool_call", lambda c: Verdict.deny("no") if kind == "denied result" else ALLOW)
    agent = Agent("clerk", model=Strict([call("work", n=7), say("done")]), tools=[work], interceptors=[denying])
    played = await play(agent, how=how)
    pair = [record for record in played.records if record["interception_point"].endswith("tool_call")]
    assert [record["interception_point"] for record in pair] == ["pre_tool_call", "post_tool_call"]
    for record in pair:
        assert (record["session_id"], record["timestamp"][-1]) == (played.run_id, "Z")
        assert str(record["input_identity"]).startswith("sha256:") or kind == "too large"
    started = next(event.payload for event in played.events if event.kind == "tool_started")
    ended = next(event.payload for event in played.events if event.kind == "tool_finished")
    assert (started["call"], started["arguments"], ended["call"]) == ("call_0", {"n": 7}, "call_0")
    assert digest(started["arguments"]) == digest({"n": 7})


class OneWay:
    """Dumps fine and reads back as something else."""

    def __init__(self) -> None:
        self.dumped = 0

    def __iter__(self) -> Any:
        self.dumped += 1
        raise RuntimeError("cannot be read")


@both_ways
async def test_F13_a_result_that_cannot_be_stored_is_found_when_it_is_made(how: str) -> None:
    """The approved call ran; its unreadable result is a tool error, and the run goes on."""
    ran: list[int] = []

    @tool(requires_approval=True)
    async def make() -> Any:
        ran.append(1)
        return {"bad": OneWay()}

    agent = Agent("clerk", model=Strict([call("make"), say("sorry")]), tools=[make])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, how=how)
        result = await decided(runtime, run, (result.requests[0].id, "approve", {}), how=how)
        assert (result.status, ran) == ("completed", [1])
        content = json.loads(tools_said(result.trace.messages)[0])
        assert (content["error"], content["reason"]) == ("tool_failed", "not_serializable")


@both_ways
async def test_F13_a_decision_that_cannot_be_stored_is_refused(how: str) -> None:
    """A value or edited arguments outside JSON are refused when they are given; the request stays open."""

    @tool(requires_approval=True)
    async def make(n: int, note: Any = None) -> str:
        return f"made {n}"

    agent = Agent("clerk", model=Strict([call("make", n=1), say("ok")]), tools=[make])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, how=how)
        request = result.requests[0]
        for verb, options in (("respond", {"value": OneWay()}), ("edit", {"arguments": {"n": 1, "note": OneWay()}})):
            with pytest.raises((NotSerializable, ToolArgumentsInvalid)):
                await runtime.docket.decide(request.id, verb, by="human:ana", **options)
            assert (await runtime.docket.get(request.id)).status == "pending"
        result = await decided(runtime, run, (request.id, "approve", {}), how=how)
        assert tools_said(result.trace.messages) == ["made 1"]


class BadHistory:
    """A history policy that fails."""

    def select(self, messages: Any, budget: Any) -> Any:
        """Fail."""
        raise OSError("no disk")


@both_ways
@pytest.mark.parametrize("place", ["history", "model", "tool", "nested", "shutdown", "startup"])
async def test_F14_whatever_fails_every_start_has_an_end(how: str, place: str) -> None:
    """A fault anywhere ends in one typed outcome; the end of the root comes last (`play` checks all pairs)."""

    def broken(context: Any) -> Any:
        raise RuntimeError("broken")

    async def odd(request: Any) -> Any:
        raise RuntimeError("broken model")

    @tool
    async def work() -> str:
        raise MemoryError("broken tool")

    inner = Agent("inner", model=ScriptedModel([odd], id="inner"))
    entries: list[Any] = [odd] if place == "model" else [[call("work"), call("inner", task="t")], say("done")]
    agent = Agent(
        "clerk",
        model=ScriptedModel(entries),
        tools=[work, inner],
        history=BadHistory() if place == "history" else None,
        interceptors=[policy(f"agent_{place}", broken)] if place in ("startup", "shutdown") else (),
    )
    played = await play(agent, how=how)
    expected = {"history": "failed", "model": "failed", "startup": "blocked"}.get(place, "completed")
    assert played.status == expected
    assert played.events[-1].kind == "run_finished"
    assert len(played.events[-1].path) == 1
    if expected == "failed":
        assert "OSError: no disk" in str(played.error) or "RuntimeError: broken model" in str(played.error)
    starts = [event.run_id for event in played.events if event.kind == "run_started"]
    ends = [event.run_id for event in played.events if event.kind == "run_finished"]
    assert sorted(starts) == sorted(ends)


# ---- g ---------------------------------------------------------------------------------------------

NO_OBJECTS = ["null", "[1]", '"{\\"a\\":1}"', "5", "true", '{"a":1,"a":2}', '{"a":', "{'a':1}", "x" * 100_000]


@both_ways
@pytest.mark.parametrize("raw", NO_OBJECTS)
async def test_G09_arguments_that_are_no_object_are_an_error_result(how: str, raw: str) -> None:
    """The loop goes on with an error the model can act on; nothing is repaired, the echo is short."""
    ran: list[Any] = []

    @tool
    async def f(a: int = 0) -> str:
        ran.append(a)
        return f"a={a}"

    agent = Agent("clerk", model=Strict([call("f", raw), call("f", {"a": 1}), say("done")]), tools=[f])
    played = await play(agent, how=how)
    problem = json.loads(played.result_of(0))
    assert (problem["error"], played.result_of(1), ran) == ("invalid_arguments", "a=1", [1])
    assert len(played.result_of(0)) < 1000


@both_ways
async def test_G09_a_mapping_instead_of_text_is_taken(how: str) -> None:
    """A provider that parses arguments itself gives a mapping, which is taken by the same rules."""

    class Parsed(ScriptedModel):
        async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
            odd: Any = {"a": 7}
            yield (
                ModelResponse(None, (Call("1", "f", odd),), "tool_calls")
                if settings["position"] == 0
                else ModelResponse("done")
            )

    @tool
    async def f(a: int) -> str:
        return f"a={a}"

    played = await play(Agent("clerk", model=Parsed([]), tools=[f]), how=how)
    assert (played.status, played.result_of()) == ("completed", "a=7")


@both_ways
@pytest.mark.parametrize(
    ("first", "ran"),
    [
        (say(None, calls=[call("look")]), True),
        (say(None, finish="tool_calls"), False),
        (say("", calls=[call("look")], finish="tool_calls"), True),
        (say(None), False),
    ],
)
async def test_G12_finish_reasons_are_hints(how: str, first: Any, ran: bool) -> None:
    """Calls with `stop` run, `tool_calls` without calls is an empty answer that is asked again."""
    model = Strict([first, say("done")])
    played = await play(Agent("clerk", model=model, tools=[look]), how=how)
    assert (played.status, played.answer) == ("completed", "done")
    assert tools_said(played.messages) == (["seen"] if ran else [])
    if not ran:
        assert model.requests[1].messages[-1]["role"] == "user"
        assert [message["role"] for message in played.messages] == ["user", "assistant"]


@both_ways
async def test_G15_odd_characters_break_nothing(how: str) -> None:
    """Lone surrogates become U+FFFD, pairs one character; the next turn and its records are fine."""

    @tool
    async def odd(text: str) -> str:
        return f"{text} a\ud83d"

    entries = [
        call("odd", '{"text": "\\ud83c\\udf78"}'),
        call("odd", '{"text": "\\ud83c"}'),
        say("an answer \ud83c with a half"),
        say("next"),
    ]
    model = Strict(entries)
    agent = Agent("clerk", model=model, tools=[odd], interceptors=[Mask("secret")])
    async with Runtime() as runtime:
        _, result = await park(runtime, agent, "\x00 text \ufffe", how=how, conversation="c")
        assert (result.status, result.answer) == ("completed", "an answer \ufffd with a half")
        first, second = tools_said(result.trace.messages)
        assert first == "\U0001f378 a\ufffd"
        assert json.loads(second)["error"] == "invalid_arguments"
        _, again = await park(runtime, agent, "go on", how=how, conversation="c")
        assert again.answer == "next"
        stored = (await runtime.conversation("c")).messages
        json.dumps(list(map(dict, stored)), ensure_ascii=False).encode()
        digest(list(stored))
        for request in model.requests:
            json.dumps(list(map(dict, request.messages)), ensure_ascii=False).encode()


LONG = 2512292042121000001


@both_ways
@pytest.mark.parametrize("spelling", [LONG, str(LONG)])
async def test_G17_long_integers_are_exact_everywhere(how: str, spelling: Any) -> None:
    """An integer beyond 2^53 is the same in the request, the edit, the digest, the history and the tool."""
    asked: list[tuple[int, float]] = []

    @tool(requires_approval=True)
    async def q(id: int, y: float, z: int, note: str = "") -> str:
        asked.append((id, y))
        return f"found {id}"

    model = Strict([call("q", f'{{"id":{LONG},"y":0.1,"z":-0}}'), say("ok")])
    agent = Agent("clerk", model=model, tools=[q])
    async with Runtime() as first:
        run, result = await park(first, agent, how=how)
        (request,) = result.requests
        assert request.arguments == {"id": str(LONG), "y": 0.1, "z": 0}
    edited = {**request.arguments, "id": spelling, "note": "x"}
    async with reopened(first, agent) as second:
        result = await decided(second, await second.run(run.id), (request.id, "edit", {"arguments": edited}), how=how)
        assert (result.status, asked) == ("completed", [(LONG, 0.1)])
        (stored,) = result.trace.messages[1]["tool_calls"]
        assert json.loads(stored["function"]["arguments"]) == {"id": str(LONG), "y": 0.1, "z": 0, "note": "x"}
        assert tools_said(result.trace.messages) == [f"found {LONG}"]


@both_ways
async def test_G17_a_number_beyond_a_double_is_refused(how: str) -> None:
    """`1e400` is no argument; the model is told so."""

    @tool
    async def q(x: float) -> str:
        return "ran"

    agent = Agent("clerk", model=Strict([call("q", '{"x":1e400}'), say("ok")]), tools=[q])
    played = await play(agent, how=how)
    assert "too large" in json.loads(played.result_of())["message"]


async def test_nothing_is_left_running() -> None:
    """After all these no task of a run is alive."""
    await play(Agent("clerk", model=Strict([call("look"), say("done")]), tools=[look]))
    assert len(asyncio.all_tasks()) == 1
