"""Moments: who has something to say, what it comes to, and waiting for a person exactly there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lictor.agent import Session
from lictor.errors import StoreError
from lictor.hooks import ALLOW, ApprovalOutcome, ApprovalRequest, Raised, Verdict, awaited, pending, verdict_of
from lictor.runs import PARKED, Cause
from lictor.team.live import TeamLive, keep_extras

__all__ = ["Ruled", "judge", "park"]


class Ruled(NamedTuple):
    """What a moment came to.

    Arguments:
        proceeds: whether it goes on.
        verdict: the decisive one.
        by: the qualified name of whom it is from.
        request: the open request, when it waits for a person.
    """

    proceeds: bool = True
    verdict: Verdict = ALLOW
    by: str | None = None
    request: Any = None

    @property
    def stops(self) -> bool:
        """Whether the whole run ends."""
        return self.verdict.control == "stop" and self.verdict.scope != "member"

    def cause(self, status: str) -> Cause:
        """Why the run ends, if it does."""
        status = (self.verdict.status or "stopped") if self.verdict.control == "stop" else status
        return Cause(status, self.verdict.reason, self.by)


PROCEEDS = Ruled()
NOTHING: Mapping[str, Any] = {}


async def judge(
    session: Session,
    team: TeamLive,
    moment: str,
    key: str,
    *about: Any,
    shown: Mapping[str, Any] = NOTHING,
    asks: bool = True,
) -> Ruled:
    """Ask everybody who has a word at a moment; a person at most once, and only when nobody denies outright.

    Arguments:
        moment: the method that is called, `should_agent_continue`.
        key: the command it belongs to; a decision is found again under it.
        about: what the method gets after the trace.
        shown: what a person is shown, and what an approval binds to.
        asks: whether somebody can be asked at all.
    """
    asked = team.asked(moment)
    if not asked:
        return PROCEEDS
    trace = team.trace(session)
    if moment == "should_agent_continue":
        trace.admitting(about[0].name)
    rules = session.options.governance
    answers: list[tuple[str, Verdict, bool]] = []
    for hook, method in asked:
        answer = _said(method, (trace, *about))
        if answer is not ALLOW and type(answer) is not Verdict:
            answer = await _verdict(answer, rules.timeout)
        if trace.suspended is not None:
            reason = trace.resumed()
            answer = Verdict.escalate("suspended", reason) if answer is ALLOW and reason is not None else answer
        if trace.extras != trace.given:
            answer = keep_extras(session, trace) or answer
        answers.append((hook.name, answer, rules.mode == "enforce" or hook.always_enforce))
    if not [verdict for _, verdict, _ in answers if verdict is not ALLOW]:
        return PROCEEDS
    ruled = await _ruling(session, moment, key, answers, shown if asks else None)
    _record(session, moment, ruled, answers, shown.get("member"))
    return ruled


def _said(method: Any, given: Sequence[Any]) -> Any:
    """What a hook answers, nothing and True as a verdict already; what it raises as `Raised`."""
    try:
        answer = method(*given)
    except Exception as exc:  # noqa: BLE001 - whatever a hook raises is its "no"
        return Raised(exc)
    return ALLOW if answer is None or answer is True else answer


async def _verdict(answer: Any, timeout: float | None) -> Verdict:
    """Any answer as a verdict; raising and being late are denies of the host (§6.3)."""
    try:
        if pending(answer):
            answer = await awaited(answer, timeout)
    except Exception as exc:  # noqa: BLE001 - whatever a hook raises is its "no"
        answer = Raised(exc)
    if answer is None or answer is True:
        return ALLOW
    if answer is False:
        return Verdict.deny("not_continued")
    return verdict_of(answer)


async def _ruling(
    session: Session,
    moment: str,
    key: str,
    answers: Sequence[tuple[str, Verdict, bool]],
    shown: Mapping[str, Any] | None,
) -> Ruled:
    denies = [(name, verdict) for name, verdict, counts in answers if counts and not verdict.decision.permits]
    if not denies:
        return PROCEEDS
    for wanted in (lambda v: v.control == "stop", lambda v: not v.liftable):
        for name, verdict in denies:
            if wanted(verdict):
                return Ruled(False, verdict, name)
    if shown is None:
        return Ruled(False, denies[0][1], denies[0][0])
    return await _lifted(session, moment, key, denies, shown)


async def _lifted(
    session: Session, moment: str, key: str, denies: Sequence[tuple[str, Verdict]], shown: Mapping[str, Any]
) -> Ruled:
    """Every deny may be lifted: by the docket, by the run's own resolver, or by nobody."""
    name, verdict = denies[0]
    target = {"moment": moment, "step": key, **shown}
    asked = ApprovalRequest(
        context_identity=None,
        interception_point=moment,
        verdict=verdict,
        context={"target": target},
        denies=tuple(denies),
        target=target,
    )
    docket = session.resolver("step", f"{key}:{moment}")
    resolver: Any = docket
    if docket is None:
        resolver = session.options.resolver or session.options.governance.resolver
    if resolver is None:
        return Ruled(False, verdict, name)
    try:
        answer = getattr(resolver, "resolve", resolver)(asked)
        if pending(answer):
            answer = await awaited(answer, session.options.governance.resolver_timeout)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - a resolver is foreign code; what it raises lifts nothing
        answer = Raised(exc)
    outcome = getattr(answer, "outcome", None)
    if docket is not None and docket.parked is not None:
        return Ruled(False, verdict, name, docket.parked)
    if outcome == ApprovalOutcome.APPROVE:
        return PROCEEDS
    told = getattr(answer, "verdict", None)
    return Ruled(False, told if isinstance(told, Verdict) else verdict, name)


def park(session: Session, key: str, moment: str, ruled: Ruled) -> bool:
    """Wait for the decision about a moment."""
    wait = session.live.state.waits.get(key)
    if wait is None or wait.request != ruled.request.id:
        payload = {"step": key, "request": ruled.request.id, "kind": "step", "point": moment}
        session.live.record("request_opened", payload)
    return PARKED


def _record(
    session: Session, moment: str, ruled: Ruled, answers: Sequence[tuple[str, Verdict, bool]], member: str | None
) -> None:
    slots = [{"name": name, **verdict.to_wire()} for name, verdict, _ in answers if verdict is not ALLOW]
    decision = "allow" if ruled.proceeds else "suspend" if ruled.request is not None else "deny"
    payload: Mapping[str, Any] = {
        "moment": moment,
        "decision": decision,
        "reason": ruled.verdict.reason,
        "by": ruled.by,
        "verdicts": slots,
    }
    if member is not None:
        payload = {**payload, "member": member}
    session.live.record("moment", payload)
