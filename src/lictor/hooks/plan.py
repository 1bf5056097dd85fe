"""What a gate knows about each point before any context arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lictor.errors import DefinitionError
from lictor.hooks.compose import Composition
from lictor.hooks.context import Context
from lictor.hooks.interceptor import Bound
from lictor.hooks.points import POINTS
from lictor.hooks.record import allowing_rows
from lictor.values import FrozenDict, freeze

__all__ = ["Plan", "plan_points"]


class Plan(NamedTuple):
    """One point of one gate.

    bounds: everybody registered; indexes of records count along it.
    every: all indexes.
    calls: index and function of those asked at this point.
    silent: indexes of the others, which count as having allowed.
    record: the record of an emission that everybody allowed; other records start from it.
    nobody: nobody is registered, which denies every emission (§7).
    """

    bounds: tuple[Bound, ...]
    every: tuple[int, ...]
    calls: tuple[tuple[int, Callable[[Context], Any]], ...]
    silent: frozenset[int]
    record: FrozenDict
    nobody: bool


def plan_points(
    bounds: tuple[Bound, ...], *, mode: str, composition: Composition, provider: str | None
) -> dict[str, Plan]:
    """Return the plan of every point.

    Raises:
        DefinitionError: two interceptors have one name.
    """
    names = [bound.name for bound in bounds]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"two interceptors are called {name!r}; give one another name")
    allowed = {
        "interception_point": "",
        "mode": mode,
        "verdict": {"decision": "allow"},
        "input_identity": None,
        "enforced_identity": None,
        "identity_provider": provider,
        "session_id": "",
        "sequence": -1,
        "timestamp": "",
        "decided_by": None,
        "composition": composition.to_wire(),
        "verdicts": allowing_rows(names),
        "interceptors_registered": len(bounds),
    }
    if composition.sequential:
        allowed["fold_truncated"] = False
    return {point: _plan(point, bounds, {**allowed, "interception_point": point}) for point in POINTS}


def _plan(point: str, bounds: tuple[Bound, ...], allowed: dict[str, Any]) -> Plan:
    asked = tuple((index, bound.call) for index, bound in enumerate(bounds) if point in bound.points)
    every = tuple(range(len(bounds)))
    return Plan(
        bounds=bounds,
        every=every,
        calls=asked,
        silent=frozenset(every) - {index for index, _ in asked},
        record=freeze(allowed),
        nobody=not bounds,
    )
