"""The sweep over a whole store: what must be true of it at any moment, also right after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lictor.docket import REQUESTS, Request
from lictor.journal import Positioned
from lictor.runs import TERMINAL
from lictor.runtime import RUNS, RunRow, Runtime
from lictor.testing.invariants import problems_in
from lictor.testing.runlog import RunLog

__all__ = ["sweep"]

VERBS: Mapping[str, str] = {
    "approved": "approve",
    "rejected": "reject",
    "edited": "edit",
    "responded": "respond",
    "retried": "retry",
    "skipped": "skip",
    "expired": "expire",
}
"""Status of a settled request -> the verb under which its run took note of it."""


async def sweep(runtime: Runtime, *, adopted: bool = True) -> list[str]:
    """What is wrong in a store, one line for each thing; empty when all is in order. Reads only.

    - Every run that is under way has a living driver. After a crash that is so again once somebody who knows the
      agent has adopted it, which takes two lease times (10 s) at most; until then the run is named here.
    - No request is open under a driver that is gone, below a run that has ended, or without its run.
    - A settled request was decided once, as its run took note of it, and used at most once.
    - Sequence numbers and cursors have no gap and no double.
    - No call ran twice for one decision; each effect is committed at most once.
    - The status of a run is the one that its log ends with, and nothing below it goes on.
    - Each log by itself keeps the promises of `invariants`.

    Arguments:
        runtime: over the store; `drive=False` will do. Runs that others write to meanwhile are judged
            by what is written.
        adopted: False where runs may still wait for a driver that adopts them; who drives is then not looked at.
    """
    found: list[str] = []
    undriven = set(runtime.store.woken("", runtime.clock.now())) if adopted else ()
    rows = {row.run_id: row for row in runtime.store.table(RUNS).values()}
    asked: dict[str, list[Request]] = {root: [] for root in rows}
    for request in runtime.store.table(REQUESTS).values():
        if request.root_run not in rows:
            found.append(f"request {request.id}: there is no run {request.root_run}")
            continue
        asked[request.root_run].append(request)
    for root, row in rows.items():
        found += [f"run {root}: {problem}" for problem in _problems(runtime, row, asked[root], root in undriven)]
    return found


def _problems(runtime: Runtime, row: RunRow, requests: Sequence[Request], undriven: bool) -> list[str]:
    items = runtime.store.root_entries(row.run_id)
    logs: dict[str, list[Positioned]] = {}
    for item in items:
        logs.setdefault(item.run_id, []).append(item)
    problems = _places(items, logs)
    if runtime.store.table(RUNS).get(row.run_id) == row:  # else it goes on right now, and what we hold does not fit
        problems += _driving(row, requests, undriven)
        if any("erased" in item.entry.payload for item in items):
            return problems  # without its payloads a log says no more than that it is whole
        by_id = {request.id: request for request in runtime.store.table(REQUESTS).find(root_run=row.run_id)}
        told = {run_id: _log(run_id, row, entries, by_id) for run_id, entries in logs.items()}
        problems += _endings(row, told)
        for log in told.values():
            problems += [f"{log.name}: {problem}" for problem in (*_decisions(log), *problems_in(log))]
    return problems


def _log(run_id: str, row: RunRow, items: Sequence[Positioned], requests: Mapping[str, Request]) -> RunLog:
    steps = [(item.entry.kind, item.entry.payload) for item in items]
    return RunLog(run_id=run_id, steps=steps, history=row.messages if run_id == row.run_id else (), requests=requests)


def _places(items: Sequence[Positioned], logs: Mapping[str, Sequence[Positioned]]) -> list[str]:
    problems = []
    if [item.cursor for item in items] != list(range(1, len(items) + 1)):
        problems.append("its cursors have gaps or doubles")
    for run_id, entries in logs.items():
        if [item.entry.seq for item in entries] != list(range(len(entries))):
            problems.append(f"the sequence numbers of {run_id} have gaps or doubles")
    return problems


def _driving(row: RunRow, requests: Sequence[Request], undriven: bool) -> list[str]:
    """Who drives it, and what waits under whom."""
    waiting = [request.id for request in requests if request.status == "pending"]
    if row.status in TERMINAL:
        return [f"request {request} is open after its end" for request in waiting]
    if not undriven:
        return []
    problems = [f"it is {row.status} and nobody drives it"]
    if row.status != "waiting":
        problems += [f"request {request} waits under a driver that is gone" for request in waiting]
    return problems


def _endings(row: RunRow, logs: Mapping[str, RunLog]) -> list[str]:
    root = logs.get(row.run_id)
    if root is None:
        return ["it has no log"]
    if row.status not in TERMINAL:
        ended = row.status == "waiting" and root.finished
        return ["it waits and has an outcome"] if ended else []
    outcomes = [payload["status"] for payload in root.payloads("run_finished")]
    problems = [f"{log.name} goes on below a run that has ended" for log in logs.values() if not log.finished]
    if outcomes[-1:] != [row.status]:
        problems.append(f"it is {row.status}, and its log ends with {outcomes[-1] if outcomes else 'no outcome'}")
    return problems


def _decisions(log: RunLog) -> list[str]:
    """What a run took note of is what was decided, once."""
    noted = Counter(payload["request"] for payload in log.payloads("request_decided"))
    problems = [f"request {request} was decided {times} times" for request, times in noted.items() if times > 1]
    for payload in log.payloads("request_decided"):
        request = (log.requests or {}).get(payload["request"])
        verb = None if request is None else VERBS.get(request.status, request.status)
        if payload["verb"] != verb:
            told = "is not there" if request is None else f"is {request.status}"
            problems.append(f"it took note of {payload['verb']} for request {payload['request']}, which {told}")
    return problems
