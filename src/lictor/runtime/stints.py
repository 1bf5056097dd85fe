"""The stints of this process: roots are claimed, driven, settled, and other processes heard."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial

from lictor import faults
from lictor.agent import Session, snapshot, stint
from lictor.docket import Docket, Request
from lictor.errors import LostLease, StoreError
from lictor.journal import Store, new_owner, retire
from lictor.runs import TERMINAL, Cause
from lictor.runtime.bells import Bells
from lictor.runtime.conversations import Conversations
from lictor.runtime.definitions import Definitions
from lictor.runtime.engine import LocalEngine
from lictor.runtime.kept import Kept
from lictor.runtime.row import RUNS, SIGNALS, RunRow, Signal
from lictor.team import drive_team
from lictor.values import Clock, new_id

__all__ = ["Stints"]

LEASE_SECONDS = 5.0
"""How long a driver may be silent until another one takes its runs; it renews three times as often."""
MOST_REST_SECONDS = 60.0


class Stints:
    """Drives root runs under leases, one stint of a root at a time."""

    def __init__(self, store: Store, clock: Clock, docket: Docket, definitions: Definitions) -> None:
        self.store = store
        self.clock = clock
        self.docket = docket
        self.owner = new_owner()
        self.bells = Bells()
        self._definitions = definitions
        self._rows = store.table(RUNS)
        self._signals = store.table(SIGNALS)
        self._conversations = Conversations(store)
        self._live: dict[str, Session] = {}
        self._kept = Kept(store)
        self._grew: set[str] = set()
        self._left = False
        self._own: set[str] | None = None
        self._rests: dict[str, tuple[float, float]] = {}  # root -> until when, and how long
        self.engine = LocalEngine(clock, docket, self._stint)
        self.engine.on_idle = self._idle
        self.engine.on_drop = self._drop
        self.engine.on_fail = self._rest

    async def open(self, drives: bool | str) -> None:
        """Listen to the store and, if it `drives`, take up what has something to do; `"own"`: of its own runs only."""
        self._own = set() if drives == "own" else None
        self._loop = asyncio.get_running_loop()
        self._unwatch = self.store.on_change(self._from_outside)
        if not drives:
            return
        await self.engine.open(self._keep_leases if self.store.durable else None)
        try:
            self.look()
        except BaseException:
            await self.close(0.0)
            raise

    async def close(self, grace: float) -> None:
        """Stop after at most `grace` seconds; from here on this driver counts as gone."""
        self._unwatch()
        try:
            await self.engine.close(grace)
        finally:
            self._left = True
            retire(self.owner)

    def submit(self, root: str) -> None:
        """Drive a root from now on."""
        if self._own is not None:
            self._own.add(root)
        self.engine.submit(root)

    def take_up(self, root: str) -> None:
        """Drive a root from now on when it has something to do."""
        if self._own is not None:
            self._own.add(root)
        self.look()

    def _drives(self, root: str) -> bool:
        return self._own is None or root in self._own

    def session(self, row: RunRow) -> Session:
        """The live session of a run, the one that just left it, or one refolded from its log."""
        live = self._live.get(row.run_id) or self._kept.settled(row.run_id)
        return live or self._definitions.session(row, self.store, self.clock, self.docket)

    def fresh(self, row: RunRow) -> Session:
        """The session of a run that is about to be started."""
        return self._definitions.session(row, self.store, self.clock, self.docket, fresh=True)

    def begin(self, row: RunRow) -> bool:
        """Write the row of a new run, and take its lease if we drive; within the transaction of its first entry."""
        ours = self.engine.running
        self._rows[row.run_id] = replace(row, status="running") if ours else row
        return ours and self.store.claim(row.run_id, self.owner, self.clock.now(), LEASE_SECONDS)

    def start(self, session: Session, ours: bool) -> None:
        """Drive a new run; if `begin` took its lease, with the session it was begun with."""
        if ours:
            self._kept.hand_over(session)
        self.submit(session.live.run_id)

    async def interrupt(self, row: RunRow, cause: Cause) -> None:
        """End a run for `cause`, live or parked, here or elsewhere; a terminal one is left as it is."""
        run_id = row.run_id
        if row.status in TERMINAL:
            return
        session = self._live.get(run_id)
        if session is not None:
            with contextlib.suppress(LostLease):  # then it is another driver's, which we tell
                with self.store.transaction(run_id):
                    self._rows[run_id] = replace(row, status="cancelling")
                session.live.interrupt(cause)
                return
        with self.store.transaction():
            row = self._rows[run_id]
            if row.status in TERMINAL:  # it ended since we looked
                return
            for request in await self.docket.pending(run=run_id, limit=10_000):
                self.docket.withdraw(request.run_id)
            if self.store.append_outside(run_id, run_id, "cause", cause.json(), self.clock.now()):
                self._rows[run_id] = replace(row, status="cancelling")
            else:
                signal = Signal(id=new_id(), root_run=run_id, cause=cause.json())
                self._signals[signal.id] = signal
            self.store.wake(run_id)
        if self._drives(run_id):
            self.engine.submit(run_id)

    async def _stint(self, run_id: str) -> None:
        """Drive a root from wake to park or end, then settle its row and its conversation."""
        session = self._kept.handed(run_id)
        row = self._claimed(run_id) if session is None else self._rows[run_id]
        if row is None:
            return
        faults.reach("claim.before_first_step")
        if session is not None and self.clock.now() > row.created + LEASE_SECONDS:
            with self.store.transaction(run_id):  # stopped since its start for too long: LostLease if it is gone
                pass
        if session is None:
            session = self._definitions.session(row, self.store, self.clock, self.docket)
            self._take_signals(run_id, session)  # a run that was just begun has none; later ones wake us
        ending = session.live.state.cause is not None
        if row.policy is not None and session.plan.policy != row.policy and not ending:
            text = "the policy changed; resume with accept_policy_change=True, or with the interceptors of the start"
            with self.store.transaction():
                session.live.record("note", {"text": text})
                self._rows[run_id] = replace(row, status="waiting")
                self.store.release(run_id, self.owner)
            return
        self.store.grows(run_id, partial(self._grown, run_id))
        self._rewired(row, session)
        self._live[run_id] = session
        session.live.task = asyncio.current_task()
        try:
            await (drive_team(session) if session.mediator is not None else stint(session, session.options.watchers))
        finally:
            self._snapshot(run_id)  # if the run never gave way since it grew
            self._grew.discard(run_id)
            self.store.grows(run_id, None)
            del self._live[run_id]
            self._settle(run_id, session)
            self._kept.over(run_id)

    def _rewired(self, row: RunRow, session: Session) -> None:
        """Record that a run goes on with an agent that is put together in another way (models, limits, …)."""
        if row.wiring is None or row.wiring == (wiring := self._definitions.wiring(row)):
            return
        with self.store.transaction(row.run_id):
            session.live.record("wiring_changed", {"from": row.wiring, "to": wiring})
            self._rows[row.run_id] = replace(row, wiring=wiring)

    def _claimed(self, run_id: str) -> RunRow | None:
        """Take the lease of a run that has something to do; its row, or None when it is not for us."""
        row = self._rows[run_id]
        if row.status not in TERMINAL and not self._definitions.knows(row):
            return None
        adopts = row.status == "running"
        if adopts:
            faults.reach("adopt.before")
        with self.store.transaction():
            if not self.store.claim(run_id, self.owner, self.clock.now(), LEASE_SECONDS):
                return None
            row = self._rows[run_id]  # whoever drove it before us may have written it since
            if row.status in TERMINAL:  # a wake-up or a signal came too late: nothing of it stays
                self._drop_signals(run_id)
                self.store.release(run_id, self.owner)
                return None
            self._rows[run_id] = replace(row, status="running")
        if adopts:
            faults.reach("adopt.after")
        return row

    def _settle(self, run_id: str, session: Session) -> None:
        row, state = self._rows[run_id], session.live.state
        row = replace(row, lost_records=row.lost_records + session.points.gate.lost_records)
        if session.live.crashed or self.store.lost(run_id):
            return
        over = state.finished
        faults.reach("finish.before" if over else "park.before")
        if state.phase in ("loop", "again") or (over and not (state.cause and state.cause.resumable)):
            row = replace(row, task=None)  # its verdict was given: from here on only what `input` let through is kept
        # A driver that was stopped for too long must not write its row either.
        with self.store.transaction(run_id, sure=over):
            if over:
                cause = state.cause
                status = "completed" if state.answered or cause is None else cause.status
                self._rows[run_id] = replace(row, status=status)
                self._conversations.give_back(row.conversation, run_id, session)
            else:
                self._rows[run_id] = replace(row, status="waiting")
            self._kept.settle(session)
            self.store.release(run_id, self.owner)
        self._rests.pop(run_id, None)
        if over and not (state.cause and state.cause.resumable):
            self._definitions.forget(run_id)
        faults.reach("finish.after" if over else "park.after")

    def _grown(self, run_id: str) -> None:
        self._grew.add(run_id)
        self._loop.call_soon(self._snapshot, run_id)  # within an append the state is one entry behind

    def _snapshot(self, run_id: str) -> None:
        """The log of a run has doubled: have it kept what it is folded to. Without that nothing is lost but time."""
        session = self._live.get(run_id)
        if session is not None and run_id in self._grew:
            self._grew.discard(run_id)
            with contextlib.suppress(StoreError):
                snapshot(session)

    def _rest(self, root: str) -> None:
        """The store failed under a stint: as after a crash, what is not written did not happen.

        The lease goes back as soon as that can be written. Whoever may drives the run again, we too,
        but each time after a longer rest: a disk that stays full costs no model call a second.
        """
        self.store.discard(root)
        rest = min(2 * self._rests.get(root, (0.0, LEASE_SECONDS / 2))[1], MOST_REST_SECONDS)
        self._rests[root] = (self.clock.now() + rest, rest)

    def failure(self, row: RunRow) -> StoreError | None:
        """What the store raised under our last stint of a run that is not over and that nobody else drives now."""
        failed = self.engine.failed.get(row.run_id)
        if failed is None or row.status in TERMINAL:
            return None
        return failed if self.store.holder(row.run_id, self.clock.now()) in (None, self.owner) else None

    def look(self) -> None:
        """Drive what has something to do and no driver, and tell live runs what others did to them."""
        if self._left:  # the store told us of a change while we were leaving
            return
        now = self.clock.now()
        for root in filter(self._drives, self.store.woken(self.owner, now)):
            if self._rests.get(root, (now, 0.0))[0] > now:
                continue
            session = self._live.get(root)
            if session is not None:
                self.store.claim(root, self.owner, self.clock.now(), LEASE_SECONDS)
                self._take_signals(root, session)
                session.live.poke()
            self.engine.submit(root)
        self.engine.watch_deadlines()
        self.bells.ring("", everybody=True)

    def _from_outside(self) -> None:
        """Called by the store's thread: another process wrote something."""
        with contextlib.suppress(RuntimeError):  # the loop is gone, and so is whoever could look
            self._loop.call_soon_threadsafe(self._look_again)

    def _look_again(self) -> None:
        """As `look`, where nobody is told of an error: the next change or beat looks again."""
        with contextlib.suppress(StoreError):
            self.look()

    def _take_signals(self, run_id: str, session: Session) -> None:
        """Carry out what another process wants of a run that we drive."""
        for signal in self._drop_signals(run_id):
            session.live.interrupt(Cause.of(signal.cause))

    def _drop_signals(self, run_id: str) -> list[Signal]:
        found = self._signals.find(root_run=run_id)
        for signal in found:
            self._signals.remove(signal.id)
        return found

    async def _keep_leases(self) -> None:
        """Prolong our leases while we live; a run that was taken from us is dropped."""
        while True:
            with contextlib.suppress(TimeoutError):  # no sleep: a beat is no work that a virtual clock has to wait for
                async with asyncio.timeout(LEASE_SECONDS / 3):
                    await asyncio.Event().wait()
            with contextlib.suppress(StoreError):  # a lease that cannot be prolonged runs out, and its fence holds
                for root in self._rests:
                    if not self.engine.active(root):
                        self.store.release(root, self.owner)
                self.store.renew(self.owner, self.clock.now(), LEASE_SECONDS)
                for root in [root for root in self._live if self.store.holder(root, self.clock.now()) != self.owner]:
                    self.engine.drop(root)
                self.look()

    def decided(self, request: Request) -> None:
        """A request was settled: its root has something to do again."""
        session = self._live.get(request.root_run)
        if session is not None:
            session.live.poke()
        if self._drives(request.root_run):
            self.engine.submit(request.root_run)

    def _drop(self, root: str) -> None:
        """Nobody waits for this stint any more: it writes nothing from here on."""
        session = self._live.get(root)
        if session is not None:
            session.live.crash()

    def _idle(self, root: str) -> None:
        if self.engine.crash is not None:
            retire(self.owner)
        self.bells.ring(root, everybody=self.engine.crash is not None)
