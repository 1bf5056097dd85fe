"""Requests that approve no call: liftable denies at other points, lost effects, outside values, changed policies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from driving import Seen, Strict, crash_at, decided, park, policy, reopened, settled, tools_said

from lictor import ALLOW, Agent, Governance, Runtime, Verdict, tool
from lictor.agent import HELD
from lictor.errors import NotResumable, PolicyChanged, SimulatedCrash
from lictor.models import call, fail, say
from lictor.testing.clock import VirtualClock

POINTS = ["agent_startup", "input", "pre_model_call", "post_model_call", "post_tool_call", "output"]


class Scene:
    """An agent with a free tool, and a policy that escalates once at one point."""

    def __init__(self, point: str) -> None:
        self.ran: list[str] = []
        self.seen = Seen()

        @tool
        async def work() -> str:
            self.ran.append("work")
            return "result"

        def judge(context: Any) -> Any:
            if point == "pre_model_call" and len(context["target"]) > 1:
                return ALLOW
            if point == "post_model_call" and not context["target"]["tool_calls"]:
                return ALLOW
            return Verdict.escalate("check", "somebody has to look")

        self.model = Strict([call("work"), say("answer")])
        self.agent = Agent("clerk", model=self.model, tools=[work], interceptors=[self.seen, policy(point, judge)])


@pytest.mark.parametrize("drop", [False, True], ids=["same", "dropped"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_liftable_deny_at_any_point_waits_and_goes_on(point: str, drop: bool) -> None:
    """It parks as kind `step`; after the approval neither the model call nor the tool before it is repeated."""
    scene = Scene(point)
    first = await Runtime().__aenter__()
    run, result = await park(first, scene.agent)
    (request,) = result.requests
    assert (request.kind, request.verbs, request.shown.point) == ("step", ("approve", "reject"), point)
    assert [reason.reason for reason in request.reasons] == ["check"]
    assert "agent_shutdown" not in scene.seen.order
    if drop:
        await first.__aexit__(None, None, None)
    runtime = await Runtime(first.store, definitions={"clerk": scene.agent}).__aenter__() if drop else first
    result = await decided(runtime, await runtime.run(run.id), (request.id, "approve", {}))
    assert (result.status, result.answer, scene.ran) == ("completed", "answer", ["work"])
    assert len(scene.model.requests) == 2
    assert scene.seen.order.count(point) == {"pre_model_call": 3, "post_model_call": 3}.get(point, 2)
    assert scene.seen.order.count("agent_shutdown") == 1
    assert first.store.table(HELD).values() == []
    await runtime.__aexit__(None, None, None)


@pytest.mark.parametrize("point", POINTS)
async def test_a_rejected_step_denies(point: str) -> None:
    """A rejection is the deny itself: the run is blocked, at a tool's result only the result is lost."""
    scene = Scene(point)
    async with Runtime() as runtime:
        run, result = await park(runtime, scene.agent)
        result = await decided(runtime, run, (result.requests[0].id, "reject", {"feedback": "no"}))
        if point == "post_tool_call":
            assert result.status == "completed"
            told = json.loads(tools_said(result.trace.messages)[0])
            assert (told["error"], told["reason"], told["message"]) == ("denied", "rejected", "no")
        else:
            assert (result.status, result.reason, result.answer) == ("blocked", "rejected", None)
        assert ("result" in str(result.trace.messages)) is (point == "output")
        assert ("answer" in str(result.trace.messages)) is (point == "post_tool_call")
        assert runtime.store.table(HELD).values() == []


@pytest.mark.parametrize("point", POINTS)
async def test_a_step_that_waits_is_cancelled_cleanly(point: str) -> None:
    """Cancelling while a step waits ends the run, its request, and what was kept for the decision."""
    scene = Scene(point)
    async with Runtime() as runtime:
        run, _ = await park(runtime, scene.agent)
        await runtime.commands.cancel(run.id, by="human:ana")
        result = await settled(runtime, run)
        assert result.status == "cancelled"
        assert runtime.store.table(HELD).values() == []
        assert ("result" in str(result.trace.messages)) is (point == "output")


@pytest.mark.parametrize("verb", ["retry", "skip", "respond"])
@pytest.mark.parametrize("point", ["effect.before", "effect.after"])
async def test_a_lost_effect_is_asked_about(point: str, verb: str) -> None:
    """After a crash around a `once` call a person says whether to run it again, to skip it, or what it gave."""
    ran: list[int] = []

    @tool
    async def send(n: int) -> str:
        ran.append(n)
        return f"sent {n}"

    model = Strict([[call("send", n=1), call("send", n=2)], say("ok")])
    agent = Agent("clerk", model=model, tools=[send], max_parallel_tools=1)
    with crash_at(point, after=1):
        async with Runtime() as first:
            run = await first.start(agent, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    before = list(ran)
    async with reopened(first, agent) as second:
        run = await second.run(run.id)
        result = await settled(second, run)
        (request,) = result.requests
        assert (request.kind, request.arguments) == ("unknown_effect", {"n": 2})
        options = {"text": "given"} if verb == "respond" else {}
        result = await decided(second, run, (request.id, verb, options))
        assert result.status == "completed"
        assert ran == before + ([2] if verb == "retry" else [])
        one, two = tools_said(result.trace.messages)
        assert one == "sent 1"
        assert (two if verb != "skip" else json.loads(two)["error"]) == {
            "retry": "sent 2",
            "skip": "unknown",
            "respond": "given",
        }[verb]
        assert len(model.requests) == 2


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_an_interrupted_call_that_may_repeat_is_started_again(effect: Any) -> None:
    """`pure` and `idempotent` calls run again without asking, with the same key and a higher attempt."""
    from lictor import ToolContext

    tries: list[tuple[int, str]] = []

    @tool(effect=effect, blocking=False)
    async def fetch(context: ToolContext) -> str:
        tries.append((context.attempt, context.idempotency_key))
        return "data"

    agent = Agent("clerk", model=Strict([call("fetch"), say("ok")]), tools=[fetch])
    with crash_at("effect.after"):
        async with Runtime() as first:
            run = await first.start(agent, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    async with reopened(first, agent) as second:
        result = await settled(second, await second.run(run.id))
        assert (result.status, await second.docket.requests(run=run.id)) == ("completed", [])
    assert [attempt for attempt, _ in tries] == [1, 2]
    assert len({key for _, key in tries}) == 1


async def test_a_crash_in_one_nested_agent_leaves_its_siblings_to_be_resumed() -> None:
    """A process that dies takes every run of the tree with it: none of them records an end of its own."""
    going = asyncio.Event()
    allowed = asyncio.Event()

    @tool(effect="idempotent")
    async def wait() -> str:
        going.set()
        await allowed.wait()
        return "waited"

    @tool(effect="pure")
    async def die() -> str:
        await going.wait()
        return "died"

    left = Agent("left", model=Strict([call("wait"), say("left done")], id="left"), tools=[wait])
    right = Agent("right", model=Strict([call("die"), say("right done")], id="right"), tools=[die])
    outer = Agent(
        "outer", model=Strict([[call("left", task="t"), call("right", task="t")], say("ok")]), tools=[left, right]
    )
    with crash_at("effect.after"):
        async with Runtime() as first:
            run = await first.start(outer, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    allowed.set()
    async with reopened(first, outer) as second:
        result = await settled(second, await second.run(run.id))
        answers = [json.loads(content) for content in tools_said(result.trace.messages)]
        assert [answer["status"] for answer in answers] == ["completed", "completed"]


async def test_leaving_a_runtime_amid_a_nested_run_leaves_it_resumable() -> None:
    """A Runtime that is closed while a nested tool runs drops the whole tree; the next one goes on with it."""
    going, allowed = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent")
    async def wait() -> str:
        going.set()
        await allowed.wait()
        return "waited"

    inner = Agent("inner", model=Strict([call("wait"), say("inner done")], id="inner"), tools=[wait])
    outer = Agent("outer", model=Strict([call("inner", task="t"), say("ok")]), tools=[inner])
    async with Runtime(grace=0) as first:
        run = await first.start(outer, "go")
        await going.wait()
    allowed.set()
    async with reopened(first, outer) as second:
        result = await settled(second, await second.run(run.id))
        assert (result.status, result.answer) == ("completed", "ok")
        assert json.loads(tools_said(result.trace.messages)[0]) == {"status": "completed", "answer": "inner done"}


@pytest.mark.parametrize("drop", [False, True], ids=["same", "dropped"])
@pytest.mark.parametrize("verb", ["respond", "reject"])
async def test_an_external_tool_gets_its_value_from_outside(verb: str, drop: bool) -> None:
    """It parks; the value passes `post_tool_call` like any result and the run goes on."""

    @tool(external=True, responders=["human:ana"])
    def survey(question: str) -> Any:
        """Ask the customer."""

    mask = policy("post_tool_call", lambda c: Verdict.replace("masked") if c["target"] == "card-4111" else ALLOW)
    agent = Agent("clerk", model=Strict([call("survey", question="?"), say("ok")]), tools=[survey], interceptors=[mask])
    first = await Runtime().__aenter__()
    run, result = await park(first, agent)
    (request,) = result.requests
    assert (request.kind, request.tool, request.arguments) == ("external_call", "survey", {"question": "?"})
    runtime = first
    if drop:
        await first.__aexit__(None, None, None)
        runtime = await Runtime(first.store, definitions={"clerk": agent}).__aenter__()
    options = {"value": "card-4111"} if verb == "respond" else {"feedback": "no answer"}
    result = await decided(runtime, await runtime.run(run.id), (request.id, verb, options))
    (content,) = tools_said(result.trace.messages)
    assert result.status == "completed"
    assert (content if verb == "respond" else json.loads(content)["message"]) == {
        "respond": "masked",
        "reject": "no answer",
    }[verb]
    await runtime.__aexit__(None, None, None)


async def test_a_responded_call_passes_the_policies_on_results() -> None:
    """A person's result for a gated call is judged at `post_tool_call`, and only what passes is stored or shown."""

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    mask = policy("post_tool_call", lambda c: Verdict.replace("masked") if c["target"] == "card-4111" else ALLOW)
    agent = Agent("clerk", model=Strict([call("pay"), say("ok")]), tools=[pay], interceptors=[mask])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        result = await decided(runtime, run, (result.requests[0].id, "respond", {"text": "card-4111"}))
        assert tools_said(result.trace.messages) == ["masked"]
        assert "card-4111" not in str(result.trace.steps)


@pytest.mark.parametrize("deadline", [None, 10.0])
async def test_a_lost_effect_has_no_deadline(deadline: float | None) -> None:
    """Nothing but a person decides about a lost effect, whatever deadline the run's approvals have."""

    @tool
    async def send() -> str:
        return "sent"

    clock = VirtualClock()
    agent = Agent("clerk", model=Strict([call("send"), say("ok")]), tools=[send])
    with crash_at("effect.after"):
        async with Runtime(clock=clock) as first:
            run = await first.start(agent, "go", approval_deadline=deadline)
            with pytest.raises(SimulatedCrash):
                await run.result()
    async with reopened(first, agent) as second:
        result = await settled(second, await second.run(run.id))
        await clock.advance(1000)
        assert result.requests[0].deadline is None
        assert (await second.docket.get(result.requests[0].id)).status == "pending"


def gated(*policies: Any) -> tuple[Agent, list[str]]:
    """An agent with a gated tool under these policies, and what it did."""
    ran: list[str] = []

    @tool(requires_approval=True)
    async def pay() -> str:
        ran.append("paid")
        return "paid"

    return Agent("clerk", model=Strict([call("pay"), say("ok")]), tools=[pay], interceptors=policies), ran


async def test_a_changed_policy_is_refused_on_resume_until_it_is_accepted() -> None:
    """A run does not go on under another policy by itself; once accepted, its open request is asked again."""
    old, _ = gated()
    async with Runtime() as first:
        run, result = await park(first, old)
        (before,) = result.requests
    new, ran = gated(policy("output", lambda c: ALLOW, "added"))
    async with reopened(first, new) as second:
        run = await second.run(run.id)
        with pytest.raises(PolicyChanged) as refused:
            await second.resume(run.id)
        assert len(refused.value.changes) > 0
        await second.resume(run.id, accept_policy_change=True)
        result = await settled(second, run)
        (request,) = result.requests
        assert (request.id != before.id, request.digest != before.digest) == (True, True)
        assert (await second.docket.get(before.id)).status == "superseded"
        result = await decided(second, run, (request.id, "approve", {}))
        assert (result.status, ran) == ("completed", ["paid"])
        (changed,) = [payload for kind, payload in result.trace.steps if kind == "policy_changed"]
        assert changed["from"] != changed["to"]


async def test_a_decision_does_not_carry_a_run_over_a_changed_policy() -> None:
    """A decision made while the policy differs leaves the run parked, and the effect undone."""
    old, _ = gated()
    async with Runtime() as first:
        run, result = await park(first, old)
    new, ran = gated(policy("output", lambda c: ALLOW, "added"))
    async with reopened(first, new) as second:
        run = await second.run(run.id)
        result = await decided(second, run, (result.requests[0].id, "approve", {}))
        assert (result.status, run.status, ran) == ("suspended", "waiting", [])
        await second.resume(run.id, accept_policy_change=True)
        result = await settled(second, run)
        (request,) = result.requests
        result = await decided(second, run, (request.id, "approve", {}))
        assert (result.status, ran) == ("completed", ["paid"])


async def test_a_run_under_a_changed_policy_can_be_cancelled() -> None:
    """Ending needs no accepted policy."""
    old, _ = gated()
    async with Runtime() as first:
        run, _ = await park(first, old)
    new, ran = gated(policy("output", lambda c: ALLOW, "added"))
    async with reopened(first, new) as second:
        await second.commands.cancel(run.id, by="human:ana")
        result = await settled(second, await second.run(run.id))
        assert (result.status, ran) == ("cancelled", [])


async def test_interceptors_of_a_run_have_to_be_given_again() -> None:
    """Per-run policies are never stored: without them the policy differs, with them the run goes on."""
    agent, ran = gated()
    extra = policy("output", lambda c: ALLOW, "extra")
    async with Runtime() as first:
        run, result = await park(first, agent, interceptors=[extra])
    async with reopened(first, agent) as second:
        run = await second.run(run.id)
        with pytest.raises(PolicyChanged):
            await second.resume(run.id)
        await second.resume(run.id, interceptors=[extra])
        result = await decided(second, run, (result.requests[0].id, "approve", {}))
        assert (result.status, ran) == ("completed", ["paid"])


async def test_the_next_attempt_goes_on_in_its_conversation() -> None:
    """A failed run that is resumed takes its conversation again, unless another run went on with it."""
    clock = VirtualClock()
    agent = Agent("clerk", model=Strict([*[fail(503)] * 3, say("one"), say("two")]))
    async with Runtime(clock=clock) as runtime:
        run, result = await park(runtime, agent, "first", conversation="c")
        assert (result.status, result.resumable) == ("failed", True)
        await runtime.resume(run.id)
        assert (await settled(runtime, run)).answer == "one"
        stored = [message["content"] for message in (await runtime.conversation("c")).messages]
        assert stored == ["first", "one"]
    agent = Agent("clerk", model=Strict([*[fail(503)] * 3, say("one"), say("two")]))
    async with Runtime(clock=clock) as runtime:
        run, result = await park(runtime, agent, "first", conversation="c")
        _, result = await park(runtime, agent, "second", conversation="c")
        assert result.answer == "one"
        with pytest.raises(NotResumable, match="conversation"):
            await runtime.resume(run.id)


async def test_what_no_one_can_approve_says_so() -> None:
    """Without Runtime and resolver a liftable deny stands with its own reason; the result adds `no_approver`."""
    from lictor import InterceptionBlocked

    agent = Agent(
        "clerk", model=Strict([say("x")]), interceptors=[policy("input", lambda c: Verdict.escalate("check"))]
    )
    with pytest.raises(InterceptionBlocked) as blocked:
        await agent.run("go")
    result: Any = blocked.value.run
    assert (result.status, result.reason) == ("blocked", "check")
    assert "no_approver" in result.error


@pytest.mark.parametrize("answer", ["approve", "reject"])
async def test_a_resolver_decides_in_place(answer: str) -> None:
    """A resolver given to the run takes the place of the docket; nothing parks."""
    agent, ran = gated()

    def resolve(request: Any) -> Any:
        verdict = ALLOW if answer == "approve" else Verdict.deny("not_now")
        return {"outcome": answer, "context_identity": request.context_identity, "verdict": verdict}

    result = await agent.run("go", resolver=resolve)
    assert (result.status, ran) == ("completed", ["paid"] if answer == "approve" else [])
    governed = agent.with_(governance=Governance(resolver=resolve))
    async with Runtime() as runtime:
        _, result = await park(runtime, governed)
        assert result.status == "completed"
