"""Approval by docket: one resolver for one emission, and the interceptor behind `requires_approval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lictor.docket import KINDS, Docket, Reason, Request, Shown, request_digest
from lictor.errors import StoreError
from lictor.hooks import ALLOW, ApprovalRequest, ApprovalResolution, Context, Verdict, interceptor
from lictor.runs import LiveRun
from lictor.values import digest as value_digest
from lictor.values import new_id, thaw

__all__ = ["Approver", "RequiresApproval", "StepResolver"]

MOST_REQUESTS = 3


@interceptor(points=["pre_tool_call"], name="approval", version="1", always_enforce=True)
class RequiresApproval:
    """The liftable deny of tools declared with `requires_approval`; comes after every policy."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    def intercept(self, context: Context) -> Verdict:
        """Escalate a call of a gated tool (§5.1)."""
        tool = self._tools.get(context["tool_call"]["name"])
        if tool is None or not tool.requires_approval:
            return ALLOW
        needed = tool.requires_approval
        if callable(needed) and not needed(thaw(context["target"])):
            return ALLOW
        return Verdict.escalate(
            "requires_approval", f"{tool.name} needs an approval", responders=tool.responders, deadline=tool.deadline
        )


@dataclass(slots=True, kw_only=True)  # budget: a shell, not a value; one for each live run
class Approver:
    """What the requests of one run have in common."""

    docket: Docket
    live: LiveRun[Any]
    requester: str
    policy: str
    conversation: str
    user: str | None
    deadline: float | None = None
    asked: bool = False

    def binding(self, kind: str, what: Mapping[str, Any], call_id: str | None, epoch: int = 0) -> str:
        """The digest that a decision binds to (20-durability, docket)."""
        path = [[step.name, step.run_id, step.call_id] for step in self.live.path]
        return request_digest(
            {
                "kind": kind,
                **what,
                "root": self.live.root,
                "path": path,
                "call": call_id,
                "policy": self.policy,
                "epoch": epoch,
            }
        )

    def open(self, kind: str, step: str, shown: Shown, digest: str, **more: Any) -> Request:
        """Open a request of this run; one that is open for the same thing already is that one."""
        self.asked = True
        for known in self.docket.of_step(self.live.run_id, step):
            if known.status == "pending" and known.digest == digest:
                return known
        verbs = more.pop("verbs", None) or KINDS[kind]
        limit = more.pop("deadline", None)
        own = None if kind == "unknown_effect" else self.deadline  # a lost effect waits for a person
        limits = [seconds for seconds in (limit, own) if seconds is not None]
        now = self.live.clock.now()
        return self.docket.open(
            Request(
                id=new_id(),
                kind=kind,
                verbs=tuple(verbs),
                root_run=self.live.root,
                run_id=self.live.run_id,
                path=self.live.path,
                step=step,
                requester=self.requester,
                shown=shown,
                digest=digest,
                created=now,
                deadline=now + min(limits) if limits else None,
                user=self.user,
                policy=self.policy,
                **more,
            )
        )


@dataclass(slots=True, kw_only=True)  # budget: it remembers what it found for one emission
class StepResolver:
    """The contract's resolver (§9) over the docket, for one emission.

    It finds the decided request for exactly these arguments and echoes the identity, or opens a
    request and answers `unresolved`: the emission is then recorded as
    `host_error:approval_unresolved`, and `parked` tells the host to wait instead of failing.
    """

    approver: Approver
    kind: str
    step: str
    call_id: str | None = None
    tool: str | None = None
    schema: Mapping[str, Any] | None = None
    tool_digest: str | None = None
    parked: Request | None = None
    used: Request | None = None
    digest: str | None = None
    denied: dict[str, Any] = field(default_factory=dict)
    failure: StoreError | None = None

    def resolve(self, request: ApprovalRequest) -> ApprovalResolution:
        """§9, by the rows of the docket. What a store raises is kept in `failure`: no gate may make a verdict of it."""
        try:
            return self._resolve(request)
        except StoreError as exc:
            self.failure = exc
            raise

    def _resolve(self, request: ApprovalRequest) -> ApprovalResolution:
        docket = self.approver.docket
        identity = request.context_identity
        self.digest = self._digest(request)
        every = docket.of_step(self.approver.live.run_id, self.step)
        earlier = [one for one in every if one.status != "superseded"]
        last = earlier[-1] if earlier else None
        if last is not None:
            if last.status == "pending":
                self.parked = last
                return ApprovalResolution(outcome="unresolved", context_identity=identity)
            if last.status in ("rejected", "expired") and last.consumed_at is None:
                return self._rejection(last, identity)
            if last.status in ("approved", "edited") and last.digest == self.digest and last.consumed_at is None:
                self.used = last
                return ApprovalResolution(outcome="approve", context_identity=identity, verdict=ALLOW)
        key = self._grant_key(request)
        if key is not None and docket.granted(key) is not None:
            return ApprovalResolution(outcome="approve", context_identity=identity, verdict=ALLOW)
        if len(earlier) >= MOST_REQUESTS:
            verdict = Verdict.deny("approval_unstable", f"asked {MOST_REQUESTS} times, each time about other arguments")
            return ApprovalResolution(outcome="reject", context_identity=identity, verdict=verdict)
        self.parked = self._open(request, key)
        return ApprovalResolution(outcome="unresolved", context_identity=identity)

    def _digest(self, request: ApprovalRequest) -> str:
        target = request.target
        what = (
            {"target": target}
            if self.tool is None
            else {"tool": self.tool, "schema": self.tool_digest, "arguments": target}
        )
        return self.approver.binding(self.kind, what, self.call_id)

    def bind_edit(self, arguments: Mapping[str, Any]) -> str:
        """The digest of edited arguments, as they will be compared after the gate."""
        what = {"tool": self.tool, "schema": self.tool_digest, "arguments": arguments}
        return self.approver.binding(self.kind, what, self.call_id)

    def _grant_key(self, request: ApprovalRequest) -> str | None:
        if self.tool is None:
            return None
        arguments = value_digest(request.target)
        return "|".join((self.approver.conversation, self.tool, arguments, self.approver.policy))

    def _rejection(self, last: Request, identity: str | None) -> ApprovalResolution:
        done = last.resolution
        if last.status == "expired" or done is None:
            verdict = Verdict.deny("approval_expired", "nobody decided in time")
            self.denied = {"decided_by": "timer:deadline"}
        else:
            verdict = Verdict.deny("rejected", done.feedback or "It was rejected. Do not repeat this call.")
            self.denied = {"decided_by": str(done.decided_by)}
        return ApprovalResolution(outcome="reject", context_identity=identity, verdict=verdict)

    def _open(self, request: ApprovalRequest, key: str | None) -> Request:
        reasons = tuple([_reason(name, verdict) for name, verdict in request.denies])
        blocks: list[Mapping[str, Any]] = [verdict.approval or {} for _, verdict in request.denies]
        deadlines = [block["deadline"] for block in blocks if block.get("deadline") is not None]
        named = [block["verbs"] for block in blocks if block.get("verbs")]
        verbs = [verb for verb in KINDS[self.kind] if verb == "reject" or all(verb in allowed for allowed in named)]
        target = thaw(request.context["target"])
        if self.tool is not None:
            shown = Shown(tool=self.tool, arguments=target, point=str(request.interception_point))
        else:
            shown = Shown(point=str(request.interception_point), value=target)
        return self.approver.open(
            self.kind,
            self.step,
            shown,
            self.digest or "",
            call_id=self.call_id,
            reasons=reasons,
            schema=self.schema,
            grant_key=key,
            deadline=min(deadlines, default=None),
            verbs=verbs,
        )


def _reason(name: str, verdict: Verdict) -> Reason:
    block: Mapping[str, Any] = verdict.approval or {}
    responders = tuple(block.get("responders", ()))
    return Reason(name=name, reason=verdict.reason, message=verdict.message, responders=responders)
