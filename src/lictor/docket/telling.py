"""Requests and decisions as plain JSON, for pages, services and the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lictor.values import thaw

if TYPE_CHECKING:
    from lictor.docket.request import Request, Resolution

__all__ = ["request_json", "resolution_json"]


def resolution_json(done: Resolution) -> dict[str, Any]:
    """The decision that stands; `at` is RFC 3339."""
    by = {"kind": done.decided_by.kind, "id": done.decided_by.id, "via": done.decided_by.via}
    return {
        "verb": done.verb,
        "decided_by": by,
        "at": _instant(done.at),
        "feedback": done.feedback,
        "value": thaw(done.value),
        "arguments": thaw(done.arguments),
    }


def request_json(request: Request) -> dict[str, Any]:
    """A request: what is asked, by whom, who may decide, and what was decided; times are RFC 3339."""
    done = request.resolution
    return {
        "id": request.id,
        "kind": request.kind,
        "status": request.status,
        "verbs": list(request.verbs),
        "root_run": request.root_run,
        "run_id": request.run_id,
        "path": [step._asdict() for step in request.path],
        "requester": request.requester,
        "user": request.user,
        "parties": [list(party) for party in request.parties],
        "approvals": list(request.approvals),
        "tool": request.tool,
        "arguments": thaw(request.arguments),
        "point": request.shown.point,
        "value": thaw(request.shown.value),
        "reasons": [{"name": each.name, "reason": each.reason, "message": each.message} for each in request.reasons],
        "digest": request.digest,
        "epoch": request.epoch,
        "created": _instant(request.created),
        "deadline": _instant(request.deadline),
        "resolution": None if done is None else resolution_json(done),
    }


def _instant(at: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339, as events have it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
