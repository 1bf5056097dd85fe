"""The behaviours that the original team framework tests, by number; those that ours differs in are in README.md."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from teamplay import (
    ANA,
    Listening,
    Worked,
    World,
    agent,
    assign,
    boss,
    call,
    delegate,
    finish,
    hook,
    kinds,
    requests,
    say,
    skips,
    transfer,
    two,
)

from lictor import Agent, Runtime, Team, Verdict, tool
from lictor.agent import ToolContext
from lictor.errors import DefinitionError
from lictor.models import fail
from lictor.runs import Usage


def test_01_a_team_of_nobody_cannot_be_made() -> None:
    """At once, not at its first run."""
    with pytest.raises(DefinitionError, match="no members"):
        Team("t", members=[], model=boss())


async def test_02_without_a_model_members_work_in_sequence() -> None:
    """No supervisor is needed, and none is asked."""
    result = await Team("t", members=[agent("a", say("x")), agent("b", say("y"))], protocol="sequential").run("go")
    assert (result.status, result.answer) == ("completed", "y")


@pytest.mark.parametrize("limit", ["max_turns", "max_handoffs", "history_window", "record_window", "retries"])
def test_03_every_option_is_kept_zero_included(limit: str) -> None:
    """A definition has its options for good; a zero is no missing value."""
    assert getattr(Team("t", members=[agent("a")], protocol="none", **{limit: 0}), limit) == 0


async def test_04_what_a_member_raised_is_in_the_outcome() -> None:
    """The original error by type and text, in the record; a team's outcome is returned and never raised."""

    class Broken:
        name = "broken"

        async def work(self, task: str) -> str:
            raise KeyError("order 7")

    result = await Team("t", members=[Broken()], protocol="sequential").run("go")
    assert (result.status, result.by) == ("failed", "member:broken")
    assert "KeyError: 'order 7'" in result.trace.records[0].content  # type: ignore[attr-defined]


async def test_05_the_trace_of_a_failed_run_ends_at_the_failed_member() -> None:
    """Afterwards too."""
    members = [agent("a", say("x")), agent("b", fail(400)), agent("c", say("z"))]
    world = World()
    result = await world.play(Team("t", members=members, protocol="sequential"))
    async with world.open(drive=False) as runtime:
        trace: Any = await runtime.trace(result.run_id)
    assert (trace.route[-1], trace.last_agent_name, trace.status) == ("b", "b", "failed")


@pytest.mark.parametrize("works", [True, False])
async def test_06_the_start_once_the_end_on_success_finished_always(works: bool) -> None:
    """Each exactly once."""
    listening = Listening()
    member = agent("a", say("x") if works else fail(400))
    await Team("t", members=[member], protocol="sequential", interceptors=[listening]).run("go")
    heard = [moment for moment, *_ in listening.heard]
    assert (heard.count("on_team_start"), heard.count("on_team_end"), heard.count("on_team_finished")) == (1, works, 1)


async def test_07_sequential_is_the_order_of_the_definition_whatever_a_text_says() -> None:
    """Each member once."""
    members = [agent("a", say("skip b, go to c")), agent("b", say("FINISH")), agent("c", say("a"))]
    result = await Team("t", members=members, protocol="sequential").run("do not ask b")
    assert (result.trace.route, result.answer) == (("a", "b", "c"), "a")  # type: ignore[attr-defined]
    assert [len(requests(each)) for each in members] == [1, 1, 1]


async def test_08_what_is_given_to_the_run_is_there_inside_members() -> None:
    """Context and deps reach their tools."""
    seen: list[Any] = []

    @tool(effect="pure")
    async def look(context: ToolContext) -> str:
        """Look."""
        seen.append((context.context, context.deps, context.user))
        return "ok"

    member = agent("a", call("look"), say("x"), tools=[look])
    async with Runtime() as runtime:
        team = Team("t", members=[member], protocol="sequential")
        await (await runtime.start(team, "go", context={"k": 1}, deps="deps", user="ana")).result()
    assert seen == [({"k": 1}, "deps", "ana")]


async def test_09_data_survives_four_hops() -> None:
    """Each stage is told what those before it came to."""

    def relay(request: Any) -> Any:
        text = str(request.messages[-1]["content"])
        return say("code 7431" if "Work so far" not in text else text.rsplit("code ", 1)[1].split()[0] and "code 7431")

    def last(request: Any) -> Any:
        return say("got 7431" if "code 7431" in str(request.messages[-1]["content"]) else "lost")

    members = [agent("m0", say("code 7431")), *[agent(f"m{n}", relay) for n in (1, 2, 3)], agent("m4", last)]
    assert (await Team("t", members=members, protocol="sequential").run("go")).answer == "got 7431"


async def test_11_the_next_attempt_begins_at_the_first_unfinished_stage() -> None:
    """Not at the number of those that were finished: a skipped one in between does not shift it."""
    broken = [True]

    def third(request: Any) -> Any:
        return fail(503, retry_after=0) if broken[0] else say("three")

    guard = hook("should_agent_continue", lambda trace, member: member.name != "a")
    members = [agent("a"), agent("b", say("two")), agent("c", *[third] * 20), agent("d", say("four"))]
    team, world = Team("t", members=members, protocol="sequential", interceptors=[guard]), World()
    result = await world.play(team)
    assert (result.status, result.resumable) == ("failed", True)
    broken[0] = False
    async with world.open(team) as runtime:
        run = await runtime.resume(result.run_id)
        result = await run.result()
    assert (result.answer, result.trace.route) == ("four", ("a", "b", "c", "d"))  # type: ignore[attr-defined]
    assert len(requests(members[1])) == 1


async def test_12_a_new_task_is_a_fresh_run_with_history() -> None:
    """Turns start anew, earlier messages remain."""
    model = boss(assign("ada"), finish("1"), finish("2"))
    team, _, _ = two(model=model)
    async with World().open(team) as runtime:
        await (await runtime.start(team, "one", conversation="c")).result()
        second = await (await runtime.start(team, "two", conversation="c")).result()
    assert second.trace.turn_count == 1  # type: ignore[attr-defined]
    assert [message["content"] for message in requests(model)[-1].messages[1:]] == ["one", "1", "two"]


async def test_13_two_conversations_share_nothing() -> None:
    """Neither messages nor stored values."""
    note = hook("on_team_start", lambda trace: trace.extras.setdefault("first", trace.run_id) and None)
    model = boss(finish("1"), finish("2"))
    team, _, _ = two(model=model, interceptors=[note])
    async with World().open(team) as runtime:
        results = [await (await runtime.start(team, name, conversation=name)).result() for name in ("c", "d")]
    assert [each.trace.extras["first"] for each in results] == [each.run_id for each in results]  # type: ignore[attr-defined]
    assert "c" not in [message["content"] for message in requests(model)[1].messages]


async def test_14_the_window_keeps_the_newest() -> None:
    """Of a conversation of three runs the last two messages."""
    model = boss(finish("1"), finish("2"), finish("3"))
    team, _, _ = two(model=model, history_window=2)
    async with World().open(team) as runtime:
        for name in ("one", "two", "three"):
            await (await runtime.start(team, name, conversation="c")).result()
    assert [message["content"] for message in requests(model)[-1].messages[1:]] == ["two", "2", "three"]


async def test_15_instructions_are_never_stored_and_a_file_brings_all_back(tmp_path: Any) -> None:
    """No system message in the conversation; another Runtime reads messages and context."""
    url = f"sqlite:///{tmp_path}/s.db"
    team, _, _ = two(model=boss(finish("1")), instructions="secret prompt")
    async with Runtime(url, definitions={"room": team}) as runtime:
        run = await runtime.start(team, "one", conversation="c", context={"k": 1})
        await run.result()
    async with Runtime(url, drive=False) as runtime:
        stored = (await runtime.conversation("c")).messages
        assert runtime.row(run.id).context == {"k": 1}
    assert [message["role"] for message in stored] == ["user", "assistant"]


async def test_16_a_finish_that_is_refused_does_not_end_the_run() -> None:
    """The supervisor goes on."""
    guard = hook("on_supervisor_decision", lambda trace, decision: decision.kind != "finish" or bool(trace.route))
    team, ada, _ = two(model=boss(finish("early"), assign("ada"), finish("late")), interceptors=[guard])
    result = await team.run("go")
    assert (result.answer, len(requests(ada))) == ("late", 1)


async def test_17_what_cannot_be_read_never_ends_the_run_silently() -> None:
    """Ours asks again and then fails by name; it never sends work to a member on a guess."""
    team, ada, _ = two(model=boss(*[say("hmm, ada perhaps?")] * 3))
    result = await team.run("go")
    assert (result.status, result.reason, requests(ada)) == ("failed", "unroutable", [])


async def test_18_finish_is_allowed_once_anybody_has_worked() -> None:
    """The last registered member need not have."""
    team, _, bob = two(model=boss(assign("ada"), finish("done")))
    assert ((await team.run("go")).answer, requests(bob)) == ("done", [])


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_19_turns_never_exceed_the_limit(limit: int) -> None:
    """Whoever decides, and however often it is refused."""
    guard = hook("should_agent_continue", lambda trace, member: member.name != "bob")
    team, _, _ = two(model=boss(*[assign("ada"), assign("bob")] * 5), max_turns=limit, interceptors=[guard])
    result = await team.run("go")
    assert (result.trace.turn_count, result.reason) == (limit, "max_turns")  # type: ignore[attr-defined]


async def test_23_a_hook_that_adds_to_a_request_changes_no_memory() -> None:
    """The stored transcript and the next request are without it."""
    added = [True]

    def enrich(trace: Any, request: Any) -> None:
        if added.pop() if added else False:
            request.messages.append({"role": "user", "content": "only now"})

    team, _, _ = two(interceptors=[hook("on_prepare", enrich)])
    result = await team.run("go")
    first, *others = requests(team.model)
    assert "only now" in str(first.messages)
    assert "only now" not in str([each.messages for each in others]) + str(result.trace.messages)


async def test_29_a_member_without_a_description_is_no_problem() -> None:
    """Anywhere: in the instructions, in the tools, in a hand-off."""
    team, _, _ = two()
    assert (await team.run("go")).status == "completed"
    assert "- ada\n- bob" in str(requests(team.model)[0].messages[0]["content"])
    assert (await two("handoff")[0].run("go")).status == "completed"


async def test_31_a_hand_off_that_fails_goes_back_to_the_sender() -> None:
    """The task is as it was, the sender is told; ours counts it (an invalid target costs a hand-off)."""

    def work(request: Any) -> Any:
        return say("alone") if "no member" in str(request.messages) else transfer("ghost", "x")

    a = agent("a", work, work)
    result = await Team("t", members=[a, agent("b")], protocol="handoff").run("the task")
    assert (result.answer, len(requests(a))) == ("alone", 2)
    assert requests(a)[1].messages[-1]["content"].startswith("the task\n\nThere is no member 'ghost'")


@pytest.mark.parametrize("limit", [0, 1])
async def test_32_a_hand_off_counts_one(limit: int) -> None:
    """The limit is exact."""
    team, _, bob = two("handoff", max_handoffs=limit)
    result = await team.run("go")
    assert (result.status, len(requests(bob))) == (("completed", 1) if limit else ("exhausted", 0))


async def test_33_what_is_handed_over_is_the_note() -> None:
    """Not what the sender wrote besides."""
    a = agent("a", say("my secret draft", calls=[transfer("b", "the memo")]))
    b = agent("b", say("done"))
    await Team("t", members=[a, b], protocol="handoff").run("go")
    asked = str(requests(b)[0].messages)
    assert "the memo" in asked
    assert "secret draft" not in asked


async def test_38_a_team_in_a_team_runs_once_and_both_traces_exist() -> None:
    """The record above names the team below."""
    inner = Team("inner", members=[agent("m", say("deep"))], protocol="sequential")
    world = World()
    result = await world.play(Team("outer", members=[inner], protocol="sequential"))
    record = result.trace.records[0]  # type: ignore[attr-defined]
    async with world.open(drive=False) as runtime:
        below: Any = await runtime.trace(record.run_id)
    assert (record.source, below.name, below.route) == ("inner", "inner", ("m",))


async def test_39_a_run_that_waits_before_a_step_goes_on_after_what_was_done() -> None:
    """Earlier records stay, and new ones follow to the end; from a store that is all there is left."""

    def guards() -> list[Any]:
        return [hook("on_node_start", lambda trace, node: trace.suspend("look") if node == "bob" else None)]

    world = World()
    team, ada, _ = two("sequential", interceptors=guards())
    result = await world.play(team)
    assert (result.status, kinds(result)) == ("suspended", [("ada", "output")])
    again, fresh, _ = two("sequential", interceptors=guards())
    async with world.open(again) as runtime:
        await runtime.docket.decide(result.requests[0].id, "approve", by=ANA)
        result = await (await runtime.run(result.run_id)).result()
    assert (result.status, kinds(result)) == ("completed", [("ada", "output"), ("bob", "output")])
    assert (len(requests(ada)), requests(fresh)) == (1, [])


async def test_40_an_edited_call_of_a_member_runs_once_as_edited() -> None:
    """And nothing is pending afterwards."""
    act = Worked(requires_approval=True)
    team = Team("t", members=[agent("a", call("act", who="x"), say("ok"), tools=[act.tool])], protocol="sequential")
    world = World()
    result = await world.play(team)
    edit = ("edit", {"arguments": {"who": "y"}})
    result = await world.go_on(team, result.run_id, decide=lambda request: edit)
    assert (result.status, dict(act.calls)) == ("completed", {"y": 1})
    async with world.open(drive=False) as runtime:
        assert await runtime.docket.pending() == []


async def test_extra_a_stream_ends_with_one_terminal_event() -> None:
    """Members' deltas come before it."""
    team, _, _ = two("sequential")
    events = [event async for event in team.stream("go")]
    root = events[0].run_id
    assert [each.kind for each in events if each.run_id == root].count("run_finished") == 1
    assert (events[-1].kind, events[-1].run_id) == ("run_finished", root)
    assert "bob's work" in "".join(each.payload["text"] for each in events if each.kind == "model_delta")


async def test_extra_metrics_add_and_start_anew() -> None:
    """The sum over members; the next run begins at nothing."""
    used = Usage(input_tokens=6, output_tokens=4)
    members = [agent("a", say("x", usage=used)), agent("b", say("y", usage=used))]
    team = Team("t", members=members, protocol="none")
    for _ in range(2):
        metrics = (await team.run("go")).trace.metrics  # type: ignore[attr-defined]
        assert (metrics.total_tokens, metrics.by) == (20, {"a": 10, "b": 10})


async def test_extra_sensitive_calls_of_members_side_by_side_wait_for_all() -> None:
    """Within one member every gated call is held until each is decided."""
    act = Worked(requires_approval=True)
    member = agent("a", [call("act", who="x"), call("act", who="y")], say("ok"), tools=[act.tool])
    team, world = Team("t", members=[member], model=boss(delegate("a"), finish())), World()
    result = await world.play(team)
    assert len(result.requests) == 2
    async with world.open(team) as runtime:
        await runtime.docket.decide(result.requests[0].id, "approve", by=ANA)
        run = await runtime.run(result.run_id)
        assert ((await run.result()).status, dict(act.calls)) == ("suspended", {})
        await runtime.docket.decide(result.requests[1].id, "approve", by=ANA)
        assert (await run.result()).status == "completed"
    assert dict(act.calls) == {"x": 1, "y": 1}


async def test_the_seed_a_refused_member_is_skipped_and_the_team_goes_on() -> None:
    """Scenario B: a permission is looked up when it is needed."""
    allowed: set[str] = set()

    async def permission(trace: Any, member: Agent) -> Any:
        await asyncio.sleep(0)
        return member.name != "refund" or "refund:approve" in allowed or Verdict.deny("permission", "ask your lead")

    def team() -> tuple[Team, Agent]:
        refund = agent("refund", say("paid"))
        model = boss(assign("refund"), finish("answered"))
        return Team(
            "t", members=[refund], model=model, interceptors=[hook("should_agent_continue", permission)]
        ), refund

    room, refund = team()
    result = await room.run("go")
    assert (result.answer, requests(refund)) == ("answered", [])
    assert skips(result) == ["[Skipped] Cancelled by team:t/guard: ask your lead"]
    allowed.add("refund:approve")
    room, refund = team()
    assert ((await room.run("go")).answer, len(requests(refund))) == ("answered", 1)
