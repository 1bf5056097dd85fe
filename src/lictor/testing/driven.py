"""A Runtime that tests hold in their hands: scripts, decisions, crashes, time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar, cast

from lictor.agent import Agent
from lictor.docket import Actor, Docket, Request
from lictor.errors import DefinitionError, SimulatedCrash
from lictor.journal import Store, open_store
from lictor.models import ChatModel, Entry, OpenAIModel, PydanticAIModel, ScriptedModel
from lictor.runs import TERMINAL, RunResult
from lictor.runtime import RUNS, Run, RunRow, Runtime
from lictor.team import Team
from lictor.testing.clock import VirtualClock
from lictor.testing.invariants import invariants
from lictor.testing.points import CrashPoint
from lictor.testing.strict import StrictProvider
from lictor.values import new_id

__all__ = ["DrivenRuntime"]

T = TypeVar("T")
DECIDER = "human:test"


class Scripts(Mapping[str, ChatModel]):
    """The models of the scripted agents, by name; a Runtime looks into it at each call."""

    def __init__(self) -> None:
        self.models: dict[str, ScriptedModel] = {}

    def __getitem__(self, name: str) -> ChatModel:
        return StrictProvider(self.models[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


class DrivenClock(VirtualClock):
    """The clock of a DrivenRuntime: `advance` says what the last run came to."""

    def __init__(self, driven: DrivenRuntime) -> None:
        super().__init__()
        self._driven = driven

    async def advance(self, by: float | timedelta) -> Any:
        """Move the clock on (see `VirtualClock.advance`); the RunResult of the last run, None without any."""
        await super().advance(by)
        return await self._driven.last_result()


class DrivenRuntime:
    """What the pytest fixture `runtime` is: a Runtime over a store of its own, for one test.

    It opens at the first use and survives crashes: when a crash point is reached, everything that
    runs is dropped as if the process were killed, a new Runtime is opened over the same store with
    the same definitions and models, and whoever waits for a result goes on waiting. Over a file what was
    not written yet is lost in a crash, and the file is opened anew.

    Arguments:
        url: the store, `memory:` or `sqlite:///file.db`.

    Attributes:
        clock: a VirtualClock; `await clock.advance(timedelta(hours=4))` also returns the RunResult
            of the run started last, once everything has settled.
        store: the store under all of it.
        crashes: how many crashes happened.
    """

    def __init__(self, url: str = "memory:") -> None:
        self.clock = DrivenClock(self)
        self.store: Store = open_store(url)
        self._url = url
        self.crashes = 0
        self._scripts = Scripts()
        self._options: dict[str, Any] = {}
        self._runtime: Runtime | None = None
        self._definitions: dict[str, Agent | Team] = {}
        self._started: dict[str, Any] = {}  # run id -> its own interceptors, which a store does not hold
        self._points: list[CrashPoint] = []

    # what a test says before it starts something

    def script(self, scripts: Mapping[str, Iterable[Entry]] | None = None, /, **more: Iterable[Entry]) -> None:
        """Give agents their models: `runtime.script(clerk=[call("lookup", order_id=42), say("Monday.")])`.

        A mapping does for names that are no keywords. A name given again gets the new script; nested
        agents are scripted by their own names. Each script stands behind a StrictProvider.

        Raises DefinitionError for what is no entry of a script.
        """
        for name, entries in {**(scripts or {}), **more}.items():
            self._scripts.models[name] = ScriptedModel(entries)

    def configure(self, **options: Any) -> None:
        """Options of `Runtime` (governance, interceptors, deps, …); before the first start.

        Raises DefinitionError when it is open already, or for store, clock and models, which are the fixture's.
        """
        if self._runtime is not None:
            raise DefinitionError("configure() comes before the first run is started")
        taken = sorted({"store", "clock", "models", "drive"} & set(options))
        if taken:
            raise DefinitionError(f"{', '.join(taken)}: the fixture sets this itself")
        self._options.update(options)

    def crash_at(self, point: str, *, after: int = 0) -> None:
        """Crash the next time `point` (one of `faults.POINTS`) is reached, after letting `after` passes by.

        A test that ends without having reached it fails. Raises DefinitionError for an unknown point.
        """
        self._points.append(CrashPoint(point, after))

    # driving

    async def start(self, target: Agent | Team, task: Any, **options: Any) -> Run:
        """Start a run (options as in `Runtime.start`) and return its handle.

        Raises DefinitionError when the agent, a member, or one it uses as a tool, would call a real model: script it.
        """
        self._check_models(target)
        self._definitions.setdefault(target.name, target)
        if options.get("deps") is not None:
            self._options["deps"] = options["deps"]
        options.setdefault("key", new_id())  # a start that a crash cut short is repeated, not doubled
        run = await self._surviving(lambda: self._open_start(target, task, options))
        self._started[run.id] = options.get("interceptors", ())
        return Run(cast("Runtime", self), run.id)

    async def run_to_park(self, target: Agent | Team, task: Any, **options: Any) -> RunResult:
        """Start a run and wait until it parks or ends; `requests` of the result holds what it waits for."""
        return await (await self.start(target, task, **options)).result()

    async def decide(self, request: Request | str, verb: str, *, by: Actor | str = DECIDER, **more: Any) -> RunResult:
        """Decide a request and wait for the next park or end of its run.

        Arguments:
            request: the request or its id.
            verb, **more: as in `docket.decide` (feedback, arguments, text, value, scope, …).
            by: who decides.

        Raises what `docket.decide` raises, AlreadyDecided for example.
        """
        request_id = request if isinstance(request, str) else request.id
        decided = await self._surviving(lambda: self._open_decide(request_id, verb, by, more))
        return await self.wait(decided.root_run, "park")

    @property
    def docket(self) -> Docket:
        """The requests: `await runtime.docket.pending()`."""
        return self._make().docket if self._runtime is None else self._runtime.docket

    @property
    def models(self) -> Mapping[str, ScriptedModel]:
        """The scripted models by agent; `runtime.models["clerk"].requests` is what it was sent."""
        return self._scripts.models

    async def last_result(self) -> RunResult | None:
        """The next park or end of the run that was started last."""
        last = next(reversed(self._started), None)
        return None if last is None else await self.wait(last, "park")

    # what a Run asks of its Runtime; through here a handle outlives the Runtime that made it

    def row(self, run_id: str) -> RunRow:
        """What is stored of a run."""
        return (self._runtime or self._make()).row(run_id)

    async def wait(self, run_id: str, until: str) -> RunResult:
        """Wait for the next park (`until="park"`) or the end (`"end"`) of a run, across crashes."""
        return await self._surviving(lambda: self._open_wait(run_id, until))

    async def settled(self, run_id: str, until: str, news: Callable[[], None] | None = None) -> RunRow:
        """The same without the result; `news` is called when something may have come."""
        return await self._surviving(lambda: self._open_settled(run_id, until, news))

    async def check(self) -> None:
        """Check the invariants of every run that was started, and that every crash point was reached."""
        for point in self._points:
            point.must_be_reached()
        for run_id in self._started:
            await invariants(Run(cast("Runtime", self), run_id))

    async def close(self) -> None:
        """Drop what still runs and close; crash points are disarmed."""
        for point in self._points:
            point.disarm()
        runtime, self._runtime = self._runtime, None
        try:
            if runtime is not None:
                runtime.grace = 0.0
                await runtime.__aexit__(None, None, None)
        finally:
            self.store.close()

    # inside

    def _make(self) -> Runtime:
        return Runtime(
            self.store, clock=self.clock, models=self._scripts, definitions=self._definitions, **self._options
        )

    async def _open(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._make()
            await self._runtime.__aenter__()
        return self._runtime

    async def _open_start(self, target: Agent | Team, task: Any, options: Mapping[str, Any]) -> Run:
        return await (await self._open()).start(target, task, **options)

    async def _open_decide(self, request_id: str, verb: str, by: Actor | str, more: Mapping[str, Any]) -> Request:
        return await (await self._open()).docket.decide(request_id, verb, by=by, **more)

    async def _open_wait(self, run_id: str, until: str) -> RunResult:
        return await (await self._open()).wait(run_id, until)

    async def _open_settled(self, run_id: str, until: str, news: Callable[[], None] | None) -> RunRow:
        return await (await self._open()).settled(run_id, until, news)

    async def _surviving(self, act: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await act()
            except SimulatedCrash:
                await self._reopen()

    async def _reopen(self) -> None:
        """What another process would do: open the store, take over what was under way."""
        self.crashes += 1
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.grace = 0.0
            await runtime.__aexit__(None, None, None)
        if self.store.durable:
            for run_id in self.store.table(RUNS):
                self.store.discard(run_id)
            self.store.close()
            self.store = open_store(self._url)
        opened = await self._open()
        for run_id, interceptors in self._started.items():
            if interceptors and opened.row(run_id).status not in TERMINAL:
                await opened.resume(run_id, interceptors=interceptors)

    def _check_models(self, target: Agent | Team) -> None:
        """Nobody pays a provider by forgetting a script."""
        agent = target.supervision.agent if isinstance(target, Team) else target
        if agent.name not in self._scripts:
            real = [model.id for model in agent.models if _is_real(model)]
            if real:
                how = f"give runtime.script({agent.name}=[...]) before it starts"
                raise DefinitionError(f"agent {agent.name!r} would call {real[0]}; {how}")
        for member in target.members if isinstance(target, Team) else ():
            if isinstance(member, Agent | Team):
                self._check_models(member)
        for tool in agent.tool_table.values():
            if isinstance(tool.agent, Agent):
                self._check_models(tool.agent)


def _is_real(model: ChatModel) -> bool:
    """Whether it may reach a provider; a model object of pydantic-ai is the test's own choice."""
    return isinstance(model, OpenAIModel) or (isinstance(model, PydanticAIModel) and model.name is not None)
