"""Teams in conversations: windows, runs that follow each other, and what is given for one run only."""

from __future__ import annotations

from typing import Any

import pytest
from teamplay import ANA, World, agent, approve, assign, boss, finish, hook, requests, say, two

from lictor import Agent, Runtime, ScriptedModel, Team, Verdict
from lictor.errors import ConversationBusy, PolicyChanged
from lictor.testing import StrictProvider


def echo(request: Any) -> Any:
    """A supervisor that answers at once, by what it was asked last."""
    asked = [message["content"] for message in request.messages if message["role"] == "user"]
    return finish(f"re: {asked[-1]}")


def asked_of(model: Any, number: int = -1) -> list[str]:
    """The texts of a request, without instructions."""
    return [str(message["content"]) for message in requests(model)[number].messages if message["role"] != "system"]


async def test_a_new_run_of_the_conversation_is_fresh_and_remembers() -> None:
    """Turns, records and members start anew; what was said before is history."""
    model = boss(assign("ada"), finish("first"), assign("ada"), finish("second"))
    team, ada, _ = two(model=model)
    async with World().open(team) as runtime:
        first = await (await runtime.start(team, "one", conversation="c")).result()
        second = await (await runtime.start(team, "two", conversation="c")).result()
        stored = (await runtime.conversation("c")).messages
    assert (first.answer, second.answer) == ("first", "second")
    assert (first.trace.turn_count, second.trace.turn_count, second.trace.route) == (2, 2, ("ada",))  # type: ignore[attr-defined]
    assert asked_of(model, 2) == ["one", "first", "two"]
    assert [(message["role"], message["content"]) for message in stored] == [
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", "second"),
    ]
    assert requests(ada)[1].messages[-1]["content"] == "two\n\nYour part: do it"


@pytest.mark.parametrize(("window", "shown"), [(0, 0), (1, 0), (2, 2), (3, 2), (100, 6)])
async def test_the_history_window_keeps_the_newest(window: int, shown: int) -> None:
    """At most so many messages of the conversation, beginning with a user's, and the task always."""
    model = boss(*[echo] * 4)
    team = Team("room", members=[agent("ada")], model=model, history_window=window)
    async with World().open(team) as runtime:
        for number in range(4):
            await (await runtime.start(team, f"q{number}", conversation="c")).result()
    texts = [text for number in range(3) for text in (f"q{number}", f"re: q{number}")]
    expected = [*texts[len(texts) - shown :], "q3"]
    assert asked_of(model) == expected


@pytest.mark.parametrize("window", [0, 1, 2, 8])
async def test_the_record_window_keeps_pairs_whole(window: int) -> None:
    """The task and the last decisions with their results; members are told of as many outputs."""
    model = boss(*[assign("ada")] * 4, finish())
    team, ada, _ = two(model=model, record_window=window)
    result = await team.run("task")
    assert result.status == "completed"
    last = requests(model)[-1].messages
    assert [message["role"] for message in last[1:]] == ["user", *["assistant", "tool"] * min(window, 4)]
    assert requests(ada)[-1].messages[-1]["content"].count("ada: ada's work") == min(window, 3)


async def test_two_conversations_never_share() -> None:
    """Neither messages nor extras nor turns."""
    model = boss(*[echo] * 4)
    count = hook("on_team_start", lambda trace: trace.extras.update(n=trace.extras.get("n", 0) + 1))
    team = Team("room", members=[agent("ada")], model=model, interceptors=[count])
    async with World().open(team) as runtime:
        for name in ("c", "d", "c"):
            result = await (await runtime.start(team, f"secret of {name}", conversation=name)).result()
            assert result.trace.extras == {"n": 1}  # type: ignore[attr-defined]
        assert "secret of d" not in str((await runtime.conversation("c")).messages)
    assert asked_of(model, 1) == ["secret of d"]
    assert asked_of(model, 2) == ["secret of c", "re: secret of c", "secret of c"]


async def test_a_parked_team_keeps_its_conversation() -> None:
    """A second run is refused until the first is over."""
    team, _, _ = two(interceptors=[hook("should_agent_continue", lambda *_: Verdict.escalate("look"))])
    async with World().open(team) as runtime:
        run = await runtime.start(team, "one", conversation="c")
        assert (await run.result()).status == "suspended"
        with pytest.raises(ConversationBusy):
            await runtime.start(team, "two", conversation="c")
        await runtime.commands.cancel(run.id, by=ANA)
        assert (await run.result()).status == "cancelled"
        again = await runtime.start(team, "two", conversation="c")
        await runtime.commands.cancel(again.id, by=ANA)
        await again.result("end")


@pytest.mark.parametrize("status", ["failed", "stopped", "blocked"])
async def test_a_run_that_failed_leaves_the_task_and_no_answer(status: str) -> None:
    """The next run sees what was asked, and nothing that was denied."""
    fails = {
        "failed": (boss(*[say("hm")] * 3, finish("ok")), []),
        "stopped": (boss(finish("ok")), [hook("should_supervisor_continue", lambda trace: trace.extras.get("x"))]),
        "blocked": (boss(finish("no"), finish("ok")), [hook("intercept", _no_answer)]),
    }
    model, guards = fails[status]
    team = Team("room", members=[agent("ada")], model=model, interceptors=guards)
    if status == "stopped":
        guards[0].__class__.should_supervisor_continue = lambda self, trace: bool(trace.messages[1:])
    async with World().open(team) as runtime:
        first = await (await runtime.start(team, "one", conversation="c")).result()
        assert first.status == status
        second = await (await runtime.start(team, "two", conversation="c")).result()
    assert (second.status, second.answer) == ("completed", "ok")
    assert asked_of(model)[:2] == ["one", "two"]


def _no_answer(context: Any) -> Any:
    denied = context["interception_point"] == "output" and context["target"]["content"] == "no"
    return Verdict.deny("no") if denied else Verdict.allow()


async def test_agents_and_teams_share_a_conversation() -> None:
    """An agent's calls and results are history for a team's supervisor, whole."""
    from teamplay import Worked, call

    tool = Worked(effect="pure")
    clerk = Agent(
        "clerk",
        model=StrictProvider(ScriptedModel([call("act", who="x"), say("looked")], id="clerk")),
        tools=[tool.tool],
    )
    for window in (8, 2, 1):
        model = boss(echo)
        team = Team("room", members=[agent("ada")], model=model, history_window=window)
        async with World().open(team, clerk) as runtime:
            await (await runtime.start(clerk, "one", conversation="c")).result()
            result = await (await runtime.start(team, "two", conversation="c")).result()
        assert (result.status, result.answer) == ("completed", "re: two")


# ---- given for one run -------------------------------------------------------------------------------


async def test_interceptors_and_limits_of_a_run_never_stick() -> None:
    """The next run of the same team knows nothing of them."""
    heard: list[str] = []
    guard = hook("should_agent_continue", lambda trace, member: heard.append(member.name) or False)
    team, ada, _ = two(model=boss(*[assign("ada"), finish()] * 3))
    async with World().open(team) as runtime:
        first = await (await runtime.start(team, "go", interceptors=[guard], max_turns=1)).result()
        second = await (await runtime.start(team, "go")).result()
    assert (first.status, first.reason, heard) == ("exhausted", "max_turns", ["ada"])
    assert (second.status, len(requests(ada))) == ("completed", 1)
    assert first.trace.options.max_turns == 1  # type: ignore[attr-defined]
    assert second.trace.options.max_turns == 8  # type: ignore[attr-defined]
    assert (await team.run("go", interceptors=[guard], max_turns=0)).reason == "max_turns"
    assert (await team.run("go")).status == "completed"


@pytest.mark.parametrize("moment", ["should_agent_continue", "on_model_start", "intercept"])
async def test_resuming_without_the_interceptors_of_the_run_is_refused(moment: str) -> None:
    """They are part of the policy, whatever they listen to; given again the run goes on."""

    def ask(*given: Any) -> Any:
        if moment == "intercept" and given[0]["interception_point"] != "pre_model_call":
            return Verdict.allow()
        return Verdict.escalate("look")

    world = World()
    team, _, _ = two()
    result = await world.play(team, interceptors=[hook(moment, ask)])
    assert result.status == "suspended"
    async with world.open(team, drive=False) as runtime:
        with pytest.raises(PolicyChanged):
            await runtime.resume(result.run_id)
    result = await world.go_on(team, result.run_id, interceptors=[hook(moment, ask)], decide=approve)
    assert result.status == "completed"


async def test_a_driver_without_the_interceptors_leaves_the_run_alone() -> None:
    """A Runtime that adopts what it finds does not go on under another policy."""
    world = World()
    team, ada, _ = two()
    result = await world.play(team, interceptors=[hook("should_agent_continue", lambda *_: Verdict.escalate("look"))])
    async with world.open(team) as runtime:
        await runtime.docket.decide(result.requests[0].id, "approve", by=ANA)
        run = await runtime.run(result.run_id)
        assert (await run.result()).status == "suspended"
    assert requests(ada) == []


async def test_the_policy_covers_the_hooks_of_the_definition() -> None:
    """A team that lost its guard while a run was parked does not go on without it."""
    world = World()
    guarded, _, _ = two(interceptors=[hook("should_agent_continue", lambda *_: Verdict.escalate("look"))])
    result = await world.play(guarded)
    bare, ada, _ = two()
    async with world.open(bare, drive=False) as runtime:
        with pytest.raises(PolicyChanged):
            await runtime.resume(result.run_id)
    assert requests(ada) == []


async def test_limits_of_a_run_hold_after_it_was_parked() -> None:
    """They are stored with the run, and need not be given again."""
    world = World()
    team, _, bob = two(interceptors=[hook("should_agent_continue", lambda *_: Verdict.escalate("look"))])
    result = await world.play(team, max_turns=1)
    result = await world.go_on(team, result.run_id, decide=approve)
    assert (result.status, result.reason, requests(bob)) == ("exhausted", "max_turns", [])


async def test_context_user_and_deps_reach_moments_and_members() -> None:
    """What is given at the start is there in every moment; members' policies see it too."""
    seen: list[Any] = []
    listen = hook("should_agent_continue", lambda trace, member: seen.append((trace.user, dict(trace.context))))
    inner: list[Any] = []

    def look(context: Any) -> Any:
        inner.append(context["extensions"]["lictor"].get("context"))
        return Verdict.allow()

    team, _, _ = two(interceptors=[listen, hook("intercept", look)])
    async with Runtime() as runtime:
        run = await runtime.start(team, "go", user="ana", context={"order": 7})
        await run.result()
    assert seen == [("ana", {"order": 7})] * 2
    assert {str(dict(each)) for each in inner} == {"{'order': 7}"}
