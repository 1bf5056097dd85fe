"""Runs over a store: started, parked, resumed, and driven by this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from lictor.agent import Agent, AgentTrace, Session, result_of, split_limits, stint, trace_of
from lictor.docket import Docket, Request
from lictor.errors import DefinitionError, DefinitionNotFound, NotResumable, PolicyChanged
from lictor.hooks import Governance
from lictor.journal import MemoryStore, Store
from lictor.models import ChatModel
from lictor.runs import TERMINAL, Cause, RunResult, User
from lictor.runtime.bells import Bells
from lictor.runtime.commands import Commands
from lictor.runtime.conversations import Conversation, Conversations
from lictor.runtime.definitions import Definitions
from lictor.runtime.engine import LocalEngine
from lictor.runtime.handle import Run
from lictor.runtime.row import RunRow, check_json
from lictor.values import Clock, new_id

__all__ = ["Runtime"]

EMPTY: Mapping[str, Any] = {}


class Runtime:
    """Drives runs over a store.

    Arguments:
        store: `"memory:"`, or a store object (two Runtimes over one see the same runs).
        governance: how verdicts compose, for every run; then agents may not set their own.
        interceptors: policies above every agent.
        watchers: see every run; told what happens, without power over it.
        definitions: name -> Agent, for runs that another Runtime started.
        deps: the default of `start(deps=)`.
        models: name of an agent -> ChatModel, instead of the one it defines (tests, staging). Looked
            into at each call, so that more may be added later.
        clock: the time.
        drive: False only reads and writes commands.
        grace: seconds that leaving waits for stints before it cancels them.

    Use it as `async with Runtime() as runtime`. Leaving interrupts what runs at the next safe point.
    """

    def __init__(  # noqa: PLR0913 - the constructor is the configuration
        self,
        store: str | Store = "memory:",
        *,
        engine: str = "local",
        governance: Governance | None = None,
        interceptors: Any = (),
        watchers: Sequence[Any] = (),
        definitions: Mapping[str, Agent] = EMPTY,
        deps: Any = None,
        models: Mapping[str, ChatModel] = EMPTY,
        clock: Clock | None = None,
        drive: bool = True,
        grace: float = 10.0,
    ) -> None:
        if engine != "local":
            raise DefinitionError(f"engine={engine!r}: only 'local' exists so far")
        self.store: Store = _store(store)
        self.clock = clock or Clock()
        self.docket = Docket(self.store, self.clock, self._decided)
        self.commands = Commands(self)
        self.grace = grace
        self._definitions = Definitions(governance, interceptors, deps, models, watchers)
        self._rows: dict[str, RunRow] = self.store.table("run")
        self._keys: dict[str, str] = self.store.table("run_key")
        self._conversations = Conversations(self.store)
        self._live: dict[str, Session] = {}
        self._name = new_id("driver")
        self._bells = Bells()
        self._drives = drive
        self._engine = LocalEngine(self.clock, self.docket, self._stint)
        self._engine.on_idle = self._idle
        self._engine.on_drop = self._drop
        for name, definition in definitions.items():
            self._definitions.register(definition, name)

    async def __aenter__(self) -> Runtime:
        if self._drives:
            await self._engine.open()
            self._adopt()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._engine.close(self.grace)

    # starting

    async def start(  # noqa: PLR0913 - the options of a run are its interface
        self,
        target: Agent,
        task: Any,
        *,
        key: str | None = None,
        user: User | str | None = None,
        conversation: str | None = None,
        context: Mapping[str, Any] | None = None,
        deps: Any = None,
        interceptors: Any = (),
        watchers: Sequence[Any] = (),
        history: str = "run",
        approval_deadline: float | None = None,
        on_busy: str = "reject",
        **limits: Any,
    ) -> Run:
        """Start a run and return its handle; it is driven in the background.

        Arguments:
            target: the agent.
            task: text or typed content parts.
            key: the same key gives the same run, however often it is started.
            user, context: stored with the run (JSON); deps: any object, never stored.
            conversation: continue this one (created when unknown).
            watchers: see this run only.
            interceptors: policies of this run only; they must be given again to resume it elsewhere.
            approval_deadline: seconds after which an undecided request of this run is denied.
            on_busy: `reject` (ConversationBusy), `wait`, or `cancel` the run that owns the conversation.
            **limits: `max_steps`, or fields of Budget.
        """
        if key is not None and key in self._keys:
            return Run(self, self._keys[key])
        agent = self._definitions.register(target, getattr(target, "name", ""))
        split_limits(agent, limits)
        if history not in ("run", "call"):
            raise DefinitionError(
                f"history={history!r}: use 'run' (store after output) or 'call' (after each model call)"
            )
        check_json(task, "task")
        check_json(dict(user.attributes) if isinstance(user, User) else user, "user")
        check_json(dict(context) if context is not None else None, "context")
        run_id = new_id()
        history_of = await self._take_conversation(conversation, run_id, on_busy)
        row = RunRow(
            run_id=run_id,
            definition=agent.name,
            task=task,
            created=self.clock.now(),
            key=key,
            user=user,
            conversation=conversation,
            context=context,
            history=history,
            limits=limits,
            approval_deadline=approval_deadline,
            **history_of,
        )
        self._definitions.give(run_id, interceptors, deps, watchers)
        session = self._session(row)
        session.live.record("run_started", {"agent": agent.name, "path": [[agent.name, run_id, None]]})
        self._rows[run_id] = replace(row, policy=session.plan.policy)
        if key is not None:
            self._keys[key] = run_id
        self._engine.submit(run_id)
        return Run(self, run_id)

    async def run(self, run_id: str) -> Run:
        """A handle on a run; raises NotResumable when there is none with this id."""
        self.row(run_id)
        return Run(self, run_id)

    async def resume(self, run_id: str, *, interceptors: Any = (), accept_policy_change: bool = False) -> Run:
        """Adopt a run that nobody drives, make the next attempt of a failed one, or accept a changed policy.

        Raises PolicyChanged when the policy differs from the one at the start (per-run interceptors
        are part of it), NotResumable for a terminal run that may have no further attempt,
        DefinitionNotFound when its agent is not known here.
        """
        row = self.row(run_id)
        if row.definition not in self._definitions:
            raise DefinitionNotFound(f"run {run_id} is one of {row.definition!r}; pass it in Runtime(definitions=…)")
        if interceptors or run_id not in self._definitions.given:
            self._definitions.give(run_id, interceptors)
        if row.driver not in (None, self._name):
            raise NotResumable(f"run {run_id} is driven by another Runtime; wait for its result there")
        session = self._session(row)
        if row.policy is not None and session.plan.policy != row.policy:
            if not accept_policy_change:
                raise PolicyChanged([f"policy {row.policy} became {session.plan.policy}"])
            session.live.record("policy_changed", {"from": row.policy, "to": session.plan.policy})
            self.docket.supersede(run_id)
            row = replace(row, policy=session.plan.policy)
            self._rows[run_id] = row
        if row.status in TERMINAL:
            cause = session.live.state.cause
            if cause is None or not cause.resumable:
                raise NotResumable(
                    f"run {run_id} is {row.status}; only a failed run that is resumable has a next attempt"
                )
            self._conversations.take_again(row.conversation, run_id, session)
            session.live.record("resumed", {})
            self._rows[run_id] = replace(row, status="queued")
        self._engine.submit(run_id)
        return Run(self, run_id)

    # reading

    def row(self, run_id: str) -> RunRow:
        """What is stored of a root run; raises NotResumable when there is none with this id."""
        row = self._rows.get(run_id)
        if row is None:
            raise NotResumable(f"there is no run {run_id!r} in this store")
        return row

    async def trace(self, run_id: str) -> AgentTrace:
        """The transcript and steps of a run (root or nested), in any status."""
        row = self._rows.get(run_id)
        return trace_of(run_id, self.store.entries(run_id), row.messages if row else ())

    async def wait(self, run_id: str, until: str) -> RunResult:
        """Wait for a park or the end; see `Run.result`."""
        while True:
            row = self.row(run_id)
            if self._engine.crash is not None:
                raise self._engine.crash
            if row.status in TERMINAL or (
                until == "park" and row.status == "waiting" and not self._engine.active(run_id)
            ):
                break
            await self._bells.wait(run_id)
        session = self._session(row)
        requests = tuple(await self.docket.pending(run=run_id, limit=10_000))
        refusals = tuple(await self.docket.refusals(run=run_id))
        result = result_of(session, () if row.status in TERMINAL else requests, refusals)
        return result if not row.lost_records else replace(result, lost_records=row.lost_records)

    # commands

    async def interrupt(self, run_id: str, cause: Cause) -> None:
        """End a run for `cause`, live or parked; a terminal one is left as it is."""
        row = self.row(run_id)
        if row.status in TERMINAL:
            return
        session = self._live.get(run_id)
        self._rows[run_id] = replace(row, status="cancelling")
        if session is not None:
            session.live.interrupt(cause)
            return
        for request in await self.docket.pending(run=run_id, limit=10_000):
            self.docket.withdraw(request.run_id)
        self.store.log(run_id, run_id).append("cause", cause.json(), self.clock.now())
        self._engine.submit(run_id)

    # inside

    def _session(self, row: RunRow) -> Session:
        """The live session of a run, or one refolded from its log."""
        live = self._live.get(row.run_id)
        return live or self._definitions.session(row, self.store, self.clock, self.docket)

    async def _stint(self, run_id: str) -> None:
        """Drive a root from wake to park or end, then settle its row and its conversation."""
        row = self.row(run_id)
        if row.status in TERMINAL or row.definition not in self._definitions or row.driver not in (None, self._name):
            return
        session = self._session(row)
        ending = session.live.state.cause is not None
        if row.policy is not None and session.plan.policy != row.policy and not ending:
            text = "the policy changed; resume with accept_policy_change=True, or with the interceptors of the start"
            session.live.record("note", {"text": text})
            self._rows[run_id] = replace(row, status="waiting")
            return
        self._live[run_id] = session
        session.live.task = asyncio.current_task()
        self._rows[run_id] = replace(row, status="running", driver=self._name)
        try:
            await stint(session, session.options.watchers)
        finally:
            del self._live[run_id]
            self._settle(run_id, session)

    def _settle(self, run_id: str, session: Session) -> None:
        row, state = self.row(run_id), session.live.state
        lost = row.lost_records + session.points.gate.lost_records
        row = replace(row, driver=None, lost_records=lost)
        if session.live.crashed:
            self._rows[run_id] = row
            return
        if state.phase in ("loop", "again") or (state.finished and not (state.cause and state.cause.resumable)):
            row = replace(row, task=None)  # its verdict was given: from here on only what `input` let through is kept
        if not state.finished:
            self._rows[run_id] = replace(row, status="waiting")
            return
        cause = state.cause
        status = "completed" if state.answered or cause is None else cause.status
        self._rows[run_id] = replace(row, status=status)
        self._conversations.give_back(row.conversation, run_id, session)

    async def _take_conversation(self, name: str | None, run_id: str, on_busy: str) -> dict[str, Any]:
        """Make `run_id` the writer of a conversation; what it holds so far."""
        if on_busy not in ("reject", "wait", "cancel"):
            raise DefinitionError(f"on_busy={on_busy!r}: use 'reject', 'wait' or 'cancel'")
        if name is None:
            return {}
        owner = self._conversations.owner(name)
        while owner is not None and on_busy != "reject":
            if on_busy == "cancel":
                await self.interrupt(owner.run_id, Cause("cancelled", None, "runtime:on_busy"))
            await self.wait(owner.run_id, "end")
            owner = self._conversations.owner(name)
        return self._conversations.take(name, run_id)

    async def conversation(self, name: str) -> Conversation:
        """A conversation as stored; empty when unknown."""
        return self._conversations.get(name)

    def _adopt(self) -> None:
        """Drive what the Runtime before us left under way."""
        for row in list(self._rows.values()):
            waiting = row.status == "waiting" and self._decided_meanwhile(row)
            if row.status in ("queued", "running", "cancelling") or waiting:
                self._engine.submit(row.run_id)
        self._engine.watch_deadlines()

    def _decided_meanwhile(self, row: RunRow) -> bool:
        """Whether a request of a parked run was decided while nobody drove it."""
        return any(
            request.root_run == row.run_id and request.status != "pending" and request.consumed_at is None
            for request in self.store.table("request").values()
        )

    def _decided(self, request: Request) -> None:
        """A request was settled: its root has something to do again."""
        session = self._live.get(request.root_run)
        if session is not None:
            session.live.poke()
        self._engine.submit(request.root_run)

    def _drop(self, root: str) -> None:
        """Nobody waits for this stint any more: it writes nothing from here on."""
        session = self._live.get(root)
        if session is not None:
            session.live.crash()

    def _idle(self, root: str) -> None:
        self._bells.ring(root, everybody=self._engine.crash is not None)


def _store(store: str | Store) -> Store:
    if isinstance(store, str):
        if store != "memory:":
            raise DefinitionError(f"store={store!r}: only 'memory:' exists so far")
        return MemoryStore()
    return store
