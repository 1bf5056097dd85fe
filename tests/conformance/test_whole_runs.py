"""Contexts and records of whole runs are valid by the contract's own schemas, whatever happens in them."""

from __future__ import annotations

from typing import Any

import pytest
from hooks.contract_schemas import validator

from lictor import ALLOW, Agent, Composition, Governance, InterceptionBlocked, Runtime, User, Verdict, interceptor, tool
from lictor.agent import Incremental
from lictor.hooks import keyed_identity
from lictor.models import Call, ModelResponse, Reply, ScriptedModel, TextDelta, call, chunks, fail, hosted, say
from lictor.runs import Usage
from lictor.values import thaw

RULES = [
    (Composition("sequential/first_deny", on_approval="resume"), "continue"),
    (Composition("sequential/run_all"), "terminate"),
    (Composition("parallel/strictest", on_transform_conflict="approval"), "terminate_all"),
    (Composition("parallel/unanimous", on_disagreement="approval"), "continue"),
]


class Kept:
    """Keeps every context, as a foreign interceptor would get it."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def intercept(self, context: Any) -> Any:
        """Keep and allow."""
        self.contexts.append(thaw(context))
        return {"decision": "allow", "result_labels": ["kept"], "warnings": [{"reason": "seen", "message": "é" * 300}]}


@interceptor(points=["pre_tool_call", "post_tool_call", "post_model_call"], version="2")
def policy(context: Any) -> Any:
    """Says something else to each tool."""
    name = context.get("tool_call", {}).get("name")
    if context["interception_point"] == "pre_tool_call":
        return {
            "refused": Verdict.deny("not_this", "m" * 400),
            "changed": Verdict.transform("$target.n", 2),
            "asked": Verdict.escalate("ask_first", responders=["human:ana"], deadline=60.0),
            "broken": {"decision": "maybe"},
        }.get(name, ALLOW)
    if name == "dropped":
        evidence = {"artefact": "sha256:00", "verification_pointers": {"log": "https://example.org"}}
        return {"decision": "deny", "reason": "tainted", "evidence": evidence}
    return ALLOW


def agent(streams: Any, **options: Any) -> Agent:
    """An agent that does everything once: each kind of call, a nested agent, odd arguments, re-asks and retries."""

    @tool(effect="pure")
    async def changed(n: int) -> int:
        return n

    @tool
    async def refused() -> str:
        return "never"

    @tool
    async def asked(n: int) -> str:
        return "paid"

    @tool
    async def broken() -> str:
        return "never"

    @tool(effect="pure")
    async def dropped() -> str:
        return "secret"

    @tool(effect="pure")
    async def odd() -> Any:
        return {"nan": float("nan"), "big": 2**60, "set": [1.5, None, b"bytes", "\ud800"]}

    @tool(effect="pure")
    async def raising() -> str:
        raise ValueError("no")

    poet = Agent("poet", model=ScriptedModel([chunks(["roses ", "are red"])]), stream=streams, description="Writes.")
    batch = [call(name) for name in ("refused", "dropped", "odd", "raising", "unknown")]
    script = [
        fail(429, retry_after=0),
        say("", finish="stop"),
        Reply(
            (TextDelta("let me "), ModelResponse("let me look", (Call("tc-1", "changed", '{"n": 1}'),), "tool_calls"))
        ),
        batch,
        [call("changed", "no json"), call("changed", {"n": "x"}), call("asked", n=1), call("poet", task="write")],
        call("broken"),
        [hosted("web_search", {"q": "x"}, {"hits": 1}), say("all done, and more", usage=Usage(input_tokens=9))],
    ]
    return Agent(
        "clerk",
        model=ScriptedModel(script),
        instructions="Be brief.",
        tools=[changed, refused, asked, broken, dropped, odd, raising, poet],
        stream=streams,
        hosted_tools=["web_search"],
        **options,
    )


def approve(request: Any) -> dict[str, Any]:
    """Approve whatever is asked."""
    verdict = {"decision": "allow"}
    return {"outcome": "approve", "context_identity": request.context_identity, "verdict": verdict}


def validate(contexts: list[dict[str, Any]], records: list[Any]) -> None:
    """Raise unless all of them have the contract's schema."""
    for context in contexts:
        for name in ("agent-context", f"agent-context/{context['interception_point']}"):
            validator(name).validate(context)
    for record in records:
        validator("interception-record").validate(thaw(record))


@pytest.mark.parametrize("streams", ["buffered", "incremental", Incremental(8)], ids=str)
@pytest.mark.parametrize(("composition", "posture"), RULES, ids=[rules.profile for rules, _ in RULES])
async def test_runs_are_valid(composition: Composition, posture: str, streams: Any) -> None:
    """Each profile, posture and way of streaming, in both modes, with and without a resolver, leaves valid data."""
    for mode in ("enforce", "evaluate_only"):
        for resolver in (None, approve):
            kept, records = Kept(), []
            rules = Governance(
                mode=mode,
                composition=composition,
                posture=posture,
                record_sink=records.append,
                identity=keyed_identity("k1", b"0" * 32) if resolver else "jcs-sha256",
            )
            who = agent(streams, governance=rules, interceptors=[kept, policy], resolver=resolver)
            user = User("ana", {"role": "clerk"})
            try:
                result = await who.run("Do everything.", user=user, context={"order": 7})
            except InterceptionBlocked as blocked:
                result = blocked.run  # type: ignore[assignment]
            own = [record for record in records if record["session_id"] == result.run_id]
            assert list(map(thaw, result.records)) == list(map(thaw, own))
            assert {context["interception_point"] for context in kept.contexts} >= {"agent_startup", "agent_shutdown"}
            validate(kept.contexts, records)


async def test_a_run_that_goes_through_is_valid() -> None:
    """A run to its answer meets all eight points, in two runs below one root, and every one is valid."""
    kept, records = Kept(), []
    rules = Governance(posture="continue", record_sink=records.append)
    result = await agent("incremental", governance=rules, interceptors=[kept, policy], resolver=approve).run("Go.")
    assert (result.status, result.answer) == ("completed", "all done, and more")
    points = {context["interception_point"] for context in kept.contexts}
    assert len(points) == 8
    assert len({context["session"]["id"] for context in kept.contexts}) == 2
    validate(kept.contexts, records)


@pytest.mark.parametrize("streams", ["buffered", "incremental"])
async def test_runs_that_wait_are_valid(streams: str) -> None:
    """A run that parks, is decided and goes on leaves valid data, the emission that parked included."""
    kept, records = Kept(), []
    rules = Governance(posture="continue", record_sink=records.append)
    async with Runtime(governance=rules) as runtime:
        run = await runtime.start(agent(streams, interceptors=[kept, policy]), "Go.", conversation="c", user="ana")
        result = await run.result()
        assert result.status == "suspended"
        for request in result.requests:
            await runtime.docket.decide(request.id, "approve", by="human:ana")
        result = await run.result()
        assert result.status == "completed"
    reasons = [record["verdict"].get("reason") for record in records]
    assert "host_error:approval_unresolved" in reasons
    validate(kept.contexts, records)


async def test_failures_of_the_host_are_valid() -> None:
    """Contexts that cannot be built and streams that die leave valid records too."""
    records: list[Any] = []
    rules = Governance(record_sink=records.append)
    cut = Reply((TextDelta("a"), TextDelta("b")), fail(code="stream_cut").failure)
    big = Reply((ModelResponse(None, (Call("c", "dumps", '{"any": 18446744073709551616}'),), "tool_calls"),))

    @tool(effect="pure")
    async def dumps(any: Any) -> str:
        return "never"

    for entry, reason in ((cut, "host_error:streaming_unsupported"), (big, "host_error:context_invalid")):
        who = Agent("clerk", model=ScriptedModel([entry]), tools=[dumps], stream="incremental", governance=rules)
        with pytest.raises(InterceptionBlocked) as caught:
            await who.run("go")
        assert caught.value.result.verdict.reason == reason
    validate([], records)
