"""Runs over a store: started, parked, resumed, and driven by this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

from lictor import faults
from lictor.agent import Session, result_of
from lictor.docket import Docket, Request
from lictor.errors import DefinitionError, NotResumable, PolicyChanged
from lictor.hooks import Governance
from lictor.journal import Store, open_store
from lictor.models import ChatModel
from lictor.runs import TERMINAL, Cause, RunResult, User
from lictor.runtime.commands import Commands
from lictor.runtime.conversations import Conversations
from lictor.runtime.definitions import Definition, Definitions, Load, check_limits
from lictor.runtime.handle import Run
from lictor.runtime.reading import Reading
from lictor.runtime.row import RUNS, RunRow, checked
from lictor.runtime.stints import Stints
from lictor.runtime.targets import definition_of
from lictor.team import begun
from lictor.values import Clock, new_id

__all__ = ["Runtime"]

EMPTY: Mapping[str, Any] = {}


class Runtime(Reading):
    """Drives runs over a store.

    Arguments:
        store: `"memory:"`, `"sqlite:///file.db"` (other processes of this host see the same runs), or a
            store object (two Runtimes over one see the same runs).
        governance: how verdicts compose, for every run; then agents may not set their own.
        interceptors: policies above every agent.
        watchers: see every run; told what happens, without power over it.
        definitions: name -> Agent or Team, or where it is (`shop.clerk:clerk`, `shop/clerk.py:clerk`), for runs that
            another Runtime started.
        deps: the default of `start(deps=)`.
        models: name of an agent -> ChatModel, instead of the one it defines (tests, staging). Looked
            into at each call, so that more may be added later.
        clock: the time.
        durability: `process`: what is stored survives a killed process. `power`: intents of tools that may run
            once, decisions and outcomes also survive a loss of power; each then waits for the disk.
        drive: True drives every run of the store that has something to do and no driver, `"own"` only those
            that were started or resumed here, False only reads and writes commands.
        load: makes an agent of the place that a run was started from (`definition_of`), for runs whose agent is
            not in `definitions`. It runs code that the store names: leave it out where others write to it.
        grace: seconds that leaving waits for stints before it cancels them.
        migrate: bring an older store up to date; with False it is refused (OlderSchema), so that a deploy
            migrates when it wants to (`lictor migrate`).

    Use it as `async with Runtime() as runtime`. Leaving interrupts what runs at the next safe point.
    """

    store: Store

    def __init__(  # noqa: PLR0913 - the constructor is the configuration
        self,
        store: str | Store = "memory:",
        *,
        engine: str = "local",
        governance: Governance | None = None,
        interceptors: Any = (),
        watchers: Sequence[Any] = (),
        definitions: Mapping[str, Definition | str] = EMPTY,
        deps: Any = None,
        models: Mapping[str, ChatModel] = EMPTY,
        clock: Clock | None = None,
        durability: str = "process",
        drive: bool | Literal["own"] = True,
        grace: float = 10.0,
        load: Load | None = None,
        migrate: bool = True,
    ) -> None:
        if engine != "local":
            raise DefinitionError(f"engine={engine!r}: only 'local' exists so far")
        if isinstance(store, str):
            self.store = open_store(store, migrate=migrate, durability=durability)
        else:
            self.store = _lasting(store, durability)
        self._owns_store = isinstance(store, str)
        self.clock = clock or Clock()
        self.docket = Docket(self.store, self.clock, self._decided)
        self.commands = Commands(self)
        self.grace = grace
        self._definitions = Definitions(governance, interceptors, deps, models, watchers, load)
        self._rows = self.store.table(RUNS)
        self._conversations = Conversations(self.store)
        self._stints = Stints(self.store, self.clock, self.docket, self._definitions)
        self._drives = drive
        for name, definition in definitions.items():
            self._definitions.register(definition_of(definition) if isinstance(definition, str) else definition, name)

    async def __aenter__(self) -> Runtime:
        await self._stints.open(self._drives)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stints.close(self.grace)
        finally:
            if self._owns_store:
                self.store.close()

    # starting

    async def start(  # noqa: PLR0913 - the options of a run are its interface
        self,
        target: Definition,
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
        source: str | None = None,
        **limits: Any,
    ) -> Run:
        """Start a run and return its handle; it is driven in the background.

        Arguments:
            target: the agent or team.
            task: text or typed content parts.
            key: the same key gives the same run, however often it is started.
            user, context: stored with the run (JSON); deps: any object, never stored.
            conversation: continue this one (created when unknown).
            watchers: see this run only.
            interceptors: policies of this run only; they must be given again to resume it elsewhere.
            approval_deadline: seconds after which an undecided request of this run is denied.
            on_busy: `reject` (ConversationBusy), `wait`, or `cancel` the run that owns the conversation.
            source: where the agent can be loaded from (`file.py:name`), for whoever resumes the run.
            **limits: `max_steps` of an agent, `max_turns` and `max_handoffs` of a team, or fields of Budget.
        """
        agent = self._definitions.register(target, getattr(target, "name", ""))
        known = self._known(key)
        if known is not None:
            return known
        check_limits(agent, limits)
        run_id = new_id()
        row = checked(
            RunRow(
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
                source=source,
            )
        )
        await self._await_conversation(conversation, on_busy)
        faults.reach("submit.before")
        with self.store.transaction():
            known = self._known(key)
            if known is not None:  # another process started it since we looked
                return known
            session, ours = self._begin(agent, row, interceptors=interceptors, deps=deps, watchers=watchers)
        faults.reach("submit.after")
        self._stints.start(session, ours)
        return Run(self, run_id)

    def _known(self, key: str | None) -> Run | None:
        """The run that was started with a key; driven here when it has something to do."""
        for row in self._rows.find(start_key=key) if key is not None else ():
            self._stints.take_up(row.run_id)
            return Run(self, row.run_id)
        return None

    def _begin(self, agent: Definition, row: RunRow, **given: Any) -> tuple[Session, bool]:
        """Write a new run down, within a transaction; its session, and whether it is driven here at once."""
        if row.conversation is not None:
            row = replace(row, **self._conversations.take(row.conversation, row.run_id))
        self._definitions.give(row.run_id, **given)
        session = self._stints.fresh(row)
        lost = self._definitions.lost(agent, session) if self.store.durable else ()
        session.live.record("run_started", begun(session) | ({"resumable_here_only": list(lost)} if lost else {}))
        wiring = self._definitions.wiring(row)
        return session, self._stints.begin(replace(row, policy=session.plan.policy, wiring=wiring))

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
        if row.erased is not None:
            raise NotResumable(f"what run {run_id} said and did was erased; start a new run")
        self._definitions.retry(row)
        self._definitions.find(row)
        if interceptors or run_id not in self._definitions.given:
            self._definitions.give(run_id, interceptors)
        if self.store.holder(run_id, self.clock.now()) not in (None, self._stints.owner):
            raise NotResumable(f"run {run_id} is driven by another Runtime; wait for its result there")
        with self.store.transaction():
            fresh = self._rows[run_id] == row
            if fresh:
                self._renew(row, self._stints.session(row), accept_policy_change)
        if not fresh:  # somebody else goes on with it
            return await self.resume(run_id, interceptors=interceptors, accept_policy_change=accept_policy_change)
        self._stints.submit(run_id)
        return Run(self, run_id)

    def _renew(self, row: RunRow, session: Session, accept_policy_change: bool) -> None:
        """Accept a changed policy, and make the next attempt of a failed run; within a transaction."""
        if row.policy is not None and session.plan.policy != row.policy:
            if not accept_policy_change:
                raise PolicyChanged([f"policy {row.policy} became {session.plan.policy}"])
            session.live.record("policy_changed", {"from": row.policy, "to": session.plan.policy})
            self.docket.supersede(row.run_id)
            row = self._rows[row.run_id] = replace(row, policy=session.plan.policy)
        if row.status not in TERMINAL:
            return
        cause = session.live.state.cause
        if cause is None or not cause.resumable:
            text = f"run {row.run_id} is {row.status}; only a failed run that is resumable has a next attempt"
            raise NotResumable(text)
        self._conversations.take_again(row.conversation, row.run_id, session)
        session.live.record("resumed", {})
        self._rows[row.run_id] = replace(row, status="queued")

    # reading

    async def wait(self, run_id: str, until: str) -> RunResult:
        """Wait for a park or the end; see `Run.result`."""
        row = await self.settled(run_id, until)
        if row.erased is not None:
            return RunResult(status=row.status, run_id=run_id, trace=await self.trace(run_id))  # type: ignore[arg-type]
        session = self._stints.session(row)
        over = row.status in TERMINAL
        requests = () if over else tuple(await self.docket.pending(run=run_id, limit=10_000))
        result = result_of(session, requests, tuple(await self.docket.refusals(run=run_id, root=True)))
        return result if not row.lost_records else replace(result, lost_records=row.lost_records)

    async def settled(self, run_id: str, until: str, news: Callable[[], None] | None = None) -> RunRow:
        """Wait for a `park` or the `end` of a run, whoever drives it; `news` is called when something may have come."""
        while True:
            row = self.row(run_id)
            if self._stints.engine.crash is not None:
                raise self._stints.engine.crash
            failed = self._stints.failure(row)
            if failed is not None:
                raise failed
            if row.status in TERMINAL or (until == "park" and self._parked(row)):
                return row
            await self._stints.bells.wait(run_id)
            if news is not None:
                news()

    def _parked(self, row: RunRow) -> bool:
        """Whether a run waits, and no driver, here or elsewhere, is about to go on with it."""
        if row.status != "waiting" or self._stints.engine.active(row.run_id):
            return False
        return self.store.idle(row.run_id, self.clock.now())

    # commands

    async def interrupt(self, run_id: str, cause: Cause) -> None:
        """End a run for `cause`, live or parked; a terminal one is left as it is."""
        await self._stints.interrupt(self.row(run_id), cause)

    async def _await_conversation(self, name: str | None, on_busy: str) -> None:
        """Wait until nobody writes to a conversation, or have its writer cancelled."""
        if on_busy not in ("reject", "wait", "cancel"):
            raise DefinitionError(f"on_busy={on_busy!r}: use 'reject', 'wait' or 'cancel'")
        owner = None if name is None else self._conversations.owner(name)
        while name is not None and owner is not None and on_busy != "reject":
            if on_busy == "cancel":
                await self.interrupt(owner.run_id, Cause("cancelled", None, "runtime:on_busy"))
            await self.wait(owner.run_id, "end")
            owner = self._conversations.owner(name)

    def _decided(self, request: Request) -> None:
        self._stints.decided(request)


def _lasting(store: Store, durability: str) -> Store:
    """A store that was opened elsewhere; raises DefinitionError when it keeps less than it has to."""
    if durability not in ("process", "power"):
        raise DefinitionError(f"durability={durability!r}: use 'process' or 'power'")
    if durability == "power" and store.durability != "power":
        raise DefinitionError("durability='power': open the store so, open_store(url, durability='power')")
    return store
