"""The fixture `runtime`: scripts, decisions, crashes, time."""

import asyncio
from datetime import timedelta

import pytest

from lictor import ALLOW, Agent, Governance, Verdict, interceptor, tool
from lictor.errors import AlreadyDecided, DefinitionError, InvariantBroken, ModelError
from lictor.runs import Usage
from lictor.testing import DrivenRuntime, ScriptedModel, call, invariants, say

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran():
    """Forget what earlier tests ran."""
    ran.clear()


@tool
async def act(name: str) -> str:
    """Act."""
    ran.append(name)
    return name


@tool(effect="idempotent")
async def again(name: str) -> str:
    """Act, as often as you like."""
    ran.append(name)
    return name


@tool(requires_approval=True, deadline=3600)
async def gated(name: str) -> str:
    """Act if somebody agrees."""
    ran.append(name)
    return name


def clerk(**options) -> Agent:
    options.setdefault("tools", [act, again, gated])
    return Agent("clerk", model="openai:gpt-5-mini", **options)


async def test_a_script_stands_in_for_the_model(runtime):
    """The agent's own model is not called; what was sent can be looked at."""
    runtime.script(clerk=[call("act", name="a"), say("done", usage=Usage(3, 4))])
    result = await runtime.run_to_park(clerk(), "go", user="ana")
    assert (result.status, result.answer, ran) == ("completed", "done", ["a"])
    assert result.usage.total_tokens == 7
    assert [request.position for request in runtime.models["clerk"].requests] == [0, 1]
    assert runtime.crashes == 0


async def test_an_agent_without_a_script_does_not_reach_a_provider(runtime):
    """Forgetting a script is an error that says what to write, for nested agents too."""
    with pytest.raises(DefinitionError, match=r"'clerk' would call openai:gpt-5-mini; give runtime.script\(clerk="):
        await runtime.start(clerk(), "go")
    outer = Agent("outer", model="openai:gpt-5-mini", tools=[clerk().as_tool()])
    runtime.script(outer=[say("x")])
    with pytest.raises(DefinitionError, match="'clerk' would call"):
        await runtime.start(outer, "go")


async def test_an_agent_with_a_model_object_keeps_it(runtime):
    """A test may give the model with the agent."""
    agent = Agent("clerk", model=ScriptedModel([say("mine")]))
    assert (await runtime.run_to_park(agent, "go")).answer == "mine"


async def test_scripts_may_come_one_after_the_other(runtime):
    """A name that is scripted again gets the new script, and names with dashes go in a mapping."""
    agent, other = clerk(), Agent("night-clerk", model="openai:gpt-5-mini")
    runtime.script(clerk=[say("one")])
    assert (await runtime.run_to_park(agent, "go")).answer == "one"
    runtime.script({"night-clerk": [say("three")]}, clerk=[say("two")])
    assert (await runtime.run_to_park(agent, "go")).answer == "two"
    assert (await runtime.run_to_park(other, "go")).answer == "three"


async def test_a_wrong_script_is_refused_where_it_is_written(runtime):
    """What is no entry is a typed error."""
    with pytest.raises(DefinitionError, match="a script cannot hold 7"):
        runtime.script(clerk=[7])


async def test_a_script_that_is_too_short_fails_the_run(runtime):
    """Past its end the run fails with the position."""
    runtime.script(clerk=[call("act", name="a")])
    result = await runtime.run_to_park(clerk(), "go")
    assert (result.status, result.reason) == ("failed", "model_error:script_exhausted")


async def test_a_decision_waits_for_the_next_park_or_end(runtime):
    """Two gated calls park once; each decision gives the result after it, and the default decider is named."""
    runtime.script(clerk=[[call("gated", name="a"), call("gated", name="b")], say("done")])
    first, second = (await runtime.run_to_park(clerk(), "go")).requests
    result = await runtime.decide(first, "approve")
    assert (result.status, [each.id for each in result.requests], ran) == ("suspended", [second.id], [])
    result = await runtime.decide(second.id, "reject", feedback="no", by="human:ben")
    assert (result.status, ran) == ("completed", ["a"])
    deciders = [str((await runtime.docket.get(each.id)).resolution.decided_by) for each in (first, second)]
    assert deciders == ["human:test", "human:ben"]
    with pytest.raises(AlreadyDecided):
        await runtime.decide(first, "reject")


@pytest.mark.parametrize(("point", "runs"), [("effect.before", 0), ("effect.after", 1)])
async def test_a_crash_in_a_gated_call_asks_a_person(runtime, point, runs):
    """Whether it ran or not, the next process cannot know: it asks, and a retry runs it once more."""
    runtime.script(clerk=[call("gated", name="a"), say("done")])
    [request] = (await runtime.run_to_park(clerk(), "go")).requests
    runtime.crash_at(point)
    result = await runtime.decide(request, "approve")
    assert ([each.kind for each in result.requests], len(ran)) == (["unknown_effect"], runs)
    assert runtime.crashes == 1
    result = await runtime.decide(result.requests[0], "retry")
    assert (result.status, len(ran)) == ("completed", runs + 1)


async def test_a_crash_while_a_test_waits_in_run_to_park_is_survived(runtime):
    """A repeatable call is started again by the next process, and the caller never notices."""
    runtime.script(clerk=[call("again", name="a"), say("done")])
    runtime.crash_at("effect.after")
    result = await runtime.run_to_park(clerk(), "go")
    assert (result.status, ran, runtime.crashes) == ("completed", ["a", "a"], 1)


async def test_a_crash_takes_every_run_of_the_process_with_it(runtime):
    """A second run that was under way is adopted as well."""
    started = asyncio.Event()

    @tool(effect="idempotent")
    async def slow() -> str:
        """Wait for the first start only."""
        ran.append("slow")
        if len(ran) == 1:
            started.set()
            await asyncio.Event().wait()
        return "at last"

    slower = Agent("slower", model="openai:gpt-5-mini", tools=[slow])
    runtime.script(slower=[call("slow"), say("slow done")], clerk=[call("again", name="a"), say("done")])
    other = await runtime.start(slower, "go")
    await started.wait()
    runtime.crash_at("effect.after")
    assert (await runtime.run_to_park(clerk(), "go")).status == "completed"
    assert (await other.result()).answer == "slow done"
    assert sorted(ran) == ["a", "a", "slow", "slow"]


async def test_a_handle_outlives_the_process_that_made_it(runtime):
    """`status`, `result` and `events` of a Run go on after a crash; no event is missing or doubled."""
    runtime.script(clerk=[call("again", name="a"), say("done")])
    runtime.crash_at("effect.after")
    run = await runtime.start(clerk(), "go", conversation="c", user="ana")
    cursors = [event.cursor async for event in run.events()]
    assert (await run.result(wait="end")).answer == "done"
    assert (run.status, run.user, run.conversation) == ("completed", "ana", "c")
    assert cursors == sorted(set(cursors))
    assert (await anext(run.events())).kind == "run_started"


async def test_crashes_may_follow_each_other(runtime):
    """Each armed crash happens once, in its order."""
    runtime.script(clerk=[call("again", name="a"), say("done")])
    runtime.crash_at("effect.before")
    runtime.crash_at("effect.after")
    assert (await runtime.run_to_park(clerk(), "go")).status == "completed"
    assert (runtime.crashes, ran) == (2, ["a", "a"])


async def test_interceptors_and_deps_of_a_run_come_along(runtime):
    """What a store cannot hold is given to the next process again."""

    @interceptor(points=["pre_tool_call"])
    def only_a(context):
        return ALLOW if context["tool_call"]["args"]["name"] == "a" else Verdict.deny("not_a")

    runtime.script(clerk=[call("again", name="a"), call("again", name="b"), say("done")])
    runtime.crash_at("effect.after")
    result = await runtime.run_to_park(clerk(), "go", interceptors=[only_a], deps={"db": 1})
    assert (result.status, ran) == ("completed", ["a", "a"])


async def test_time_is_the_tests(runtime):
    """A deadline passes when the clock is advanced, not before; the result says what became of the run."""
    runtime.script(clerk=[call("gated", name="a"), say("nobody came")])
    [request] = (await runtime.run_to_park(clerk(), "go")).requests
    result = await runtime.clock.advance(timedelta(minutes=59))
    assert (result.status, result.requests[0].id) == ("suspended", request.id)
    result = await runtime.clock.advance(60)
    assert (result.status, result.answer, ran) == ("completed", "nobody came", [])
    assert (await runtime.docket.get(request.id)).status == "expired"


async def test_a_deadline_is_watched_again_after_a_crash(runtime):
    """The next process knows when requests of the one before expire."""
    runtime.script(clerk=[call("gated", name="a"), say("one")], other=[call("again", name="b"), say("two")])
    other = Agent("other", model="openai:gpt-5-mini", tools=[again])
    waiting = await runtime.start(clerk(), "go")
    assert (await waiting.result()).status == "suspended"
    runtime.crash_at("effect.after")
    await runtime.run_to_park(other, "go")
    await runtime.clock.advance(timedelta(hours=1))
    assert (await waiting.result()).answer == "one"


async def test_the_clock_may_be_advanced_before_anything_runs(runtime):
    """Without a run there is no result."""
    assert await runtime.clock.advance(10) is None


async def test_options_of_the_runtime_are_set_before_the_first_start(runtime):
    """Governance and interceptors of the Runtime hold in the test and after a crash."""

    @interceptor(points=["output"])
    def quiet(context):
        return Verdict.replace({"content": "hush"})

    runtime.configure(interceptors=[quiet], governance=Governance(posture="continue"))
    runtime.script(clerk=[call("again", name="a"), say("loud")])
    runtime.crash_at("effect.before")
    assert (await runtime.run_to_park(clerk(), "go")).answer == "hush"
    with pytest.raises(DefinitionError, match="before the first run"):
        runtime.configure(deps=1)


async def test_what_the_fixture_sets_cannot_be_configured(runtime):
    """Store, clock and models are the fixture's own."""
    with pytest.raises(DefinitionError, match="clock, store: the fixture sets this itself"):
        runtime.configure(store="memory:", clock=None)


async def test_the_docket_is_there_before_anything_is_started(runtime):
    """An empty docket can be read at once."""
    assert await runtime.docket.pending() == []


async def test_scripts_stand_behind_a_strict_provider(runtime):
    """A history that a provider would refuse fails the test's run, whatever the script would say."""

    class Broken:
        def select(self, messages, budget):
            return [message for message in messages if message["role"] != "user"]

    runtime.script(clerk=[call("act", name="a"), say("done")])
    result = await runtime.run_to_park(clerk(history=Broken(), instructions="Be brief."), "go")
    assert (result.status, result.reason) == ("failed", "model_error:bad_request")
    assert "strict provider" in result.error


# ---- the fixture as an object -----------------------------------------------------------------


async def test_its_end_checks_the_runs():
    """`check` raises for a run with a broken promise; `close` closes all the same."""
    driven = DrivenRuntime()
    driven.script(clerk=[say("done")])
    run = await driven.start(clerk(), "go")
    await run.result()
    await driven.check()
    await invariants(run)
    driven.store.log(run.id, run.id).append("run_finished", {"status": "completed"}, 0.0)
    with pytest.raises(InvariantBroken, match="second outcome"):
        await driven.check()
    await driven.close()


async def test_its_end_asks_whether_every_crash_happened():
    """A crash point that was not reached fails the test."""
    driven = DrivenRuntime()
    driven.script(clerk=[say("done")])
    driven.crash_at("effect.after")
    await driven.run_to_park(clerk(), "go")
    with pytest.raises(InvariantBroken, match=r"'effect\.after' was armed and never reached"):
        await driven.check()
    await driven.close()


async def test_closing_drops_what_still_runs():
    """A tool that hangs does not hold the test up, and its run writes nothing more."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    driven = DrivenRuntime()
    driven.script(clerk=[call("hang")])
    run = await driven.start(clerk(tools=[hang]), "go")
    await started.wait()
    await driven.close()
    kinds = [entry.kind for entry in driven.store.entries(run.id)]
    assert kinds[-1] == "tool_started"


async def test_an_error_in_a_scripted_function_reaches_the_run(runtime):
    """An entry may be a function of the request; what it raises fails the model call."""

    def broken(request):
        raise ModelError("server_error", "on purpose", retryable=False)

    runtime.script(clerk=[broken])
    result = await runtime.run_to_park(clerk(), "go")
    assert (result.status, result.reason) == ("failed", "model_error:server_error")


@pytest.mark.parametrize("name", ["look up", "shop.look", "", "é" * 70])
async def test_a_name_no_tool_can_have_leaves_a_history_that_providers_take(runtime, name):
    """A model may make names up; the next request would be refused if the history held them as they are."""
    runtime.script(clerk=[call(name, {}), say("sorry")])
    result = await runtime.run_to_park(clerk(), "go")
    assert (result.status, result.answer) == ("completed", "sorry")
    assert "unknown_tool" in result.trace.messages[2]["content"]
