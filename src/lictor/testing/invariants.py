"""The promises of Lictor, checked on what a run left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from lictor.agent import AgentMachine, trace_of
from lictor.errors import DefinitionError, InvariantBroken
from lictor.journal import Entry
from lictor.runs import NO_USAGE, TERMINAL, RunResult, Usage
from lictor.runtime import Run
from lictor.team import team_trace_of
from lictor.testing.callcheck import call_problems
from lictor.testing.runlog import RunLog
from lictor.testing.strict import message_problems

__all__ = ["ending_problems", "invariants", "problems_in", "usage_problems"]

# A run that waits has calls without results; that is no fault until it ends.
STILL_OPEN = "the end:"
AFTER_END = frozenset({"resumed", "stint_started"})  # entries that may follow an outcome
SIDE_BY_SIDE = frozenset({"pre_tool_call", "post_tool_call"})
PERMITTED_BY: Mapping[str, str] = {
    "session_opened": "agent_startup",
    "input": "input",
    "model_delta": "post_model_call",
    "output": "output",
}


async def invariants(of: Run | RunResult) -> None:
    """Check a run, the runs below it and their requests against what Lictor promises.

    - The history of each run is one that a strict provider accepts.
    - A call ran only after it was allowed, at most once for each decision, with the arguments that were
      judged, shown and decided; a denied one never. A `once` call that may have run before a crash
      runs again only if somebody decided so.
    - Input, answer and results were stored after a verdict of their point that let them pass.
    - Sequence numbers of records strictly increase.
    - What started has ended when the run has; no request stays open, no run below goes on.
    - There is one outcome for each attempt, and nothing after it.
    - The usage is the sum of what was recorded.

    Arguments:
        of: a Run (waits for its next park or end), or a RunResult. Of a result alone the runs below
            and the decisions are not known; those parts are then not checked.

    Raises InvariantBroken, with a line for each broken promise.
    """
    if isinstance(of, Run):
        result = await _result_of(of)
        logs = await _logs_of(of)
    elif isinstance(of, RunResult):
        logs, result = [RunLog(run_id=of.run_id, steps=of.trace.steps)], of
    else:
        raise DefinitionError(f"invariants() takes a Run or a RunResult, not {of!r}")
    found = [f"{log.name}: {problem}" for log in logs for problem in problems_in(log)]
    found += ending_problems(logs, result) + usage_problems(logs, result.usage)
    if found:
        raise InvariantBroken(f"run {result.run_id} ({result.status}) breaks {len(found)} promises", found)


async def _result_of(run: Run) -> RunResult:
    try:
        return await run.result()
    except Exception as error:
        what = f"run {run.id} is broken: its result cannot be built from its log"
        raise InvariantBroken(what, [f"{type(error).__name__}: {error}"]) from error


async def _logs_of(run: Run) -> list[RunLog]:
    """The logs of a run and of every run below it, the run first."""
    runtime = run._runtime
    requests = {request.id: request for request in await runtime.docket.requests(run=run.id)}
    steps: dict[str, list[tuple[str, Mapping[str, Any]]]] = {run.id: []}
    for item in runtime.store.root_entries(run.id):
        steps.setdefault(item.run_id, []).append((item.entry.kind, item.entry.payload))
    before = runtime.row(run.id).messages
    return [
        RunLog(run_id=run_id, steps=entries, history=before if run_id == run.id else (), requests=requests)
        for run_id, entries in steps.items()
    ]


def problems_in(log: RunLog) -> list[str]:
    """What one run did against the promises, by its log alone."""
    return [
        *_history_problems(log),
        *_sequence_problems(log),
        *_outcome_problems(log),
        *_verdict_problems(log),
        *_model_problems(log),
        *call_problems(log),
    ]


def _history_problems(log: RunLog) -> list[str]:
    entries = [Entry(number, kind, payload, 0.0) for number, (kind, payload) in enumerate(log.steps)]
    try:
        told = team_trace_of if log.steps and "team" in log.steps[0][1] else trace_of
        messages = told(log.run_id, entries, log.history).messages
    except Exception as error:  # noqa: BLE001 - a log that is broken may break the fold in any way
        return [f"its log cannot be folded: {type(error).__name__}: {error}"]
    problems = [problem for problem in message_problems(messages) if log.finished or STILL_OPEN not in problem]
    return [f"its history is invalid: {problem}" for problem in problems]


def _sequence_problems(log: RunLog) -> list[str]:
    """Numbers never repeat, and rise; only calls of one batch are judged side by side and end in any order."""
    records: list[tuple[int, bool]] = []
    for kind, payload in log.steps:
        if kind == "stint_started" and records:
            records[-1] = (records[-1][0], False)
        elif kind == "verdict":
            record = payload["record"]
            records.append((record["sequence"], record["interception_point"] in SIDE_BY_SIDE))
    repeated = [number for number, times in Counter(number for number, _ in records).items() if times > 1]
    late = [
        f"record {later} comes after record {earlier}"
        for (earlier, beside), (later, also) in pairwise(records)
        if later < earlier and not (beside and also)
    ]
    return [f"record {number} is there twice" for number in repeated] + late


def _outcome_problems(log: RunLog) -> list[str]:
    problems, finished = [], False
    counts = AgentMachine().kinds - AFTER_END
    for kind, _ in log.steps:
        if kind == "resumed":
            finished = False
        elif kind == "run_finished" and finished:
            problems.append("it has a second outcome")
        elif kind == "run_finished":
            finished = True
        elif finished and kind in counts:
            problems.append(f"{kind} was recorded after the outcome")
    return problems


def _verdict_problems(log: RunLog) -> list[str]:
    """Whatever is stored was let through by the last verdict of its point."""
    passed: dict[str, bool] = {}
    seen: Counter[str] = Counter()
    problems = []
    for kind, payload in log.steps:
        if kind == "verdict":
            record = payload["record"]
            seen[record["interception_point"]] += 1
            passes = record["mode"] == "evaluate_only" or record["verdict"]["decision"] != "deny"
            passed[record["interception_point"]] = passes
        point = PERMITTED_BY.get(kind)
        if point is not None and not passed.get(point, False):
            problems.append(f"{kind} was stored without a verdict of {point} that lets it pass")
    results = len(log.payloads("tool_finished"))
    if seen["post_tool_call"] < results:
        problems.append(f"{results} tool results were stored after {seen['post_tool_call']} verdicts of post_tool_call")
    return problems


def _model_problems(log: RunLog) -> list[str]:
    """A model call that was sent has an answer, a failure, or a reason why nobody waits for it."""
    problems, is_open = [], False
    for kind, _ in log.steps:
        if kind == "model_started":
            problems += ["a model call began while another one was open"] if is_open else []
            is_open = True
        elif kind in ("model_finished", "model_retry", "cause", "stint_started", "request_opened"):
            is_open = False
    return [*problems, *(["a model call started and never ended"] if is_open and log.finished else [])]


def ending_problems(logs: Sequence[RunLog], result: RunResult) -> list[str]:
    """The outcome that is told is the one that is recorded, and it is the end of everything below."""
    root, *below = logs
    if result.status not in TERMINAL:
        waits = any(request.status == "pending" for request in (root.requests or {}).values())
        unheard = [] if waits or root.requests is None else [f"{root.name}: it is suspended and nobody is asked"]
        return unheard + ([f"{root.name}: it is suspended and has an outcome"] if root.finished else [])
    problems = [] if root.finished else [f"{root.name}: it is {result.status} without a recorded outcome"]
    problems += [f"{log.name}: it goes on below a run that has ended" for log in below if not log.finished]
    still = [request.id for request in (root.requests or {}).values() if request.status == "pending"]
    return problems + [f"{root.name}: request {request} is open after the end" for request in still]


def usage_problems(logs: Sequence[RunLog], usage: Usage) -> list[str]:
    """Tokens, cost and retries are the recorded sums; a request that was broken off counts as sent.

    With the log of the root alone and runs below it, the sums can only be too small.
    """
    told = NO_USAGE
    sent = calls = 0
    for log in logs:
        for payload in log.payloads("model_finished", "model_retry"):
            told = told + Usage.of(payload.get("usage"))
        sent += len(log.payloads("model_started"))
        calls += len(log.payloads("tool_started"))
    children = sum("child" in payload for log in logs for payload in log.payloads("tool_started", "member_started"))
    whole = children < len(logs)
    expected = {**told.json(), "tool_calls": calls}
    problems = []
    for name, number in expected.items():
        value = usage.json()[name]
        fits = abs(value - number) < 1e-9 or (name == "requests" and number <= value <= sent)
        if not (fits or (not whole and value > number)):
            problems.append(f"usage.{name} is {value}, the log says {number}")
    return problems
