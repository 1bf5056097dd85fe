"""Playing runs in tests, plain and streamed, and what must hold after every one of them.

`play` drives an agent in memory, `park` and `decided` one in a Runtime. Each of them ends with
`check`, which looks at every run below a root: the history is one that a strict provider takes,
allowed calls are closed, what started has ended, usage adds up, and nothing follows the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lictor import Agent, InterceptionBlocked, RunResult, Runtime, ScriptedModel, Usage, faults, interceptor
from lictor.agent import trace_of
from lictor.docket import REQUESTS
from lictor.errors import SimulatedCrash
from lictor.hooks import ALLOW
from lictor.journal import Entry, MemoryStore
from lictor.models import ModelRequest
from lictor.runs import TERMINAL, Ending, Event, follow
from lictor.runtime import RUNS
from lictor.team import team_trace_of

both_ways = pytest.mark.parametrize("how", ["plain", "streamed"])
"""Each test that has this runs once through `run` and once through `stream`."""

RUN = "r"


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run in memory, seen the same way whether it was run or streamed."""

    status: str
    reason: str | None
    by: str | None
    error: str | None
    answer: Any
    usage: Usage
    events: list[Event]
    store: MemoryStore
    run_id: str
    blocked: InterceptionBlocked | None = None
    result: RunResult | None = None

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The stored transcript."""
        return trace_of(self.run_id, self.store.entries(self.run_id)).messages

    @property
    def records(self) -> list[Mapping[str, Any]]:
        """The interception records of the root run."""
        return [entry.payload["record"] for entry in self.store.entries(self.run_id) if entry.kind == "verdict"]

    @property
    def text(self) -> str:
        """Everything a caller, the store or a trace can show, as one text to search."""
        shown = [event.json() for event in self.events]
        stored = [item.entry for item in self.store.root_entries(self.run_id)]
        tables = {name: dict(rows) for name, rows in self.store._tables.items()}
        return " ".join(map(str, (shown, stored, tables, self.messages, self.result, repr(self.result))))

    def result_of(self, number: int = 0) -> str:
        """The content of the n-th tool message."""
        return tools_said(self.messages)[number]


def tools_said(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The contents of the tool messages, in order."""
    return [message["content"] for message in messages if message["role"] == "tool"]


async def play(agent: Agent, task: Any = "go", how: str = "plain", *, sure: bool = True, **options: Any) -> Played:
    """Run `agent` to its end in memory; `how` is `plain` or `streamed`.

    `sure=False` leaves out the check of what must hold.
    """
    store, run_id = MemoryStore(), RUN
    blocked: InterceptionBlocked | None = None
    result: RunResult | None = None
    events: list[Event] = []
    if how == "plain":
        try:
            result = await agent.run(task, store=store, run_id=run_id, **options)
        except InterceptionBlocked as exc:
            blocked, result = exc, exc.run  # type: ignore[assignment]
        events = await events_in(store, run_id)
    else:
        events = [event async for event in agent.stream(task, store=store, run_id=run_id, **options)]
    if sure:
        check(store, run_id)
    return _played(store, run_id, events, blocked, result)


async def cancelled(agent: Agent, reached: asyncio.Event, how: str = "plain", **options: Any) -> Played:
    """Run `agent`, cancel the caller once `reached` is set, and give what is left behind."""
    store, run_id = MemoryStore(), RUN

    async def caller() -> None:
        if how == "plain":
            await agent.run("go", store=store, run_id=run_id, **options)
        async for _ in agent.stream("go", store=store, run_id=run_id, **options):
            pass

    async with asyncio.TaskGroup() as group:
        task = group.create_task(caller())
        await reached.wait()
        task.cancel()
    assert task.cancelled()
    check(store, run_id)
    return _played(store, run_id, await events_in(store, run_id), None, None)


def _played(
    store: MemoryStore, run_id: str, events: list[Event], blocked: InterceptionBlocked | None, result: RunResult | None
) -> Played:
    ends = [event for event in events if event.kind == "run_finished" and event.run_id == run_id]
    end: Mapping[str, Any] = (
        ends[-1].payload if ends else {"status": "suspended", "reason": None, "by": None, "error": None}
    )
    said = said_by(events, run_id)
    answer = said if end["status"] == "completed" else None
    if result is not None:
        assert (result.status, result.reason, result.by) == (end["status"], end["reason"], end["by"])
        assert (result.answer is None) is (result.status != "completed")
    return Played(
        status=end["status"],
        reason=end["reason"],
        by=end["by"],
        error=end["error"],
        answer=answer if result is None else result.answer,
        usage=Usage.of(end.get("usage")) if result is None else result.usage,
        events=events,
        store=store,
        run_id=run_id,
        blocked=blocked,
        result=result,
    )


def said_by(events: Sequence[Event], run_id: str | None = None) -> str:
    """The final answer as a caller puts it together: without what was taken back, and what came beside tool calls.

    That of the root, unless another run is named.
    """
    said: list[str] = []
    run_id = run_id or (events[0].run_id if events else None)
    for event in events:
        if event.run_id != run_id:
            continue
        if event.kind == "model_delta":
            said.append(event.payload["text"])
        elif event.kind == "stream_reset" or (event.kind == "model_finished" and event.payload["calls"]):
            said = []
    return "".join(said)


async def events_in(store: Any, root: str) -> list[Event]:
    """Everything that a follower of `root` is given, from the start."""
    ending = Ending()
    ending.set()
    return [event async for event in follow(store, root, 0, ending)]


# ---- runs in a Runtime --------------------------------------------------------------------------


async def park(
    runtime: Runtime, agent: Agent, task: Any = "go", how: str = "plain", **options: Any
) -> tuple[Any, RunResult]:
    """Start a run and wait until it parks or ends; its handle and how it stands."""
    run = await runtime.start(agent, task, **options)
    return run, await settled(runtime, run, how)


async def settled(runtime: Runtime, run: Any, how: str = "plain") -> RunResult:
    """How a run stands at its next park or end; `streamed` follows its events up to there."""
    if how == "streamed":
        async for _ in run.events():
            pass
    result: RunResult = await run.result()
    check(runtime.store, run.id)
    return result


async def decided(
    runtime: Runtime, run: Any, *decisions: tuple[str, str, Mapping[str, Any]], how: str = "plain"
) -> RunResult:
    """Decide requests, given as (request id, verb, options), and wait for the next park or end."""
    for request_id, verb, options in decisions:
        await runtime.docket.decide(request_id, verb, **{"by": "human:ana", **options})
    return await settled(runtime, run, how)


@contextlib.asynccontextmanager
async def reopened(old: Runtime, *agents: Agent, **options: Any) -> AsyncIterator[Runtime]:
    """A new Runtime over the store of `old`: everything that is not in the store is gone; a file is opened anew."""
    definitions = {agent.name: agent for agent in agents}
    async with Runtime(
        old.store.url if old.store.durable else old.store, definitions=definitions, clock=old.clock, **options
    ) as runtime:
        yield runtime


@contextlib.contextmanager
def crash_at(point: str, after: int = 0) -> Iterator[None]:
    """Raise SimulatedCrash when `point` is reached, once, after letting `after` passes by."""

    def crash() -> None:
        raise SimulatedCrash(point)

    undo = faults.arm(point, crash, after)
    try:
        yield
    finally:
        undo()


# ---- doubles --------------------------------------------------------------------------------------


class Strict(ScriptedModel):
    """A scripted model that refuses what a strict provider refuses: a history with dangling calls."""

    async def respond(self, messages: Any, tools: Any, settings: Any) -> Any:
        """Check the history, then answer from the script."""
        assert strict_problem(messages) is None, strict_problem(messages)
        async for event in super().respond(messages, tools, settings):
            yield event


def asked(model: ScriptedModel, number: int = -1) -> ModelRequest:
    """A request that a model received, the last one by default."""
    return model.requests[number]


class Seen:
    """A policy that allows everything and keeps what it saw: (point, call id or None, target)."""

    def __init__(self) -> None:
        self.points: list[tuple[str, str | None, Any]] = []

    def intercept(self, context: Any) -> Any:
        """Keep and allow."""
        call = context.get("tool_call")
        self.points.append((context["interception_point"], call["id"] if call else None, context["target"]))
        return ALLOW

    @property
    def order(self) -> list[str]:
        """The points, in order."""
        return [point for point, _, _ in self.points]

    def at(self, point: str) -> list[Any]:
        """The targets seen at a point."""
        return [target for name, _, target in self.points if name == point]


def policy(point: str, judge: Callable[[Any], Any], name: str = "policy") -> Any:
    """An interceptor at one point from a function of the context."""

    @interceptor(points=[point], name=name)
    def judged(context: Any) -> Any:
        return judge(context)

    return judged


# ---- what must hold --------------------------------------------------------------------------------


def strict_problem(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What a strict provider would refuse in `messages`; written apart from the product's own check."""
    used: set[str] = set()
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message["role"] == "tool":
            return f"a result for {message['tool_call_id']} stands alone"
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        if used.intersection(calls) or len(set(calls)) < len(calls) or "" in calls:
            return f"call ids {calls} are used twice or empty"
        used.update(calls)
        results = []
        while position < len(messages) and messages[position]["role"] == "tool":
            results.append(messages[position]["tool_call_id"])
            position += 1
        if calls != results:
            return f"calls {calls} are followed by results {results}"
    return None


def check(store: Any, root: str) -> None:
    """Raise AssertionError unless everything holds for `root` and each run below it."""
    runs: dict[str, list[Entry]] = {}
    for item in store.root_entries(root):
        runs.setdefault(item.run_id, []).append(item.entry)
    for run_id, entries in runs.items():
        _check_run(run_id, entries, store)
    requests = [row for row in store.table(REQUESTS).values() if row.root_run == root]
    if any(entry.kind == "run_finished" for entry in runs[root][-1:]):
        assert [request.id for request in requests if request.status == "pending"] == [], "a request outlives its run"
        unfinished = [run_id for run_id, entries in runs.items() if entries[-1].kind != "run_finished"]
        assert unfinished == [], f"{unfinished} outlive their root"


def _check_run(run_id: str, entries: list[Entry], store: Any) -> None:
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    kinds = Counter(entry.kind for entry in entries)
    row = store.table(RUNS).get(run_id)
    before = () if row is None else row.messages
    trace: Any = (team_trace_of if "team" in entries[0].payload else trace_of)(run_id, entries, before)
    messages = trace.messages
    records = [entry.payload["record"] for entry in entries if entry.kind == "verdict"]
    sequences = [record["sequence"] for record in records]
    assert sorted(sequences) == list(range(len(sequences))), "records have a gap or the same number twice"
    attempts = [entry for entry in entries if entry.kind in ("model_finished", "model_retry")]
    below = [entry for entry in entries if entry.kind == "member_finished"]
    assert sum((Usage.of(entry.payload["usage"]) for entry in (*attempts, *below)), Usage()) == trace.usage
    if kinds["run_finished"] == 0:
        open_calls = [call["id"] for call in messages[-1].get("tool_calls") or ()] if messages else []
        closed = [{"role": "tool", "tool_call_id": call_id, "content": ""} for call_id in open_calls]
        assert strict_problem([*messages, *closed]) is None
        return
    assert strict_problem(messages) is None, strict_problem(messages)
    assert kinds["run_finished"] == 1 + kinds["resumed"]
    assert entries[-1].kind == "run_finished", f"{entries[-1].kind} follows the end"
    assert entries[-1].payload["status"] in TERMINAL
    assert _lost_models(entries) == 0, "a model call has no end"
    _check_calls(entries)


def _lost_models(entries: list[Entry]) -> int:
    """Model calls without an end, and ends without a call.

    A driver that died left its call without one; an answer that waits for a decision ends in a later stint.
    """
    lost, held, under_way = 0, 0, False
    for entry in entries:
        if entry.kind == "model_started":
            lost, under_way = lost + under_way, True
        elif entry.kind == "stint_started":
            held, under_way = held + under_way, False
        elif entry.kind in ("model_finished", "model_retry"):
            lost, held = lost + (not under_way and not held), held - (not under_way)
            under_way = False
    return lost + under_way


def _check_calls(entries: list[Entry]) -> None:
    """Each started call ends once; each allowed `pre_tool_call` has exactly one `post_tool_call` (§3.1)."""
    started = [entry.payload["call"] for entry in entries if entry.kind == "tool_started"]
    ended = Counter(entry.payload["call"] for entry in entries if entry.kind in ("tool_finished", "call_closed"))
    assert set(started) <= set(ended), "a tool call has no end"
    assert all(count == 1 for count in ended.values()), "a tool call ends twice"
    points: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.kind == "verdict" and "call" in entry.payload:
            record = entry.payload["record"]
            verdict = record["verdict"]
            parked = verdict.get("reason") == "host_error:approval_unresolved"  # it is emitted again
            goes_on = record["mode"] != "enforce" or verdict["decision"] in ("allow", "transform")
            before = record["interception_point"] == "pre_tool_call"
            if not parked and (goes_on or not before):
                points.setdefault(entry.payload["call"], Counter())["pre" if before else "post"] += 1
    for call_id, count in points.items():
        assert count["post"] == 1, f"{call_id}: {count['post']} post_tool_call"
        assert count["pre"] <= 1, f"{call_id}: allowed {count['pre']} times"
