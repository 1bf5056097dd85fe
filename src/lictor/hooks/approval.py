"""The approval seam: how a liftable deny may be lifted (§9)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from lictor.errors import ValueDomainError, VerdictInvalid
from lictor.hooks.compose import Ruling
from lictor.hooks.context import Context, plain_copy, read_context
from lictor.hooks.points import (
    APPROVAL_IDENTITY_MISMATCH,
    APPROVAL_RESOLVER_FAILED,
    APPROVAL_UNRESOLVED,
    CONTEXT_INVALID,
    VERDICT_INVALID,
    Point,
)
from lictor.hooks.verdict import Verdict, host_error, read_verdict
from lictor.hooks.waiting import settled

__all__ = ["ApprovalOutcome", "ApprovalRequest", "ApprovalResolution", "ApprovalSeam", "seam_to"]

_MISSING: Final = object()


class ApprovalOutcome(StrEnum):
    """What a resolver decided."""

    APPROVE = "approve"
    REJECT = "reject"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """What the resolver is asked (§9).

    `context` is the resolver's own copy, redacted if the host redacts; `context_identity` binds to
    exactly that copy and has to be echoed. Ours: `denies`, the name and verdict of every deny of the
    emission, and `target`, the frozen value that will run if it is approved as it is.
    """

    context_identity: str | None
    interception_point: str  # a `Point`: what is written for the SDK's enumeration finds its `.value`
    verdict: Verdict
    context: Any
    denies: tuple[tuple[str, Verdict], ...] = ()
    target: Any = None


@dataclass(frozen=True, slots=True)
class ApprovalResolution:
    """What the resolver answers (§9): an allow or transform with `approve`, a deny with `reject`."""

    outcome: ApprovalOutcome | str
    context_identity: str | None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSeam:
    """A gate's resolver with everything that belongs to asking it."""

    resolve: Callable[[ApprovalRequest], Any]
    redactor: Callable[[Any], Any] | None
    identify: Callable[[Context], str | None]
    timeout: float | None

    async def consult(self, verdict: Verdict, context: Context, denies: tuple[tuple[str, Verdict], ...]) -> Ruling:
        """Ask about one liftable deny and validate the answer in the order §9 prescribes."""
        try:
            shown = self._redacted(context)
        except Exception as error:  # noqa: BLE001 - a redactor that fails, fails the consultation (§9)
            return _stands(APPROVAL_RESOLVER_FAILED, f"redactor: {type(error).__name__}")
        try:
            identity = self.identify(shown)
        except ValueDomainError as error:
            return _stands(CONTEXT_INVALID, error.problem)
        request = ApprovalRequest(
            context_identity=identity,
            interception_point=Point(context["interception_point"]),
            verdict=verdict,
            context=plain_copy(shown),
            denies=denies,
            target=context["target"],
        )
        try:
            resolution = await self._ask(request)
        except Exception as error:  # noqa: BLE001 - a resolver that raises or times out (§9)
            return _stands(APPROVAL_RESOLVER_FAILED, type(error).__name__)
        return _read(resolution, identity)

    def _redacted(self, context: Context) -> Context:
        if self.redactor is None:
            return context
        return read_context(self.redactor(plain_copy(context)), aliased=False)

    async def _ask(self, request: ApprovalRequest) -> Any:
        resolution = self.resolve(request)
        if inspect.isawaitable(resolution):
            async with asyncio.timeout(self.timeout):
                return await settled(resolution)
        return resolution


def seam_to(
    resolve: Callable[[ApprovalRequest], Any] | None,
    redactor: Callable[[Any], Any] | None,
    identify: Callable[[Context], str | None],
    timeout: float | None,
) -> ApprovalSeam | None:
    """Return the seam to a resolver, None when there is no resolver."""
    if resolve is None:
        return None
    return ApprovalSeam(resolve=resolve, redactor=redactor, identify=identify, timeout=timeout)


def _read(resolution: object, identity: str | None) -> Ruling:
    """§9, resolution validation order: echo, outcome, verdict, consistency."""
    if isinstance(resolution, Mapping):
        members = [resolution.get(name, _MISSING) for name in ("outcome", "context_identity", "verdict")]
    else:
        members = [getattr(resolution, name, _MISSING) for name in ("outcome", "context_identity", "verdict")]
    outcome, echoed, carried = members
    if outcome is _MISSING and echoed is _MISSING:
        return _stands(APPROVAL_RESOLVER_FAILED, f"{type(resolution).__name__} is not a resolution")
    if type(echoed) is not type(identity) or echoed != identity:
        return _stands(APPROVAL_IDENTITY_MISMATCH)
    carries = carried is not None and carried is not _MISSING
    if outcome not in tuple(ApprovalOutcome) or carries is (outcome == ApprovalOutcome.UNRESOLVED):
        return _stands(APPROVAL_RESOLVER_FAILED, "outcome and verdict do not fit together")
    if outcome == ApprovalOutcome.UNRESOLVED:
        return _stands(APPROVAL_UNRESOLVED)
    try:
        verdict = read_verdict(carried)
    except Exception as error:  # noqa: BLE001 - a foreign to_wire may raise anything
        return _stands(VERDICT_INVALID, str(error) if isinstance(error, VerdictInvalid) else type(error).__name__)
    approved = outcome == ApprovalOutcome.APPROVE
    if verdict.decision.permits is not approved:
        return _stands(VERDICT_INVALID, f"{ApprovalOutcome(outcome)} does not go with {verdict.decision}")
    return Ruling(verdict, approved)


def _stands(reason: str, message: str | None = None) -> Ruling:
    return Ruling(host_error(reason, message), False)
