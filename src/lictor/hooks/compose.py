"""Composition: how the verdicts of many interceptors become one (§7). Pure; no I/O, no clock.

`compose` is a generator. It yields what it wants to know (`Invoke`, `Consult`), is sent the answer,
and returns the `Outcome`. The gate drives it with real interceptors, property tests with scripts.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from lictor.errors import DefinitionError, PathError
from lictor.hooks.context import Context, transformed
from lictor.hooks.points import COMPOSITION_DISAGREEMENT, CONTEXT_INVALID, TRANSFORM_CONFLICT
from lictor.hooks.verdict import ALLOW, Decision, Verdict, Warning, host_error, is_host_error, with_unions

__all__ = ["Composition", "Consult", "Invoke", "Outcome", "Ruling", "compose"]

# §7.2: the closed set of profiles, the knobs each consults, and the values with the default first.
_PROFILES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "sequential/first_deny": {"on_approval": ("stop", "resume")},
    "sequential/run_all": {},
    "parallel/strictest": {"on_transform_conflict": ("deny", "approval")},
    "parallel/unanimous": {"on_disagreement": ("deny", "approval")},
}


@dataclass(frozen=True, slots=True)  # budget: the profile is positional, the knobs are not (KW_ONLY)
class Composition:
    """A composition profile and its knobs (§7.2). An unset knob has the contract's default.

    Args:
        profile: `sequential/first_deny`, `sequential/run_all`, `parallel/strictest` or
            `parallel/unanimous`.
        on_approval: `stop` or `resume`; first_deny only.
        on_disagreement: `deny` or `approval`; unanimous only.
        on_transform_conflict: `deny` or `approval`; strictest only.

    Raises:
        DefinitionError: an unknown profile or value, or a knob the profile never looks at.
    """

    profile: str = "sequential/first_deny"
    _: KW_ONLY
    on_approval: str | None = None
    on_disagreement: str | None = None
    on_transform_conflict: str | None = None

    def __post_init__(self) -> None:
        if self.profile not in _PROFILES:
            raise DefinitionError(f"composition {self.profile!r} is unknown; use one of {', '.join(_PROFILES)}")
        known = _PROFILES[self.profile]
        for knob in ("on_approval", "on_disagreement", "on_transform_conflict"):
            value = getattr(self, knob)
            if knob not in known:
                if value is not None:
                    raise DefinitionError(f"{self.profile} does not consult {knob}; leave it out")
            elif value is None:
                object.__setattr__(self, knob, known[knob][0])
            elif value not in known[knob]:
                raise DefinitionError(f"{knob}={value!r}: use {' or '.join(map(repr, known[knob]))}")

    @property
    def sequential(self) -> bool:
        """Whether interceptors see what their predecessors transformed (§7.4)."""
        return self.profile.startswith("sequential/")

    def to_wire(self) -> dict[str, str]:
        """Return the record's block: the profile and the resolved knobs it consults (§10.3)."""
        return {"profile": self.profile, **{knob: getattr(self, knob) for knob in _PROFILES[self.profile]}}


class Invoke(NamedTuple):
    """Asks for the verdict of the interceptor in `slot`, its registration index, on `context`."""

    slot: int
    context: Context


class Consult(NamedTuple):
    """Asks the approval seam about `verdict`; the answer is a `Ruling`, or None without a resolver (§9)."""

    verdict: Verdict
    context: Context
    returned: dict[int, Verdict]


class Ruling(NamedTuple):
    """What the approval seam said: `verdict` substitutes if `lifted`, else it stands (§7.6)."""

    verdict: Verdict
    lifted: bool


class Outcome(NamedTuple):
    """The result of one composition (§7.3, §10.3).

    `unbound`: a transform led outside the domain, so what was folded has no identity.
    """

    verdict: Verdict
    decided_by: int | None
    returned: dict[int, Verdict]
    fold_truncated: bool
    resolved_by: str | None
    context: Context
    ruling: Ruling | None
    unbound: bool = False


Step: TypeAlias = Invoke | Consult
Fold: TypeAlias = Generator[Step, Any, Outcome]


def compose(composition: Composition, indexes: tuple[int, ...], context: Context, *, enforce: bool) -> Fold:
    """Compose the verdicts of the interceptors at `indexes` (ascending) on `context`.

    With `enforce=False` transforms are validated and not applied, and nobody is consulted (§8).
    """
    fold = _Fold(composition, indexes, context, enforce)
    if composition.profile == "sequential/first_deny":
        return fold.first_deny()
    return fold.run_all() if composition.sequential else fold.parallel()


class _Fold:
    """The state of one composition: the context as folded so far and what was returned."""

    def __init__(self, composition: Composition, indexes: tuple[int, ...], context: Context, enforce: bool) -> None:
        self.composition = composition
        self.indexes = indexes
        self.context = context
        self.enforce = enforce
        self.returned: dict[int, Verdict] = {}
        self.substitutes: list[Verdict] = []
        self.resolved_by: str | None = None
        self.ruling: Ruling | None = None
        self.unbound = False

    # -- profiles -------------------------------------------------------------------------------

    def first_deny(self) -> Fold:
        """§7.4: the first deny ends the fold; a lifted one ends it too or goes on (`on_approval`)."""
        winner: tuple[int, Verdict] | None = None
        for index in self.indexes:
            verdict, failed = yield from self._invoke_and_fold(index)
            if failed:
                return self._outcome(verdict, None)
            if verdict.decision is Decision.DENY:
                outcome = yield from self._settle(verdict, index)
                if not outcome.verdict.decision.permits or self.composition.on_approval == "stop":
                    return outcome
                verdict = self.substitutes[-1]
            if verdict.decision is Decision.TRANSFORM:
                winner = (index, verdict)
        if winner is None:
            return self._outcome(ALLOW, None)
        return self._outcome(winner[1], winner[0])

    def run_all(self) -> Fold:
        """§7.4: everybody is asked; the severest verdict wins."""
        for index in self.indexes:
            verdict, failed = yield from self._invoke_and_fold(index)
            if failed:
                return self._outcome(verdict, None)
        return (yield from self._aggregate())

    def parallel(self) -> Fold:
        """§7.5: everybody sees the same snapshot."""
        for index in self.indexes:
            self.returned[index] = yield Invoke(index, self.context)
        if self.composition.profile == "parallel/unanimous":
            if all(verdict.decision is Decision.ALLOW for verdict in self.returned.values()):
                return (yield from self._aggregate())
            liftable = self.composition.on_disagreement == "approval"
            return (yield from self._settle(host_error(COMPOSITION_DISAGREEMENT, liftable=liftable), None))
        return (yield from self._aggregate())

    # -- parts ----------------------------------------------------------------------------------

    def _invoke_and_fold(self, index: int) -> Generator[Step, Any, tuple[Verdict, bool]]:
        verdict: Verdict = yield Invoke(index, self.context)
        self.returned[index] = verdict
        if verdict.decision is not Decision.TRANSFORM:
            return verdict, False
        failure = self._apply(verdict)
        if failure is None:
            return verdict, False
        self.returned[index] = failure
        return failure, True

    def _apply(self, verdict: Verdict) -> Verdict | None:
        """Apply a transform, or only validate it (§8); return the deny if it cannot be applied."""
        if verdict.transform is None:
            return None
        try:
            context = transformed(self.context, verdict.transform)
        except PathError as error:
            self.unbound = error.reason == CONTEXT_INVALID
            return host_error(error.reason, str(error))
        if self.enforce:
            self.context = context
        return None

    def _aggregate(self) -> Fold:
        """§7.3: the severest verdict wins, of equal blocks the first, of folded transforms the last."""
        if not self.returned:
            return self._outcome(ALLOW, None)
        index, verdict = max(self.returned.items(), key=lambda item: (_severity(item[1]), -item[0]))
        if verdict.decision is Decision.ALLOW:
            return self._outcome(verdict, None)
        if verdict.decision is Decision.DENY:
            return (yield from self._settle(verdict, index))
        transforms = [item for item in self.returned.items() if item[1].decision is Decision.TRANSFORM]
        if self.composition.sequential:
            index, verdict = transforms[-1]
            return self._outcome(verdict, index)
        if len(transforms) > 1:
            liftable = self.composition.on_transform_conflict == "approval"
            return (yield from self._settle(host_error(TRANSFORM_CONFLICT, liftable=liftable), None))
        failure = self._apply(verdict)
        return self._outcome(verdict, index) if failure is None else self._fail(failure, index)

    def _fail(self, failure: Verdict, index: int) -> Outcome:
        self.returned[index] = failure
        return self._outcome(failure, None)

    def _settle(self, verdict: Verdict, index: int | None) -> Fold:
        """Let a deny stand, or put it to the approval seam first (§7.6, §9)."""
        if verdict.approval is None or not self.enforce or self.context["interception_point"] == "agent_shutdown":
            return self._outcome(verdict, index)
        ruling: Ruling | None = yield Consult(verdict, self.context, dict(self.returned))
        if ruling is None:
            return self._outcome(verdict, index)
        self.ruling = ruling
        if not ruling.lifted:
            self.resolved_by = "rejection"
            return self._outcome(ruling.verdict, None if is_host_error(ruling.verdict) else index)
        self.resolved_by = "approval"
        failure = self._apply(ruling.verdict)
        if failure is not None:
            return self._outcome(failure, None)
        self.substitutes.append(ruling.verdict)
        return self._outcome(ruling.verdict, index)

    def _outcome(self, verdict: Verdict, decided_by: int | None) -> Outcome:
        pool = [*self.returned.values(), *self.substitutes, verdict]
        labels = () if verdict.decision is Decision.DENY else _labels(pool)
        return Outcome(
            verdict=with_unions(verdict, _warnings(pool), labels),
            decided_by=decided_by,
            returned=self.returned,
            fold_truncated=len(self.returned) < len(self.indexes),
            resolved_by=self.resolved_by,
            context=self.context,
            ruling=self.ruling,
            unbound=self.unbound,
        )


def merge(evaluated: Outcome, enforced: Outcome) -> Outcome:
    """Join the folds of an `evaluate_only` gate: the policies' and that of the always enforced.

    The enforced one decides if it has anything to say; otherwise the policies' verdict is what is
    recorded. Warnings come from both.
    """
    decides = enforced if enforced.verdict.decision is not Decision.ALLOW else evaluated
    warnings = tuple(dict.fromkeys((*evaluated.verdict.warnings, *enforced.verdict.warnings)))
    labels = tuple(dict.fromkeys((*evaluated.verdict.result_labels, *enforced.verdict.result_labels)))
    return decides._replace(
        verdict=with_unions(decides.verdict, warnings, labels if decides.verdict.decision.permits else ()),
        returned={**evaluated.returned, **enforced.returned},
        fold_truncated=evaluated.fold_truncated or enforced.fold_truncated,
        context=enforced.context,
    )


def _severity(verdict: Verdict) -> int:
    """§5.1: deny > liftable deny > transform > allow."""
    if verdict.decision is Decision.DENY:
        return 3 if verdict.approval is None else 2
    return 1 if verdict.decision is Decision.TRANSFORM else 0


def _warnings(pool: list[Verdict]) -> tuple[Warning, ...]:
    """§7.3: every warning once, in the order first seen."""
    united: dict[Warning, None] = {}
    for verdict in pool:
        if verdict.warnings:
            united.update(dict.fromkeys(verdict.warnings))
    return tuple(united)


def _labels(pool: list[Verdict]) -> tuple[str, ...]:
    """§7.3: every label of a permit once, in the order first seen."""
    united: dict[str, None] = {}
    for verdict in pool:
        if verdict.result_labels and verdict.decision is not Decision.DENY:
            united.update(dict.fromkeys(verdict.result_labels))
    return tuple(united)
