"""Gate: one emission, from context to record (§6 to §10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from lictor.errors import DefinitionError, PathError, ValueDomainError, VerdictInvalid
from lictor.hooks.approval import seam_to
from lictor.hooks.asking import Raised, ask, awaited, pending, verdict_of
from lictor.hooks.compose import Composition, Consult, Fold, Outcome, Ruling, compose, merge
from lictor.hooks.context import Context, read_context, transformed
from lictor.hooks.delivery import Delivery
from lictor.hooks.emission import NO_LABELS, Emission, conclude, denies_of, refusal
from lictor.hooks.identity import JCS, IdentityProvider, identifier
from lictor.hooks.interceptor import Bound
from lictor.hooks.options import MODES, choice, composition_of, function, resolve_of, seconds
from lictor.hooks.order import placed
from lictor.hooks.plan import Plan, plan_points
from lictor.hooks.points import CONTEXT_INVALID, INTERCEPTOR_FAILED, NO_INTERCEPTOR, POINTS
from lictor.hooks.record import fold_record, public_path, rejection, traced
from lictor.hooks.verdict import ALLOW, Decision, Verdict, host_error, read_verdict
from lictor.values import FrozenDict

__all__ = ["Gate"]

_BARE: Final = (None, None, None)
_SESSIONS: Final = 10_000  # sessions whose last sequence a gate remembers
_as_tuple = tuple.__new__  # skips the Python frame of a NamedTuple's constructor on the hot path


class Gate:
    """Asks the interceptors at a point and decides (§7).

    Args:
        interceptors: a list of objects, functions, `Bound`s or `(object, index)` pairs, or a mapping
            from name to one of these.
        composition: a `Composition` or the name of a profile; the contract's default is
            `sequential/first_deny`.
        mode: `enforce`, or `evaluate_only`, which judges and records but blocks and changes nothing.
        resolver: callable or object with `resolve`, sync or async, that may lift liftable denies.
        redactor: makes the context a resolver is shown, from its own copy (§9).
        identity: `"jcs-sha256"`, an `IdentityProvider`, or None for unbound records (§10.1).
        compat: see `canonical_json`.
        timeout: seconds for one awaitable or blocking interceptor; None for no limit.
        resolver_timeout: seconds for an awaitable resolver; None for no limit.
        sink: gets every record; sync or async. A failure is counted in `lost_records`.
        sink_required: an undelivered record blocks the emission, in both modes: the verdict becomes
            `host_error:adapter_unsupported` and `sink_failed` is set. What was blocked anyway keeps
            its own verdict.
        sink_timeout: seconds for an async sink.

    Raises:
        DefinitionError: an option or interceptor is wrong; the message says what to do.
    """

    def __init__(  # noqa: PLR0913 - the public constructor (design sheet)
        self,
        interceptors: Any = (),
        *,
        composition: Composition | str = "sequential/first_deny",
        mode: str = "enforce",
        resolver: Any = None,
        redactor: Callable[[Any], Any] | None = None,
        identity: str | IdentityProvider | None = JCS,
        compat: str | None = None,
        timeout: float | None = 5.0,
        resolver_timeout: float | None = None,
        sink: Callable[[Mapping[str, Any]], Any] | None = None,
        sink_required: bool = False,
        sink_timeout: float | None = 5.0,
    ) -> None:
        choice("mode", mode, MODES)
        function("redactor", redactor)
        function("sink", sink)
        seconds("timeout", timeout)
        seconds("resolver_timeout", resolver_timeout)
        seconds("sink_timeout", sink_timeout)
        self._mode = mode
        self._composition = composition_of(composition)
        self._provider, self._identify = identifier(identity, compat)
        self._redactor = redactor
        self._resolver_timeout = resolver_timeout
        self._seam = seam_to(resolve_of(resolver), redactor, self._identify, resolver_timeout)
        self._timeout = timeout
        self._folds = mode == "enforce" and self._composition.sequential
        self._sink = sink
        self._delivery = Delivery(sink, sink_required, sink_timeout)
        self._last: dict[str, int] = {}
        self._entries: list[tuple[Bound, int]] = []
        self._plans: dict[str, Plan] = {}
        self._arrange(placed("", interceptors))

    @property
    def lost_records(self) -> int:
        """How many records the sink did not take."""
        return self._delivery.lost

    # -- registration ---------------------------------------------------------------------------

    def order(self) -> list[str]:
        """Return the names in the order they are asked; a record's indexes count along it."""
        return [bound.name for bound, _ in self._entries]

    def register(self, target: Any, name: str | None = None, index: int = 0) -> Callable[[], None]:
        """Add an interceptor after those of the same index; returns what takes it out again."""
        entry = placed("", [(target, index)] if name is None else {name: (target, index)})[0]
        if any(bound.interceptor is entry[0].interceptor for bound, _ in self._entries):
            raise DefinitionError(f"{entry[0].name!r} is registered already")
        self._arrange([*self._entries, entry])

        def undo() -> None:
            self._arrange([each for each in self._entries if each is not entry])

        return undo

    def _arrange(self, entries: list[tuple[Bound, int]]) -> None:
        entries = sorted(entries, key=lambda entry: entry[1])
        self._plans = plan_points(
            tuple(bound for bound, _ in entries),
            mode=self._mode,
            composition=self._composition,
            provider=self._provider,
        )
        self._entries = entries

    def resolving(self, resolver: Any) -> Gate:
        """Return this gate with another resolver (callable, or with `resolve`); everything else is shared."""
        twin = object.__new__(Gate)
        twin.__dict__.update(self.__dict__)
        twin._seam = seam_to(resolve_of(resolver), self._redactor, self._identify, self._resolver_timeout)
        return twin

    def forget(self, session_id: str) -> None:
        """Let go of a session's last sequence number: it ended, or goes on from its log."""
        self._last.pop(session_id, None)

    # -- emission -------------------------------------------------------------------------------

    async def emit(self, context: object) -> Emission:
        """Judge one context and record it; never raises for what an interceptor does.

        A cancellation of the calling task leaves a fail-closed record and goes on (§6.3).

        Args:
            context: from `ContextBuilder`, or a dict with the members of §4, which is then checked.
        """
        try:
            known = context if type(context) is Context else read_context(context)
            session = known["session"]["id"]
            sequence = known["sequence"]
            last = self._last
            if session not in last:
                if len(last) >= _SESSIONS:
                    del last[next(iter(last))]
            elif sequence <= last[session]:
                raise ValueDomainError("$.sequence", "must be greater than the session's last one (§3.1)")
            last[session] = sequence
            identity = self._identify(known)
        except ValueDomainError as error:
            return await self._reject(context, error)
        plan = self._plans[known["interception_point"]]
        for index, call in plan.calls:
            try:
                answer = call(known)
            except BaseException as error:  # noqa: BLE001 - sorted out by verdict_of
                answer = Raised(error)
            if answer is not ALLOW:
                return await self._decide(plan, known, identity, index, answer)
        if plan.nobody:
            return await self._judge(plan, known, identity, {})
        record = FrozenDict(
            plan.record,
            input_identity=identity,
            enforced_identity=identity,
            session_id=session,
            sequence=sequence,
            timestamp=known["timestamp"],
        )
        record._plain, record._height, record._canon = True, plan.record._height, None
        if "trace" in known:
            record = traced(record, known)
        emission: Emission = _as_tuple(
            Emission, (ALLOW, known["target"], record, True, known, (), None, NO_LABELS, False)
        )
        return emission if self._sink is None else await self._delivery.of(emission)

    async def refuse(self, context: Context, reason: str) -> Emission:
        """Record the host's own deny, a reserved reason: nobody is asked, and in no mode does it go on (§11, §12.1)."""
        try:
            identity = self._identify(context)
        except ValueDomainError as error:
            return await self._reject(context, error)
        plan = self._plans[context["interception_point"]]
        return await self._delivery.of(refusal(plan, reason, self._mode, identity, context))

    async def record_host_failure(
        self,
        point: str,
        session_id: str = "",
        sequence: int = -1,
        message: str | ValueDomainError | None = None,
        timestamp: str | None = None,
    ) -> Emission:
        """Record that the host could not build a context at all (§10.3); the action must not go on.

        Args:
            point: the point that would have been emitted.
            session_id: of the session, if known.
            sequence: the number it would have had (`ContextBuilder.take_sequence()`).
            message: a type name or path, never content; or the builder's error, of which only what
                the contract names is recorded.
            timestamp: RFC 3339, if known.
        """
        choice("point", point, POINTS)
        self._last[session_id] = max(sequence, self._last.get(session_id, -1))
        envelope = {"session": {"id": session_id}, "sequence": sequence, "timestamp": timestamp}
        verdict = host_error(CONTEXT_INVALID, _public(message) if isinstance(message, ValueDomainError) else message)
        record = rejection(self._plans[point].record, envelope, verdict)
        return await self._delivery.of(Emission(verdict, None, record, False, None))

    async def _reject(self, value: object, error: ValueDomainError) -> Emission:
        """§6.3: an invalid context is denied before anybody sees it."""
        envelope = value if isinstance(value, dict) else {}
        point = envelope.get("interception_point")
        plan = self._plans[point if isinstance(point, str) and point in POINTS else POINTS[0]]
        verdict = host_error(CONTEXT_INVALID, _public(error))
        record = rejection(plan.record, envelope, verdict)
        return await self._delivery.of(Emission(verdict, None, record, self._mode != "enforce", None))

    def _decide(
        self, plan: Plan, context: Context, identity: str | None, index: int, answer: Any
    ) -> Awaitable[Emission]:
        if self._folds and type(answer) is Verdict and answer.decision is Decision.TRANSFORM:
            return self._fold_one(plan, context, identity, index, answer)
        return self._judge(plan, context, identity, {index: answer})

    async def _fold_one(
        self, plan: Plan, context: Context, identity: str | None, index: int, verdict: Verdict
    ) -> Emission:
        """The common fold: one transform, everybody else allows (§7.4). Whatever differs is composed."""
        given: dict[int, Any] = {index: verdict}
        change = verdict.transform
        if verdict.warnings or verdict.result_labels or change is None:
            return await self._judge(plan, context, identity, given)
        try:
            if (verdict.reason, verdict.message, verdict.evidence) != _BARE:
                read_verdict(verdict)
            folded = transformed(context, change)
            enforced = self._identify(folded)
        except (PathError, ValueDomainError, VerdictInvalid):
            return await self._judge(plan, context, identity, given)
        for later, _ in plan.calls:
            if later > index:
                answer = ask(plan.bounds[later], folded)
                if answer is not ALLOW:
                    return await self._judge(plan, context, identity, {**given, later: answer})
        record = fold_record(plan.record, verdict, index, (identity, enforced), context)
        emission: Emission = _as_tuple(
            Emission, (verdict, folded["target"], record, True, folded, (), None, NO_LABELS, False)
        )
        return emission if self._sink is None else await self._delivery.of(emission)

    # -- judging, off the fast path -------------------------------------------------------------

    async def _judge(self, plan: Plan, context: Context, identity: str | None, given: dict[int, Any]) -> Emission:
        """Compose, given the first answer that was not ALLOW; everybody asked before it allowed."""
        mode = self._mode
        try:
            if plan.nobody:
                outcome = Outcome(host_error(NO_INTERCEPTOR), None, {}, False, None, context, None)
            elif mode == "enforce":
                outcome = await self._drive(plan, plan.every, context, given, enforce=True)
            else:
                outcome, mode = await self._evaluate(plan, context, given)
        except BaseException as error:
            # A cancellation, or SystemExit and the like: a record without a gap, then go on (§6.3).
            verdict = host_error(INTERCEPTOR_FAILED, type(error).__name__)
            outcome = Outcome(verdict, None, {}, True, None, context, None)
            stopped = await self._delivery.of(conclude(plan, outcome, mode, (identity, identity), context))
            error.emission = stopped  # type: ignore[attr-defined] # for a host that keeps records itself
            raise
        enforced = None if outcome.unbound and mode == "enforce" else identity
        if outcome.context is not context and not outcome.unbound:
            try:
                enforced = self._identify(outcome.context)
            except ValueDomainError as error:
                # What was folded has no identity: fail closed rather than unbind (§10.1, §12.3).
                verdict, enforced = host_error(CONTEXT_INVALID, error.problem), None
                outcome = outcome._replace(verdict=verdict, decided_by=None)
        emission = conclude(plan, outcome, mode, (identity, enforced), context)
        return emission if self._sink is None else await self._delivery.of(emission)

    async def _evaluate(self, plan: Plan, context: Context, given: dict[int, Any]) -> tuple[Outcome, str]:
        """§8 for policies; what is always enforced is folded after them, and binds."""
        kept = tuple(index for index in plan.every if plan.bounds[index].always_enforce)
        policies = tuple(index for index in plan.every if index not in kept)
        evaluated = await self._drive(plan, policies, context, given, enforce=False)
        if not kept:
            return evaluated, self._mode
        enforced = await self._drive(plan, kept, context, given, enforce=True)
        binds = enforced.verdict.decision is not Decision.ALLOW
        return merge(evaluated, enforced), "enforce" if binds else self._mode

    async def _drive(
        self, plan: Plan, indexes: tuple[int, ...], context: Context, given: dict[int, Any], *, enforce: bool
    ) -> Outcome:
        """Answer what a fold asks until it has an outcome."""
        fold: Fold = compose(self._composition, indexes, context, enforce=enforce)
        until = min(given, default=0)
        reply: Verdict | Ruling | None = None
        while True:
            try:
                step = fold.send(reply)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            if isinstance(step, Consult):
                reply = await self._consult(plan, step)
            elif step.slot < until or step.slot in plan.silent:
                reply = ALLOW
            else:
                answer = given[step.slot] if step.slot in given else ask(plan.bounds[step.slot], step.context)
                reply = verdict_of(await awaited(answer, self._timeout) if pending(answer) else answer)

    async def _consult(self, plan: Plan, step: Consult) -> Ruling | None:
        if self._seam is None:
            return None
        return await self._seam.consult(step.verdict, step.context, denies_of(plan, step.returned))


def _public(error: ValueDomainError) -> str:
    """Return what a record may say of an invalid context (§14)."""
    return f"{public_path(error.path)}: {error.problem}"
