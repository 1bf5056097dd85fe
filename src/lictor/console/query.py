"""What a store holds, as plain JSON for the command line and for pages; reads only."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

from lictor.agent import used_below
from lictor.docket import REQUESTS, Grant, Request, forged, log_of
from lictor.errors import DefinitionError, StoreError, UnknownRequest
from lictor.journal import audit_store
from lictor.runs import NO_USAGE, Event, RunResult, Telling
from lictor.runtime import RUNS, RunRow, Runtime
from lictor.team import TeamTrace
from lictor.values import thaw

__all__ = [
    "audit_view",
    "driver",
    "event_view",
    "find_id",
    "find_request",
    "find_run",
    "grants",
    "health",
    "inbox",
    "request_view",
    "result_view",
    "run_page",
    "run_view",
    "runs",
    "short_ids",
    "trace",
]

SHORT = 8
"""Signs of an id that people are shown, where that many are enough."""


# ---- ids --------------------------------------------------------------------------------------


def find_id(prefix: str, ids: Iterable[str], what: str) -> str:
    """The one id that is `prefix` or begins with it.

    Raises UnknownRequest when there is none, DefinitionError when there are several.
    """
    known = list(ids)
    found = [prefix] if prefix in known else [each for each in known if prefix and each.startswith(prefix)]
    if not found:
        raise UnknownRequest(f"there is no {what} {prefix!r} in this store")
    if len(found) > 1:
        shown = ", ".join(found[:4]) + (", …" if len(found) > 4 else "")
        raise DefinitionError(f"{prefix!r} is the beginning of {len(found)} {what}s ({shown}); give more of it")
    return found[0]


def find_run(runtime: Runtime, prefix: str) -> str:
    """The id of a root run from its beginning; raises as `find_id`."""
    return find_id(prefix, runtime.store.table(RUNS), "run")


def find_request(runtime: Runtime, prefix: str) -> str:
    """The id of a request, decided ones too, from its beginning; raises as `find_id`."""
    return find_id(prefix, runtime.store.table(REQUESTS), "request")


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id the shortest beginning, of eight signs or more, that no other one has."""
    ordered = sorted(set(ids))
    shared = [0, *[len(commonprefix(pair)) for pair in pairwise(ordered)], 0]  # noqa: RUF071 - ids are no paths
    return {each: each[: max(SHORT, shared[at] + 1, shared[at + 1] + 1)] for at, each in enumerate(ordered)}


# ---- views ------------------------------------------------------------------------------------


def run_view(row: RunRow) -> dict[str, Any]:
    """A root run. `task` is null once its verdict was given; `input` may have let other text through."""
    return {
        "run_id": row.run_id,
        "status": row.status,
        "agent": row.definition,
        "task": thaw(row.task),
        "created": _instant(row.created),
        "key": row.key,
        "user": getattr(row.user, "id", row.user),
        "conversation": row.conversation,
        "source": row.source,
        "policy": row.policy,
        "erased": _instant(row.erased),
    }


def request_view(request: Request) -> dict[str, Any]:
    """A request: what is asked, by whom, who may decide, and what was decided."""
    return request.json() | {"grantable": request.grant_key is not None}


def event_view(event: Event) -> dict[str, Any]:
    """Something that a run did."""
    told = event.json()
    return told | {"payload": {name: thaw(value) for name, value in told["payload"].items()}}


def result_view(result: RunResult) -> dict[str, Any]:
    """The outcome of a run, or what it waits for."""
    from pydantic_core import to_jsonable_python

    return {
        "run_id": result.run_id,
        "status": result.status,
        "answer": to_jsonable_python(result.answer),
        "reason": result.reason,
        "by": result.by,
        "error": result.error,
        "resumable": result.resumable,
        "requests": [request_view(request) for request in result.requests],
        "usage": result.usage.json(),
    }


def _grant_view(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "conversation": grant.conversation,
        "tool": grant.tool,
        "request": grant.request,
        "by": grant.by,
        "created": _instant(grant.created),
        "revoked": grant.revoked,
    }


def _instant(at: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339, as events have it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- questions --------------------------------------------------------------------------------


async def runs(runtime: Runtime) -> list[dict[str, Any]]:
    """Every root run, oldest first, each with the number of its open requests."""
    waiting = Counter(request.root_run for request in runtime.store.table(REQUESTS).find(status="pending"))
    return [
        run_view(row) | {"open_requests": waiting[row.run_id]} for row in runtime.store.table(RUNS).values()
    ]  # fmt: skip


async def trace(runtime: Runtime, run_id: str) -> dict[str, Any]:
    """A root run: its row, transcript, usage, requests, refused decisions, and events of runs below it too."""
    told = await runtime.trace(run_id)
    row, requests, events = runtime.row(run_id), await runtime.docket.requests(run=run_id), _events(runtime, run_id)
    return {
        "run": run_view(row),
        "messages": [thaw(message) for message in told.messages],
        "requests": [request_view(each) for each in requests],
        "refusals": [dict(each) for each in await runtime.docket.refusals(run=run_id)],
        "events": [event_view(event) for event in events],
        **_progress(runtime, told, events, requests),
    }


def _progress(runtime: Runtime, told: Any, events: list[Event], requests: list[Request]) -> dict[str, Any]:
    """How far a run is: what it used of its limits, and what its team does."""
    # It shows lines, and those ask here for ids.
    from lictor.console.teamwork import folded, limits_view, team_view

    row, limits = runtime.row(told.run_id), dict(runtime.limits(told.run_id))
    if isinstance(told, TeamTrace):
        limits = {"max_turns": told.options.max_turns, "max_handoffs": told.options.max_handoffs} | limits
    board, kept = folded(row, events, requests, limits)
    usage, team = told.usage, None
    if isinstance(told, TeamTrace):
        team = team_view(told, kept, board, requests)
        usage = used_below(runtime.store, told.run_id)  # members under way are in it
    return {"usage": usage.json(), "limits": limits_view(row, board, runtime.clock.now()), "team": team}


def _events(runtime: Runtime, root: str) -> list[Event]:
    telling = Telling()
    told = [telling.event(item) for item in runtime.store.root_entries(root)]
    return [event for event in told if event is not None]


async def run_page(runtime: Runtime, run_id: str) -> dict[str, Any]:
    """All there is to see of a root run: its trace, outcome, driver, and whether its log is as it was written.

    A log that was changed cannot always be read any more: then there are no events, and `audit` says why.
    """
    audit = await audit_view(runtime, run_id)
    try:
        told = await trace(runtime, run_id)
    except (LookupError, TypeError, ValueError, AttributeError):
        if audit is None or (audit["intact"] and not audit["erased"]):
            raise
        told = {"usage": NO_USAGE.json(), "messages": [], "refusals": [], "events": [], "limits": [], "team": None}
        told |= {"run": run_view(runtime.row(run_id))}
        told |= {"requests": [request_view(each) for each in await runtime.docket.requests(run=run_id)]}
    return told | {"outcome": _outcome(told), "driver": driver(runtime, run_id), "audit": audit}


def driver(runtime: Runtime, run_id: str) -> str | None:
    """`driven` while some process drives a root run, `wanted` when it has something to do and nobody drives it."""
    now = runtime.clock.now()
    if runtime.store.holder(run_id, now) is not None:
        return "driven"
    return "wanted" if run_id in runtime.store.woken("", now) else None


def _outcome(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a run ended, from its events: `answer` is the text that was released. None while it goes on."""
    row, events = told["run"], told["events"]
    ends = [each["payload"] for each in events if each["kind"] == "run_finished" and each["run_id"] == row["run_id"]]
    if not ends or (row["erased"] is None and ends[-1]["status"] != row["status"]):
        return None
    last = told["messages"][-1] if told["messages"] else {}
    answer = last.get("content") if row["status"] == "completed" and last.get("role") == "assistant" else None
    return {"status": row["status"], "answer": answer} | {
        name: ends[-1].get(name) for name in ("reason", "by", "error", "resumable")
    }


async def audit_view(runtime: Runtime, root: str) -> dict[str, Any] | None:
    """Whether the log of a root run and of its requests is intact and complete; None where no chain is kept.

    `key` is `ok`, or `missing` or `wrong`: then the other answers mean nothing.
    """
    url = runtime.store.url
    if not url.startswith("sqlite:///"):
        return None
    logs = [root, *[log_of(request.id) for request in await runtime.docket.requests(run=root)]]
    return await asyncio.to_thread(_audit, url, root, logs)


def _audit(url: str, root: str, logs: list[str]) -> dict[str, Any]:
    report = audit_store(url, roots=logs)
    changed = [*report.changed, *forged(url, [root])]
    return {
        "intact": not changed,
        "complete": report.complete,
        "key": report.key,
        "entries": report.entries,
        "erased": report.erased,
        "problems": [*changed, *report.missing],
    }


async def inbox(runtime: Runtime, actor: str | None = None) -> list[dict[str, Any]]:
    """Open requests, oldest first; only those that `actor` may decide, if one is given."""
    return [request_view(each) for each in await runtime.docket.pending(responder=actor, limit=10_000)]


async def grants(runtime: Runtime) -> list[dict[str, Any]]:
    """Standing approvals, revoked ones too."""
    return [_grant_view(grant) for grant in await runtime.docket.grants()]


async def health(runtime: Runtime) -> dict[str, Any]:
    """Whether the store is in order: schema, damage, runs by status, open requests, runs without a driver.

    `undriven` have something to do and no living driver; `stale_leases` are those of them that a
    driver left in the middle of a step. Both go on when a process that knows the agent resumes them.
    `broken` names every promise that what is stored does not keep (`lictor.testing.sweep`).
    """
    from lictor.testing import sweep

    now = runtime.clock.now()
    rows: Mapping[str, RunRow] = {row.run_id: row for row in runtime.store.table(RUNS).values()}
    pending = runtime.store.table(REQUESTS).find(status="pending")
    undriven = [run_id for run_id in runtime.store.woken("", now) if run_id in rows]
    return {
        "store": runtime.store.url,
        **_file_of(runtime.store.url),
        "runs": dict(sorted(Counter(row.status for row in rows.values()).items())),
        "open_requests": len(pending),
        "overdue_requests": len([each for each in pending if each.deadline is not None and each.deadline <= now]),
        "undriven": undriven,
        "broken": await sweep(runtime, adopted=False),
        "stale_leases": [run_id for run_id in undriven if rows[run_id].status == "running"],
    }


def _file_of(url: str) -> dict[str, Any]:
    """Schema number and damage of a SQLite store; nulls for one that has no file."""
    if not url.startswith("sqlite:///"):
        return {"schema": None, "damage": None}
    path = Path(url.removeprefix("sqlite:///")).absolute()
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            schema = db.execute("PRAGMA user_version").fetchone()[0]
            check = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as exc:
        raise StoreError(f"store {path} cannot be checked: {exc}; restore a backup") from exc
    return {"schema": schema, "damage": None if check == "ok" else check}
