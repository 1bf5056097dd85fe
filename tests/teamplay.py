"""Playing teams in tests: scripted members and supervisors, hooks made of functions, crashes, and what must hold.

A crash is a driver that is dropped right after an entry: a new Runtime over the same MemoryStore goes on from
the log, as another process would over a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driving import check, strict_problem

from lictor import Agent, RunResult, Runtime, ScriptedModel, Team, tool
from lictor.agent import trace_of
from lictor.errors import SimulatedCrash
from lictor.journal import MemoryStore
from lictor.models import call, say
from lictor.runs import TERMINAL
from lictor.team import TeamInterceptor, TeamTrace, team_trace_of
from lictor.testing import StrictProvider, VirtualClock

ANA = "human:ana"
HOOKS = [name for name in vars(TeamInterceptor) if name.startswith(("on_", "should_"))]


def boss(*entries: Any) -> Any:
    """A supervisor's model that follows a script and refuses invalid histories."""
    return StrictProvider(ScriptedModel(list(entries), id="boss"))


def agent(name: str, *entries: Any, **options: Any) -> Agent:
    """A member that follows a script."""
    return Agent(name, model=StrictProvider(ScriptedModel(list(entries), id=f"model-{name}")), **options)


def requests(of: Any) -> list[Any]:
    """The requests that a model, or the model of an agent, received."""
    model: Any = of.models[0] if isinstance(of, Agent) else of
    return list(model.model.requests)


def assign(member: str, instruction: str = "do it", **more: Any) -> Any:
    """The decision for one member."""
    return call("assign", member=member, instruction=instruction, **more)


def delegate(*members: str) -> Any:
    """The decision for several members."""
    return call("delegate", assignments=[{"member": member, "instruction": "part"} for member in members])


def finish(answer: str = "the end") -> Any:
    """The last decision."""
    return call("finish", answer=answer)


def transfer(member: str, note: str = "") -> Any:
    """A member's hand-over."""
    return call("transfer_to", member=member, note=note)


def hook(moment: str, say_: Callable[..., Any], name: str = "guard") -> Any:
    """A TeamInterceptor with one method, which is this function of its arguments."""

    def method(self: Any, *given: Any) -> Any:
        return say_(*given)

    if moment == "intercept":

        def method(self: Any, context: Any) -> Any:
            return say_(context)

    kind = type(name, (TeamInterceptor,), {moment: method})
    return kind()


class Listening(TeamInterceptor):
    """Hears everything: `heard` are (moment, what it is about)."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []


def _hear(moment: str) -> Any:
    def method(self: Any, trace: TeamTrace, *about: Any) -> None:
        self.heard.append((moment, *[getattr(each, "name", each) for each in about]))

    return method


for _moment in HOOKS:
    setattr(Listening, _moment, _hear(_moment))


class Worked:
    """A tool `act`, and how often it was called by whom."""

    def __init__(self, **options: Any) -> None:
        self.calls: Counter[str] = Counter()
        calls = self.calls

        @tool(name="act", **options)
        async def act(who: str) -> str:
            calls[who] += 1
            return f"{who} acted"

        self.tool = act


@dataclass
class World:
    """One store, the definitions of its runs, and a Runtime that is opened again after each crash."""

    store: Any = field(default_factory=MemoryStore)
    clock: Any = field(default_factory=VirtualClock)
    crashes: int = 0

    def open(self, *definitions: Any, **options: Any) -> Runtime:
        """A Runtime over the store."""
        known = {each.name: each for each in definitions}
        return Runtime(self.store, definitions=known, clock=self.clock, **options)

    def fuse(self, root: str, entries: int) -> Callable[[], None]:
        """Let the driver be dropped after so many more entries below `root`; undone by what it returns."""
        left = [entries]

        def count(entry: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                self.crashes += 1
                raise SimulatedCrash(f"after {entry.kind}")

        undo: Callable[[], None] = self.store.watch(root, count)
        return undo

    async def play(
        self,
        team: Any,
        task: str = "go",
        *,
        crash: Sequence[int] = (),
        decide: Callable[[Any], tuple[str, dict[str, Any]]] | None = None,
        **options: Any,
    ) -> RunResult:
        """Start a run and drive it to its end, or until nobody decides; crash after these numbers of entries.

        `decide` gives verb and options for a request; without it a parked run is how it is left.
        """
        async with self.open(team, drive=False) as runtime:
            run_id = (await runtime.start(team, task, **options)).id
        return await self.go_on(team, run_id, crash=crash, decide=decide, interceptors=options.get("interceptors", ()))

    async def go_on(
        self,
        team: Any,
        run_id: str,
        *,
        crash: Sequence[int] = (),
        decide: Callable[[Any], tuple[str, dict[str, Any]]] | None = None,
        interceptors: Any = (),
    ) -> RunResult:
        """The same for a run that is there, in a new Runtime."""
        crashes = list(crash)
        while True:
            undo = self.fuse(run_id, crashes.pop(0)) if crashes else None
            try:
                async with self.open(team, drive="own") as runtime:
                    await runtime.resume(run_id, interceptors=interceptors)
                    result = await runtime.wait(run_id, "park")
                    while result.status not in TERMINAL and decide is not None:
                        assert result.requests, "it is suspended and nobody is asked"
                        for request in result.requests:
                            verb, more = decide(request)
                            await runtime.docket.decide(request.id, verb, by=ANA, **more)
                        result = await runtime.wait(run_id, "park")
                    holds(self.store, run_id, whole=not self.crashes)
                    return result
            except SimulatedCrash:
                continue
            finally:
                if undo is not None:
                    undo()


def holds(store: Any, root: str, whole: bool = True) -> None:
    """What must be true of every team run, parked or ended.

    Not `whole`: its driver was dropped between a verdict and what follows from it, which is then judged again.
    """
    if whole:
        check(store, root)
    runs: dict[str, list[Any]] = {}
    for item in store.root_entries(root):
        runs.setdefault(item.run_id, []).append(item.entry)
    for run_id, entries in runs.items():
        if "team" not in entries[0].payload:
            continue
        trace = team_trace_of(run_id, entries)
        ended = entries[-1].kind == "run_finished"
        messages = list(trace.messages)
        if not ended and messages:
            for one in messages[-1].get("tool_calls") or ():
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": ""})
        assert strict_problem(messages) is None, strict_problem(messages)
        skipped = [record for record in trace.records if record.kind == "skip"]
        assert not any(record.is_agent for record in skipped)
        last = [record.content for record in trace.records if record.kind == "output"]
        assert trace.last_agent_content == (last[-1] if last else None)
        assert trace.turn_count <= trace.options.max_turns
        started = Counter(entry.payload["task"] for entry in entries if entry.kind == "member_started")
        finished = Counter(entry.payload["task"] for entry in entries if entry.kind == "member_finished")
        assert all(count == 1 for count in started.values()), "a member was started twice for one task"
        assert all(count == 1 for count in finished.values()), "a member finished twice"
        refused = {entry.payload["task"] for entry in entries if entry.kind == "skipped"}
        assert not refused & set(started), "a member that was refused has worked"
        if ended:
            assert set(started) == set(finished), "a member that was started has no end"


def told(store: Any, root: str) -> list[Any]:
    """The history of a run and all below it, without ids, times and usage: what a crash must not change."""
    runs: dict[str, list[Any]] = {}
    for item in store.root_entries(root):
        runs.setdefault(item.run_id, []).append(item.entry)
    found = []
    for run_id, entries in runs.items():
        path = "/".join(step[0] for step in entries[0].payload["path"])
        ends = [entry.payload for entry in entries if entry.kind == "run_finished"]
        end = [(each["status"], each["reason"], each["by"], each["error"]) for each in ends]
        if "team" in entries[0].payload:
            trace: Any = team_trace_of(run_id, entries)
            records = sorted((record.source, record.kind, record.content) for record in trace.records)
            shown = [records, trace.turn_count, trace.final_answer, dict(trace.extras)]
        else:
            trace, shown = trace_of(run_id, entries), []
        messages = [_plain(message) for message in trace.messages]
        found.append([path, messages, shown, end])
    return sorted(found, key=repr)


def _plain(message: Mapping[str, Any]) -> Any:
    calls = [(each["id"], dict(each["function"])) for each in message.get("tool_calls") or ()]
    return (message["role"], message.get("content"), calls, message.get("tool_call_id"))


def skips(result: RunResult) -> list[str]:
    """The skip records of a run."""
    trace: Any = result.trace
    return [record.content for record in trace.records if record.kind == "skip"]


def kinds(result: RunResult) -> list[tuple[str, str]]:
    """Source and kind of every record."""
    trace: Any = result.trace
    return [(record.source, record.kind) for record in trace.records]


def approve(request: Any) -> tuple[str, dict[str, Any]]:
    """Say yes to whatever is asked."""
    return (
        ("respond", {"value": "a person's words"})
        if request.kind in ("feedback", "external_call")
        else (
            "approve",
            {},
        )
    )


def reject(request: Any) -> tuple[str, dict[str, Any]]:
    """Say no."""
    return ("respond", {"value": "no"}) if request.kind == "feedback" else ("reject", {"feedback": "not now"})


def _hand_over(request: Any) -> Any:
    refused = "may not work" in str(request.messages[-1]["content"])
    return say("ada again") if refused else transfer("bob", "please go on")


def two(*protocol: Any, **options: Any) -> tuple[Team, Agent, Agent]:
    """A team of two, `hierarchical` unless named; its supervisor asks one after the other."""
    one, other = agent("ada", *[say("ada's work")] * 9), agent("bob", *[say("bob's work")] * 9)
    kind = protocol[0] if protocol else "hierarchical"
    if kind == "hierarchical":
        options.setdefault("model", boss(assign("ada"), assign("bob"), finish()))
    if kind == "handoff":
        one = agent("ada", *[_hand_over] * 9)
    return Team("room", members=[one, other], protocol=kind, **options), one, other
