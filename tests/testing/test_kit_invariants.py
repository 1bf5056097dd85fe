"""The invariants hold for real runs of every kind, and each of them can fail."""

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lictor import ALLOW, Agent, Governance, Mask, Runtime, Verdict, interceptor, tool
from lictor.docket import REQUESTS
from lictor.errors import DefinitionError, InvariantBroken, LictorError, RunAborted
from lictor.runs import Usage
from lictor.testing import ScriptedModel, VirtualClock, call, crash_at, fail, invariants, say
from lictor.testing.invariants import ending_problems, problems_in, usage_problems
from lictor.testing.runlog import RunLog


@tool(effect="pure")
async def look(order_id: int) -> str:
    """Look."""
    return f"order {order_id}, paid with 4111 1111 1111 1111"


@tool(requires_approval=True)
async def pay(order_id: int, amount: float) -> str:
    """Pay."""
    return "paid"


@tool
async def hang() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@tool
async def abort() -> str:
    """End the run."""
    raise RunAborted("broken")


@interceptor(points=["pre_tool_call"])
def only_order_42(context):
    if context["tool_call"]["args"].get("order_id", 42) != 42:
        return Verdict.deny("other_order")
    return ALLOW


@interceptor(points=["pre_tool_call"])
def cheaper(context):
    if context["tool_call"]["name"] == "pay":
        return Verdict.transform("$target.amount", 5.0)
    return ALLOW


@interceptor(points=["output"])
def nothing_out(context):
    return Verdict.deny("nothing")


@interceptor(points=["input"])
def nothing_in(context):
    return Verdict.deny("nothing")


POLICIES = (only_order_42, Mask("card", points=["post_tool_call"]))


def clerk(*script, name="clerk", interceptors=POLICIES, **options):
    """An agent with the tools above."""
    options.setdefault("tools", [look, pay, hang, abort])
    return Agent(name, model=ScriptedModel(script), interceptors=list(interceptors), **options)


PAY = call("pay", order_id=42, amount=30.0)
TWO = [call("look", order_id=7), call("look", order_id=42), call("nosuch"), call("look", order_id="x")]


async def nested() -> Agent:
    inner = clerk(PAY, say("inner done"), name="inner", description="helps")
    return clerk(call("inner", task="pay it"), say("outer done"), tools=[inner.as_tool()], interceptors=())


# ---- real runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        [say("hello")],
        [TWO, say("so it is")],
        [fail(429), fail(500), say("third time")],
        [fail(400)],
        [say(""), say("", finish="length"), say("better")],
        [call("look", order_id=42)] * 4,
        [call("abort"), say("not reached")],
        [call("look", "{broken"), say("sorry")],
        [call("nosuch"), call("nosuch"), call("nosuch")],
        [[PAY, call("look", order_id=42)], say("nobody there")],
    ],
    ids=["text", "batch", "retries", "refused", "reasks", "max_steps", "abort", "bad_json", "misses", "no_approver"],
)
async def test_runs_in_memory_keep_every_promise(script):
    """Whatever a run without a Runtime comes to, its log has nothing wrong."""
    result = await clerk(*script, max_steps=4).run("go", clock=VirtualClock())
    await invariants(result)


@pytest.mark.parametrize("policy", [nothing_in, nothing_out], ids=["input", "output"])
async def test_blocked_runs_keep_every_promise(policy):
    """A run that a policy ended has nothing wrong either."""
    agent = clerk(say("hello"), interceptors=[policy])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.result()).status == "blocked"
        await invariants(run)


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("approve", {}),
        ("approve", {"scope": "same_arguments", "feedback": "fine"}),
        ("reject", {"feedback": "no"}),
        ("edit", {"arguments": {"order_id": 42, "amount": 20}}),
        ("respond", {"text": "paid by hand"}),
    ],
)
@pytest.mark.parametrize("policies", [(), (cheaper,)], ids=["plain", "transformed"])
async def test_every_decision_keeps_every_promise(verb, more, policies):
    """A parked run holds them while it waits, and again after each verb."""
    agent = clerk([PAY, call("look", order_id=42)], say("done"), interceptors=policies)
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        await invariants(run)
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, verb, by="human:ana", **more)
        result = await run.result()
        await invariants(run)
        while result.requests:
            await runtime.docket.decide(result.requests[0].id, "approve", by="human:ana")
            result = await run.result()
        assert result.status == "completed"
        await invariants(run)


async def test_a_nested_run_that_waits_keeps_every_promise():
    """The runs below a root are checked with it, parked and ended."""
    async with Runtime() as runtime:
        run = await runtime.start(await nested(), "go")
        [request] = (await run.result()).requests
        await invariants(run)
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result()).answer == "outer done"
        await invariants(run)


@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("what", ["hang", "pay"])
async def test_a_run_ended_from_outside_keeps_every_promise(how, what):
    """Stopping or cancelling a running or a parked run leaves nothing open."""
    asked = call("hang") if what == "hang" else PAY
    async with Runtime() as runtime:
        run = await runtime.start(clerk([asked, call("look", order_id=42)]), "go")
        if what == "pay":
            await run.result()
        async for event in run.events(follow=True):
            if event.kind in ("tool_started", "request_opened"):
                break
        if how == "stop" and what == "pay":  # a graceful stop would wait for a tool that hangs
            await runtime.commands.stop(run.id, reason="enough", by="human:ana")
        else:
            await runtime.commands.cancel(run.id, by="human:ana")
        assert (await run.result(wait="end")).status in ("stopped", "cancelled")
        await invariants(run)


async def test_a_failed_run_keeps_every_promise_over_its_next_attempt():
    """Two attempts have two outcomes and one history."""
    agent = clerk(call("look", order_id=42), *[fail(500)] * 3, say("now"))
    async with Runtime(clock=VirtualClock()) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.result()).resumable
        await invariants(run)
        await runtime.resume(run.id)
        assert (await run.result()).answer == "now"
        await invariants(run)


@pytest.mark.parametrize("verb", ["retry", "skip", "respond"])
async def test_a_run_that_crashed_keeps_every_promise(verb):
    """After a crash between effect and record, and after each answer to the question that follows."""
    agent = clerk(PAY, say("done"))
    async with Runtime() as first:
        run = await first.start(agent, "go")
        [request] = (await run.result()).requests
        with crash_at("effect.after"):
            await first.docket.decide(request.id, "approve", by="human:ana")
            await asyncio.gather(run.result(), return_exceptions=True)
    async with Runtime(first.store, definitions={"clerk": agent}) as second:
        run = await second.run(run.id)
        [request] = (await run.result()).requests
        assert request.kind == "unknown_effect"
        await invariants(run)
        options = {"text": "paid"} if verb == "respond" else {}
        await second.docket.decide(request.id, verb, by="human:ana", **options)
        assert (await run.result()).status == "completed"
        await invariants(run)


async def test_a_conversation_keeps_every_promise():
    """The second run of a conversation is checked with the messages before it."""
    agent = clerk(call("look", order_id=42), say("one"), call("look", order_id=42), say("two"))
    async with Runtime() as runtime:
        for answer in ("one", "two"):
            run = await runtime.start(agent, "go", conversation="c")
            assert (await run.result()).answer == answer
            await invariants(run)


async def test_evaluate_only_runs_keep_every_promise():
    """A verdict that is only recorded does not count as a deny that was ignored."""
    agent = clerk(call("look", order_id=7), say("done"), governance=Governance(mode="evaluate_only"))
    result = await agent.run("go")
    assert result.status == "completed"
    await invariants(result)


async def test_only_runs_and_results_can_be_checked():
    """Anything else is refused with a word about what is wanted."""
    with pytest.raises(DefinitionError, match="a Run or a RunResult"):
        await invariants("run")


# ---- broken logs ------------------------------------------------------------------------------


async def recorded():
    """A run with a denied call, a masked result and an approved payment: log, requests, usage."""
    agent = clerk(call("look", order_id=7), call("look", order_id=42), PAY, say("done", usage=Usage(5, 7)))
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        result = await run.result()
        requests = {each.id: each for each in await runtime.docket.requests(run=run.id)}
        steps = [(entry.kind, dict(entry.payload)) for entry in runtime.store.entries(run.id)]
    return SimpleNamespace(log=RunLog(run_id=run.id, steps=steps, requests=requests), result=result)


def at(steps, kind, number=0):
    """The index of the n-th entry of a kind."""
    return [index for index, (each, _) in enumerate(steps) if each == kind][number]


def started(call_id, tool, **arguments):
    return "tool_started", {"call": call_id, "tool": tool, "arguments": arguments, "attempt": 0}


def a_denied_call_ran(steps):
    steps.insert(at(steps, "call_judged") + 1, started("call_0", "look", order_id=7))


def a_call_ran_twice(steps):
    index = at(steps, "tool_started")
    steps.insert(index + 1, steps[index])


def a_call_ran_again_after_its_result(steps):
    index = at(steps, "tool_finished")
    steps.insert(index + 1, steps[at(steps, "tool_started")])


def a_call_ran_unjudged(steps):
    index = at(steps, "tool_started")
    verdicts = [i for i in range(index) if steps[i][0] == "verdict"]
    del steps[verdicts[-1]]


def a_call_nobody_asked_for(steps):
    steps.insert(at(steps, "tool_started"), started("call_9", "look", order_id=42))


def other_arguments_ran(steps):
    kind, payload = steps[at(steps, "tool_started", -1)]
    steps[at(steps, "tool_started", -1)] = kind, {**payload, "arguments": {"order_id": 42, "amount": 3000.0}}


def other_arguments_were_shown(steps, requests):
    [request] = requests.values()
    requests[request.id] = replace(request, shown=replace(request.shown, arguments={"order_id": 42, "amount": 1.0}))


def another_digest_was_decided(steps, requests):
    [request] = requests.values()
    requests[request.id] = replace(request, digest="sha256:00")


def the_decision_was_a_rejection(steps, requests):
    [request] = requests.values()
    requests[request.id] = replace(request, status="rejected")


def the_decision_was_not_used_up(steps, requests):
    [request] = requests.values()
    requests[request.id] = replace(request, consumed_at=None)


def nobody_was_asked(steps, requests):
    requests.clear()


def a_decision_was_used_twice(steps):
    index = at(steps, "call_judged", -1)
    steps[index + 2 : index + 2] = [("stint_started", {}), steps[index], steps[at(steps, "tool_started", -1)]]


def a_request_was_decided_twice(steps):
    index = at(steps, "request_decided")
    steps.insert(index, steps[index])


def an_unknown_effect_was_repeated(steps):
    index = at(steps, "tool_started", -1)
    steps.insert(index + 1, ("stint_started", {}))
    steps.insert(index + 2, steps[index])


def an_answered_call_ran(steps):
    index = at(steps, "request_decided")
    steps[index] = "request_decided", {**steps[index][1], "verb": "respond"}


def a_call_has_two_results(steps):
    index = at(steps, "tool_finished")
    steps.insert(index + 1, steps[index])


def a_call_never_ended(steps):
    del steps[at(steps, "tool_finished")]


def an_id_is_used_twice(steps):
    steps.insert(at(steps, "model_finished") + 1, steps[at(steps, "model_finished")])


def a_sequence_number_repeats(steps):
    index = at(steps, "verdict", 3)
    steps.insert(index + 1, steps[index])


def a_sequence_number_goes_back(steps):
    first, second = at(steps, "verdict", 2), at(steps, "verdict", 3)
    steps[first], steps[second] = steps[second], steps[first]


def a_number_goes_back_over_a_stint(steps):
    """The judgement before the wait and the one after it change places: both are of a tool's point."""
    second = at(steps, "stint_started", 1)
    before = max(i for i in range(second) if steps[i][0] == "verdict")
    after = min(i for i in range(second, len(steps)) if steps[i][0] == "verdict")
    (_, early), (_, late) = steps[before], steps[after]
    swapped = [{**each, "record": {**each["record"], "sequence": n}} for each, n in ((early, 11), (late, 10))]
    steps[before], steps[after] = [("verdict", each) for each in swapped]


def there_are_two_outcomes(steps):
    steps.append(steps[-1])


def something_follows_the_outcome(steps):
    steps.append(steps[at(steps, "input")])


def a_model_call_never_ended(steps):
    steps.insert(len(steps) - 1, ("model_started", {"model": "scripted", "step": 9, "attempt": 1}))


def two_model_calls_were_open(steps):
    index = at(steps, "model_started")
    steps.insert(index + 1, steps[index])


def the_answer_was_denied(steps):
    index = at(steps, "output") - 1
    record = {**steps[index][1]["record"], "verdict": {"decision": "deny", "reason": "no"}}
    steps[index] = "verdict", {**steps[index][1], "record": record}


def the_input_was_not_judged(steps):
    del steps[at(steps, "verdict", 1)]


def results_were_not_judged(steps):
    steps[:] = [
        (kind, payload)
        for kind, payload in steps
        if kind != "verdict" or payload["record"]["interception_point"] != "post_tool_call"
    ]


def the_log_cannot_be_folded(steps):
    steps.insert(3, ("model_finished", {}))


FAULTS = [
    (a_denied_call_ran, r"call call_0 \(look\) was denied and ran"),
    (a_call_ran_twice, r"call_1 \(look\) was executed twice"),
    (a_call_ran_again_after_its_result, "executed twice"),
    (a_call_ran_unjudged, r"call_1 \(look\) ran without having been judged"),
    (a_call_nobody_asked_for, "call_9, which no model response asked for"),
    (other_arguments_ran, r"call_2 \(pay\) ran with other arguments than were judged"),
    (other_arguments_ran, "other arguments than request .* showed or decided"),
    (other_arguments_were_shown, "other arguments than request .* showed or decided"),
    (another_digest_was_decided, "another digest"),
    (the_decision_was_a_rejection, "which is rejected"),
    (the_decision_was_not_used_up, "was not used up"),
    (nobody_was_asked, "which does not exist"),
    (a_decision_was_used_twice, "was executed twice"),
    (a_request_was_decided_twice, "was decided twice"),
    (an_unknown_effect_was_repeated, "without anybody's decision"),
    (an_answered_call_ran, "although somebody had given its result"),
    (a_call_has_two_results, "has two results"),
    (a_call_never_ended, r"call_1 \(look\) started and never ended"),
    (an_id_is_used_twice, "call_0 is used twice"),
    (a_sequence_number_repeats, "record 3 is there twice"),
    (a_sequence_number_goes_back, "record 2 comes after record 3"),
    (a_number_goes_back_over_a_stint, "record 10 comes after record 11"),
    (there_are_two_outcomes, "a second outcome"),
    (something_follows_the_outcome, "input was recorded after the outcome"),
    (a_model_call_never_ended, "a model call started and never ended"),
    (two_model_calls_were_open, "while another one was open"),
    (the_answer_was_denied, "output was stored without a verdict"),
    (the_input_was_not_judged, "input was stored without a verdict"),
    (results_were_not_judged, "2 tool results were stored after 0 verdicts"),
    (the_log_cannot_be_folded, "cannot be folded"),
]


@pytest.mark.parametrize(("fault", "told"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
async def test_each_broken_promise_is_found(fault, told):
    """The sound log has no problem; with one fault in it, the check says which."""
    log = (await recorded()).log
    assert problems_in(log) == []
    steps, requests = list(log.steps), dict(log.requests)
    takes = fault.__code__.co_argcount
    fault(*[steps, requests][:takes])
    found = problems_in(replace(log, steps=steps, requests=requests))
    assert any(re.search(told, problem) for problem in found), found


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "requests", "retries", "tool_calls", "cost_usd"])
@pytest.mark.parametrize("by", [1, -1])
async def test_usage_that_does_not_add_up_is_found(field, by):
    """One token, request or call too many or too few is told with both numbers."""
    sound = await recorded()
    assert usage_problems([sound.log], sound.result.usage) == []
    wrong = replace(sound.result.usage, **{field: getattr(sound.result.usage, field) + by})
    assert any(problem.startswith(f"usage.{field} is ") for problem in usage_problems([sound.log], wrong))


async def test_a_run_with_a_broken_store_fails_with_every_problem_in_one_error():
    """What `invariants` raises is a LictorError, counts as an assertion, and lists the problems one by one."""
    async with Runtime() as runtime:
        run = await runtime.start(clerk(say("done")), "go")
        await run.result()
        runtime.store.log(run.id, run.id).append("run_finished", {"status": "completed"}, 0.0)
        runtime.store.log(run.id, run.id).append("tool_finished", {"call": "call_9", "content": ""}, 0.0)
        with pytest.raises(InvariantBroken, match="breaks") as caught:
            await invariants(run)
    assert isinstance(caught.value, LictorError)
    assert isinstance(caught.value, AssertionError)
    assert len(caught.value.problems) >= 2
    assert str(caught.value).count("\n  - ") == len(caught.value.problems)


async def test_a_log_from_which_no_result_can_be_built_is_found():
    """Where the fold itself breaks, that is the problem that is told."""
    async with Runtime() as runtime:
        run = await runtime.start(clerk(say("done")), "go")
        await run.result()
        runtime.store.log(run.id, run.id).append(*started("call_9", "look", order_id=1), 0.0)
        with pytest.raises(InvariantBroken, match="cannot be built from its log"):
            await invariants(run)


async def test_a_parked_run_without_a_request_is_found():
    """Waiting for nobody is a run that is lost."""
    async with Runtime() as runtime:
        run = await runtime.start(clerk(PAY), "go")
        [request] = (await run.result()).requests
        runtime.store.table(REQUESTS)[request.id] = replace(request, status="cancelled")
        with pytest.raises(InvariantBroken, match="nobody is asked"):
            await invariants(run)


async def test_a_request_left_open_and_a_child_that_goes_on_are_found():
    """When the root has ended nothing below it is alive and nothing is asked any more."""
    async with Runtime() as runtime:
        run = await runtime.start(await nested(), "go")
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "reject", by="human:ana")
        result = await run.result()
        runtime.store.table(REQUESTS)["r2"] = replace(request, id="r2", status="pending")
        with pytest.raises(InvariantBroken, match="request r2 is open after the end"):
            await invariants(run)
    root = RunLog(run_id=run.id, steps=[("run_started", {"agent": "clerk"}), ("run_finished", {})])
    child = RunLog(run_id="child", steps=[("run_started", {"agent": "inner"})])
    assert ending_problems([root, child], result) == ["inner (child): it goes on below a run that has ended"]


async def test_an_outcome_that_is_not_recorded_is_found():
    """What is told and what is recorded are the same, in both directions."""
    sound = await recorded()
    begun = replace(sound.log, steps=sound.log.steps[:3])
    assert "completed without a recorded outcome" in ending_problems([begun], sound.result)[0]
    waiting = replace(sound.result, status="suspended")
    assert "suspended and has an outcome" in ending_problems([replace(sound.log, requests=None)], waiting)[0]
