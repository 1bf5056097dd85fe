"""The rows of the docket and the verbs on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lictor import faults
from lictor.docket.actor import Actor
from lictor.docket.grant import Grant
from lictor.docket.request import Decision, Request, decide, expire, requests_in_order, withdraw
from lictor.docket.told import DECISION, GRANT, log_of, told, told_grant
from lictor.errors import DecisionRefused, DefinitionError, LictorError, NotSerializable, UnknownRequest
from lictor.journal import Store, Table
from lictor.values import Clock, new_id

__all__ = ["REQUESTS", "Docket", "Refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A decision that was not taken."""

    id: str
    request: str
    root_run: str
    attempt: Mapping[str, Any]


REQUESTS: Table[Request] = Table(
    name="request",
    kind=Request,
    columns={
        "status": lambda row: row.status,
        "root_run": lambda row: row.root_run,
        "run_id": lambda row: row.run_id,
        "step": lambda row: row.step,
        "deadline": lambda row: row.deadline,
    },
)
GRANTS: Table[Grant] = Table(name="standing", kind=Grant, columns={"binding": lambda row: row.key})
REFUSALS: Table[Refusal] = Table(
    name="refusal",
    kind=Refusal,
    columns={"request": lambda row: row.request, "root_run": lambda row: row.root_run},
)


def _nobody(_: Request) -> None:
    return None


def _check_stored(name: str, given: Any) -> None:
    """Refuse what a store could not give back (F13); long integers are fine here."""
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise NotSerializable(name, str(exc)) from exc


class Docket:
    """Requests over a store. `changed` is called after each settled request, to wake its run.

    Deciding is a compare-and-set on `pending`; whatever is refused is recorded and changes nothing.
    """

    def __init__(self, store: Store, clock: Clock, changed: Callable[[Request], None] = _nobody) -> None:
        self._store = store
        self._clock = clock
        self._changed = changed
        self.deadlines_changed = True
        self._requests = store.table(REQUESTS)
        self._grants = store.table(GRANTS)
        self._refusals = store.table(REFUSALS)

    # reading

    async def pending(
        self,
        *,
        responder: str | None = None,
        user: str | None = None,
        run: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Request]:
        """Open requests, oldest first.

        Arguments:
            responder: only those that this actor (`human:ana`) may decide.
            user, run (root or nested), kind: only those.
            limit, after: a page of at most `limit` behind the request with id `after`.
        """
        actor = None if responder is None else Actor.of(responder)
        found = [
            request
            for request in self._pending(run)
            if (kind is None or request.kind == kind)
            and (user is None or request.user == user)
            and (actor is None or not request.parties or any(actor.matches(party) for party in request.parties))
        ]
        ordered = requests_in_order(found)
        if after is not None:
            ids = [request.id for request in ordered]
            ordered = ordered[ids.index(after) + 1 :] if after in ids else ordered
        return ordered[:limit]

    def _pending(self, run: str | None) -> list[Request]:
        if run is None:
            return self._requests.find(status="pending")
        return self._requests.find(root_run=run, status="pending") or self._requests.find(run_id=run, status="pending")

    async def get(self, request_id: str) -> Request:
        """One request, decided ones too; raises UnknownRequest."""
        return self.find(request_id)

    async def requests(self, *, run: str) -> list[Request]:
        """Every request of a run and of those below it, in any status."""
        return requests_in_order(self._of(run))

    async def refusals(self, *, run: str, root: bool = False) -> list[Mapping[str, Any]]:
        """Decisions on requests of this run that were not taken; `root` says that none is above it."""
        found = self._refusals.find(root_run=run)
        if found or root:
            return [item.attempt for item in found]
        nested = self._requests.find(run_id=run)
        return [item.attempt for request in nested for item in self._refusals.find(request=request.id)]

    def _of(self, run: str) -> list[Request]:
        """The requests of a root and of the runs below it, or of one nested run."""
        return self._requests.find(root_run=run) or self._requests.find(run_id=run)

    def find(self, request_id: str) -> Request:
        """As `get`, at once."""
        request = self._requests.get(request_id)
        if request is None:
            raise UnknownRequest(f"there is no request {request_id!r}")
        return request

    # deciding

    async def decide(  # noqa: PLR0913 - the one verb of the docket; its options are the interface
        self,
        request_id: str,
        verb: str,
        *,
        feedback: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        text: str | None = None,
        value: Any = None,
        digest: str | None = None,
        kind: str | None = None,
        epoch: int | None = None,
        scope: str = "once",
        by: Actor | str,
    ) -> Request:
        """Decide a request; returns it as it stands afterwards.

        Arguments:
            verb: one of the request's `verbs`.
            feedback: text for the model; goes with reject, and may go with approve.
            arguments: the whole new arguments, for `edit`.
            text, value: the result without running, for `respond`.
            digest, kind, epoch: when given, must equal the request's.
            scope: `once`, or `same_arguments` to also grant later calls with the same arguments.
            by: the actor, `human:ana` or an Actor.

        Raises a DecisionRefused (typed), ToolArgumentsInvalid for an edit that does not fit, or
        NotSerializable for a value or arguments that are no JSON.
        """
        if scope not in ("once", "same_arguments"):
            raise DefinitionError(f"scope={scope!r}: use 'once' or 'same_arguments'")
        actor = Actor.of(by)
        decision = Decision(
            verb=verb,
            by=actor,
            feedback=feedback,
            value=text if text is not None else value,
            arguments=arguments,
            digest=digest,
            kind=kind,
            epoch=epoch,
        )
        while True:
            request = self.find(request_id)
            try:
                _check_stored("value", decision.value)
                _check_stored("arguments", decision.arguments)
                after = decide(request, decision, self._clock.now())
            except LictorError as exc:
                self._refuse(request, decision, exc)
                raise
            if after is request:
                return request
            faults.reach("settle.before")
            if self._settle(request, after, scope, actor):  # else somebody was faster: what stands now decides
                break
        faults.reach("settle.after")
        if after.status != "pending":
            self._changed(after)
        return after

    def _swap(self, before: Request, after: Request) -> bool:
        """Write a decided request down and tell the log of it, or neither; False when somebody else was first."""
        with self._store.transaction():
            if not self._requests.swap(after.id, before, after):
                return False
            self._tell(after.id, DECISION, told(after))
        return True

    def _tell(self, request_id: str, kind: str, payload: Mapping[str, Any]) -> None:
        log = log_of(request_id)
        self._store.append_outside(log, log, kind, payload, self._clock.now())

    def _settle(self, request: Request, after: Request, scope: str, actor: Actor) -> bool:
        """Write a decision, what stands from it, and the wake-up, if nobody wrote the request since we looked."""
        with self._store.transaction(sure=True):
            if not self._swap(request, after):
                return False
            if after.status != "pending":
                self._store.wake(after.root_run)
            if scope == "same_arguments" and after.status == "approved" and after.grant_key is not None:
                self._grant(after, str(actor))
        return True

    def _refuse(self, request: Request, decision: Decision, exc: LictorError) -> None:
        if isinstance(exc, DecisionRefused) and request.status == "pending" and exc.status == "expired":
            self.expire_due()
        at = self._clock.now()
        attempt = {
            "request": request.id,
            "verb": decision.verb,
            "by": str(decision.by),
            "error": type(exc).__name__,
            "at": at,
        }
        refusal = Refusal(id=new_id(), request=request.id, root_run=request.root_run, attempt=attempt)
        self._refusals[refusal.id] = refusal
        self._store.append_outside(request.run_id, request.root_run, "decision_refused", attempt, at)

    # standing approvals

    def _grant(self, request: Request, by: str) -> None:
        key = request.grant_key or ""
        grant = Grant(
            id=new_id("grant"),
            key=key,
            conversation=key.partition("|")[0],
            tool=request.tool or "",
            request=request.id,
            by=by,
            created=self._clock.now(),
        )
        self._grants[grant.id] = grant
        self._tell(request.id, GRANT, told_grant(grant))

    async def grants(self, *, conversation: str | None = None) -> list[Grant]:
        """Standing approvals, revoked ones too."""
        return [g for g in self._grants.values() if conversation is None or g.conversation == conversation]

    async def revoke(self, grant_id: str, *, by: Actor | str) -> Grant:
        """End a standing approval; raises UnknownRequest."""
        Actor.of(by)
        grant = self._grants.get(grant_id)
        if grant is None:
            raise UnknownRequest(f"there is no grant {grant_id!r}")
        grant = replace(grant, revoked=True)
        with self._store.transaction(sure=True):
            self._grants[grant_id] = grant
            self._tell(grant.request, GRANT, told_grant(grant))
        return grant

    def granted(self, key: str) -> Grant | None:
        """The standing approval for `key`, if there is one."""
        return next((grant for grant in self._grants.find(binding=key) if not grant.revoked), None)

    # for drivers

    def open(self, request: Request) -> Request:
        """Add a request; the same id again is a no-op."""
        self.deadlines_changed |= request.deadline is not None
        with self._store.transaction(request.root_run):  # a driver that lost its lease may ask nobody
            return self._requests.add(request.id, request)

    def of_run(self, run_id: str) -> list[Request]:
        """The requests of one run, without those below it, in any status."""
        return self._requests.find(run_id=run_id)

    def of_step(self, run_id: str, step: str) -> list[Request]:
        """The requests that one step of a run opened, oldest first."""
        return requests_in_order(self._requests.find(run_id=run_id, step=step))

    def covers(self, request_id: str, digest: str) -> bool:
        """Whether a request is an approval of exactly this that was not used yet."""
        request = self.find(request_id)
        bound = request.status in ("approved", "edited") and request.digest == digest
        return bound and request.consumed_at is None

    def consume(self, request_id: str, digest: str) -> bool:
        """Use an approval up; False when it was used before or binds to something else."""
        request = self.find(request_id)
        if not self.covers(request_id, digest):
            return False
        with self._store.transaction(request.root_run):  # nor use up what the next driver needs
            return self._requests.swap(request_id, request, replace(request, consumed_at=self._clock.now()))

    def rebind(self, request_id: str, digest: str) -> None:
        """Bind an edited request to its edited arguments; done once, by the driver."""
        request = self.find(request_id)
        with self._store.transaction(request.root_run):
            self._requests[request_id] = replace(request, digest=digest)

    def withdraw(self, run_id: str, status: str = "cancelled") -> list[Request]:
        """Close the open requests of one run."""
        closed: list[Request] = []
        if not self._requests.find(run_id=run_id, status="pending"):  # only the run itself would open one
            return closed
        with self._store.transaction():  # one of several parties may be approving right now
            for request in self._requests.find(run_id=run_id, status="pending"):
                after = withdraw(request, status)
                if self._swap(request, after):
                    closed.append(after)
        return closed

    def supersede(self, root: str) -> None:
        """Close the open approvals of a root and of the runs below it: they are asked again under another policy."""
        with self._store.transaction():
            for request in self._requests.find(root_run=root, status="pending"):
                if request.kind in ("tool_call", "step"):
                    self._swap(request, withdraw(request, "superseded"))

    def next_deadline(self) -> float | None:
        """The earliest deadline of an open request; `deadlines_changed` is set when one was opened since."""
        self.deadlines_changed = False
        found: float | None = self._requests.least("deadline", status="pending")
        return found

    def expire_due(self) -> list[Request]:
        """Settle every open request whose deadline passed."""
        now, gone = self._clock.now(), []
        with self._store.transaction(sure=True):  # a request that is settled and a run that sleeps would wait for ever
            for request in self._requests.upto("deadline", now, status="pending"):
                after = expire(request, now)
                if after is not request and self._swap(request, after):
                    self._store.wake(after.root_run)
                    gone.append(after)
        for after in gone:
            self._changed(after)
        return gone
