"""Emission: what a gate answers to a host, and how an outcome becomes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lictor.hooks.compose import Outcome
from lictor.hooks.context import Context
from lictor.hooks.plan import Plan
from lictor.hooks.points import ADAPTER_UNSUPPORTED
from lictor.hooks.record import conclusion, project
from lictor.hooks.verdict import Decision, Verdict, host_error
from lictor.values import freeze

__all__ = ["NO_LABELS", "Emission", "conclude", "denies_of", "refusal", "undelivered"]

NO_LABELS: Final[Mapping[str, tuple[str, ...]]] = freeze({})


class Emission(NamedTuple):
    """The result of one emission (§6, §10.3).

    verdict: the combined verdict.
    target: the frozen value the action must use, or may be approved to use: folded also when blocked.
    record: the payload-free interception record, a frozen mapping of the contract's schema.
    proceeds: whether the action may go on; in `evaluate_only` always, unless something that is always
        enforced blocks.
    context: the context after the fold; None when it was invalid.
    denies: name and verdict of every deny that was returned, host failures in a slot included.
    control: a `Verdict.stop` that was returned while the emission blocks, else a `Verdict.retry` when
        every deny is one, else None.
    labels: interceptor name -> result labels, to be stored with the data; empty if it did not proceed.
    sink_failed: the record could not be delivered and the gate requires that it is.
    """

    verdict: Verdict
    target: Any
    record: Mapping[str, Any]
    proceeds: bool
    context: Context | None
    denies: tuple[tuple[str, Verdict], ...] = ()
    control: Verdict | None = None
    labels: Mapping[str, tuple[str, ...]] = NO_LABELS
    sink_failed: bool = False


def conclude(
    plan: Plan, outcome: Outcome, mode: str, identities: tuple[str | None, str | None], context: Context
) -> Emission:
    """Return the emission of an outcome; `context` is the one that came in."""
    verdict = outcome.verdict
    proceeds = verdict.decision is not Decision.DENY or mode != "enforce"
    denies = denies_of(plan, outcome.returned)
    return Emission(
        verdict,
        outcome.context["target"],
        conclusion(plan.record, outcome, mode, identities, context),
        proceeds,
        outcome.context,
        denies,
        None if proceeds else _control(outcome, [deny for _, deny in denies]),
        _labels(plan, outcome) if proceeds else NO_LABELS,
    )


def refusal(plan: Plan, reason: str, mode: str, identity: str | None, context: Context) -> Emission:
    """Return the host's own deny of a context that nobody is asked about."""
    outcome = Outcome(host_error(reason), None, {}, not plan.nobody, None, context, None)
    return conclude(plan, outcome, mode, (identity, identity), context)._replace(proceeds=False)


def denies_of(plan: Plan, returned: Mapping[int, Verdict]) -> tuple[tuple[str, Verdict], ...]:
    """Return name and verdict of every deny, in the order of the gate."""
    denied = [index for index, verdict in returned.items() if verdict.decision is Decision.DENY]
    return tuple((plan.bounds[index].name, returned[index]) for index in sorted(denied)) if denied else ()


def undelivered(emission: Emission, error: Exception) -> Emission:
    """Return the emission whose record was required to be delivered and was not: it does not proceed."""
    if not emission.proceeds:
        return emission._replace(sink_failed=True)
    verdict = host_error(ADAPTER_UNSUPPORTED, f"record sink: {type(error).__name__}")
    record = freeze({**emission.record, "verdict": project(verdict), "decided_by": None})
    return emission._replace(
        verdict=verdict, record=record, proceeds=False, control=None, labels=NO_LABELS, sink_failed=True
    )


def _control(outcome: Outcome, denies: list[Verdict]) -> Verdict | None:
    """Return the stop or retry the host should act on, given that the emission blocks."""
    ruled = [] if outcome.ruling is None else [outcome.ruling.verdict]
    for verdict in [*denies, *ruled]:
        if verdict.control == "stop":
            return verdict
    retries = bool(denies) and all(deny.control == "retry" for deny in denies)
    return denies[0] if retries else None


def _labels(plan: Plan, outcome: Outcome) -> Mapping[str, tuple[str, ...]]:
    """§5.4: the labels of every permit, to be stored with what proceeds."""
    labels: dict[str, tuple[str, ...]] = {}
    for index, verdict in outcome.returned.items():
        if verdict.result_labels and verdict.decision is not Decision.DENY:
            labels[plan.bounds[index].name] = verdict.result_labels
    return labels or NO_LABELS
