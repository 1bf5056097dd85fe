"""The approval seam: who is asked, about what, and what an answer does (§9)."""

import asyncio

import pytest

from lictor.hooks import (
    ALLOW,
    ApprovalOutcome,
    ApprovalResolution,
    Composition,
    ContextBuilder,
    Decision,
    Gate,
    IdentityProvider,
    Verdict,
    context_identity,
)

ASK = Verdict.escalate("ask", responders=["human:ana"])
RUN_ALL = "sequential/run_all"


def tool_call(args=None, point="pre_tool_call"):
    build = ContextBuilder(agent_id="a", session_id="s")
    if point == "agent_shutdown":
        return build.agent_shutdown("completed")
    return build.pre_tool_call("c1", "pay", {"amount": 5, "to": "bob"} if args is None else args)


def giving(verdict):
    return lambda context: verdict


class Desk:
    """A resolver that keeps what it was asked and gives prepared answers."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def resolve(self, request):
        self.requests.append(request)
        outcome, verdict = self.answers.pop(0)
        return ApprovalResolution(outcome, request.context_identity, verdict)


APPROVE = ("approve", ALLOW)
REJECT = ("reject", Verdict.deny("rejected", "not today"))


async def test_an_approval_lifts_the_deny():
    """An approved escalation proceeds; the record names whose deny was lifted (§7.6)."""
    desk = Desk(APPROVE)
    emission = await Gate([giving(ALLOW), giving(ASK)], resolver=desk).emit(tool_call())
    assert emission.proceeds
    assert emission.verdict == ALLOW
    assert (emission.record["decided_by"], emission.record["resolved_by"]) == (1, "approval")
    assert emission.record["verdicts"][1]["decision"] == "deny"


async def test_a_rejection_stands_with_the_resolver_s_deny():
    """A rejected escalation blocks with the resolver's reason (§9)."""
    emission = await Gate([giving(ASK)], resolver=Desk(REJECT)).emit(tool_call())
    assert not emission.proceeds
    assert (emission.verdict.reason, emission.record["resolved_by"]) == ("rejected", "rejection")
    assert emission.record["decided_by"] == 0


async def test_without_a_resolver_the_deny_stands():
    """Nobody to ask is no error: the deny keeps its own reason and stays liftable (§5.1)."""
    emission = await Gate([giving(ASK)]).emit(tool_call())
    assert (emission.verdict.reason, emission.verdict.liftable, emission.proceeds) == ("ask", True, False)
    assert "resolved_by" not in emission.record
    assert emission.record["verdict"]["approval"] == {}


async def test_the_request_shows_what_would_run():
    """The resolver sees the folded context, its identity, every deny and the frozen target."""
    desk = Desk(APPROVE)
    gate = Gate(
        {
            "cap": giving(Verdict.transform("$target.amount", 3)),
            "ask": giving(ASK),
            "too": giving(Verdict.escalate("two")),
        },
        composition=RUN_ALL,
        resolver=desk,
    )
    emission = await gate.emit(tool_call())
    [request] = desk.requests
    assert request.interception_point == "pre_tool_call"
    assert request.verdict.reason == "ask"
    assert request.denies == (("ask", ASK), ("too", Verdict.escalate("two")))
    assert type(request.context) is dict
    assert request.context["target"] == request.target == emission.target == {"amount": 3, "to": "bob"}
    assert request.target is emission.target
    assert request.context_identity == emission.record["enforced_identity"] == context_identity(request.context)


async def test_an_approval_may_change_the_target():
    """A transform as resolution is applied on top of the fold (§7.4)."""
    desk = Desk(("approve", Verdict.transform("$target.to", "carol")))
    gate = Gate([giving(Verdict.transform("$target.amount", 3)), giving(ASK)], composition=RUN_ALL, resolver=desk)
    emission = await gate.emit(tool_call())
    assert emission.target == {"amount": 3, "to": "carol"}
    assert emission.verdict.decision is Decision.TRANSFORM


async def test_an_approval_with_a_broken_transform_denies():
    """A resolution that cannot be applied is a failed transform, decided by nobody (§10.3)."""
    desk = Desk(("approve", Verdict.transform("$target.nope", 1)))
    emission = await Gate([giving(ASK)], composition=RUN_ALL, resolver=desk).emit(tool_call())
    assert emission.verdict.reason == "host_error:transform_invalid"
    assert (emission.record["decided_by"], emission.record["resolved_by"]) == (None, "approval")


async def test_nobody_is_asked_at_shutdown():
    """After the end there is nothing to approve (§6.1a)."""
    desk = Desk(APPROVE)
    emission = await Gate([giving(ASK)], resolver=desk).emit(tool_call(point="agent_shutdown"))
    assert not emission.proceeds
    assert desk.requests == []


async def test_a_plain_deny_makes_asking_pointless():
    """Under run_all nobody is asked when somebody denies outright (§7.4)."""
    desk = Desk(APPROVE)
    gate = Gate([giving(ASK), giving(Verdict.deny("no"))], composition=RUN_ALL, resolver=desk)
    emission = await gate.emit(tool_call())
    assert (emission.verdict.reason, desk.requests) == ("no", [])


async def test_stop_ends_the_fold_and_resume_goes_on():
    """After an approval, `stop` asks nobody else and `resume` asks the rest (§7.4)."""
    for knob, verdict, truncated in (("stop", "allow", True), ("resume", "deny", False)):
        gate = Gate(
            [giving(ASK), giving(Verdict.deny("later"))],
            composition=Composition("sequential/first_deny", on_approval=knob),
            resolver=Desk(APPROVE),
        )
        record = (await gate.emit(tool_call())).record
        assert record["verdict"]["decision"] == verdict
        assert record["fold_truncated"] is truncated
        assert record["resolved_by"] == "approval"


async def test_resume_asks_about_every_liftable_deny():
    """Each escalation met later is put to the resolver in turn (§7.4)."""
    desk = Desk(("approve", Verdict.transform("$target.amount", 1)), REJECT)
    gate = Gate(
        [giving(ASK), giving(Verdict.escalate("two"))],
        composition=Composition("sequential/first_deny", on_approval="resume"),
        resolver=desk,
    )
    emission = await gate.emit(tool_call())
    assert [request.verdict.reason for request in desk.requests] == ["ask", "two"]
    assert desk.requests[1].context["target"]["amount"] == 1
    assert (emission.record["resolved_by"], emission.verdict.reason) == ("rejection", "rejected")


@pytest.mark.parametrize(
    ("composition", "reason"),
    [
        (Composition("parallel/strictest", on_transform_conflict="approval"), "host_error:transform_conflict"),
        (Composition("parallel/unanimous", on_disagreement="approval"), "host_error:composition_disagreement"),
    ],
)
async def test_a_conflict_can_be_put_to_a_person(composition, reason):
    """With the knob at `approval` a conflict is a liftable deny of nobody's (§7.5)."""
    desk = Desk(("approve", Verdict.transform("$target.amount", 9)))
    judges = [giving(Verdict.transform("$target.amount", 1)), giving(Verdict.transform("$target.amount", 2))]
    emission = await Gate(judges, composition=composition, resolver=desk).emit(tool_call())
    assert [request.verdict.reason for request in desk.requests] == [reason]
    assert emission.target["amount"] == 9
    assert (emission.record["decided_by"], emission.record["resolved_by"]) == (None, "approval")


async def test_the_redactor_decides_what_is_shown():
    """The request holds the redacted context and its identity; what runs is not redacted (§9)."""

    def redact(context):
        context["target"] = context["tool_call"]["args"] = {"amount": 5, "to": "***"}
        return context

    desk = Desk(APPROVE)
    emission = await Gate([giving(ASK)], resolver=desk, redactor=redact).emit(tool_call())
    [request] = desk.requests
    assert request.context["tool_call"]["args"]["to"] == "***"
    assert request.context_identity == context_identity(request.context) != emission.record["input_identity"]
    assert request.target == emission.target == {"amount": 5, "to": "bob"}


@pytest.mark.parametrize("target", ["***", None, 7, {"hidden": True}, []])
async def test_a_redacted_target_may_have_any_shape(target):
    """The target that is shown need not be its field's, nor look like one (§9)."""
    desk = Desk(APPROVE)
    gate = Gate([giving(ASK)], resolver=desk, redactor=lambda context: {**context, "target": target})
    build = ContextBuilder(agent_id="a", session_id="s")
    for context in (
        build.pre_tool_call("c", "t", {}),
        build.pre_model_call("m", [{"role": "user", "content": "x"}] * 20),
    ):
        desk.answers = [APPROVE]
        assert (await gate.emit(context)).proceeds
        assert desk.requests[-1].context["target"] == target


@pytest.mark.parametrize("redact", [lambda context: None, lambda context: 1 / 0, lambda context: {"target": 1}])
async def test_a_redactor_that_fails_fails_the_consultation(redact):
    """Without a context to show, nobody is asked and the deny stands (§9)."""
    desk = Desk(APPROVE)
    emission = await Gate([giving(ASK)], resolver=desk, redactor=redact).emit(tool_call())
    assert emission.verdict.reason == "host_error:approval_resolver_failed"
    assert desk.requests == []


async def test_a_context_without_identity_is_not_shown():
    """A provider that fails on what would be shown fails the consultation closed (§10.1)."""

    def provide(context):
        return "id" if context["target"]["to"] == "bob" else None

    def redact(context):
        context["target"]["to"] = "***"
        return context

    desk = Desk(APPROVE)
    gate = Gate([giving(ASK)], resolver=desk, redactor=redact, identity=IdentityProvider("mine", provide))
    emission = await gate.emit(tool_call())
    assert emission.verdict.reason == "host_error:context_invalid"
    assert desk.requests == []


async def test_a_provider_that_fails_after_the_fold_fails_closed():
    """What was folded must have an identity too; the record then has the one before (§10.1)."""
    provider = IdentityProvider("mine", lambda context: "id" if context["target"]["amount"] == 5 else None)
    emission = await Gate([giving(Verdict.transform("$target.amount", 6))], identity=provider).emit(tool_call())
    assert emission.verdict.reason == "host_error:context_invalid"
    assert (emission.record["input_identity"], emission.record["enforced_identity"]) == ("id", None)


async def test_unbound_approvals_echo_null():
    """Without an identity the echo rule holds for null itself (§9)."""
    approve = {"outcome": "approve", "verdict": {"decision": "allow"}}
    for echoed, proceeds in ((None, True), ("x", False)):
        gate = Gate([giving(ASK)], identity=None, resolver=lambda request, e=echoed: {**approve, "context_identity": e})
        emission = await gate.emit(tool_call())
        assert emission.proceeds is proceeds
    missing = await Gate([giving(ASK)], resolver=lambda request: approve).emit(tool_call())
    assert missing.verdict.reason == "host_error:approval_identity_mismatch"


async def test_resolvers_may_be_async():
    """A coroutine is awaited, without a limit unless one is set."""

    async def resolve(request):
        await asyncio.sleep(0)
        return ApprovalResolution(ApprovalOutcome.APPROVE, request.context_identity, ALLOW)

    assert (await Gate([giving(ASK)], resolver=resolve).emit(tool_call())).proceeds


async def test_a_resolver_s_own_cancellation_is_a_failure():
    """CancelledError from inside a resolver denies; cancelling the emission goes on."""

    async def resolve(request):
        raise asyncio.CancelledError

    emission = await Gate([giving(ASK)], resolver=resolve).emit(tool_call())
    assert emission.verdict.reason == "host_error:approval_resolver_failed"

    started = asyncio.Event()

    async def hang(request):
        started.set()
        await asyncio.Event().wait()

    records = []
    task = asyncio.ensure_future(Gate([giving(ASK)], resolver=hang, sink=records.append).emit(tool_call()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record["verdict"]["reason"] for record in records] == ["host_error:interceptor_failed"]


async def test_resolvers_of_the_sdk_work_unchanged():
    """A resolver that speaks the SDK's types is understood."""
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")

    class Theirs:
        def resolve(self, request):
            assert request.interception_point == sdk.InterceptionPoint.PRE_TOOL_CALL
            return sdk.ApprovalResolution(sdk.ApprovalOutcome.APPROVE, request.context_identity, sdk.ALLOW)

    assert (await Gate([giving(ASK)], resolver=Theirs()).emit(tool_call())).proceeds


async def test_a_resolver_may_stop_the_run():
    """A rejection that is a stop reaches the host as control."""
    stop = Verdict.stop("enough")
    emission = await Gate([giving(ASK)], resolver=Desk(("reject", stop))).emit(tool_call())
    assert emission.control == stop
