"""What a run did, as rows that people read: a label in words, a tone, and what it was about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lictor.console.lines import decided
from lictor.console.web.words import place

__all__ = ["Group", "Row", "nested", "timeline"]

PARKED = "host_error:approval_unresolved"
LONGEST = 2_000
"""Signs of a text that a row shows; the JSON twin has all of it."""

DECISIONS: Mapping[str, tuple[str, str]] = {
    "allow": ("allowed", "quiet"),
    "deny": ("denied", "bad"),
    "transform": ("changed", "warn"),
    "stop": ("stopped", "bad"),
    "suspend": ("held", "wait"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: when, in which agent, label, tone (good, bad, warn, wait, plain, quiet), text, a request to link."""

    at: str
    agent: str
    label: str
    tone: str
    text: str
    request: str | None = None
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rows of a run below another one, that stand together: whose they are, and its id."""

    name: str
    run_id: str
    rows: list[Row | Group]


def nested(rows: Iterable[Row]) -> list[Row | Group]:
    """The rows as a tree: those of runs below stand in a group where they happened."""
    top: list[Row | Group] = []
    opened: list[Group] = []
    for row in rows:
        below = row.runs[1:]
        names = row.agent.split(" / ")[1:]
        kept = 0
        while kept < min(len(opened), len(below)) and opened[kept].run_id == below[kept]:
            kept += 1
        del opened[kept:]
        for name, run_id in zip(names[kept:], below[kept:], strict=True):
            group = Group(name=name, run_id=run_id, rows=[])
            (opened[-1].rows if opened else top).append(group)
            opened.append(group)
        (opened[-1].rows if opened else top).append(row)
    return top


def timeline(events: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of a run's events; pieces of one text become one row."""
    rows: list[Row] = []
    texts: list[str] = []
    last: Mapping[str, Any] | None = None
    routes: set[tuple[str, str]] = set()
    for event in events:
        if event["payload"].get("erased") is True:
            rows.append(_row(event, event["kind"].replace("_", " "), "quiet", "erased"))
            continue
        if event["kind"] == "model_delta":
            texts.append(event["payload"]["text"])
            last = event
            continue
        if last is not None:
            rows.append(_row(last, "answer", "good", "".join(texts)))
            texts, last = [], None
        if _routes(event, routes):
            continue
        told = KINDS.get(event["kind"], _other)(event)
        if told is not None and rows and _joins(rows[-1], told):
            rows[-1] = replace(rows[-1], text=f"{rows[-1].text}, {told.text}")
        elif told is not None:
            rows.append(told)
    return [*rows, _row(last, "answer", "good", "".join(texts))] if last is not None else rows


def _routes(event: Mapping[str, Any], routes: set[tuple[str, str]]) -> bool:
    """Whether it is the call that a decision was made with: the decision and what came of it tell all of it."""
    call = (event["run_id"], event["payload"].get("call"))
    if event["kind"] == "decision" and event["payload"]["kind"] != "ask_human":
        routes.add(call)
    bad = event["payload"].get("is_error")
    return event["kind"] in ("tool_started", "tool_finished") and call in routes and not bad


def _joins(before: Row, row: Row) -> bool:
    """Whether one line holds both: what is allowed without a word is told in one."""
    return (before.label, before.agent, before.tone) == (row.label, row.agent, "quiet") and row.label == "allowed"


def _row(event: Mapping[str, Any], label: str, tone: str, text: str = "", request: str | None = None) -> Row:
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters)"
    agent = " / ".join([step["name"] for step in event["path"]])
    runs = tuple([step["run_id"] for step in event["path"]])
    return Row(at=event["at"], agent=agent, label=label, tone=tone, text=shown, request=request, runs=runs)


def _json(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _verdict(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    what = place(payload["point"], payload.get("member"))
    if payload["reason"] == PARKED:
        return _row(event, "held", "wait", f"{what}: a decision is needed")
    label, tone = DECISIONS.get(payload["decision"], (payload["decision"], "warn"))
    if tone == "quiet" and (payload["by"] or payload["reason"]):
        tone = "plain"
    reason = f": {payload['reason']}" if payload["reason"] else ""
    if not reason and payload.get("verdicts"):  # it goes on all the same, or was approved
        said = [f"{each['name']} said {each.get('reason') or each['decision']}" for each in payload["verdicts"]]
        tone, reason = "plain", f": {'; '.join(said)}"
    by = f", by {payload['by']}" if payload["by"] else ""
    return _row(event, label, tone, f"{what}{reason}{by}")


def _model_finished(event: Mapping[str, Any]) -> Row:
    calls = ", ".join([call["tool"] for call in event["payload"]["calls"]])
    return _row(event, "model", "plain", f"wants {calls}" if calls else f"answered ({event['payload']['finish']})")


def _tool_started(event: Mapping[str, Any]) -> Row:
    return _row(event, "tool runs", "plain", f"{event['payload']['tool']} {_json(event['payload'].get('arguments'))}")


def _tool_finished(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    bad = bool(payload.get("is_error"))
    text = f"{payload.get('tool') or ''} {_json(payload.get('content', ''))}".strip()
    return _row(event, "tool failed" if bad else "result", "bad" if bad else "plain", text)


def _request_opened(event: Mapping[str, Any]) -> Row:
    return _row(event, "asked", "wait", "somebody has to decide", event["payload"]["request"])


def _request_decided(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    by = payload.get("decided_by") or "nobody"
    return _row(event, "decided", "good", f"{payload.get('verb')} by {by}", payload["request"])


def _refused(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    text = f"{payload['verb']} by {payload['by']} was not taken: {payload['error']}"
    return _row(event, "refused", "warn", text, payload["request"])


def _run_finished(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    parts = [payload["status"], payload.get("reason"), payload.get("error")]
    by = f" by {payload['by']}" if payload.get("by") else ""
    text = ": ".join([str(part) for part in parts if part]) + by
    return _row(event, "end", "good" if payload["status"] == "completed" else "bad", text)


def _started(event: Mapping[str, Any]) -> Row:
    return _row(event, "start", "plain", "the run begins")


def _stint(event: Mapping[str, Any]) -> Row:
    return _row(event, "driver", "quiet", "a process takes the run up")


def _decision(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    return _row(event, f"turn {payload['turn']}", "plain", decided(payload))


def _member_started(event: Mapping[str, Any]) -> Row:
    return _row(event, "begins", "quiet", event["payload"]["member"])


def _member_finished(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    good = payload["value"]["status"] == "completed"
    text = f"{payload['member']}: {payload['record']['content']}"
    return _row(event, "done" if good else "failed", "good" if good else "bad", text)


def _skipped(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    reason = f": {payload['reason']}" if payload["reason"] else ""
    return _row(event, "skipped", "warn", f"{payload['member']}, by {payload['by']}{reason}")


def _handoff(event: Mapping[str, Any]) -> Row:
    payload = event["payload"]
    return _row(event, "hands over", "plain", f"to {payload['to']}: {payload['note']}".removesuffix(": "))


def _nothing(event: Mapping[str, Any]) -> None:
    return None


def _other(event: Mapping[str, Any]) -> Row:
    known = {name: given for name, given in event["payload"].items() if given not in (None, "", [], {}, False)}
    return _row(event, event["kind"].replace("_", " "), "plain", _json(known) if known else "")


KINDS: Mapping[str, Callable[[Mapping[str, Any]], Row | None]] = {
    "verdict": _verdict,
    "model_started": _nothing,
    "model_finished": _model_finished,
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "request_opened": _request_opened,
    "request_decided": _request_decided,
    "decision_refused": _refused,
    "run_started": _started,
    "stint_started": _stint,
    "run_finished": _run_finished,
    "decision": _decision,
    "member_started": _member_started,
    "member_finished": _member_finished,
    "skipped": _skipped,
    "handoff": _handoff,
}
