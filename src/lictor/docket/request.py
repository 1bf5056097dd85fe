"""The request and its one state machine; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lictor.docket.actor import Actor
from lictor.docket.telling import request_json, resolution_json
from lictor.errors import (
    AlreadyDecided,
    DefinitionError,
    DigestMismatch,
    Expired,
    StaleEpoch,
    ToolArgumentsInvalid,
    WrongKind,
    WrongParty,
    WrongVerb,
)
from lictor.runs import Step
from lictor.values import digest as value_digest

__all__ = [
    "KINDS",
    "VERBS",
    "Decided",
    "Decision",
    "Reason",
    "Request",
    "Resolution",
    "Shown",
    "decide",
    "expire",
    "request_digest",
    "withdraw",
]

KINDS: Mapping[str, tuple[str, ...]] = {
    "tool_call": ("approve", "reject", "edit", "respond"),
    "step": ("approve", "reject"),
    "plan": ("approve", "reject"),
    "shutdown": ("approve", "reject"),
    "unknown_effect": ("retry", "skip", "respond"),
    "feedback": ("respond",),
    "external_call": ("respond", "reject"),
    "review": ("approve", "reject"),
}
VERBS = ("approve", "reject", "edit", "respond", "retry", "skip")
STATUS_AFTER = {
    "approve": "approved",
    "reject": "rejected",
    "edit": "edited",
    "respond": "responded",
    "retry": "retried",
    "skip": "skipped",
}
PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}

LONG_INTEGER = re.compile(r"-?[0-9]{16,}")  # integers beyond 2^53-1 are shown as text (§4.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One liftable deny that the request answers."""

    name: str
    reason: str | None = None
    message: str | None = None
    responders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Exactly what a responder is shown, and what the decision binds to."""

    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    point: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Who decided."""

    kind: str
    id: str
    via: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The decision that stands. `value` is what `respond` gave, `arguments` what `edit` gave."""

    verb: str
    decided_by: Decided
    at: float
    feedback: str | None = None
    value: Any = None
    arguments: Mapping[str, Any] | None = None

    def json(self) -> dict[str, Any]:
        """As a JSON object."""
        return resolution_json(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What somebody asks for, before it is checked."""

    verb: str
    by: Actor
    feedback: str | None = None
    value: Any = None
    arguments: Mapping[str, Any] | None = None
    digest: str | None = None
    kind: str | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that waits for a decision.

    `status` is `pending` and then, for ever, one of approved, rejected, edited, responded,
    retried, skipped, expired, cancelled, superseded, undeliverable. `digest` binds kind, tool,
    schema, arguments after transforms, path, call, policy and epoch; after an edit it binds the
    edited arguments. `approvals` are the actors that approved while others are still asked, `met` the
    parties they stand for. `erased`: what was shown and given is gone (retention), the rest stands.
    Times are seconds since the epoch.
    """

    id: str
    kind: str
    verbs: tuple[str, ...]
    root_run: str
    run_id: str
    path: tuple[Step, ...]
    step: str
    requester: str
    shown: Shown
    digest: str
    created: float
    call_id: str | None = None
    responders: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    schema: Mapping[str, Any] | None = None
    deadline: float | None = None
    on_expiry: str = "deny"
    status: str = "pending"
    resolution: Resolution | None = None
    approvals: tuple[str, ...] = ()
    met: tuple[tuple[str, ...], ...] = ()
    epoch: int = 0
    user: str | None = None
    policy: str | None = None
    grant_key: str | None = None
    consumed_at: float | None = None
    erased: bool = False

    @property
    def tool(self) -> str | None:
        """The tool that wants to run, if it is about one."""
        return self.shown.tool

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The exact arguments shown."""
        return self.shown.arguments

    @property
    def parties(self) -> tuple[tuple[str, ...], ...]:
        """The different groups of responders that each have to approve."""
        named = [reason.responders for reason in self.reasons if reason.responders]
        if self.responders and self.responders not in named:
            named.append(self.responders)
        return tuple(dict.fromkeys(named))

    def json(self) -> dict[str, Any]:
        """As a JSON object: what is asked, by whom, who may decide, and what was decided."""
        return request_json(self)


def request_digest(binding: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical form of what a decision binds to (20-durability, docket)."""
    return value_digest(binding)


def decide(request: Request, decision: Decision, now: float) -> Request:
    """The request after `decision`; raises a DecisionRefused and changes nothing if it may not be taken.

    The same decision again returns the request as it stands.
    """
    if decision.verb not in VERBS:
        raise WrongVerb(f"{decision.verb!r} is no verb; use one of {', '.join(request.verbs)}", status=request.status)
    if request.status != "pending":
        return _again(request, decision)
    if request.deadline is not None and now >= request.deadline:
        raise Expired(f"request {request.id} expired", status="expired")
    _check(request, decision)
    by = Decided(kind=decision.by.kind, id=decision.by.id, via=decision.by.via)
    if decision.verb in ("approve", "edit"):
        met = tuple([party for party in request.parties if party in request.met or decision.by.matches(party)])
        if met != request.parties:
            if decision.verb == "edit":
                raise WrongVerb(
                    f"request {request.id} needs several parties; approve or reject it as shown", status="pending"
                )
            approvals = tuple(dict.fromkeys((*request.approvals, str(decision.by))))
            return replace(request, approvals=approvals, met=met)
    resolution = Resolution(
        verb=decision.verb,
        decided_by=by,
        at=now,
        feedback=decision.feedback,
        value=decision.value,
        arguments=decision.arguments,
    )
    return replace(request, status=STATUS_AFTER[decision.verb], resolution=resolution)


def _again(request: Request, decision: Decision) -> Request:
    done = request.resolution
    if done is None:
        if request.status == "expired":
            raise Expired(f"request {request.id} expired", status=request.status)
        raise AlreadyDecided(f"request {request.id} is {request.status}", status=request.status)
    if done.decided_by.kind == "timer":
        raise Expired(f"request {request.id} expired", status=request.status, resolution=done)
    same = (done.verb, done.feedback, done.value, done.arguments) == (
        decision.verb,
        decision.feedback,
        decision.value,
        decision.arguments,
    )
    if same:
        return request
    raise AlreadyDecided(
        f"request {request.id} was already {request.status} by {done.decided_by}",
        status=request.status,
        resolution=done,
    )


def _check(request: Request, decision: Decision) -> None:
    """Kind, verb, party, epoch, digest and arguments, in this order."""
    if decision.kind is not None and decision.kind != request.kind:
        raise WrongKind(f"request {request.id} is a {request.kind}, not a {decision.kind}", status=request.status)
    if decision.verb not in request.verbs:
        raise WrongVerb(
            f"request {request.id} ({request.kind}) takes {', '.join(request.verbs)}, not {decision.verb!r}",
            status=request.status,
        )
    if decision.by.kind == "agent" and decision.by.id == request.requester:
        raise WrongParty(f"{decision.by} asked for this itself", status=request.status)
    parties = request.parties
    if parties and not any(decision.by.matches(party) for party in parties):
        names = "; ".join(", ".join(party) for party in parties)
        raise WrongParty(f"{decision.by} may not decide request {request.id}; it is for {names}", status=request.status)
    if decision.epoch is not None and decision.epoch != request.epoch:
        raise StaleEpoch(f"request {request.id} is at epoch {request.epoch}", status=request.status)
    if decision.digest is not None and decision.digest != request.digest:
        raise DigestMismatch(f"request {request.id} shows something else than what was decided", status=request.status)
    if decision.verb == "edit":
        _check_edit(request, decision.arguments)


def _check_edit(request: Request, arguments: Mapping[str, Any] | None) -> None:
    """A first check of edited arguments against the tool's schema; the gate and the tool check again."""
    if not isinstance(arguments, Mapping):
        raise ToolArgumentsInvalid(request.tool or "?", ["edit needs arguments={...}, all of them"])
    schema = request.schema or {}
    properties = schema.get("properties", {})
    problems = [f"{name}: missing" for name in schema.get("required", ()) if name not in arguments]
    for name, value in arguments.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                problems.append(f"{name}: no such argument; there are {', '.join(properties) or 'none'}")
            continue
        kind = properties[name].get("type")
        if kind in ("integer", "number") and isinstance(value, str) and LONG_INTEGER.fullmatch(value):
            continue
        expected = PYTHON_TYPES.get(kind) if isinstance(kind, str) else None
        if expected and (not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected)):
            problems.append(f"{name}: {kind} expected")
    if problems:
        raise ToolArgumentsInvalid(request.tool or "?", problems)


def expire(request: Request, now: float) -> Request:
    """The request after its deadline; as it is when it is decided, has none, or it is not reached."""
    if request.status != "pending" or request.deadline is None or now < request.deadline:
        return request
    timer = Decided(kind="timer", id="deadline", via="runtime")
    resolution = Resolution(verb="reject", decided_by=timer, at=now, feedback=None)
    return replace(request, status="expired", resolution=resolution)


def withdraw(request: Request, status: str) -> Request:
    """The request when nobody needs the answer any more: cancelled, superseded or undeliverable."""
    if status not in ("cancelled", "superseded", "undeliverable"):
        raise DefinitionError(f"a request is not withdrawn as {status!r}")
    return replace(request, status=status) if request.status == "pending" else request


def requests_in_order(requests: Sequence[Request]) -> list[Request]:
    """Oldest first; those of one instant in the order in which they were opened."""
    return sorted(requests, key=lambda request: request.created)
