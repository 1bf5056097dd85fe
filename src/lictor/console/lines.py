"""What people read of a store: lines for runs, requests and events. Nothing in them can move a cursor."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lictor.console.query import short_ids
from lictor.console.screen import LONGEST, printable

__all__ = [
    "commands_for",
    "decided",
    "event_line",
    "grant_lines",
    "health_lines",
    "inline",
    "request_lines",
    "resume_command",
    "run_lines",
    "whole",
]

WRITTEN: Mapping[str, str] = {
    "approve": "approve {id}",
    "reject": "reject {id} -m TEXT",
    "edit": "edit {id} NAME=VALUE",
    "respond": "respond {id} -m TEXT",
    "retry": "retry {id}",
    "skip": "skip {id}",
}


def whole(text: str) -> str:
    """All of a text, as `printable` shows it: what somebody decides on is never cut."""
    pieces = [text[start : start + LONGEST] for start in range(0, len(text), LONGEST)]
    return "".join([printable(piece) for piece in pieces])


def inline(value: Any) -> str:
    """A value in one line, cut when it is long."""
    text = value if isinstance(value, str) else _json(value)
    return printable(" ".join(text.split()))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def resume_command(short: str, store: str | None) -> str:
    """The command that goes on with a run."""
    return f"lictor resume {short}{_where(store)}"


def _where(store: str | None) -> str:
    return "" if store is None else f" --store {shlex.quote(store)}"


def commands_for(request: Mapping[str, Any], short: str, store: str | None) -> list[str]:
    """The commands that decide a request, exactly as they are typed."""
    return [f"lictor {WRITTEN[verb].format(id=short)}{_where(store)}" for verb in request["verbs"] if verb in WRITTEN]


def request_lines(request: Mapping[str, Any], short: str, store: str | None) -> Iterator[str]:
    """An open request with everything it binds to, and the commands that decide it."""
    wants = f"wants {inline(request['tool'])}" if request["tool"] else f"asks ({request['kind']})"
    yield f"request {short}: {inline(request['requester'])} {wants}, run {request['root_run'][:8]}"
    for name, value in (request["arguments"] or {}).items():
        yield f"  {inline(name)} = {whole(_json(value))}"
    if request["value"] is not None:
        yield f"  {request['point'] or 'value'}: {whole(_json(request['value']))}"
    for reason in request["reasons"]:
        yield f"  why: {inline(reason['message'] or reason['reason'] or reason['name'])}"
    for party in request["parties"]:
        yield f"  for: {inline(', '.join(party))}"
    if request["approvals"]:
        yield f"  approved so far: {inline(', '.join(request['approvals']))}"
    if request["deadline"]:
        yield f"  until: {request['deadline']}"
    for command in commands_for(request, short, store):
        yield f"  > {command}"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows with their columns under each other; the last column is as wide as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def run_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Runs: id, status, since when, agent, open requests, key."""
    short = short_ids([each["run_id"] for each in found])
    rows = [
        (
            short[each["run_id"]],
            each["status"],
            each["created"],
            inline(each["agent"]),
            f"{each['open_requests']} open" if each["open_requests"] else "",
            inline(each["key"] or ""),
            "erased" if each["erased"] else "",
        )
        for each in found
    ]
    yield from table(rows) if rows else ["no runs"]


def grant_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Standing approvals: id, whether it stands, since when, by whom, tool, conversation."""
    rows = [
        (
            each["id"],
            "revoked" if each["revoked"] else "stands",
            each["created"],
            inline(each["by"]),
            inline(each["tool"]),
            inline(each["conversation"]),
        )
        for each in found
    ]
    yield from table(rows) if rows else ["no standing approvals"]


def event_line(event: Mapping[str, Any]) -> str:
    """One event: when, in which run, what."""
    names = "/".join(step["name"] for step in event["path"])
    return f"{event['at']}  {inline(names)}  {event['kind']}  {_gist(event['kind'], event['payload'])}".rstrip()


def _gist(kind: str, payload: Mapping[str, Any]) -> str:
    if "erased" in payload:
        return "erased"
    if kind in GISTS:
        return inline(GISTS[kind](payload))
    parts = [payload[name] for name in SHOWN if name in payload and payload[name] not in (None, "", {}, [], False)]
    return " ".join(map(inline, parts))


def _verdict(payload: Mapping[str, Any]) -> str:
    about = f" ({payload['member']})" if payload.get("member") else ""
    reason = f" {payload['reason']}" if payload["reason"] else ""
    by = f" by {payload['by']}" if payload["by"] else ""
    if not reason and payload.get("verdicts"):  # what went on all the same
        reason = f" ({'; '.join([_said(each) for each in payload['verdicts']])})"
    return f"{payload['point']}{about} {payload['decision']}{reason}{by}"


def _said(verdict: Mapping[str, Any]) -> str:
    return " ".join([verdict["name"], verdict["decision"], verdict.get("reason") or ""]).rstrip()


def _model_finished(payload: Mapping[str, Any]) -> str:
    calls = ", ".join([call["tool"] for call in payload["calls"]])
    return f"{payload['finish']}{': ' if calls else ''}{calls}"


def decided(payload: Mapping[str, Any]) -> str:
    """A decision of a team in words: who is to do what, `finish`, or what a person is asked."""
    work = [(each["member"], each["instruction"]) for each in payload["assignments"]]
    if work:
        return "; ".join([f"{member}: {told}" if told else str(member) for member, told in work])
    return f"asks a person: {payload['reason']}" if payload.get("reason") else str(payload["kind"])


def _decision(payload: Mapping[str, Any]) -> str:
    return f"turn {payload['turn']}, {decided(payload)}"


def _member_finished(payload: Mapping[str, Any]) -> str:
    return f"{payload['member']} {payload['value']['status']}: {payload['record']['content']}"


def _skipped(payload: Mapping[str, Any]) -> str:
    return f"{payload['member']} {payload['record']['content']}"


def _handoff(payload: Mapping[str, Any]) -> str:
    return f"to {payload['to']}: {payload['note']}" if payload["note"] else f"to {payload['to']}"


GISTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "verdict": _verdict,
    "model_finished": _model_finished,
    "decision": _decision,
    "member_finished": _member_finished,
    "skipped": _skipped,
    "handoff": _handoff,
}
SHOWN = (
    "member", "status", "tool", "arguments", "content", "text", "kind", "request", "verb", "decided_by", "error",
    "reason", "by", "why", "model",
)  # fmt: skip


def health_lines(found: Mapping[str, Any], store: str | None) -> Iterator[str]:
    """What `lictor doctor` says."""
    yield f"store     {found['store']}"
    yield f"schema    {found['schema']}"
    yield f"file      {inline(found['damage'] or 'intact')}"
    yield f"runs      {', '.join(f'{count} {status}' for status, count in found['runs'].items()) or 'none'}"
    overdue = f", {found['overdue_requests']} overdue" if found["overdue_requests"] else ""
    yield f"requests  {found['open_requests']} open{overdue}"
    for run_id in found["undriven"]:
        stale = " (its driver left a lease behind)" if run_id in found["stale_leases"] else ""
        yield f"undriven  {run_id}{stale}: {resume_command(run_id, store)}"
    for problem in found["broken"]:
        yield f"broken    {inline(problem)}"
