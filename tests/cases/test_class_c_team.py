"""Field cases of class c with teams, and the team rows of classes a, b, d and f."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import strict_problem
from teamplay import (
    ANA,
    Worked,
    World,
    agent,
    approve,
    assign,
    boss,
    call,
    delegate,
    finish,
    holds,
    hook,
    kinds,
    requests,
    say,
    transfer,
    two,
)

from lictor import Team, Verdict, tool
from lictor.models import chunks, fail
from lictor.runs import Usage
from lictor.team import RouteState


@tool(external=True)
async def ask(question: str) -> str:  # type: ignore[empty-body] # a person answers
    """Ask whom the work is for."""


# ---- class a ---------------------------------------------------------------------------------------


async def test_A11_a_pipeline_goes_on_at_the_stage_that_paused() -> None:
    """Two of three stages wait for a person: each asks once, none is repeated, the order is P, E, V."""
    tools = {name: Worked(requires_approval=True) for name in "PE"}
    members = [agent(n, call("act", who=n), say(f"{n} done"), tools=[tools[n].tool]) for n in "PE"]
    last = agent("V", say("V done"))
    world, team = World(), Team("line", members=[*members, last], protocol="sequential")
    result = await world.play(team)
    asked = []
    while result.status == "suspended":
        (request,) = result.requests
        asked.append(request.path[-1].name)
        async with world.open(team, drive=False) as runtime:
            await runtime.docket.decide(request.id, "approve", by=ANA)
        result = await world.go_on(team, result.run_id)
    assert (result.status, asked, result.trace.route) == ("completed", ["P", "E"], ("P", "E", "V"))  # type: ignore[attr-defined]
    assert [len(requests(each)) for each in (*members, last)] == [2, 2, 1]
    assert requests(members[1])[0].messages[-1]["content"].count("P done") == 1
    assert [tools[n].calls[n] for n in "PE"] == [1, 1]


async def test_A36_after_a_members_pause_the_leader_knows_what_was_done() -> None:
    """Finished work is not given again, and the leader's script goes on where it stood."""
    deploy = Worked(requires_approval=True)
    research = agent("R", say("research notes"))
    deployer = agent("D", call("act", who="D"), say("deployed"), tools=[deploy.tool])
    model = boss(assign("R", "research"), assign("D", "deploy"), finish("both"))
    world, team = World(), Team("lead", members=[research, deployer], model=model)
    result = await world.play(team)
    result = await world.go_on(team, result.run_id, decide=approve)
    assert (result.status, result.answer, len(requests(research)), deploy.calls["D"]) == ("completed", "both", 1, 1)
    assert [request.position for request in requests(model)] == [0, 1, 2]
    last = str(requests(model)[-1].messages)
    assert "research notes" in last
    assert "deployed" in last


async def test_A37_one_member_twice_in_a_turn_is_two_runs() -> None:
    """Each waits for its own decision; results attach to the right assignment."""

    def work(request: Any) -> Any:
        part = str(request.messages[0]["content"])[-1]
        return call("act", who=part) if request.messages[-1]["role"] == "user" else say(f"did {part}")

    tool_ = Worked(requires_approval=True)
    m = agent("M", *[work] * 4, tools=[tool_.tool])
    model = boss([assign("M", "x"), assign("M", "y")], finish())
    world, team = World(), Team("lead", members=[m], model=model)

    def part_of(request: Any) -> str:
        return str(request.shown.arguments["who"])

    result = await world.play(team)
    assert len({request.run_id for request in result.requests}) == 2
    for part in ("y", "x"):
        request = next(each for each in result.requests if part_of(each) == part)
        async with world.open(team) as runtime:
            await runtime.docket.decide(request.id, "approve", by=ANA)
            result = await (await runtime.run(result.run_id)).result()
        assert tool_.calls[part] == 1
    assert result.status == "completed"
    told = [json.loads(str(each["content"])) for each in requests(model)[1].messages if each["role"] == "tool"]
    assert [each["answer"] for each in told] == ["did x", "did y"]


# ---- class b ---------------------------------------------------------------------------------------


async def test_B11_a_rewritten_assignment_reaches_the_member() -> None:
    """Assignments of a supervisor, and the note of a hand-off, as the policy leaves them."""

    def policy(context: Any) -> Any:
        if context["interception_point"] != "pre_tool_call":
            return Verdict.allow()
        where = "note" if context["tool_call"]["name"] == "transfer_to" else "instruction"
        if where not in context["target"]:
            return Verdict.allow()
        return Verdict.replace({**context["target"], where: context["target"][where] + " [policy]"}, "policy")

    team, ada, _ = two(interceptors=[hook("intercept", policy)], model=boss(assign("ada", "p"), finish()))
    await team.run("go")
    assert requests(ada)[0].messages[-1]["content"].endswith("Your part: p [policy]")
    team, _, bob = two("handoff", interceptors=[hook("intercept", policy)])
    await team.run("go")
    assert requests(bob)[0].messages[-1]["content"].endswith("Note from ada: please go on [policy]")


@pytest.mark.parametrize("protocol", ["hierarchical", "handoff", "none"])
async def test_B22_a_rule_of_the_team_holds_on_every_path(protocol: str) -> None:
    """The member, the agent that is its tool, and the receiver of a hand-off are all refused, with the path."""
    sql = Worked(effect="pure")
    below = agent("N", call("act", who="N"), say("n"), tools=[sql.tool])
    first = agent("M", call("act", who="M"), call("N", task="run it"), _then(protocol), tools=[sql.tool, below])
    other = agent("O", call("act", who="O"), say("o"), tools=[sql.tool])
    seen: list[tuple[str, ...]] = []

    def deny(context: Any) -> Any:
        if context["interception_point"] == "pre_tool_call" and context["tool_call"]["name"] == "act":
            seen.append(tuple(context["extensions"]["lictor"]["path"]))
            return Verdict.deny("no_sql")
        return Verdict.allow()

    team = Team(
        "L",
        members=[first, other],
        protocol=protocol,
        model=boss(delegate("M", "O"), finish()) if protocol == "hierarchical" else None,
        interceptors=[hook("intercept", deny)],
    )
    result = await World().play(team)
    assert (result.status, sum(sql.calls.values())) == ("completed", 0)
    assert {("L", "M"), ("L", "M", "N"), ("L", "O")} <= set(seen)


def _then(protocol: str) -> Any:
    return transfer("O", "run it") if protocol == "handoff" else say("m")


@pytest.mark.parametrize("how", ["deny", "transform"])
async def test_B30_a_phrase_put_together_from_two_turns_is_judged_whole(how: str) -> None:
    """Each half alone passes, the answer made of both does not; nothing of it is streamed before."""

    def rule(context: Any) -> Any:
        if context["interception_point"] != "output" or "system prompt:" not in context["target"]["content"]:
            return Verdict.allow()
        masked = {**context["target"], "content": "masked"}
        return Verdict.deny("leak") if how == "deny" else Verdict.replace(masked, "masked")

    members = [agent("a", chunks(["sys", "tem "])), agent("b", chunks(["prom", "pt:"]))]
    model = boss(delegate("a", "b"), finish("system prompt: x"))
    team = Team("t", members=members, model=model, interceptors=[hook("intercept", rule)])
    events = [event async for event in team.stream("go")]
    said = "".join(event.payload["text"] for event in events if event.kind == "model_delta" and len(event.path) == 1)
    assert events[-1].payload["status"] == ("blocked" if how == "deny" else "completed")
    assert said == ("" if how == "deny" else "masked")


# ---- class c ---------------------------------------------------------------------------------------


async def test_C04_nobody_works_on_a_guess() -> None:
    """Three selections of nobody fail the run and say so; neither the first member nor the last one is taken."""
    team, ada, bob = two(model=boss(assign("ada"), *[say("nobody")] * 3))
    result = await team.run("go")
    assert (result.status, result.reason) == ("failed", "unroutable")
    assert (len(requests(ada)), requests(bob)) == (1, [])


@pytest.mark.parametrize("depth", [1, 2])
async def test_C06_the_end_of_an_inner_team_is_its_own(depth: int) -> None:
    """Its `finish` ends nothing around it: what comes after runs once, and nobody inside is asked again."""
    inside = agent("M", say("m"))
    model = boss(assign("M"), assign("M"), finish("left"), finish("never"))
    inner = Team("Loop2", members=[inside], model=model)
    if depth == 2:
        inner = Team("Loop1", members=[inner], model=boss(assign("Loop2"), finish("left too")))
    after = agent("After", say("after"))
    result = await World().play(Team("line", members=[inner, after], protocol="sequential"))
    assert (result.status, result.answer, len(requests(after))) == ("completed", "after", 1)
    assert (len(requests(inside)), len(requests(model))) == (2, 3)


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
async def test_C08_a_limit_of_n_turns_makes_n_decisions(limit: int) -> None:
    """A supervisor without an end decides exactly N times; one that finishes with the last turn is completed."""
    model = boss(*[assign("ada")] * 10)
    team, ada, _ = two(model=model, max_turns=limit, loop_breaker=None)
    result = await team.run("go")
    assert (result.status, result.reason) == ("exhausted", "max_turns")
    assert (len(requests(model)), len(requests(ada))) == (limit, limit)
    if limit:
        model = boss(*[assign("ada")] * (limit - 1), finish())
        team, _, _ = two(model=model, max_turns=limit, loop_breaker=None)
        assert ((await team.run("go")).status, len(requests(model))) == ("completed", limit)


@pytest.mark.parametrize("way", ["assign", "delegate", "twice", "handoff", "none"])
async def test_C09_a_members_own_limit_holds_however_it_is_reached(way: str) -> None:
    """Three model calls for each activation; the supervisor is told `exhausted`, not an empty success."""
    endless = Worked(effect="pure")
    member = agent("M", *[call("act", who="M")] * 20, tools=[endless.tool], max_steps=3)
    first = agent("F", transfer("M"))
    decisions = {"assign": assign("M"), "delegate": delegate("M", "M"), "twice": [assign("M"), assign("M")]}
    if way in decisions:
        model = boss(decisions[way], finish())
        team = Team("t", members=[member], model=model, max_turns=10)
    else:
        members = [first, member] if way == "handoff" else [member]
        team = Team("t", members=members, protocol=way, max_turns=10)
    result = await World().play(team)
    activations = 2 if way in ("delegate", "twice") else 1
    assert len(requests(member)) == 3 * activations
    if way in decisions:
        assert "exhausted" in str(requests(model)[1].messages[-1]["content"])
    else:
        assert result.status == "failed"
    assert [kind for _, kind in kinds(result)].count("error") == activations


@pytest.mark.parametrize("order", ["before", "after"])
async def test_C12_a_call_beside_a_transfer_has_its_result(order: str) -> None:
    """Both calls of the response are answered, the control moves once; ours hands on the note, not the history."""
    search = Worked(effect="pure")
    both = [call("act", who="A"), transfer("B", "found it")]
    a = agent("A", both if order == "before" else both[::-1], tools=[search.tool])
    b = agent("B", say("done"))
    world = World()
    result = await world.play(Team("t", members=[a, b], protocol="handoff"))
    assert (result.status, result.answer, search.calls["A"]) == ("completed", "done", 1)
    assert (len(requests(a)), len(requests(b)), result.trace.route) == (1, 1, ("A", "B"))  # type: ignore[attr-defined]
    run_id = result.trace.records[0].run_id  # type: ignore[attr-defined]
    async with world.open(drive=False) as runtime:
        messages = (await runtime.trace(run_id)).messages
    assert strict_problem(messages) is None
    assert sorted(str(m["content"]) for m in messages if m["role"] == "tool") == ["A acted", "transferred to B"]


async def test_C16_an_empty_result_is_a_success() -> None:
    """The supervisor is told so; one that finds no way on fails within a stated number of calls."""
    m = agent("M", say('{"status":"ok","items":[]}'))
    other = agent("O", say("never"))
    model = boss(assign("M"), *[say("stalled")] * 5)
    result = await Team("t", members=[m, other], model=model).run("go")
    assert (result.status, result.reason, len(requests(model)), requests(other)) == ("failed", "unroutable", 4, [])
    told = json.loads(str(requests(model)[1].messages[-1]["content"]))
    assert told == {"member": "M", "status": "completed", "answer": '{"status":"ok","items":[]}'}


async def test_C19_a_persons_answer_reaches_the_member_that_waited() -> None:
    """On the path a, b, a, b the last one waits and goes on with what it was told."""

    def turn(request: Any) -> Any:
        asked = str(request.messages[0]["content"])
        if request.messages[-1]["role"] == "tool":
            return say(f"told {request.messages[-1]['content']}")
        return call("ask", question="?") if "second" in asked else transfer("a", "second")

    a = agent("a", transfer("b", "first"), transfer("b", "second"))
    b = agent("b", *[turn] * 3, tools=[ask])
    world, team = World(), Team("t", members=[a, b], protocol="handoff")
    result = await world.play(team)
    assert (result.status, result.trace.route) == ("suspended", ("a", "b", "a"))  # type: ignore[attr-defined]
    answer = ("respond", {"value": "blue"})
    result = await world.go_on(team, result.run_id, decide=lambda request: answer)
    assert (result.status, result.answer, result.trace.route) == ("completed", "told blue", ("a", "b", "a", "b"))  # type: ignore[attr-defined]


async def test_C22_who_is_asked_by_a_peer_cannot_hand_the_work_on() -> None:
    """An agent used as a tool has no transfer: a typed error, and the asker gets the answer of whom it asked."""
    peer = agent("B", transfer("C", "you do it"), say("B's own answer"))
    asker = agent("A", call("B", task="?"), lambda request: say(f"got {request.messages[-1]['content']}"), tools=[peer])
    third = agent("C", say("never"))
    result = await World().play(Team("t", members=[asker, third], protocol="handoff"))
    assert (result.status, requests(third)) == ("completed", [])
    assert "B's own answer" in str(result.answer)
    assert "unknown_tool" in str(requests(peer)[1].messages[-1]["content"])


# ---- classes d and f -------------------------------------------------------------------------------


async def test_D08_each_message_is_shown_once_after_every_restore() -> None:
    """Three turns of a hand-off team with a pause in each: no request shows a message twice."""

    def work(request: Any) -> Any:
        return say("done") if request.messages[-1]["role"] == "tool" else call("ask", question="which?")

    world, shown = World(), []
    for turn in range(3):
        a = agent("a", *[transfer("b", f"memo {turn}")] * 3)
        b = agent("b", *[work] * 6, tools=[ask])
        team = Team("t", members=[a, b], protocol="handoff")
        result = await world.play(team, f"task {turn}", conversation="c")
        answer = ("respond", {"value": f"words {turn}"})
        result = await world.go_on(team, result.run_id, decide=lambda request, answer=answer: answer)
        assert result.answer == "done"
        shown += [request.messages for request in requests(b)]
    for messages in shown:
        texts = [json.dumps(dict(message), default=dict, sort_keys=True) for message in messages]
        assert len(set(texts)) == len(texts)
    assert [len(messages) for messages in shown] == [1, 3] * 3
    async with world.open(drive=False) as runtime:
        stored = (await runtime.conversation("c")).messages
    assert [str(message["content"]) for message in stored] == [
        text for turn in range(3) for text in (f"task {turn}", "done")
    ]


async def test_D10_a_streamed_hand_off_is_one_item() -> None:
    """One call, one result, in the order in which they are stored; the list is one that a strict provider takes."""
    team, _, _ = two("handoff")
    events = [event async for event in team.stream("go")]
    calls = [(event.run_id, event.payload["call"]) for event in events if event.kind == "tool_started"]
    results = [(event.run_id, event.payload["call"]) for event in events if event.kind == "tool_finished"]
    assert calls == results
    assert len(set(calls)) == len(calls) == 1
    assert [event.payload["to"] for event in events if event.kind == "handoff"] == ["bob"]
    assert len([event for event in events if event.kind == "run_finished"]) == 3


async def test_F04_usage_counts_everything_below() -> None:
    """A chain of teams four deep, with a retry: the total is the sum, live, afterwards and after a pause."""
    used = Usage(input_tokens=10, output_tokens=5)
    gate = Worked(requires_approval=True)
    deep = agent(
        "deep",
        fail(503, retry_after=0),
        call("act", who="deep", usage=used),
        say("x", usage=used),
        tools=[gate.tool],
    )
    team: Any = deep
    for level in range(3):
        model = boss(assign(team.name, usage=used), call("finish", answer="up", usage=used))
        model.model.id = model.id = f"boss{level}"
        team = Team(f"t{level}", members=[team], model=model)
    world = World()
    result = await world.play(team)
    assert result.usage.total_tokens == 4 * 15
    result = await world.go_on(team, result.run_id, decide=approve)
    assert (result.status, result.usage.total_tokens, result.usage.retries) == ("completed", 8 * 15, 1)
    trace: Any = result.trace
    assert trace.metrics.by == {"t1": 6 * 15}
    async with world.open(drive=False) as runtime:
        assert (await runtime.trace(result.run_id)).usage.total_tokens == 8 * 15


@pytest.mark.parametrize("where", ["router", "member", "hook", "wrap", "end"])
async def test_F14_whatever_raises_everything_started_has_its_end(where: str) -> None:
    """One typed end for each start, that of the run last, and the cause is in it."""

    class Router:
        name, supervised = "router", False

        def next(self, state: RouteState, event: Any) -> Any:
            raise ValueError("router is broken")

    class Broken:
        name = "broken"

        async def work(self, task: str) -> str:
            raise ValueError("member is broken")

    async def wrap(self: Any, step: Any, call_next: Any) -> Any:
        raise ValueError("wrap is broken")

    def raises(*given: Any) -> Any:
        raise ValueError("hook is broken")

    guards: dict[str, Any] = {
        "hook": hook("should_agent_continue", raises),
        "end": hook("on_team_end", raises),
        "wrap": type("W", (type(hook("on_team_start", raises)).__base__,), {"intercept_tool": wrap})(),
    }
    member: Any = Broken() if where == "member" else agent("a", say("x"))
    team = Team(
        "t",
        members=[member],
        protocol=Router() if where == "router" else "sequential",  # type: ignore[arg-type]
        interceptors=[guards[where]] if where in guards else [],
    )
    world = World()
    result = await world.play(team)
    holds(world.store, result.run_id)
    events = [event async for event in team.stream("go")]
    assert (events[-1].kind, events[-1].payload["status"]) == ("run_finished", result.status)
    assert [event.kind for event in events].count("run_started") == [event.kind for event in events].count(
        "run_finished"
    )
    assert result.status == ("completed" if where == "end" else "failed")
    if where == "router":
        assert (result.error, result.by) == ("ValueError: router is broken", "protocol:router")
    if where in ("member", "wrap"):
        assert f"{where} is broken" in result.trace.records[0].content  # type: ignore[attr-defined]
