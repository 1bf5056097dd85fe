"""What was written for the SDK works in a run of Lictor as it is: interceptors, verdicts, resolvers, resolutions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from driving import both_ways, play, tools_said

from lictor import Agent, Governance, tool
from lictor.models import ScriptedModel, call, chunks

sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")


@tool(effect="pure")
async def pay(order_id: int, amount: int) -> dict[str, Any]:
    """Pay money back."""
    return {"paid": amount, "card": "4111 1111 1111 1111"}


def clerk(*script: Any, **options: Any) -> Agent:
    """An agent that pays once and answers in pieces."""
    entries = script or (call("pay", order_id=42, amount=250), chunks(["all ", "paid"]))
    return Agent("clerk", model=ScriptedModel(entries), tools=[pay], **options)


class Amounts:
    """Sync, with the SDK's verdicts: denies, escalates, warns and transforms by the amount."""

    def intercept(self, context: Any) -> Any:
        """Judge `pre_tool_call`; allow everything else."""
        if context["interception_point"] != sdk.InterceptionPoint.PRE_TOOL_CALL.value:
            return sdk.ALLOW
        amount = context["tool_call"]["args"]["amount"]
        if amount > 1000:
            return sdk.Verdict.deny(reason="too_much", message="Never.")
        if amount > 100:
            return sdk.Verdict.escalate(reason="large", message="Ask somebody.")
        if amount > 50:
            return sdk.Verdict(
                decision=sdk.Decision.TRANSFORM,
                transform=sdk.Transform(path="$target.amount", value=50),
                warnings=[sdk.Warning(reason="capped", message="to 50")],
                evidence=sdk.Evidence(artefact="sha256:00", verification_pointers={"log": "https://example.org/x"}),
            )
        return sdk.Verdict.warn(reason="seen", message="small")


class Masks:
    """Async, answering in wire form; it also spoils its own copy of the context."""

    async def intercept(self, context: Any) -> dict[str, Any]:
        """Mask cards in results."""
        await asyncio.sleep(0)
        masked = "card" in (context.get("tool_result") or {}).get("value", {})
        context.clear()
        if not masked:
            return {"decision": "allow"}
        return {
            "decision": "transform",
            "transform": {"path": "$target.card", "value": "****"},
            "result_labels": ["card"],
        }


class Desk:
    """A resolver as the SDK has it; answers with the SDK's resolutions."""

    def __init__(self, answer: str = "approve") -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def resolve(self, request: Any) -> Any:
        """Look at the request as a resolver of the SDK does, and answer."""
        assert request.interception_point == sdk.InterceptionPoint.PRE_TOOL_CALL
        assert request.interception_point.value == "pre_tool_call"
        assert (request.verdict.decision.value, request.verdict.approval is not None) == ("deny", True)
        self.asked.append((request.verdict.reason, request.context["tool_call"]["args"]["amount"]))
        identity = request.context_identity
        if self.answer == "approve":
            return sdk.ApprovalResolution(sdk.ApprovalOutcome.APPROVE, identity, sdk.ALLOW)
        if self.answer == "less":
            verdict = sdk.Verdict(
                decision=sdk.Decision.TRANSFORM, transform=sdk.Transform(path="$target.amount", value=99)
            )
            return sdk.ApprovalResolution(sdk.ApprovalOutcome.APPROVE, identity, verdict)
        if self.answer == "reject":
            return sdk.ApprovalResolution(sdk.ApprovalOutcome.REJECT, identity, sdk.Verdict.deny(reason="not_today"))
        if self.answer == "unresolved":
            return sdk.ApprovalResolution(sdk.ApprovalOutcome.UNRESOLVED, identity)
        return sdk.ApprovalResolution(sdk.ApprovalOutcome.APPROVE, "sha256:another", sdk.ALLOW)


@both_ways
@pytest.mark.parametrize("streams", ["buffered", "incremental"])
@pytest.mark.parametrize(
    ("amount", "result"),
    [
        (30, '{"paid":30,"card":"****"}'),
        (70, '{"paid":50,"card":"****"}'),
        (2000, '"reason":"too_much"'),
        (250, '"reason":"large"'),
    ],
)
async def test_interceptors_of_the_sdk_govern_a_run(how: str, streams: str, amount: int, result: str) -> None:
    """Sync and async interceptors with the SDK's verdicts and with wire dicts allow, change, deny and escalate."""
    agent = clerk(call("pay", order_id=42, amount=amount), "done", interceptors=[Amounts(), Masks()], stream=streams)
    played = await play(agent, how=how)
    assert played.status == "completed"
    assert result in tools_said(played.messages)[0].replace(", ", ",").replace(": ", ":")
    judged = next(record["verdict"] for record in played.records if record["interception_point"] == "pre_tool_call")
    if amount == 70:
        assert judged["evidence"]["artefact"] == "sha256:00"
        assert judged["warnings"] == [{"reason": "capped", "message": "to 50"}]
    assert "4111 1111" not in played.text


@both_ways
@pytest.mark.parametrize("where", ["agent", "run", "governance"])
async def test_a_resolver_of_the_sdk_lifts_a_deny(how: str, where: str) -> None:
    """A resolver for the SDK decides wherever Lictor takes one, and its transform is what runs."""
    for answer, paid in (("approve", 250), ("less", 99)):
        desk = Desk(answer)
        options: dict[str, Any] = {"interceptors": [Amounts(), Masks()]}
        if where == "agent":
            options["resolver"] = desk
        elif where == "governance":
            options["governance"] = Governance(resolver=desk)
        given: dict[str, Any] = {"resolver": desk} if where == "run" else {}
        played = await play(clerk(**options), how=how, **given)
        assert (played.status, desk.asked) == ("completed", [("large", 250)])
        assert f'"paid":{paid}' in tools_said(played.messages)[0].replace(": ", ":")
        lifted = [record for record in played.records if record.get("resolved_by") == "approval"]
        assert [record["interception_point"] for record in lifted] == ["pre_tool_call"]


@pytest.mark.parametrize(
    ("answer", "reason", "status"),
    [
        ("reject", "not_today", "completed"),
        ("unresolved", "host_error:approval_unresolved", "blocked"),
        ("other", "host_error:approval_identity_mismatch", "blocked"),
    ],
)
async def test_resolutions_of_the_sdk_that_lift_nothing(answer: str, reason: str, status: str) -> None:
    """A rejection is told to the model; an undecided or wrongly bound one is a failure of enforcement."""
    played = await play(clerk(interceptors=[Amounts()], resolver=Desk(answer)))
    assert played.status == status
    denied = [record["verdict"] for record in played.records if record["verdict"]["decision"] == "deny"]
    assert [verdict["reason"] for verdict in denied] == [reason]


async def test_scripted_objects_of_the_kit_work_outside_of_it() -> None:
    """The kit's own interceptor and resolver, written for the SDK's emitter, govern a run."""
    ctk = pytest.importorskip("agent_hooks.ctk")
    rules = [{"at": "pre_tool_call", "return": {"decision": "deny", "reason": "kit", "approval": {}}}]
    recording = ctk.RecordingInterceptor(ctk.ScriptedInterceptor(rules))
    resolver = ctk.ScriptedResolver([{"resolve": {"outcome": "approve", "verdict": {"decision": "allow"}}}])
    played = await play(clerk(interceptors=[recording], resolver=resolver))
    assert (played.status, played.answer) == ("completed", "all paid")
    assert len(recording.recorded) == len(played.records) == 10
