"""Who may decide what: parties, typed refusals that change nothing, and standing approvals."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Strict, decided, park, policy, reopened, settled, tools_said

from lictor import ALLOW, Actor, Agent, Runtime, Verdict, tool
from lictor.errors import (
    AlreadyDecided,
    DecisionRefused,
    DefinitionError,
    DigestMismatch,
    Expired,
    StaleEpoch,
    ToolArgumentsInvalid,
    UnknownRequest,
    WrongKind,
    WrongParty,
    WrongVerb,
)
from lictor.models import call, say
from lictor.testing.clock import VirtualClock


class Desk:
    """A tool `pay` that counts, gated unless said otherwise."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[int] = []

        @tool(**{"requires_approval": True, **options})
        async def pay(n: int) -> str:
            self.paid.append(n)
            return f"paid {n}"

        self.pay = pay

    def agent(self, calls: int = 1, **options: Any) -> Agent:
        """An agent that pays so many times, one after the other."""
        return Agent("clerk", model=Strict([*[call("pay", n=1)] * calls, say("ok")]), tools=[self.pay], **options)


def needs(name: str, *responders: str, **more: Any) -> Any:
    """A policy that lets certain parties approve each tool call."""
    verdict = Verdict.escalate(f"{name}_asks", f"{name} wants to see this", responders=responders, **more)
    return policy("pre_tool_call", lambda c: verdict, name)


async def test_every_party_that_asked_has_to_approve() -> None:
    """Two policies name different responders: one request lists both reasons, and each party must approve."""
    desk = Desk(requires_approval=False)
    agent = desk.agent(interceptors=[needs("finance", "group:finance"), needs("legal", "human:lea", "human:leo")])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        (request,) = result.requests
        assert [(reason.name, reason.reason) for reason in request.reasons] == [
            ("agent:clerk/finance", "finance_asks"),
            ("agent:clerk/legal", "legal_asks"),
        ]
        assert request.parties == (("group:finance",), ("human:lea", "human:leo"))
        fin = Actor("human", "fin", groups=("finance",))
        after = await runtime.docket.decide(request.id, "approve", by=fin)
        assert (after.status, after.approvals, desk.paid) == ("pending", ("human:fin",), [])
        assert [one.id for one in await runtime.docket.pending(responder="human:leo")] == [request.id]
        assert await runtime.docket.pending(responder="human:eve") == []
        with pytest.raises(WrongVerb, match="several parties"):
            await runtime.docket.decide(request.id, "edit", arguments={"n": 2}, by=fin)
        result = await decided(runtime, run, (request.id, "approve", {"by": "human:leo"}))
        assert (result.status, desk.paid) == ("completed", [1])


async def test_one_party_rejects_for_all() -> None:
    """A rejection by any of the parties decides at once, also after another one approved."""
    desk = Desk(requires_approval=False)
    agent = desk.agent(interceptors=[needs("finance", "human:fin"), needs("legal", "human:lea")])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        (request,) = result.requests
        await runtime.docket.decide(request.id, "approve", by="human:fin")
        result = await decided(runtime, run, (request.id, "reject", {"by": "human:lea"}))
        assert (result.status, desk.paid) == ("completed", [])


async def test_a_group_member_may_serve_several_parties_at_once() -> None:
    """Somebody whom every party names decides alone."""
    desk = Desk(requires_approval=False)
    agent = desk.agent(interceptors=[needs("finance", "group:finance"), needs("legal", "human:lea")])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        lea = Actor("human", "lea", groups=("finance",))
        result = await decided(runtime, run, (result.requests[0].id, "approve", {"by": lea}))
        assert (result.status, desk.paid) == ("completed", [1])


async def test_a_plain_deny_asks_nobody() -> None:
    """When one policy denies outright nobody is asked, though another one would have escalated."""
    desk = Desk()
    denying = policy("pre_tool_call", lambda c: Verdict.deny("never"), "denying")
    for order in (1, -1):
        agent = desk.agent(interceptors=[needs("legal", "human:lea"), denying][::order])
        async with Runtime() as runtime:
            run, result = await park(runtime, agent)
            assert (result.status, desk.paid) == ("completed", [])
            assert await runtime.docket.requests(run=run.id) == []


REFUSED: list[tuple[str, dict[str, Any], type[Exception]]] = [
    ("approve", {"by": "human:eve"}, WrongParty),
    ("approve", {"by": "agent:clerk"}, WrongParty),
    ("retry", {}, WrongVerb),
    ("burn", {}, WrongVerb),
    ("approve", {"kind": "plan"}, WrongKind),
    ("approve", {"epoch": 3}, StaleEpoch),
    ("approve", {"digest": "sha256:0"}, DigestMismatch),
    ("edit", {}, ToolArgumentsInvalid),
    ("edit", {"arguments": {"n": "many"}}, ToolArgumentsInvalid),
    ("edit", {"arguments": {"n": 1, "x": 2}}, ToolArgumentsInvalid),
    ("edit", {"arguments": [1]}, ToolArgumentsInvalid),
]


@pytest.mark.parametrize(("verb", "options", "error"), REFUSED)
async def test_a_refused_decision_changes_nothing(verb: str, options: dict[str, Any], error: type[Exception]) -> None:
    """A wrong party, verb, kind, epoch, digest or edit is a typed error, recorded, and the request stays as it was."""
    desk = Desk(responders=["human:ana"])
    async with Runtime() as runtime:
        run, result = await park(runtime, desk.agent())
        (request,) = result.requests
        with pytest.raises(error) as refused:
            await runtime.docket.decide(request.id, verb, **{"by": "human:ana", **options})
        if isinstance(refused.value, DecisionRefused):
            assert (refused.value.status, refused.value.http_status // 100) == ("pending", 4)
        assert await runtime.docket.get(request.id) == request
        assert (run.status, desk.paid) == ("waiting", [])
        result = await decided(runtime, run, (request.id, "approve", {}))
        assert (result.status, desk.paid) == ("completed", [1])
        assert [(item["verb"], item["error"]) for item in result.refusals] == [(verb, error.__name__)]
        noted = [payload for kind, payload in result.trace.steps if kind == "decision_refused"]
        assert [(item["request"], item["error"]) for item in noted] == [(request.id, error.__name__)]


async def test_an_unknown_request_is_refused() -> None:
    """A made-up id is an UnknownRequest."""
    async with Runtime() as runtime:
        with pytest.raises(UnknownRequest):
            await runtime.docket.decide("no-such-id", "approve", by="human:ana")
        with pytest.raises(UnknownRequest):
            await runtime.docket.get("no-such-id")


async def test_the_same_decision_again_is_no_error_and_another_one_is() -> None:
    """Deciding twice alike is a no-op, deciding differently is AlreadyDecided with the decision that stands."""
    desk = Desk()
    async with Runtime() as runtime:
        run, result = await park(runtime, desk.agent())
        (request,) = result.requests
        result = await decided(runtime, run, (request.id, "approve", {}), (request.id, "approve", {"by": "human:bob"}))
        assert desk.paid == [1]
        with pytest.raises(AlreadyDecided) as refused:
            await runtime.docket.decide(request.id, "reject", by="human:bob")
        stands: Any = refused.value.resolution
        assert str(stands.decided_by) == "human:ana"
        assert desk.paid == [1]


async def test_a_decision_at_the_deadline_is_too_late() -> None:
    """At the deadline itself the request expires, and the decision is refused as Expired."""
    clock = VirtualClock()
    desk = Desk(deadline=60)
    async with Runtime(clock=clock) as first:
        run, result = await park(first, desk.agent())
    async with reopened(first, drive=False) as reader:
        await clock.advance(60)
        with pytest.raises(Expired):
            await reader.docket.decide(result.requests[0].id, "approve", by="human:ana")
        assert (await reader.docket.get(result.requests[0].id)).status == "expired"
    async with reopened(first, desk.agent()) as second:
        result = await settled(second, await second.run(run.id))
        assert (result.status, desk.paid) == ("completed", [])


async def test_the_nearest_of_several_deadlines_counts() -> None:
    """Tool, policy and run may each set a deadline; the earliest one holds."""
    clock = VirtualClock()
    desk = Desk(deadline=500)
    agent = desk.agent(interceptors=[needs("legal", deadline=300)])
    async with Runtime(clock=clock) as runtime:
        for limit, expected in ((None, 300), (200, 200), (900, 300)):
            _, result = await park(runtime, agent, approval_deadline=limit)
            (request,) = result.requests
            assert request.deadline == request.created + expected


async def test_verbs_of_a_policy_narrow_what_may_be_done() -> None:
    """A policy may allow fewer verbs, never one that the kind of request does not know."""
    desk = Desk(requires_approval=False)
    agent = desk.agent(interceptors=[needs("legal", verbs=["approve", "retry"])])
    async with Runtime() as runtime:
        _, result = await park(runtime, agent)
        (request,) = result.requests
        assert request.verbs == ("approve", "reject")
        with pytest.raises(WrongVerb):
            await runtime.docket.decide(request.id, "edit", arguments={"n": 2}, by="human:ana")


async def test_a_grant_covers_the_same_arguments_until_it_is_revoked() -> None:
    """`scope="same_arguments"` spares the question for equal arguments; others are asked, all after revoke."""
    desk = Desk()
    model = Strict([call("pay", n=1), call("pay", n=1), call("pay", n=2), say("ok"), call("pay", n=1), say("ok")])
    agent = Agent("clerk", model=model, tools=[desk.pay])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, conversation="c")
        result = await decided(runtime, run, (result.requests[0].id, "approve", {"scope": "same_arguments"}))
        (request,) = result.requests
        assert (request.arguments, desk.paid) == ({"n": 2}, [1, 1])
        result = await decided(runtime, run, (request.id, "approve", {}))
        assert result.status == "completed"
        (grant,) = await runtime.docket.grants(conversation="c")
        assert (grant.tool, grant.by, grant.revoked) == ("pay", "human:ana", False)
        await runtime.docket.revoke(grant.id, by="human:ana")
        _, result = await park(runtime, agent, conversation="c")
        assert (len(result.requests), desk.paid) == (1, [1, 1, 2])
        assert [one.revoked for one in await runtime.docket.grants(conversation="c")] == [True]
        with pytest.raises(UnknownRequest):
            await runtime.docket.revoke("no-such-grant", by="human:ana")


async def test_a_grant_holds_in_its_conversation_and_for_its_policy_only() -> None:
    """Another conversation, another run without one, and another policy are asked."""
    desk = Desk()
    async with Runtime() as runtime:
        agent = desk.agent(1)
        run, result = await park(runtime, agent, conversation="a")
        await decided(runtime, run, (result.requests[0].id, "approve", {"scope": "same_arguments"}))
        model = Strict([call("pay", n=1), say("ok")])
        for options in ({"conversation": "b"}, {}):
            _, result = await park(runtime, agent, **options)
            assert len(result.requests) == 1
    async with reopened(runtime, models={"clerk": model}) as other:
        changed = agent.with_(interceptors=[policy("output", lambda c: ALLOW, "new")])
        _, result = await park(other, changed, conversation="a2")
        assert len(result.requests) == 1


async def test_a_grant_is_never_given_by_anything_but_an_approval() -> None:
    """An unknown scope is a definition error; a rejection or an edit with the scope grants nothing."""
    desk = Desk()
    async with Runtime() as runtime:
        run, result = await park(runtime, desk.agent(2))
        first = result.requests[0].id
        with pytest.raises(DefinitionError, match="same_arguments"):
            await runtime.docket.decide(first, "approve", scope="always", by="human:ana")
        edit = {"arguments": {"n": 1}, "scope": "same_arguments"}
        result = await decided(runtime, run, (first, "edit", edit))
        (second,) = result.requests
        result = await decided(runtime, run, (second.id, "reject", {"scope": "same_arguments"}))
        assert (result.status, await runtime.docket.grants()) == ("completed", [])


async def test_pending_lists_pages_and_filters() -> None:
    """`pending` finds by run, user, kind and responder, oldest first, in pages."""
    desk = Desk(responders=["human:ana"])
    batch = [call("pay", n=n) for n in range(3)]
    agent = Agent("clerk", model=Strict([batch, say("ok")]), tools=[desk.pay])
    async with Runtime(clock=VirtualClock()) as runtime:
        run, result = await park(runtime, agent, user="u1")
        other, _ = await park(runtime, agent, user="u2")
        ids = [request.id for request in result.requests]
        assert [request.arguments["n"] for request in result.requests] == [0, 1, 2]
        docket = runtime.docket
        assert [request.id for request in await docket.pending(run=run.id)] == ids
        assert [request.id for request in await docket.pending(user="u1")] == ids
        assert len(await docket.pending(kind="tool_call")) == 6
        assert await docket.pending(kind="step") == []
        assert len(await docket.pending(responder="human:ana")) == 6
        assert await docket.pending(responder="human:bob") == []
        pages, after = [], None
        while page := await docket.pending(limit=4, after=after):
            pages.append(len(page))
            after = page[-1].id
        assert pages == [4, 2]
        assert other.status == "waiting"


async def test_an_actor_is_checked_when_it_is_written() -> None:
    """`by` needs a kind and a name."""
    desk = Desk()
    async with Runtime() as runtime:
        _, result = await park(runtime, desk.agent())
        for by in ("ana", "human:", "robot:x", ""):
            with pytest.raises(DefinitionError, match="KIND:ID"):
                await runtime.docket.decide(result.requests[0].id, "approve", by=by)
        assert tools_said(result.trace.messages) == []
