"""The agent's machine under random scripts: a driver that dies at any entry changes nothing about the run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from driving import Strict, check, policy, tools_said
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lictor import ALLOW, Agent, Runtime, ToolContext, Verdict, tool
from lictor.agent import HELD, AgentMachine, problems_of
from lictor.docket import REQUESTS
from lictor.errors import SimulatedCrash
from lictor.journal import Entry, MemoryStore
from lictor.models import call, fail, say
from lictor.runs import TERMINAL
from lictor.testing.clock import VirtualClock

MOST_PARKS = 60


class DyingStore(MemoryStore):
    """A store whose process dies once, with a given entry: just before it is written, or just behind.

    What is told of a decision is in one transaction with it, so that no death parts the two.
    """

    def __init__(self, dies_at: int = 0, before: bool = False) -> None:
        super().__init__()
        self.dies_at = dies_at
        self.before = before
        self.written = 0

    def log(self, run_id: str, root: str) -> Any:
        """The log; every entry below a root is counted."""
        log = super().log(run_id, root)
        if not root.startswith("docket:") and not self._root(root).callbacks:
            self.watch(root, lambda entry: self._count(root, entry))
        return log

    def _count(self, root: str, entry: Entry) -> None:
        self.written += 1
        if self.written == self.dies_at:
            if self.before:
                self._unwrite(root, entry)
            raise SimulatedCrash(entry.kind)

    def _unwrite(self, root: str, entry: Entry) -> None:
        """Take the newest entry back, as if the process had died before it was written."""
        shared = self._root(root)
        log = next(log for log in shared.logs.values() if log.entries and log.entries[-1] is entry)
        log.entries.pop()
        log.size -= 1
        if shared.order is not None:
            shared.order.pop()


Key = tuple[Any, ...]


@dataclass
class World:
    """What lives outside the process: the effects of tools by call, and what a person would decide."""

    script: Sequence[Any]
    inner_script: Sequence[Any]
    effects: list[tuple[str, Key]] = field(default_factory=list)

    @property
    def models(self) -> dict[str, Strict]:
        """Models that follow the scripts; new ones, as in a new process."""
        outer = Strict([*map(entry_of, self.script), *LAST], id="outer")
        return {"outer": outer, "inner": Strict([*map(entry_of, self.inner_script), *LAST], id="inner")}

    def decide(self, request: Any) -> tuple[str, dict[str, Any]]:
        """What a person decides, by what is shown; about a lost effect by what really happened."""
        key = place(request.path, request.call_id)
        number: int = (request.arguments or {}).get("n", 0)
        if request.kind == "unknown_effect":
            ran = any(known == key for _, known in self.effects)
            return ("respond", {"text": f"{request.tool} {number}"}) if ran else ("retry", {})
        if request.kind == "external_call":
            return "respond", {"text": f"value {number}"}
        if request.kind == "step":
            return ("reject", {"feedback": "no"}) if "9" in str(request.shown.value) else ("approve", {})
        decisions: list[tuple[str, dict[str, Any]]] = [
            ("approve", {}),
            ("reject", {"feedback": "no"}),
            ("edit", {"arguments": {"n": number + 20}}),
            ("respond", {"text": f"by hand {number}"}),
            ("approve", {"feedback": "fine"}),
        ]
        return decisions[int(number) % 5]


def ran(kind: str, context: ToolContext) -> None:
    """Count an effect in the world, under the place of its call."""
    context.deps.effects.append((kind, place(context.path, context.call_id)))


@tool
async def once(n: int, context: ToolContext) -> str:
    """An effect that may happen once."""
    ran("once", context)
    return f"once {n}"


@tool(effect="pure")
def pure(n: int) -> str:
    """No effect."""
    return f"pure {n}"


@tool(effect="idempotent")
async def again(n: int, context: ToolContext) -> str:
    """An effect that may be repeated."""
    ran("again", context)
    await asyncio.sleep(0)
    return f"again {n}"


@tool(requires_approval=True)
async def gated(n: int, context: ToolContext) -> str:
    """An effect that needs an approval."""
    ran("once", context)
    return f"gated {n}"


@tool(effect="idempotent")
async def boom(n: int) -> str:
    """Fail."""
    raise ValueError(f"boom {n}")


@tool(external=True)
def outside(n: int) -> Any:
    """Ask outside."""


def place(path: Any, call_id: Any) -> Key:
    """Where a call is: names and calls from the root down, and its own id; the same in every process."""
    return (*[(step.name, step.call_id) for step in path], call_id)


def judge_call(context: Any) -> Any:
    """Numbers decide: 6 is denied, 7 is changed to 17, 8 stops the run."""
    number = context["target"].get("n")
    if number == 6:
        return Verdict.deny("six")
    if number == 7:
        return Verdict.transform("$target.n", 17)
    return Verdict.stop("eight") if number == 8 else ALLOW


def judge_result(context: Any) -> Any:
    """Results with 5 are denied, with 3 changed, with 4 shown to a person."""
    value = context["target"]
    if not isinstance(value, str):
        return ALLOW
    if value.endswith(" 5"):
        return Verdict.deny("five")
    if value.endswith(" 3"):
        return Verdict.replace(f"<{value}>")
    return Verdict.escalate("four") if value.endswith(" 4") else ALLOW


def judge_output(context: Any) -> Any:
    """Answers: `worse` is sent back, `bad` denied, `ask` shown to a person, `plain` changed."""
    content = context["target"]["content"]
    return {
        "worse": Verdict.retry("worse"),
        "bad": Verdict.deny("bad"),
        "ask": Verdict.escalate("ask"),
        "plain": Verdict.transform("$target.content", "fancy"),
    }.get(content, ALLOW)


def judge_response(context: Any) -> Any:
    """A response that says `hidden` is denied, one that says `shown` is shown to a person."""
    content = context["target"]["content"]
    return {"hidden": Verdict.deny("hidden"), "shown": Verdict.escalate("shown")}.get(content, ALLOW)


POLICIES = [
    policy("pre_tool_call", judge_call, "calls"),
    policy("post_tool_call", judge_result, "results"),
    policy("output", judge_output, "outputs"),
    policy("post_model_call", judge_response, "responses"),
]
TOOLS = [once, pure, again, gated, boom, outside]
INNER = Agent("inner", model=Strict([]), tools=TOOLS)
OUTER = Agent("outer", model=Strict([]), tools=[*TOOLS, INNER], interceptors=POLICIES, max_parallel_tools=2)
LAST = [say("done")] * 12  # whatever is sent back or asked again finds an end
NAMES = ("once", "pure", "again", "gated", "boom", "outside", "inner", "nowhere", "bad")


def entry_of(item: Any) -> Any:
    """A script's entry from drawn data."""
    kind, value = item
    if kind == "text":
        return say(value)
    if kind == "fail":
        return fail(value)
    if kind == "cut":
        return say("cut", finish="length")
    return [_call(name, number) for name, number in value]


def _call(name: str, number: int) -> Any:
    if name == "inner":
        return call("inner", task=f"task {number}")
    if name == "bad":
        return call("once", '{"n": "no number"}') if number % 2 else call("pure", '{"n":')
    return call(name, n=number)


batches = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), min_size=1, max_size=4)
entries = st.one_of(
    batches.map(lambda batch: ("calls", batch)),
    batches.map(lambda batch: ("calls", batch)),
    st.sampled_from(["worse", "plain", "ask", "bad", "hidden", "shown", "fine", ""]).map(lambda text: ("text", text)),
    st.sampled_from([400, 503]).map(lambda status: ("fail", status)),
    st.just(("cut", None)),
)
# Attempts at a model are counted in one process: three failures in a row would end only the unbroken run.
scripts = st.lists(entries, max_size=4).filter(lambda script: script.count(("fail", 503)) < 3)


@dataclass
class Outcome:
    """What must be the same whether or not a driver died."""

    status: str
    reason: str | None
    answer: Any
    messages: list[str]


async def play(world: World, store: DyingStore) -> tuple[Outcome, str]:
    """Start the run in one Runtime after the other, deciding whatever waits, until it is over."""
    clock = VirtualClock()
    run_id: str | None = None
    for _ in range(MOST_PARKS):
        try:
            async with Runtime(
                store, definitions={"outer": OUTER}, models=world.models, deps=world, clock=clock, grace=0
            ) as runtime:
                run = await runtime.start(OUTER, "go", key="once")
                run_id = run.id
                for _ in range(MOST_PARKS):
                    result = await run.result()
                    if result.status in TERMINAL:
                        return outcome_of(result), run_id
                    for request in result.requests:
                        await answer(world, runtime, request)
                raise AssertionError(f"the run does not end: {[entry.kind for entry in store.entries(run_id)]}")
        except SimulatedCrash:
            continue
    raise AssertionError("the run does not end")


async def answer(world: World, runtime: Runtime, request: Any) -> None:
    """Decide one request, unless another decision has ended it."""
    if (await runtime.docket.get(request.id)).status == "pending":
        verb, options = world.decide(request)
        await runtime.docket.decide(request.id, verb, by="human:ana", **options)


def outcome_of(result: Any) -> Outcome:
    """The comparable part of a result."""
    messages = [json.dumps(thawed(message), sort_keys=True) for message in result.trace.messages]
    return Outcome(result.status, result.reason, result.answer, messages)


def thawed(value: Any) -> Any:
    """Plain JSON of frozen JSON."""
    return json.loads(json.dumps(value))


def verify(world: World, store: DyingStore, root: str) -> None:
    """What holds for every finished run, crashed on the way or not."""
    runs: dict[str, list[Entry]] = {}
    for item in store.root_entries(root):
        runs.setdefault(item.run_id, []).append(item.entry)
    for entries in runs.values():
        machine = AgentMachine()
        state = machine.begin()
        for entry in entries:
            if entry.kind in machine.kinds:
                before = state
                state, due = machine.advance(before, entry)
                assert machine.advance(before, entry) == (state, due), "advance is not pure"
        assert state.finished
        assert problems_of(state.messages) == []
        sequences = [entry.payload["record"]["sequence"] for entry in entries if entry.kind == "verdict"]
        assert all(one < two for one, two in pairwise(sequences)), sequences
    counts = Counter(key for kind, key in world.effects if kind == "once")
    assert [key for key, count in counts.items() if count > 1] == [], "a `once` call ran twice"
    assert [request for request in store.table(REQUESTS).values() if request.status == "pending"] == []
    assert store.table(HELD).values() == []


def survives(script: Sequence[Any], inner: Sequence[Any], stride: int, offset: int) -> int:
    """Compare the unbroken run with runs that die at every `stride`-th entry; how many were compared.

    They die before and behind entries in turn.
    """

    async def whole() -> int:
        world, store = World(script, inner), DyingStore()
        expected, root = await play(world, store)
        check(store, root)
        verify(world, store, root)
        compared = 0
        for dies_at in range(1 + offset % stride, store.written + 1, stride):
            before = bool((dies_at + offset) % 2)
            world, dying = World(script, inner), DyingStore(dies_at, before)
            outcome, root = await play(world, dying)
            assert outcome == expected, f"dying at entry {dies_at} ({'before' if before else 'behind'} it)"
            verify(world, dying, root)
            compared += 1
        return compared

    return asyncio.run(whole())


RICH = [
    ("calls", [("once", 1), ("gated", 0), ("pure", 3), ("gated", 2)]),
    ("fail", 503),
    ("calls", [("inner", 1), ("again", 7), ("outside", 1), ("nowhere", 1)]),
    ("text", ""),
    ("calls", [("once", 4), ("bad", 1), ("gated", 6)]),
    ("text", "worse"),
    ("text", "shown"),
    ("calls", [("gated", 3), ("gated", 1), ("gated", 5)]),
    ("text", "ask"),
]
RICH_INNER = [("calls", [("gated", 10), ("once", 2)]), ("cut", None), ("text", "plain")]


@pytest.mark.parametrize("part", range(4))
def test_a_rich_run_survives_a_death_at_any_entry(part: int) -> None:
    """Batches, approvals, a nested agent, re-asks and parks: a death at any entry leaves the same history."""
    assert survives(RICH, RICH_INNER, 4, part) > 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_a_rich_run_survives_a_death_before_and_behind_any_entry(part: int) -> None:
    """The same at full size."""
    assert survives(RICH, RICH_INNER, 1, part) > 80


@pytest.mark.parametrize("end", [[("once", 8), ("gated", 1)], [("inner", 1), ("pure", 8)], [("once", 1), ("again", 8)]])
def test_a_stopped_run_survives_a_death_at_any_entry(end: Any) -> None:
    """A stop in a batch, also beside a nested agent that waits, is the same after a death at any entry."""
    for offset in (0, 1):
        survives([("calls", end)], RICH_INNER, 2, offset)


@settings(max_examples=25, derandomize=True, database=None)
@given(scripts, scripts, st.integers(0, 4))
@example([("calls", [("inner", 0), ("inner", 1)])], [("calls", [("gated", 0)])], 0)
def test_random_runs_survive_a_death_at_random_entries(script: Any, inner: Any, offset: int) -> None:
    """Whatever the script, a driver that dies at an entry changes neither history nor outcome nor effects."""
    survives(script, inner, 5, offset)


@settings(max_examples=60, derandomize=True, database=None)
@given(scripts, scripts)
def test_random_runs_keep_every_invariant(script: Any, inner: Any) -> None:
    """Unbroken random runs: valid histories, closed calls, ended starts, sums that add up, a pure machine."""

    async def whole() -> None:
        world, store = World(script, inner), DyingStore()
        _, root = await play(world, store)
        check(store, root)
        verify(world, store, root)

    asyncio.run(whole())


def test_a_result_that_comes_late_changes_nothing() -> None:
    """The first result of a call stands: whatever is recorded for it afterwards leaves the state as it is."""
    machine = AgentMachine()
    state = machine.begin()
    calls: list[dict[str, Any]] = [
        {"id": f"call_{n}", "name": "f", "args": {}, "effect": "pure", "problem": None} for n in range(2)
    ]
    shown = [{"id": one["id"], "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in calls]
    message = {"role": "assistant", "content": None, "tool_calls": shown}
    finished = {"model": "m", "step": 0, "outcome": "calls", "message": message, "calls": calls, "usage": {}}
    story: list[tuple[str, Any]] = [
        ("run_started", {}),
        ("session_opened", {}),
        ("input", {"message": {"role": "user", "content": "u"}}),
        ("model_finished", finished),
        ("call_judged", {"call": "call_0", "decision": "deny", "content": "no"}),
    ]
    for number, (kind, payload) in enumerate(story):
        state, _ = machine.advance(state, Entry(number, kind, payload, 0.0))
    late: list[tuple[str, Callable[[str], Any]]] = [
        ("call_judged", lambda one: {"call": one, "decision": "allow"}),
        ("tool_finished", lambda one: {"call": one, "content": "late"}),
        ("call_closed", lambda one: {"call": one, "content": "late"}),
        ("request_opened", lambda one: {"call": one, "request": "q", "kind": "tool_call", "step": "s"}),
    ]
    for kind, payload_of in late:
        after, _ = machine.advance(state, Entry(9, kind, payload_of("call_0"), 0.0))
        assert after == state
    stopped, _ = machine.advance(state, Entry(5, "cause", {"status": "stopped", "reason": "enough"}, 0.0))
    assert [json.loads(text)["error"] for text in tools_said(stopped.messages)[1:]] == ["not_run"]
    for kind, payload_of in late:
        after, _ = machine.advance(stopped, Entry(9, kind, payload_of("call_1"), 0.0))
        assert after == stopped
