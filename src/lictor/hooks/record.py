"""Interception records: one per emission, never with content of the target (§10.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lictor.hooks.compose import Outcome
from lictor.hooks.context import Context
from lictor.hooks.points import FIELDS
from lictor.hooks.verdict import Decision, Verdict, Warning
from lictor.values import MAX_SAFE_INTEGER, FrozenDict, FrozenList, freeze, thaw

__all__ = ["allowing_rows", "conclusion", "project", "public_path", "record_projection", "rejection", "traced"]

WORDS: Final = {decision: decision.value for decision in Decision}

_MESSAGE_BYTES: Final = 256
_HEIGHT: Final = 4  # levels of a record: verdict, evidence, pointers
_EMPTY: Final[FrozenDict] = freeze({})
_ELLIPSIS: Final = "…"
_VOCABULARY: Final = frozenset(
    {"$", "spec", "interception_point", "timestamp", "sequence", "agent", "session", "target", "extensions"}
    | {"framework", "tools", "usage", "request_id"}
    | {name for fields in FIELDS.values() for name in fields}
    | {member for fields in FIELDS.values() for members in fields.values() for member in members}
)


def record_projection(verdict: Verdict) -> dict[str, Any]:
    """Return the payload-free projection of a verdict as a plain dict.

    The value of a transform and the members of an approval block are dropped, messages are cut to
    256 UTF-8 bytes; evidence, reasons and labels stay.
    """
    projected: dict[str, Any] = thaw(project(verdict))
    return projected


def project(verdict: Verdict) -> FrozenDict:
    """Return the payload-free projection of a verdict, as it goes on a record."""
    members: dict[str, Any] = {"decision": WORDS[verdict.decision]}
    if verdict.reason is not None:
        members["reason"] = verdict.reason
    if verdict.message is not None:
        members["message"] = _cut(verdict.message)
    if verdict.warnings:
        members["warnings"] = freeze([_warning(warning) for warning in verdict.warnings])
    if verdict.approval is not None:
        members["approval"] = _EMPTY
    transform = verdict.transform
    if transform is not None:
        members["transform"] = _sealed({"path": transform.path})
    if verdict.evidence is not None:
        members["evidence"] = freeze(verdict.evidence.to_wire())
    if verdict.result_labels:
        members["result_labels"] = freeze(list(verdict.result_labels))
    return _sealed(members)


def summaries(returned: Mapping[int, Verdict], rows: Sequence[FrozenDict]) -> FrozenList:
    """Return the per-interceptor summary: who was asked, by registration index, and what they said.

    `rows` are those of interceptors that allowed without a reason.
    """
    shown = FrozenList([_row(returned[index], rows[index]) for index in sorted(returned)])
    shown._plain, shown._height, shown._canon = True, 2, None
    return shown


def _row(verdict: Verdict, row: FrozenDict) -> FrozenDict:
    if verdict.decision is Decision.ALLOW and verdict.reason is None:
        return row
    decided = {"index": row["index"], "decision": WORDS[verdict.decision]}
    if verdict.reason is not None:
        decided["reason"] = verdict.reason
    decided["name"] = row["name"]
    return _sealed(decided)


def allowing_rows(names: Sequence[str]) -> FrozenList:
    """Return the summary in which everybody of `names` allowed."""
    rows: FrozenList = freeze([{"index": n, "decision": "allow", "name": name} for n, name in enumerate(names)])
    return rows


def _sealed(members: dict[str, Any]) -> FrozenDict:
    """Freeze a part of a record without looking at it again: its values are frozen, and none is a float."""
    sealed = FrozenDict(members)
    sealed._plain, sealed._height, sealed._canon = True, _HEIGHT, None
    return sealed


def conclusion(
    start: FrozenDict, outcome: Outcome, mode: str, identities: tuple[str | None, str | None], context: Context
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
        "verdicts": summaries(outcome.returned, start["verdicts"]),
    }
    if "fold_truncated" in members:
        members["fold_truncated"] = outcome.fold_truncated
    if outcome.resolved_by is not None:
        members["resolved_by"] = outcome.resolved_by
    return traced(members, context)


def fold_record(
    start: FrozenDict, verdict: Verdict, index: int, identities: tuple[str | None, str | None], context: Context
) -> FrozenDict:
    """Return the record of one transform among allows: `conclusion`, for the one shape that is common."""
    rows = [*start["verdicts"]]
    rows[index] = _row(verdict, rows[index])
    verdicts = FrozenList(rows)
    verdicts._plain, verdicts._height, verdicts._canon = True, 2, None
    record = FrozenDict(
        start,
        verdict=project(verdict),
        input_identity=identities[0],
        enforced_identity=identities[1],
        session_id=context["session"]["id"],
        sequence=context["sequence"],
        timestamp=context["timestamp"],
        decided_by=index,
        verdicts=verdicts,
    )
    record._plain, record._height, record._canon = True, _HEIGHT, None
    return traced(record, context) if "trace" in context else record


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
        "verdicts": summaries({}, ()),  # nobody was asked; multi-verdict profiles require the member
    }
    if timestamp is None:
        del members["timestamp"]
    if "fold_truncated" in members:
        members["fold_truncated"] = start["interceptors_registered"] > 0
    return traced(members, envelope)


def traced(members: dict[str, Any], fields: Mapping[str, Any]) -> FrozenDict:
    """Return `members` as a record, with the W3C identifiers of the context's `trace` block (§4.5)."""
    trace = fields.get("trace")
    if isinstance(trace, dict):
        kept = {key: _text(trace.get(key)) for key in ("trace_id", "span_id")}
        kept = {key: text for key, text in kept.items() if text is not None}
        members = {**members, "trace": _sealed(kept)} if kept else members
    return _sealed(members)


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


def _warning(warning: Warning) -> dict[str, Any]:
    wire = warning.to_wire()
    if warning.message is not None:
        wire["message"] = _cut(warning.message)
    return wire


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
