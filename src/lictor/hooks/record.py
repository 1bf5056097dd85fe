"""Interception records: one per emission, never with content of the target (§10.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lictor.hooks.compose import Outcome
from lictor.hooks.context import Context
from lictor.hooks.points import FIELDS
from lictor.hooks.verdict import Verdict
from lictor.values import MAX_SAFE_INTEGER, FrozenDict, freeze

__all__ = ["conclusion", "project", "public_path", "record_projection", "rejection", "summaries", "traced"]

_MESSAGE_BYTES: Final = 256
_ELLIPSIS: Final = "…"
_VOCABULARY: Final = frozenset(
    {"$", "spec", "interception_point", "timestamp", "sequence", "agent", "session", "target", "extensions"}
    | {"framework", "tools", "usage", "request_id"}
    | {name for fields in FIELDS.values() for name in fields}
    | {member for fields in FIELDS.values() for members in fields.values() for member in members}
)


def record_projection(verdict: Verdict) -> dict[str, Any]:
    """Return the payload-free projection of a verdict.

    The value of a transform and the members of an approval block are dropped, messages are cut to
    256 UTF-8 bytes; evidence, reasons and labels stay.
    """
    wire = verdict.to_wire()
    if "message" in wire:
        wire["message"] = _cut(wire["message"])
    for warning in wire.get("warnings", ()):
        if "message" in warning:
            warning["message"] = _cut(warning["message"])
    if "approval" in wire:
        wire["approval"] = {}
    if "transform" in wire:
        wire["transform"] = {"path": wire["transform"]["path"]}
    return wire


def project(verdict: Verdict) -> FrozenDict:
    """Return `record_projection(verdict)` frozen, as it goes on a record."""
    frozen: FrozenDict = freeze(record_projection(verdict))
    return frozen


def summaries(returned: Mapping[int, Verdict], names: Sequence[str]) -> Any:
    """Return the per-interceptor summary: who was asked, by registration index, and what they said."""
    rows = []
    for index in sorted(returned):
        verdict = returned[index]
        row: dict[str, Any] = {"index": index, "decision": verdict.decision.value}
        if verdict.reason is not None:
            row["reason"] = verdict.reason
        rows.append({**row, "name": names[index]})
    return freeze(rows)


def conclusion(
    start: FrozenDict,
    names: Sequence[str],
    outcome: Outcome,
    mode: str,
    identities: tuple[str | None, str | None],
    context: Context,
) -> FrozenDict:
    """Return the record of an outcome; `start` is the one of an emission that everybody allowed."""
    members = {
        **start,
        "mode": mode,
        "verdict": project(outcome.verdict),
        "input_identity": identities[0],
        "enforced_identity": identities[1],
        "session_id": context["session"]["id"],
        "sequence": context["sequence"],
        "timestamp": context["timestamp"],
        "decided_by": outcome.decided_by,
        "verdicts": summaries(outcome.returned, names),
    }
    if "fold_truncated" in members:
        members["fold_truncated"] = outcome.fold_truncated
    if outcome.resolved_by is not None:
        members["resolved_by"] = outcome.resolved_by
    return traced(members, context)


def rejection(start: FrozenDict, envelope: Mapping[str, Any], verdict: Verdict) -> FrozenDict:
    """Return the record of a context that never was: what is known of it, and no identity."""
    session = envelope.get("session")
    sequence = envelope.get("sequence")
    timestamp = _text(envelope.get("timestamp"))
    members = {
        **start,
        "verdict": project(verdict),
        "session_id": _text(session.get("id")) or "" if isinstance(session, dict) else "",
        "sequence": sequence if type(sequence) is int and -1 <= sequence <= MAX_SAFE_INTEGER else -1,
        "timestamp": timestamp,
    }
    del members["verdicts"]
    if timestamp is None:
        del members["timestamp"]
    if "fold_truncated" in members:
        members["fold_truncated"] = start["interceptors_registered"] > 0
    return traced(members, envelope)


def traced(members: Mapping[str, Any], fields: Mapping[str, Any]) -> FrozenDict:
    """Return `members` as a record, with the W3C identifiers of the context's `trace` block (§4.5)."""
    trace = fields.get("trace")
    kept = {key: _text(trace.get(key)) for key in ("trace_id", "span_id")} if isinstance(trace, dict) else {}
    kept = {key: text for key, text in kept.items() if text is not None}
    record: FrozenDict = freeze({**members, "trace": kept} if kept else dict(members))
    return record


def public_path(path: str) -> str:
    """Return the part of a value's path that the contract names; keys below it are content (§14)."""
    kept = []
    for segment in path.split("."):
        name, bracket, _ = segment.partition("[")
        if name not in _VOCABULARY:
            break
        kept.append(name)
        if bracket:
            break
    return ".".join(kept) or "$"


def _cut(message: str) -> str:
    data = message.encode()
    if len(data) <= _MESSAGE_BYTES:
        return message
    kept = data[: _MESSAGE_BYTES - len(_ELLIPSIS.encode())]
    return kept.decode(errors="ignore") + _ELLIPSIS


def _text(value: object) -> str | None:
    """Return a string a record can carry, or None."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value
