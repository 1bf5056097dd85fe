"""Every hook of a TeamInterceptor: its order, its switch, its place, what it may change, and how often it is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from teamplay import (
    ANA,
    HOOKS,
    Listening,
    World,
    agent,
    approve,
    assign,
    boss,
    finish,
    hook,
    kinds,
    requests,
    say,
    two,
)

from lictor import Runtime, Team, Verdict
from lictor.errors import RunAborted
from lictor.team import ModelRequestView, TeamInterceptor, TeamTrace

FINISHES = {
    "completed": {},
    "blocked": {"interceptors": [hook("on_team_start", lambda trace: False)]},
    "stopped": {"interceptors": [hook("should_supervisor_continue", lambda trace: False)]},
    "exhausted": {"max_turns": 0},
    "failed": {"model": boss(*[say("hm")] * 3)},
}


async def test_every_hook_in_the_order_of_the_seed() -> None:
    """One run of a supervisor and one member."""
    listening = Listening()
    team, _, _ = two(interceptors=[listening], model=boss(assign("ada"), finish()))
    await team.run("go")
    turn = ["on_prepare", "on_model_start", "on_model_end", "on_supervisor_decision"]
    assert [moment for moment, *_ in listening.heard] == [
        "on_team_start",
        "on_node_start",
        "should_supervisor_continue",
        *turn,
        "on_node_end",
        "on_node_start",
        "should_agent_continue",
        "on_agent_end",
        "on_node_end",
        "on_node_start",
        "should_supervisor_continue",
        *turn,
        "on_node_end",
        "on_team_end",
        "on_team_finished",
    ]
    nodes = [about for moment, *about in listening.heard if moment in ("on_node_start", "on_node_end")]
    assert nodes == [["supervisor"]] * 2 + [["ada"]] * 2 + [["supervisor"]] * 2


@pytest.mark.parametrize("protocol", ["sequential", "none", "handoff"])
async def test_without_a_supervisor_only_members_are_told_of(protocol: str) -> None:
    """No hook of a model or a decision is called."""
    listening = Listening()
    team, _, _ = two(protocol, interceptors=[listening])
    await team.run("go")
    heard = Counter(moment for moment, *_ in listening.heard)
    assert set(heard) == {
        "on_team_start",
        "on_node_start",
        "should_agent_continue",
        "on_agent_end",
        "on_node_end",
        "on_team_end",
        "on_team_finished",
    }
    assert (heard["should_agent_continue"], heard["on_agent_end"]) == (2, 2)


async def test_what_is_known_at_each_moment() -> None:
    """Usage is booked before `on_model_end`; the last agent is set before, its record after it works."""
    from lictor.runs import Usage

    seen: dict[str, Any] = {}

    class Look(TeamInterceptor):
        def on_model_end(self, trace: TeamTrace, response: Any) -> None:
            seen.setdefault("tokens", trace.metrics.total_tokens)

        def on_supervisor_decision(self, trace: TeamTrace, decision: Any) -> None:
            seen.setdefault("decision", (decision.kind, decision.member, decision.instruction, trace.turn_count))

        def should_agent_continue(self, trace: TeamTrace, member: Any) -> None:
            seen.setdefault("before", (trace.last_agent_name, trace.last_agent_content))

        def on_agent_end(self, trace: TeamTrace, member: Any, result: Any) -> None:
            seen.setdefault("after", (trace.last_agent_name, trace.last_agent_content, result.status, result.answer))

        def on_team_end(self, trace: TeamTrace) -> None:
            seen["answer"] = trace.final_answer

    model = boss(assign("ada", "count", usage=Usage(input_tokens=7, output_tokens=3)), finish("4"))
    team, _, _ = two(interceptors=[Look()], model=model)
    await team.run("go")
    assert seen == {
        "tokens": 10,
        "decision": ("assign", "ada", "count", 0),
        "before": ("ada", None),
        "after": ("ada", "ada's work", "completed", "ada's work"),
        "answer": "4",
    }


async def test_index_and_order_written() -> None:
    """A smaller index goes first; equal ones as they are written; those of the run last."""
    order: list[str] = []

    def named(name: str) -> Any:
        return hook("should_agent_continue", lambda trace, member: order.append(name), name)

    team, _, _ = two("sequential", interceptors=[(named("late"), 100), named("a"), (named("early"), -1), named("b")])
    await team.run("go", interceptors=[named("run")])
    assert order == ["early", "a", "b", "late", "run"] * 2


async def test_enabled_is_read_when_a_moment_begins() -> None:
    """Switched off in the middle it hears nothing more, node hooks included; switched on again it does."""
    listening = Listening()

    def switch(trace: TeamTrace, member: Any) -> None:
        listening.enabled = member.name == "bob"

    team, _, _ = two("sequential", interceptors=[listening, hook("should_agent_continue", switch)])
    await team.run("go")
    heard = [(moment, *about) for moment, *about in listening.heard]
    assert ("should_agent_continue", "ada") in heard
    assert ("on_agent_end", "ada", "MemberResult") not in heard
    assert not [each for each in heard if each[:2] in (("on_node_end", "ada"), ("on_node_start", "bob"))]
    assert ("on_node_end", "bob") in heard
    listening.enabled, listening.heard = False, []
    team, _, _ = two(interceptors=[listening])
    assert ((await team.run("go")).status, listening.heard) == ("completed", [])


async def test_a_disabled_one_neither_denies_nor_wraps() -> None:
    """Off means off, whatever it would say."""

    class Strict(TeamInterceptor):
        enabled = False

        def should_agent_continue(self, trace: TeamTrace, member: Any) -> bool:
            return False

        async def wrap(self, step: Any, call_next: Any) -> Any:
            raise ValueError("never")

    team, ada, _ = two(interceptors=[Strict()])
    assert ((await team.run("go")).status, len(requests(ada))) == ("completed", 1)


@pytest.mark.parametrize("moment", HOOKS)
async def test_each_hook_may_be_async(moment: str) -> None:
    """A coroutine's answer counts as a plain one does."""
    called: list[str] = []

    async def later(*given: Any) -> None:
        await asyncio.sleep(0)
        called.append(moment)

    team, _, _ = two(interceptors=[hook(moment, later)])
    assert (await team.run("go")).status == "completed"
    assert bool(called) is (moment in dict.fromkeys(_heard_moments()))


def _heard_moments() -> list[str]:
    from lictor.team.interceptor import HOOKS as SPOKEN

    return list(SPOKEN)


# ---- changing the request ---------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["on_prepare", "on_model_start"])
async def test_messages_tools_and_settings_may_be_changed(moment: str) -> None:
    """What a hook assigns is what policies judge and the model gets; nothing of it stays."""

    def change(trace: TeamTrace, request: ModelRequestView) -> None:
        request.messages = [*request.messages, {"role": "user", "content": "Be polite."}]
        request.tools = [each for each in request.tools if each["name"] != "delegate"]
        request.settings["temperature"] = 0.1

    judged: list[str] = []

    def look(context: Any) -> Any:
        if context["interception_point"] == "pre_model_call" and context["model"]["id"] == "boss":
            judged.append(str(context["target"][-1]["content"]))
        return Verdict.allow()

    team, _, _ = two(interceptors=[hook(moment, change, "change"), hook("intercept", look, "look")])
    result = await team.run("go")
    for request in requests(team.model):
        assert request.messages[-1]["content"] == "Be polite."
        assert [each["name"] for each in request.tools] == ["assign", "finish"]
        assert request.settings["temperature"] == 0.1
    assert judged == ["Be polite."] * 3
    assert "Be polite." not in str(result.trace.messages)
    assert team.settings == {}


async def test_prepare_comes_before_model_start_and_sees_the_change() -> None:
    """Hooks before the call share one request."""

    class Both(TeamInterceptor):
        def on_prepare(self, trace: TeamTrace, request: ModelRequestView) -> None:
            request.settings["n"] = 1

        def on_model_start(self, trace: TeamTrace, request: ModelRequestView) -> None:
            request.settings["n"] += 1

    team, _, _ = two(interceptors=[Both()])
    await team.run("go")
    assert [request.settings["n"] for request in requests(team.model)] == [2, 2, 2]


# ---- wraps ------------------------------------------------------------------------------------------


class Around(TeamInterceptor):
    """Notes what it is around."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    async def wrap(self, step: Any, call_next: Any) -> Any:
        """Around everything."""
        self.steps.append((step.kind, step.name))
        return await call_next(step)


async def test_wrap_is_around_flow_calls_and_members() -> None:
    """The flow once, each call of the supervisor's model, each member; never a member's own model or tool."""
    around = Around()
    team, _, _ = two(interceptors=[around])
    await team.run("go")
    model = ("call", "boss")
    assert around.steps == [("flow", "room"), model, ("tool", "ada"), model, ("tool", "bob"), model]


@pytest.mark.parametrize(
    ("alias", "times"), [("intercept_flow", 1), ("intercept_call", 3), ("intercept_stream", 3), ("intercept_tool", 2)]
)
async def test_the_names_of_the_seed_do_the_same_for_one_kind(alias: str, times: int) -> None:
    """Each is called for its own kind only."""
    kinds_: list[str] = []

    async def method(self: Any, step: Any, call_next: Any) -> Any:
        kinds_.append(step.kind)
        return await call_next(step)

    named = type("Named", (TeamInterceptor,), {alias: method})()
    team, _, _ = two(interceptors=[named])
    assert (await team.run("go")).status == "completed"
    assert len(kinds_) == times
    assert len(set(kinds_)) == 1


async def test_a_flow_is_each_uninterrupted_stretch() -> None:
    """Parked and gone on with: two stretches."""
    around = Around()
    guard = hook("should_agent_continue", lambda trace, member: trace.suspend("x") if member.name == "ada" else None)
    team, _, _ = two(interceptors=[around, guard])
    result = await World().play(team, decide=approve)
    assert (result.status, [kind for kind, _ in around.steps].count("flow")) == ("completed", 2)


async def test_the_outermost_wrap_comes_first() -> None:
    """Index decides, as for every hook."""
    order: list[str] = []

    def named(name: str) -> Any:
        async def wrap(self: Any, step: Any, call_next: Any) -> Any:
            order.append(f"{name}>")
            value = await call_next(step)
            order.append(f"<{name}")
            return value

        return type(name, (TeamInterceptor,), {"intercept_flow": wrap})()

    team, _, _ = two(interceptors=[(named("inner"), 5), (named("outer"), 1)])
    await team.run("go")
    assert order == ["outer>", "inner>", "<inner", "<outer"]


def wrapping(alias: str, fn: Any) -> Any:
    """An interceptor with one wrap."""

    async def method(self: Any, step: Any, call_next: Any) -> Any:
        return await fn(step, call_next)

    return type("Wrapping", (TeamInterceptor,), {alias: method})()


async def test_a_wrap_may_stand_in_for_a_member() -> None:
    """It is not run; what the wrap gives is its output. It may also change what came of it."""

    async def cached(step: Any, call_next: Any) -> Any:
        return "from the cache" if step.name == "ada" else f"{(await call_next(step))['answer']}!"

    team, ada, bob = two("sequential", interceptors=[wrapping("intercept_tool", cached)])
    result = await World().play(team)
    assert (result.answer, len(requests(ada)), len(requests(bob))) == ("bob's work!", 0, 1)
    assert [record.content for record in result.trace.records] == ["from the cache", "bob's work!"]  # type: ignore[attr-defined]


async def test_a_wrap_around_a_member_that_raises_is_the_members_failure() -> None:
    """Recorded as an error; RunAborted ends the run. Nothing hangs, side by side neither."""

    async def broken(step: Any, call_next: Any) -> Any:
        raise ValueError("no")

    async def aborted(step: Any, call_next: Any) -> Any:
        raise RunAborted("all of it")

    for protocol in ("hierarchical", "none"):
        team, ada, _ = two(protocol, interceptors=[wrapping("intercept_tool", broken)])
        result = await World().play(team)
        assert (result.status, requests(ada)) == ("completed" if protocol == "hierarchical" else "failed", [])
        assert ("ada", "error") in kinds(result)
        team, ada, _ = two(protocol, interceptors=[wrapping("intercept_tool", aborted)])
        result = await World().play(team)
        assert (result.status, result.error, requests(ada)) == ("failed", "all of it", [])


async def test_a_wrap_around_the_call_gives_what_is_judged() -> None:
    """The post point judges what the outermost wrap returns; what is no response fails the run."""
    from dataclasses import replace

    async def change(step: Any, call_next: Any) -> Any:
        response = await call_next(step)
        return replace(response, calls=(), content="FINISH early", finish="stop")

    team, ada, _ = two(interceptors=[wrapping("intercept_call", change)])
    result = await team.run("go")
    assert (result.answer, requests(ada)) == ("early", [])

    async def nothing(step: Any, call_next: Any) -> Any:
        return None

    team, _, _ = two(interceptors=[wrapping("intercept_call", nothing)])
    result = await team.run("go")
    assert (result.status, (result.reason or "").startswith("model_error")) == ("failed", True)


@pytest.mark.parametrize("when", ["before", "after", "never"])
async def test_a_flow_that_fails_or_does_not_go_on_ends_the_run(when: str) -> None:
    """One outcome, told once, and nothing left running."""
    finished = Counter[str]()

    async def flow(step: Any, call_next: Any) -> Any:
        if when == "never":
            return None
        if when == "after":
            await call_next(step)
        raise ValueError("broken wrap")

    tell = hook("on_team_finished", lambda trace, outcome: finished.update([outcome["status"]]))
    team, ada, _ = two(interceptors=[wrapping("intercept_flow", flow), tell])
    result = await World().play(team)
    expected = {"before": "failed", "after": "completed", "never": "stopped"}[when]
    assert (result.status, len(requests(ada)), dict(finished)) == (expected, int(when == "after"), {expected: 1})
    again = await two(interceptors=[wrapping("intercept_flow", flow)])[0].run("go")
    assert again.status == expected


# ---- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [*FINISHES, "cancelled"])
async def test_finished_is_told_once_for_every_outcome(status: str) -> None:
    """With the outcome; `on_team_end` on success only, before it, and the answer stands by then."""
    heard: list[Any] = []

    class Tell(TeamInterceptor):
        def on_team_end(self, trace: TeamTrace) -> None:
            heard.append(("end", trace.final_answer))

        def on_team_finished(self, trace: TeamTrace, outcome: Any) -> None:
            heard.append((outcome["status"], outcome["reason"], outcome["run_id"] == trace.run_id))

    options = dict(FINISHES.get(status, {}))
    options["interceptors"] = [*options.get("interceptors", []), Tell()]  # type: ignore[misc]
    if status == "cancelled":
        options["interceptors"].append(hook("should_agent_continue", lambda *_: Verdict.escalate("x")))
    team, _, _ = two(**options)
    world = World()
    result = await world.play(team)
    if status == "cancelled":
        assert heard == []
        async with world.open(team) as runtime:
            await runtime.commands.cancel(result.run_id, by=ANA)
            result = await (await runtime.run(result.run_id)).result()
    assert result.status == status
    ends = [("end", "the end")] if status == "completed" else []
    assert heard == [*ends, (status, result.reason, True)]


async def test_a_hook_at_the_end_that_fails_changes_nothing() -> None:
    """It is isolated: the others are told, the outcome stands."""
    told: list[str] = []
    broken = hook("on_team_finished", lambda trace, outcome: 1 / 0, "broken")
    asks = hook("on_team_finished", lambda trace, outcome: trace.suspend("no"), "asks")
    team, _, _ = two(interceptors=[broken, asks, hook("on_team_finished", lambda t, o: told.append(o["status"]), "ok")])
    result = await World().play(team)
    assert (result.status, told) == ("completed", ["completed"])


async def test_after_a_crash_finished_is_told_at_least_once() -> None:
    """Wherever the driver was dropped: with the same run id and the same outcome, and never before it is known."""
    team, _, _ = two()
    world = World()
    plain = await world.play(team)
    entries = len(world.store.root_entries(plain.run_id))
    for place in range(entries - 6, entries):
        heard: list[Any] = []
        tell = hook(
            "on_team_finished", lambda trace, outcome, heard=heard: heard.append((trace.run_id, outcome["status"]))
        )
        broken = World()
        result = await broken.play(two(interceptors=[tell])[0], crash=[place])
        assert broken.crashes == 1
        assert len(heard) in (1, 2)
        assert set(heard) == {(result.run_id, "completed")}


async def test_a_next_attempt_is_told_of_again() -> None:
    """Each outcome of a run once: the failure, then the success."""
    from lictor.models import fail

    broken, heard = [True], list[str]()

    def lead(request: Any) -> Any:
        return fail(503, retry_after=0) if broken[0] else finish("late")

    tell = hook("on_team_finished", lambda trace, outcome: heard.append(outcome["status"]))
    team = Team("room", members=[agent("ada")], model=boss(*[lead] * 20), interceptors=[tell])
    world = World()
    result = await world.play(team)
    assert (result.status, result.resumable, heard) == ("failed", True, ["failed"])
    broken[0] = False
    async with world.open(team) as runtime:
        run = await runtime.resume(result.run_id)
        result = await run.result()
    assert (result.status, result.answer, heard) == ("completed", "late", ["failed", "completed"])


async def test_an_interceptor_of_the_runtime_hears_every_team() -> None:
    """Given to the Runtime it holds for all of them."""
    listening = Listening()
    async with Runtime(interceptors=[listening]) as runtime:
        for name in ("one", "two"):
            team = Team(name, members=[agent("ada", say("x"))], protocol="sequential")
            await (await runtime.start(team, "go")).result()
    heard = Counter(moment for moment, *_ in listening.heard)
    assert (heard["on_team_start"], heard["should_agent_continue"], heard["on_team_finished"]) == (2, 2, 2)


async def test_one_object_that_is_given_twice_speaks_once() -> None:
    """In its outermost place."""
    listening = Listening()
    team, _, _ = two("sequential", interceptors=[listening])
    async with Runtime(interceptors=[listening]) as runtime:
        run = await runtime.start(team, "go", interceptors=[listening])
        await run.result()
    heard = Counter(moment for moment, *_ in listening.heard)
    assert (heard["on_team_start"], heard["should_agent_continue"]) == (1, 2)
