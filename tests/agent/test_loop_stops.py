"""Stops, failures of enforcement and asking again: what a verdict does to the loop beside letting go or denying."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import Played, Seen, Strict, asked, both_ways, play, policy, tools_said

from lictor import Agent, Composition, Governance, Verdict, tool
from lictor.agent import DenyRepeats
from lictor.errors import RunAborted
from lictor.hooks import POINTS
from lictor.models import call, hosted, say


@tool
async def work(n: int) -> str:
    """Work."""
    return f"did {n}"


# ---- stop, posture, evaluate_only --------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("point", [point for point in POINTS if point != "agent_shutdown"])
@pytest.mark.parametrize("scope", ["run", "member"])
async def test_a_stop_ends_the_run_at_any_point(how: str, point: str, scope: str) -> None:
    """`Verdict.stop` ends the run `stopped` with its reason and leaves a valid history; on record it is a deny."""
    stop = policy(point, lambda c: Verdict.stop("enough", scope=scope))
    agent = Agent(
        "clerk", model=Strict([[call("work", n=1), call("work", n=2)], say("ok")]), tools=[work], interceptors=[stop]
    )
    played = await play(agent, how=how)
    assert (played.status, played.reason, played.by) == ("stopped", "enough", "agent:clerk/policy")
    record = next(r for r in played.records if r["interception_point"] == point)
    assert record["verdict"]["decision"] == "deny"


@both_ways
async def test_a_stop_may_name_the_status(how: str) -> None:
    """A budget of one's own ends the run as `exhausted`."""
    stop = policy("pre_model_call", lambda c: Verdict.stop("my_budget", status="exhausted"))
    played = await play(Agent("clerk", model=Strict([say("ok")]), interceptors=[stop]), how=how)
    assert (played.status, played.reason) == ("exhausted", "my_budget")


@both_ways
@pytest.mark.parametrize("point", ["pre_tool_call", "post_tool_call"])
@pytest.mark.parametrize("posture", ["terminate", "continue"])
@pytest.mark.parametrize("failure", ["raises", "conflict"])
async def test_a_failure_of_enforcement_at_a_tool(how: str, point: str, posture: str, failure: str) -> None:
    """Posture decides about host failures; denies of the composition itself always let the loop go on."""

    def breaking(context: Any) -> Any:
        raise RuntimeError("broken")

    def rewrite(value: Any) -> Any:
        return policy(point, lambda c: Verdict.replace(value), "rewrite")

    pair = [{"n": 1}, {"n": 2}] if point == "pre_tool_call" else ["a", "b"]
    interceptors = [policy(point, breaking)] if failure == "raises" else [rewrite(item) for item in pair]
    composition = Composition("sequential/run_all" if failure == "raises" else "parallel/strictest")
    agent = Agent(
        "clerk",
        model=Strict([call("work", n=1), say("ok")]),
        tools=[work],
        interceptors=interceptors,
        governance=Governance(posture=posture, composition=composition),
    )
    played = await play(agent, how=how)
    if failure == "raises" and posture == "terminate":
        assert (played.status, played.reason) == ("blocked", "host_error:interceptor_failed")
    else:
        assert played.status == "completed"
        told = json.loads(played.result_of())
        assert told["error"] == ("host_error" if failure == "raises" else "denied")


@both_ways
async def test_a_failure_outside_tools_always_blocks(how: str) -> None:
    """Posture is about tool points only."""

    def breaking(context: Any) -> Any:
        raise RuntimeError("broken")

    for point in ("agent_startup", "input", "pre_model_call", "post_model_call", "output"):
        agent = Agent(
            "clerk",
            model=Strict([say("ok")]),
            interceptors=[policy(point, breaking)],
            governance=Governance(posture="continue"),
        )
        played = await play(agent, how=how)
        assert (played.status, played.reason) == ("blocked", "host_error:interceptor_failed")


@both_ways
async def test_evaluate_only_blocks_and_changes_nothing_but_keeps_limits(how: str) -> None:
    """Denies and transforms are recorded only; repeats, limits and approvals still hold."""
    denying = policy("pre_tool_call", lambda c: Verdict.deny("no"), "denying")
    changing = policy("output", lambda c: Verdict.transform("$target.content", "changed"), "changing")

    @tool(requires_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent(
        "clerk",
        model=Strict([call("work", n=1), call("pay"), say("ok")]),
        tools=[work, pay],
        interceptors=[denying, changing],
        governance=Governance(mode="evaluate_only"),
    )
    played = await play(agent, how=how)
    assert (played.status, played.answer, played.result_of(0)) == ("completed", "ok", "did 1")
    assert json.loads(played.result_of(1))["reason"] == "requires_approval"
    record = next(r for r in played.records if r["interception_point"] == "pre_tool_call")
    assert (record["mode"], record["verdict"]["reason"]) == ("evaluate_only", "no")


@both_ways
async def test_repeats_can_be_allowed_or_counted_otherwise(how: str) -> None:
    """`deny_repeats` may be switched off or given other numbers; the loop's own limit stays."""
    denying = policy("pre_tool_call", lambda c: Verdict.deny("no"))

    async def denied(**options: Any) -> Played:
        model = Strict([*[call("work", n=1)] * 5, say("ok")])
        agent = Agent("clerk", model=model, tools=[work], interceptors=[denying], loop_breaker=None, **options)
        return await play(agent, how=how)

    assert [json.loads(text)["reason"] for text in tools_said((await denied(deny_repeats=None)).messages)] == ["no"] * 5
    patient = await denied(deny_repeats=DenyRepeats(deny_after=10, stop_after=3))
    assert (patient.status, len(tools_said(patient.messages))) == ("completed", 5)
    usual = await denied()
    assert (usual.status, usual.reason, len(tools_said(usual.messages))) == ("stopped", "denied_repeatedly", 3)


@both_ways
async def test_a_tool_may_abort_the_run(how: str) -> None:
    """`RunAborted` ends the run as failed, cancels siblings, and the history stays valid."""

    @tool
    async def abort() -> str:
        raise RunAborted(ValueError("broken"))

    model = Strict([[call("abort"), call("work", n=1)], say("x")])
    played = await play(Agent("clerk", model=model, tools=[abort, work], max_parallel_tools=1), how=how)
    assert (played.status, played.error) == ("failed", "ValueError")
    assert len(tools_said(played.messages)) == 2


# ---- asking again ------------------------------------------------------------------------------------


@both_ways
async def test_an_answer_may_be_sent_back_three_times_in_a_row(how: str) -> None:
    """The fourth refusal in a row stops the run with the policy's reason."""
    model = Strict([say(f"v{n}") for n in range(9)])
    check = policy("output", lambda c: Verdict.retry("not_good"))
    played = await play(Agent("clerk", model=model, interceptors=[check]), how=how)
    assert (played.status, played.reason, played.by, len(model.requests)) == (
        "stopped",
        "not_good",
        "agent:clerk/policy",
        4,
    )
    assert [message["content"] for message in played.messages] == ["go"]


@both_ways
async def test_an_answer_may_be_sent_back_six_times_in_a_run(how: str) -> None:
    """Tool calls in between start a new row, not a new run."""
    script = [entry for n in range(9) for entry in (say(f"v{n}"), call("work", n=n))]
    model = Strict(script)
    check = policy("output", lambda c: Verdict.retry("not_good"))
    played = await play(Agent("clerk", model=model, tools=[work], interceptors=[check], max_steps=50), how=how)
    assert (played.status, played.reason) == ("stopped", "not_good")
    assert len(model.requests) == 13


@both_ways
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (say(None), "empty_answer"),
        (say(""), "empty_answer"),
        (say("cut", finish="length"), "truncated"),
        (say("cut", calls=[call("work", n=1)], finish="length"), "truncated"),
        (say(None, finish="content_filter"), "content_filter"),
        (say("odd", finish="sensitive"), "no_answer"),
    ],
)
async def test_unusable_answers_are_asked_again_twice(how: str, bad: Any, reason: str) -> None:
    """Empty, cut and filtered answers share two re-asks in a row; none of them is stored, no cut call runs."""
    model = Strict([bad, bad, say("fine")])
    played = await play(Agent("clerk", model=model, tools=[work]), how=how)
    assert (played.status, played.answer) == ("completed", "fine")
    assert [message["content"] for message in played.messages] == ["go", "fine"]
    assert asked(model).messages[-1]["role"] == "user"
    assert len(asked(model).messages) == 2
    played = await play(Agent("clerk", model=Strict([bad] * 5), tools=[work]), how=how)
    assert (played.status, played.reason, tools_said(played.messages)) == ("failed", reason, [])
    assert played.usage.requests == 3


@both_ways
async def test_different_faults_share_the_re_asks(how: str) -> None:
    """An empty, a cut and a filtered answer in a row end the run; a good response in between starts anew."""
    faults = [say(None), say("x", finish="length"), say(None, finish="content_filter")]
    played = await play(Agent("clerk", model=Strict([*faults, say("late")])), how=how)
    assert (played.status, played.reason) == ("failed", "content_filter")
    mixed = [*faults[:2], call("work", n=1), *faults[:2], say("fine")]
    played = await play(Agent("clerk", model=Strict(mixed), tools=[work]), how=how)
    assert (played.status, played.answer) == ("completed", "fine")


@both_ways
async def test_a_refusal_is_no_success(how: str) -> None:
    """A model that refuses ends the run as failed with the text of the refusal."""
    played = await play(Agent("clerk", model=Strict([say(None, refusal="I will not")])), how=how)
    assert (played.status, played.reason) == ("failed", "content_filter")
    assert "I will not" in str(played.error)


@both_ways
async def test_the_third_unknown_tool_in_a_row_ends_the_run(how: str) -> None:
    """Each is told the valid names; a known tool in between starts the count anew."""
    played = await play(Agent("clerk", model=Strict([call("nope")] * 5), tools=[work]), how=how)
    assert (played.status, played.reason, len(tools_said(played.messages))) == ("failed", "unknown_tool", 3)
    script = [call("nope"), call("nope"), call("work", n=1), call("nope"), call("nope"), say("ok")]
    played = await play(Agent("clerk", model=Strict(script), tools=[work]), how=how)
    assert (played.status, played.answer) == ("completed", "ok")
    assert "work" in json.loads(played.result_of())["message"]


@both_ways
async def test_unknown_tools_have_a_post_and_no_pre(how: str) -> None:
    """An unknown tool or unfit arguments are judged as results only; nothing was about to run."""
    seen = Seen()
    model = Strict([[call("nope"), call("work", n="many")], say("ok")])
    played = await play(Agent("clerk", model=model, tools=[work], interceptors=[seen]), how=how)
    assert "pre_tool_call" not in seen.order
    assert [target["error"] for target in seen.at("post_tool_call")] == ["unknown_tool", "invalid_arguments"]
    assert played.usage.tool_calls == 0


@both_ways
async def test_tools_of_the_provider_are_refused_unless_named(how: str) -> None:
    """A call that the provider ran itself ends the run, unless it is in `hosted_tools`; policies see it marked."""
    seen = Seen()
    script = [[hosted("web_search", {"q": "x"}, {"hits": 1}), say("found")]]
    played = await play(Agent("clerk", model=Strict(script), interceptors=[seen]), how=how)
    assert (played.status, played.reason) == ("failed", "unknown_tool")
    assert "hosted_tools" in str(played.error)
    assert seen.at("post_model_call")[0]["tool_calls"][0]["hosted"] is True
    played = await play(Agent("clerk", model=Strict(script), hosted_tools=["web_search"]), how=how)
    assert (played.status, played.answer) == ("completed", "found")
