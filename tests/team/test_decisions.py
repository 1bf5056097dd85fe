"""Typed decisions, what a plain text may mean, and what happens with everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from teamplay import ANA, World, agent, approve, assign, boss, call, delegate, finish, hook, kinds, requests, say, two

from lictor import Team, Verdict
from lictor.models import ModelResponse
from lictor.team import Decision
from lictor.team.decisions import read_text


def told_of(model: Any, number: int = -1) -> str:
    """The last message of a request."""
    return str(requests(model)[number].messages[-1]["content"])


async def test_assign_carries_member_and_instruction() -> None:
    """The member gets the task, the work so far and its own part; the supervisor the typed result."""
    team, ada, bob = two(model=boss(assign("ada", "count"), assign("bob", "check"), finish("42")))
    result = await team.run("how many?")
    assert (result.status, result.answer, result.trace.final_answer) == ("completed", "42", "42")  # type: ignore[attr-defined]
    assert requests(ada)[0].messages[-1]["content"] == "how many?\n\nYour part: count"
    asked = requests(bob)[0].messages[-1]["content"]
    assert asked == "how many?\n\nWork so far:\n\nada: ada's work\n\nYour part: check"
    assert json.loads(told_of(team.model, 1)) == {"member": "ada", "status": "completed", "answer": "ada's work"}


async def test_delegate_works_side_by_side_and_is_one_turn() -> None:
    """Both start before either ends; the result lists each in the order asked."""
    import asyncio

    gate = asyncio.Barrier(2)

    async def meet(request: Any) -> Any:
        await gate.wait()
        return say("met")

    a, b = agent("a", meet), agent("b", meet)
    team = Team("room", members=[a, b], model=boss(delegate("a", "b"), finish()))
    result = await team.run("go")
    assert (result.status, result.trace.turn_count) == ("completed", 2)  # type: ignore[attr-defined]
    told = json.loads(told_of(team.model))
    assert (told["status"], [each["member"] for each in told["results"]]) == ("completed", ["a", "b"])


async def test_delegate_says_partial_when_one_failed() -> None:
    """Results are typed, never guessed from words."""
    a, b = agent("a", say("I failed completely")), agent("b", *[call("x")] * 3)
    team = Team("room", members=[a, b], model=boss(delegate("a", "b"), finish()))
    await team.run("go")
    told = json.loads(told_of(team.model))
    assert (told["status"], [each["status"] for each in told["results"]]) == ("partial", ["completed", "failed"])


async def test_several_assigns_of_one_response_are_one_decision() -> None:
    """They run side by side, each with its own result, and cost one turn."""
    team, ada, bob = two(model=boss([assign("ada"), assign("bob")], finish()))
    result = await team.run("go")
    assert (result.status, len(requests(ada)), len(requests(bob))) == ("completed", 1, 1)
    assert result.trace.turn_count == 2  # type: ignore[attr-defined]
    tools = [message for message in requests(team.model)[1].messages if message["role"] == "tool"]
    assert [json.loads(each["content"])["member"] for each in tools] == ["ada", "bob"]


async def test_denied_assigns_of_one_response_count_once() -> None:
    """Three denied calls of one response are one refusal; the third refused response ends the run."""
    guard = hook("on_supervisor_decision", lambda trace, decision: Verdict.deny("no"))
    team, ada, _ = two(interceptors=[guard], model=boss(*[[assign("ada"), assign("bob"), assign("ada")]] * 4))
    result = await team.run("go")
    assert (result.status, result.reason, len(requests(team.model))) == ("failed", "decision_denied", 3)
    assert requests(ada) == []


async def test_a_denied_assign_beside_an_accepted_one() -> None:
    """The accepted one works, the denied one does not, and the count starts anew."""
    guard = hook("on_supervisor_decision", lambda trace, decision: decision.member != "bob")
    rounds = [[assign("bob"), assign("ada")]] * 4
    team, ada, bob = two(interceptors=[guard], model=boss(*rounds, finish()), loop_breaker=None)
    result = await team.run("go")
    assert (result.status, len(requests(ada)), len(requests(bob))) == ("completed", 4, 0)


@pytest.mark.parametrize(
    "entry",
    [
        say("let me think about ada"),
        say(""),
        assign("nobody"),
        call("unheard_of", x=1),
        call("assign", {"member": "ada"}),
        call("finish", {"answer": 3}),
        call("delegate", {"assignments": []}),
        call("ask_human", reason="may I?"),
        [finish("x"), assign("ada")],
    ],
)
async def test_what_is_no_decision_is_asked_again_twice(entry: Any) -> None:
    """The members are listed; the third time the run fails as unroutable, and nobody has worked."""
    team, ada, bob = two(model=boss(*[entry] * 3))
    result = await team.run("go")
    assert (result.status, result.reason, len(requests(team.model))) == ("failed", "unroutable", 3)
    assert (requests(ada), requests(bob)) == ([], [])
    for number in (1, 2):
        assert "ada, bob" in told_of(team.model, number)
    team, ada, bob = two(model=boss(entry, entry, assign("ada"), entry, entry, finish("fine")))
    result = await team.run("go")
    assert (result.status, result.answer, len(requests(ada))) == ("completed", "fine", 1)


async def test_finish_with_others_runs_none_of_them() -> None:
    """Nobody works for an answer that is given already."""
    team, ada, _ = two(model=boss([assign("ada"), finish("early")], finish("late")))
    result = await team.run("go")
    assert (result.answer, requests(ada)) == ("late", [])
    assert "finish comes alone" in told_of(team.model)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("FINISH the total is 4", "the total is 4"),
        ("FINISH: four", "four"),
        ("I looked.\nFINISH\nIt is 4.\nReally.", "It is 4.\nReally."),
        ("It is 4.\n  FINISH", "It is 4."),
    ],
)
async def test_the_finish_marker_begins_a_line(text: str, answer: str) -> None:
    """What follows is the answer, or what came before when nothing follows."""
    team, _, _ = two(model=boss(say(text)))
    result = await team.run("go")
    assert (result.status, result.answer) == ("completed", answer)


async def test_an_exact_name_is_an_assignment() -> None:
    """Surrounding blanks do not matter; anything more than the name is no name."""
    team, ada, _ = two(model=boss(say("  ada\n"), finish()))
    result = await team.run("go")
    assert (result.status, len(requests(ada))) == ("completed", 1)


@pytest.mark.parametrize(
    "text", ["FINISHED", "FINISHING soon", "FINISH_LINE", "we FINISH", "Ada", "ada.", "ask ada", "bob or ada"]
)
def test_words_are_never_guessed(text: str) -> None:
    """No marker inside a word or a line, no name inside a sentence."""
    response = ModelResponse(content=text)
    assert read_text(response, ["ada", "bob"], "FINISH") is response


@given(st.text(max_size=40))
def test_a_text_is_a_decision_or_stays_as_it_is(text: str) -> None:
    """Whatever is written: an exact name, the marker at the start of a line as a word, or nothing."""
    response = ModelResponse(content=text)
    read = read_text(response, ["ada"], "FINISH")
    if read is response:
        assert text.strip() != "ada"
    else:
        assert [each.name for each in read.calls] == (["assign"] if text.strip() == "ada" else ["finish"])


async def test_calls_win_over_text() -> None:
    """A response with calls is what its calls say."""
    team, ada, bob = two(model=boss(say("bob", calls=[assign("ada")]), finish()))
    await team.run("go")
    assert (len(requests(ada)), len(requests(bob))) == (1, 0)


async def test_another_marker() -> None:
    """`finish_marker` is the team's own."""
    team, _, _ = two(model=boss(say("ERLEDIGT: ja")), finish_marker="ERLEDIGT")
    assert (await team.run("go")).answer == "ja"


async def test_a_decision_may_be_redirected() -> None:
    """A Decision in answer to a decision stands for other arguments; the stored call shows what ran."""

    def redirect(trace: Any, decision: Decision) -> Any:
        return Decision(kind="assign", member="bob", instruction="instead") if decision.member == "ada" else None

    team, ada, bob = two(interceptors=[hook("on_supervisor_decision", redirect)], model=boss(assign("ada"), finish()))
    result = await team.run("go")
    assert (result.status, requests(ada), len(requests(bob))) == ("completed", [], 1)
    assert "Your part: instead" in requests(bob)[0].messages[-1]["content"]
    stored = result.trace.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(stored)["member"] == "bob"
    assert result.trace.records[0].content == "bob: instead"  # type: ignore[attr-defined]


async def test_a_redirection_to_nobody_is_asked_again() -> None:
    """A transform that leaves no decision is none."""
    guard = hook("on_supervisor_decision", lambda trace, decision: Decision(kind="assign", member="x", instruction=""))
    team, ada, _ = two(interceptors=[guard], model=boss(*[assign("ada")] * 3))
    result = await team.run("go")
    assert (result.status, result.reason, requests(ada)) == ("failed", "decision_denied", [])


async def test_a_finish_that_is_refused_never_ends_the_run() -> None:
    """The supervisor is told why, and may go on working."""
    guard = hook(
        "on_supervisor_decision",
        lambda trace, decision: Verdict.deny("too_early") if decision.kind == "finish" and not trace.route else None,
    )
    team, ada, _ = two(interceptors=[guard], model=boss(finish("early"), assign("ada"), finish("late")))
    result = await team.run("go")
    assert (result.answer, len(requests(ada))) == ("late", 1)
    assert "too_early" in told_of(team.model, 1)


async def test_an_answer_that_is_sent_back_has_another_turn() -> None:
    """`Verdict.retry` at `output`: the refused answer is not shown again; three times in a row is the end."""

    def judge(context: Any) -> Any:
        bad = context["interception_point"] == "output" and context["target"]["content"] == "bad"
        return Verdict.retry("rude") if bad else Verdict.allow()

    team, ada, _ = two(
        interceptors=[hook("intercept", judge)], model=boss(finish("bad"), assign("ada"), finish("good"))
    )
    result = await team.run("go")
    assert (result.answer, len(requests(ada))) == ("good", 1)
    assert "rude" in told_of(team.model, 1)
    team, _, _ = two(interceptors=[hook("intercept", judge)], model=boss(*[finish("bad")] * 5))
    result = await team.run("go")
    assert (result.status, result.reason, len(requests(team.model))) == ("stopped", "rude", 4)


# ---- ask_human ----------------------------------------------------------------------------------


async def test_ask_human_waits_and_the_words_come_back() -> None:
    """`feedback=True`: a request of kind feedback, answered with respond; the words are the call's result."""
    team, ada, _ = two(feedback=True, model=boss(call("ask_human", reason="which one?"), assign("ada"), finish()))
    world = World()
    result = await world.play(team)
    request = result.requests[0]
    assert (result.status, request.kind, request.verbs) == ("suspended", "feedback", ("respond",))
    assert request.shown.arguments == {"reason": "which one?"}
    async with world.open(team) as runtime:
        await runtime.docket.decide(request.id, "respond", value="the red one", by=ANA)
        result = await (await runtime.run(result.run_id)).result()
    assert (result.status, len(requests(ada)), len(requests(team.model))) == ("completed", 1, 3)
    assert told_of(team.model, 1) == "the red one"
    assert kinds(result)[:2] == [("supervisor", "decision"), ("human", "human")]
    assert result.trace.records[1].content == "the red one"  # type: ignore[attr-defined]
    assert result.trace.last_agent_content == "ada's work"  # type: ignore[attr-defined]


async def test_ask_human_beside_work() -> None:
    """A question and an assignment of one response: the member works, then the run waits."""
    team, ada, _ = two(feedback=True, model=boss([assign("ada"), call("ask_human", reason="ok?")], finish()))
    world = World()
    result = await world.play(team)
    assert (result.status, len(requests(ada)), len(result.requests)) == ("suspended", 1, 1)
    result = await world.go_on(team, result.run_id, decide=approve)
    assert (result.status, len(requests(ada))) == ("completed", 1)


async def test_without_feedback_nobody_is_asked() -> None:
    """The tool is not on offer."""
    team, _, _ = two(model=boss(finish()))
    await team.run("go")
    assert [each["name"] for each in requests(team.model)[0].tools] == ["assign", "delegate", "finish"]


@pytest.mark.parametrize("verb", ["approve", "reject", "edit"])
async def test_a_decision_that_a_person_decides(verb: str) -> None:
    """An escalated assignment is a request about a call: it may be approved, rejected, or edited."""
    guard = hook("on_supervisor_decision", lambda trace, d: Verdict.escalate("look") if d.member == "ada" else None)
    team, ada, bob = two(interceptors=[guard], model=boss(assign("ada"), finish()))
    world = World()
    result = await world.play(team)
    request = result.requests[0]
    assert (request.kind, request.shown.tool) == ("tool_call", "assign")
    more = {"arguments": {"member": "bob", "instruction": "rather you"}} if verb == "edit" else {}
    async with world.open(team) as runtime:
        await runtime.docket.decide(request.id, verb, by=ANA, **more)
        result = await (await runtime.run(result.run_id)).result()
    ran = (len(requests(ada)), len(requests(bob)))
    assert (result.status, ran) == ("completed", {"approve": (1, 0), "reject": (0, 0), "edit": (0, 1)}[verb])
