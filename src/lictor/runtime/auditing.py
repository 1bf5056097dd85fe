"""The audit view of a run: what became of every tool call, without a word of what it was about. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lictor.docket import Request
from lictor.errors import ValueDomainError
from lictor.journal import Positioned
from lictor.runs import Cause, Step
from lictor.values import digest

__all__ = ["CallAudit", "audit_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAudit:
    """One tool call, payload-free.

    Arguments:
        call, provider_id: our own id of it, and the one that the provider gave.
        run_id, path: the run whose model asked for it, and the way there from the root.
        tool: the name that was called, also one that does not exist.
        outcome: `done`; a word of the error results (`denied`, `tool_failed`, `not_run`, `cancelled`, `unknown`,
            `host_error`, `invalid_arguments`, `unknown_tool`); or, while the run goes on, `proposed`,
            `waiting`, `allowed`, `running`.
        decided_by: the actor who decided about it (`human:ana`), or the interceptor that denied or changed it.
        reason: of the deny, the error or the end; never a message.
        requests: the requests about it, oldest first.
        proposed, approved, executed: digests (`sha256:…`) of the arguments as the model wrote them, as
            gate and approvers let them pass, and as the tool got them; None where it did not come to that.
            `approved` and `executed` of a call that ran are equal.
        starts: how often it was started; more than once after a crash only.
        proposed_at, started_at, ended_at: seconds since the epoch.
    """

    call: str
    provider_id: str | None
    run_id: str
    path: tuple[Step, ...]
    tool: str
    outcome: str
    decided_by: str | None
    reason: str | None
    requests: tuple[str, ...]
    proposed: str
    approved: str | None
    executed: str | None
    starts: int
    proposed_at: float
    started_at: float | None
    ended_at: float | None

    def json(self) -> dict[str, Any]:
        """As a JSON object."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "path": [step._asdict() for step in self.path], "requests": list(self.requests)}


@dataclass(slots=True, kw_only=True)  # budget: it follows a call through the log
class _Call:
    id: str
    provider_id: str | None
    run_id: str
    tool: str
    proposed: str
    at: float
    current: str
    outcome: str = "proposed"
    decided_by: str | None = None
    reason: str | None = None
    requests: list[str] = field(default_factory=list)
    approved: str | None = None
    executed: str | None = None
    starts: int = 0
    started_at: float | None = None
    ended_at: float | None = None

    def end(self, outcome: str, reason: str | None, at: float) -> None:
        self.outcome, self.reason, self.ended_at = outcome, reason, at


class _Walk:
    """Goes once through the log of a root and of the runs below it."""

    def __init__(self, items: Iterable[Positioned], requests: Mapping[str, Request]) -> None:
        self.paths: dict[str, tuple[Step, ...]] = {}
        self.calls: dict[tuple[str, str], _Call] = {}
        self._requests = requests
        self._causes: dict[str, Cause] = {}
        kinds: Mapping[str, Callable[[str, Mapping[str, Any], float], None]] = {
            "run_started": self._begun,
            "model_finished": self._proposed,
            "verdict": self._verdict,
            "call_judged": self._judged,
            "request_opened": self._asked,
            "request_decided": self._decided,
            "tool_started": self._started,
            "tool_finished": self._finished,
            "call_closed": self._finished,
            "cause": self._caused,
            "stint_started": self._lost,
            "run_finished": self._over,
        }
        for item in items:
            entry = item.entry
            if entry.kind in kinds and "erased" not in entry.payload:
                kinds[entry.kind](item.run_id, entry.payload, entry.at)

    def _of(self, run_id: str) -> list[_Call]:
        return [call for (run, _), call in self.calls.items() if run == run_id]

    def _begun(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        self.paths[run_id] = tuple([Step(*step) for step in payload["path"]])

    def _proposed(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        for item in payload.get("calls") or ():
            told = _digest(item["args"])
            self.calls[run_id, item["id"]] = _Call(
                id=item["id"],
                provider_id=item.get("provider_id"),
                run_id=run_id,
                tool=item["name"],
                proposed=told,
                current=told,
                at=at,
            )

    def _verdict(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload.get("call") or ""))
        if call is not None and payload["by"] is not None and payload["record"]["verdict"]["decision"] != "allow":
            call.decided_by = payload["by"]

    def _judged(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload["call"]))
        if call is None:
            return
        self._change(call, payload)
        if payload["decision"] == "deny":
            problem = payload.get("problem") or {}
            call.decided_by = problem.get("decided_by", call.decided_by)
            call.end(str(problem.get("error", "denied")), problem.get("reason"), at)
        else:
            call.outcome, call.approved = "allowed", call.current
            self._approver(call, payload.get("request"))

    def _change(self, call: _Call, payload: Mapping[str, Any]) -> None:
        if "args" in payload:
            call.current = _digest(payload["args"])

    def _approver(self, call: _Call, request_id: str | None) -> None:
        request = self._requests.get(request_id or "")
        if request is not None and request.resolution is not None:
            call.decided_by = str(request.resolution.decided_by)

    def _asked(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload.get("call") or ""))
        if call is not None:
            call.requests.append(payload["request"])
            call.outcome = "waiting"

    def _decided(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload.get("call") or ""))
        if call is not None and payload.get("decided_by") is not None:
            call.decided_by = payload["decided_by"]

    def _started(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload["call"]))
        if call is None:
            return
        self._change(call, payload)
        call.approved, call.executed = call.current, _digest(payload["arguments"])
        call.outcome, call.starts = "running", call.starts + 1
        call.started_at = at if call.started_at is None else call.started_at

    def _finished(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        call = self.calls.get((run_id, payload["call"]))
        if call is None:
            return
        problem = _problem(payload["content"]) if payload["is_error"] else {}
        outcome = problem.get("error", "tool_failed") if payload["is_error"] else "done"
        call.end(str(outcome), problem.get("reason", payload.get("why")), at)

    def _caused(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        self._causes.setdefault(run_id, Cause.of(payload))

    def _lost(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        """Another driver: what ran is started again, or somebody is asked."""
        for call in self._of(run_id):
            if call.outcome == "running":
                call.outcome = "unknown"

    def _over(self, run_id: str, payload: Mapping[str, Any], at: float) -> None:
        """What has no result by now has the one that the end gave it."""
        cause = self._causes.get(run_id, Cause(payload["status"]))
        for call in self._of(run_id):
            if call.ended_at is None:
                outcome = "cancelled" if cause.status == "cancelled" else "not_run"
                call.end("unknown" if call.outcome == "unknown" else outcome, cause.reason or cause.status, at)


def audit_calls(items: Iterable[Positioned], requests: Iterable[Request]) -> list[CallAudit]:
    """Every tool call in the log of a root and of the runs below it, in the order in which models asked for them."""
    walk = _Walk(items, {request.id: request for request in requests})
    return [
        CallAudit(
            call=call.id,
            provider_id=call.provider_id,
            run_id=call.run_id,
            path=walk.paths.get(call.run_id, ()),
            tool=call.tool,
            outcome=call.outcome,
            decided_by=call.decided_by,
            reason=call.reason,
            requests=tuple(call.requests),
            proposed=call.proposed,
            approved=call.approved,
            executed=call.executed,
            starts=call.starts,
            proposed_at=call.at,
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        for call in walk.calls.values()
    ]


def _problem(content: Any) -> Mapping[str, Any]:
    """What an error result says of itself, where it is one of ours and was not cut."""
    try:
        found = json.loads(content)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(arguments: Any) -> str:
    try:
        return digest(arguments)
    except ValueDomainError:  # an integer beyond 2^53-1: as the text that every reader shares (§4.4)
        return digest(json.loads(json.dumps(arguments), parse_int=_exact))


def _exact(text: str) -> int | str:
    return int(text) if abs(int(text)) < 2**53 else text
