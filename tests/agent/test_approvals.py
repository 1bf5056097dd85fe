"""Approvals by docket: batches with mixed decisions, decisions consumed once, everything dropped in between."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from driving import Seen, Strict, crash_at, decided, park, policy, reopened, settled, tools_said

from lictor import ALLOW, Agent, Governance, Runtime, Verdict, tool
from lictor.errors import SimulatedCrash
from lictor.models import call, fail, say
from lictor.testing.clock import VirtualClock

dropped = pytest.mark.parametrize("drop", [False, True], ids=["same", "dropped"])
"""Each test that has this decides once in the Runtime that parked and once in a new one over its store."""


class Desk:
    """A gated tool `pay`, a free tool `note`, and what they did."""

    def __init__(self, **options: Any) -> None:
        self.done: list[str] = []

        @tool(requires_approval=True, **options)
        async def pay(to: str, amount: int = 1) -> str:
            self.done.append(f"pay {to} {amount}")
            return f"paid {to} {amount}"

        @tool
        async def note(text: str) -> str:
            self.done.append(f"note {text}")
            return f"noted {text}"

        self.tools = [pay, note]


@asynccontextmanager
async def after_park(first: Runtime, agent: Agent, drop: bool, **options: Any) -> AsyncIterator[Runtime]:
    """The Runtime in which the decision is made: the same one, or a new one with nothing but the store."""
    if not drop:
        yield first
        return
    await first.__aexit__(None, None, None)
    async with reopened(first, agent, **options) as second:
        yield second


DECISIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "approve": ("approve", {}),
    "reject": ("reject", {"feedback": "too much"}),
    "edit": ("edit", {"arguments": {"to": "edited", "amount": 9}}),
    "respond": ("respond", {"text": "paid by hand"}),
    "expire": ("", {}),
}


def expected(kind: str, to: str) -> str:
    """What the model is told of a call after a decision."""
    return {
        "approve": f"paid {to} 1",
        "edit": "paid edited 9",
        "respond": "paid by hand",
        "reject": json.dumps(
            {"error": "denied", "reason": "rejected", "message": "too much", "decided_by": "human:ana"},
            separators=(",", ":"),
        ),
        "expire": json.dumps(
            {
                "error": "denied",
                "reason": "approval_expired",
                "message": "nobody decided in time",
                "decided_by": "timer:deadline",
            },
            separators=(",", ":"),
        ),
    }[kind]


@dropped
@pytest.mark.parametrize("kinds", list(itertools.permutations(DECISIONS, 2)), ids="-".join)
async def test_a_batch_with_mixed_decisions(drop: bool, kinds: tuple[str, str]) -> None:
    """Free calls run at once, gated ones when all are decided, and each result is that of its decision."""
    clock = VirtualClock()
    desk = Desk(deadline=60)
    batch = [call("pay", to="a"), call("note", text="x"), call("pay", to="b"), call("note", text="y")]
    model = Strict([batch, say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools)
    first = await Runtime(clock=clock).__aenter__()
    run, result = await park(first, agent)
    assert (result.status, desk.done) == ("suspended", ["note x", "note y"])
    requests = {request.arguments["to"]: request for request in result.requests}
    async with after_park(first, agent, drop) as runtime:
        run = await runtime.run(run.id)
        for to, kind in sorted(zip("ab", kinds, strict=True), key=lambda item: item[1] == "expire"):
            assert len(desk.done) == 2, "a gated call ran before every gated call was decided"
            verb, options = DECISIONS[kind]
            if kind == "expire":
                await clock.advance(61)
                result = await settled(runtime, run)
            else:
                result = await decided(runtime, run, (requests[to].id, verb, options))
        assert (result.status, result.answer) == ("completed", "ok")
        told = tools_said(result.trace.messages)
        assert told == [expected(kinds[0], "a"), "noted x", expected(kinds[1], "b"), "noted y"]
        ran = {"approve": [f"pay {to} 1" for to in "ab"], "edit": ["pay edited 9"] * 2}
        wanted = [ran[kind][number] for number, kind in enumerate(kinds) if kind in ran]
        assert sorted(desk.done[2:]) == sorted(wanted)
        assert len(model.requests) == 2
    if not drop:
        await first.__aexit__(None, None, None)


@dropped
async def test_an_effect_is_not_repeated_when_the_next_model_call_fails(drop: bool) -> None:
    """The model fails after the approved effect: the next attempt goes on behind it, and nothing is asked again."""
    clock = VirtualClock()
    desk = Desk()
    model = Strict([call("pay", to="a"), *[fail(503)] * 3, say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools)
    first = await Runtime(clock=clock).__aenter__()
    run, result = await park(first, agent)
    result = await decided(first, run, (result.requests[0].id, "approve", {}))
    assert (result.status, result.reason, result.resumable) == ("failed", "model_error:server_error", True)
    assert tools_said(result.trace.messages) == ["paid a 1"]
    async with after_park(first, agent, drop) as runtime:
        run = await runtime.resume(run.id)
        result = await settled(runtime, run)
        assert (result.status, result.answer, desk.done) == ("completed", "ok", ["pay a 1"])
        assert len(await runtime.docket.requests(run=run.id)) == 1
        assert (await runtime.trace(run.id)).status == "completed"
    if not drop:
        await first.__aexit__(None, None, None)


async def test_a_decision_is_consumed_once() -> None:
    """An approval covers one execution: a second call with the same arguments is asked about again."""
    desk = Desk()
    model = Strict([call("pay", to="a"), call("pay", to="a"), say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools)
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        first = result.requests[0]
        result = await decided(runtime, run, (first.id, "approve", {}))
        (second,) = result.requests
        assert (second.id != first.id, desk.done) == (True, ["pay a 1"])
        consumed = await runtime.docket.get(first.id)
        assert consumed.consumed_at is not None
        assert not runtime.docket.consume(first.id, first.digest)
        result = await decided(runtime, run, (second.id, "approve", {}))
        assert (result.status, desk.done) == ("completed", ["pay a 1", "pay a 1"])


class Drifting:
    """A policy that changes the amount to another value each time it judges, up to a number of times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.amount = 100

    def intercept(self, context: Any) -> Any:
        """Change the amount of a payment."""
        if context["interception_point"] != "pre_tool_call":
            return ALLOW
        if self.left:
            self.left -= 1
            self.amount += 1
        return Verdict.transform("$target.amount", self.amount)


@pytest.mark.parametrize("times", [1, 2, 3, 10])
async def test_arguments_that_change_after_an_approval_need_another_one(times: int) -> None:
    """A decision binds to what was shown; other arguments open a new request, at most three, then a deny."""
    desk = Desk()
    drift = Drifting(times)
    model = Strict([call("pay", to="a", amount=1), say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools, interceptors=[drift])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        shown = []
        while result.requests:
            (request,) = result.requests
            shown.append(request.arguments["amount"])
            assert desk.done == []
            result = await decided(runtime, run, (request.id, "approve", {}))
        assert shown == [101, 102, 103][: min(times, 3)]
        if times <= 3:
            assert desk.done == [f"pay a {100 + times}"]
        else:
            assert (result.status, desk.done) == ("completed", [])
            told = json.loads(tools_said(result.trace.messages)[0])
            assert (told["error"], told["reason"]) == ("denied", "approval_unstable")


@dropped
async def test_feedback_of_a_denial_reaches_the_model(drop: bool) -> None:
    """The model is told who rejected and why, in the result of the call."""
    desk = Desk()
    model = Strict([call("pay", to="a"), say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools)
    first = await Runtime().__aenter__()
    run, result = await park(first, agent)
    async with after_park(first, agent, drop) as runtime:
        request = result.requests[0]
        result = await decided(
            runtime, await runtime.run(run.id), (request.id, "reject", {"feedback": "ask Bob", "by": "human:eve"})
        )
        told = json.loads(model.requests[-1].messages[-1]["content"])
        assert told == {"error": "denied", "reason": "rejected", "message": "ask Bob", "decided_by": "human:eve"}
    if not drop:
        await first.__aexit__(None, None, None)


@pytest.mark.parametrize("verb", ["approve", "edit"])
async def test_feedback_of_an_approval_reaches_the_model(verb: str) -> None:
    """What an approver says comes after the results of the batch and stays in the history."""
    desk = Desk()
    model = Strict([[call("pay", to="a"), call("note", text="x")], call("note", text="y"), say("ok")])
    agent = Agent("clerk", model=model, tools=desk.tools)
    options: dict[str, Any] = {"feedback": "never above 50"}
    if verb == "edit":
        options["arguments"] = {"to": "a", "amount": 50}
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        result = await decided(runtime, run, (result.requests[0].id, verb, options))
        said = {"role": "user", "content": "human:ana about pay: never above 50"}
        assert [message["role"] for message in model.requests[1].messages][-3:] == ["tool", "tool", "user"]
        assert model.requests[1].messages[-1] == said
        assert list(result.trace.messages).count(said) == 1
        assert result.status == "completed"


async def test_an_edit_passes_the_gate_again_and_shows_what_ran() -> None:
    """Edited arguments are judged like any others, and the stored call shows them with a note."""
    desk = Desk()
    seen = Seen()
    limit = policy("pre_tool_call", lambda c: Verdict.deny("limit") if c["target"].get("amount", 1) > 50 else ALLOW)
    agent = Agent(
        "clerk",
        model=Strict([call("pay", to="a"), call("pay", to="b"), say("ok")]),
        tools=desk.tools,
        interceptors=[limit, seen],
    )
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        request = result.requests[0]
        result = await decided(runtime, run, (request.id, "edit", {"arguments": {"to": "a", "amount": 99}}))
        assert json.loads(tools_said(result.trace.messages)[0])["reason"] == "limit"
        (second,) = result.requests
        result = await decided(runtime, run, (second.id, "edit", {"arguments": {"to": "b", "amount": 50}}))
        assert (result.status, desk.done) == ("completed", ["pay b 50"])
        stored = result.trace.messages[3]["tool_calls"][0]
        assert json.loads(stored["function"]["arguments"]) == {"to": "b", "amount": 50}
        assert stored["note"] == "edited by human:ana"
        resolution: Any = (await runtime.docket.get(second.id)).resolution
        assert resolution.arguments == {"to": "b", "amount": 50}


async def test_an_edit_that_a_policy_changes_needs_another_approval() -> None:
    """An edit approves the edited arguments only; when a policy changes them they are shown again."""
    desk = Desk()
    cap = policy(
        "pre_tool_call",
        lambda c: Verdict.transform("$target.amount", 50) if c["target"].get("amount", 1) > 50 else ALLOW,
    )
    agent = Agent("clerk", model=Strict([call("pay", to="a"), say("ok")]), tools=desk.tools, interceptors=[cap])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        result = await decided(runtime, run, (result.requests[0].id, "edit", {"arguments": {"to": "a", "amount": 99}}))
        (second,) = result.requests
        assert (second.arguments, desk.done) == ({"to": "a", "amount": 50}, [])
        result = await decided(runtime, run, (second.id, "approve", {}))
        assert (result.status, desk.done) == ("completed", ["pay a 50"])


def levels(depth: int, desk: Desk) -> tuple[Agent, list[Strict]]:
    """A chain of agents with the gated tool at its end, and their models from the outermost inwards."""
    below: Agent | None = None
    models = []
    for level in range(depth, 0, -1):
        step = call(below.name, task="go") if below else call("pay", to="deep")
        model = Strict([step, say(f"done {level}")], id=f"m{level}")
        models.append(model)
        below = Agent(f"level{level}", model=model, tools=[below] if below else desk.tools)
    assert below is not None
    return below, models[::-1]


@dropped
@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_pause_in_a_nested_agent(drop: bool, depth: int, verb: str) -> None:
    """A request from any depth surfaces at the root with its path, and nobody is prompted or asked again."""
    desk = Desk()
    agent, models = levels(depth, desk)
    first = await Runtime().__aenter__()
    run, result = await park(first, agent)
    (request,) = result.requests
    assert [step.name for step in request.path] == [f"level{n + 1}" for n in range(depth)]
    assert (request.root_run, request.requester) == (run.id, f"level{depth}")
    async with after_park(first, agent, drop) as runtime:
        result = await decided(runtime, await runtime.run(run.id), (request.id, verb, {}))
        assert (result.status, result.answer) == ("completed", "done 1")
        assert desk.done == (["pay deep 1"] if verb == "approve" else [])
        assert [len(model.requests) for model in models] == [2] * depth
        assert len(await runtime.docket.requests(run=run.id)) == 1
    if not drop:
        await first.__aexit__(None, None, None)


@dropped
@pytest.mark.parametrize("depth", [2, 3])
async def test_a_parked_nested_run_ends_with_its_root(drop: bool, depth: int) -> None:
    """Cancelling the root of a run that waits deep inside ends every run and request below it."""
    desk = Desk()
    agent, _ = levels(depth, desk)
    first = await Runtime().__aenter__()
    run, _ = await park(first, agent)
    async with after_park(first, agent, drop) as runtime:
        await runtime.commands.cancel(run.id, by="human:ana")
        result = await settled(runtime, await runtime.run(run.id))
        assert (result.status, desk.done) == ("cancelled", [])
        assert [request.status for request in await runtime.docket.requests(run=run.id)] == ["cancelled"]
    if not drop:
        await first.__aexit__(None, None, None)


@pytest.mark.parametrize("graceful", [True, False])
async def test_a_sibling_that_ends_the_run_ends_a_parked_nested_agent_too(graceful: bool) -> None:
    """A nested agent waits while a sibling call stops the run (or uses up its budget): both end, nothing hangs."""
    desk = Desk()
    inner = Agent("inner", model=Strict([call("pay", to="x"), say("never")], id="inner"), tools=desk.tools)
    judge = policy("post_tool_call", lambda c: Verdict.stop("enough") if c["tool_call"]["name"] == "note" else ALLOW)
    batch = [call("inner", task="t"), call("note", text="x"), call("note", text="y")]
    agent = Agent(
        "outer",
        model=Strict([batch, say("x")]),
        tools=[inner, *desk.tools],
        interceptors=[] if graceful else [judge],
    )
    limits: dict[str, Any] = {"max_tool_calls": 2} if graceful else {}
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, **limits)
        assert result.status == ("exhausted" if graceful else "stopped")
        assert [request.status for request in await runtime.docket.requests(run=run.id)] == ["cancelled"]
        assert len(tools_said(result.trace.messages)) == 3


@dropped
async def test_after_a_crash_behind_the_effect_a_person_is_asked(drop: bool) -> None:
    """Intent without result: `once` is never repeated silently, whatever was approved before."""
    desk = Desk()
    agent = Agent("clerk", model=Strict([call("pay", to="a"), say("ok")]), tools=desk.tools)
    first = await Runtime().__aenter__()
    run, result = await park(first, agent)
    with crash_at("effect.after"), pytest.raises(SimulatedCrash):
        await decided(first, run, (result.requests[0].id, "approve", {}))
    await first.__aexit__(None, None, None)
    async with reopened(first, agent, governance=Governance() if drop else None) as second:
        run = await second.run(run.id)
        result = await settled(second, run)
        (request,) = result.requests
        assert (request.kind, request.verbs) == ("unknown_effect", ("retry", "skip", "respond"))
        assert (request.tool, request.arguments, desk.done) == ("pay", {"to": "a"}, ["pay a 1"])
        result = await decided(second, run, (request.id, "skip", {"feedback": "it went through"}))
        assert (result.status, desk.done) == ("completed", ["pay a 1"])
        told = json.loads(tools_said(result.trace.messages)[0])
        assert told == {"error": "unknown", "reason": "skipped", "message": "it went through"}
