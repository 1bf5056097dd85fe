"""Checks on the members of verdicts (§5). Messages name members and types, never content (§14)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lictor.errors import ValueDomainError, VerdictInvalid
from lictor.values import FrozenDict, canonical_json, freeze

HOST: Final = "host_error:"


def check_text(member: str, value: object, *, optional: bool = True) -> None:
    """Raise unless `value` is a string (or None)."""
    if not (isinstance(value, str) or (optional and value is None)):
        raise VerdictInvalid(f"{member} must be a string, not {type(value).__name__}")


def check_reason(member: str, value: object) -> None:
    """Raise unless `value` is a reason an interceptor may give (§11)."""
    check_text(member, value)
    if isinstance(value, str) and value.startswith(HOST):
        raise VerdictInvalid(f"{member} must not start with {HOST!r}, which is the host's own (§11)")


def instances(member: str, values: object, kind: type) -> tuple[Any, ...]:
    """Return `values` as a tuple, or raise unless it is a sequence of `kind`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise VerdictInvalid(f"{member} must be a sequence of {kind.__name__}")
    items = tuple(values)
    if not all(isinstance(item, kind) for item in items):
        raise VerdictInvalid(f"{member} must hold {kind.__name__} only")
    return items


def frozen_object(member: str, value: object) -> FrozenDict:
    """Return `value` frozen, or raise unless it is a JSON object."""
    if not isinstance(value, dict):
        raise VerdictInvalid(f"{member} must be an object, not {type(value).__name__}")
    try:
        frozen: FrozenDict = freeze(value)
        canonical_json(frozen)  # lone surrogates show only in bytes
    except ValueDomainError as error:
        raise VerdictInvalid(f"{member} is outside the JSON domain: {error.problem}") from None
    return frozen


def array(member: str, members: dict[str, Any]) -> list[Any]:
    """Return an optional array member of a wire object; null counts as absent."""
    value = members.get(member)
    if value is None:
        return []
    if not isinstance(value, list):
        raise VerdictInvalid(f"{member} must be an array, not {type(value).__name__}")
    return value


def closed(what: str, wire: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a wire object, or raise unless it is one without members beyond `known`."""
    if not isinstance(wire, dict):
        raise VerdictInvalid(f"{what} must be an object, not {type(wire).__name__}")
    if any(key not in known for key in wire):
        raise VerdictInvalid(f"{what} has a member outside {', '.join(known)}")
    return wire
