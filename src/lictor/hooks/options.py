"""Checks on the options a gate and a governance share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lictor.errors import DefinitionError
from lictor.hooks.compose import Composition

MODES: Final = ("enforce", "evaluate_only")


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `allowed`."""
    if value not in allowed:
        raise DefinitionError(f"{name}={value!r}: use {' or '.join(map(repr, allowed))}")


def seconds(name: str, value: object) -> None:
    """Raise unless `value` is a number of seconds above 0, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise DefinitionError(f"{name}={value!r}: use seconds above 0, or None for no limit")


def function(name: str, value: object) -> None:
    """Raise unless `value` can be called, or is None."""
    if value is not None and not callable(value):
        raise DefinitionError(f"{name} must be a function, not {type(value).__name__}")


def composition_of(value: object) -> Composition:
    """Return a `Composition` for one, or for the name of a profile."""
    if isinstance(value, Composition):
        return value
    if isinstance(value, str):
        return Composition(value)
    raise DefinitionError(f"composition={value!r}: use a Composition or the name of a profile")


def resolve_of(resolver: Any) -> Callable[..., Any] | None:
    """Return the function that resolves: the resolver itself or its method `resolve`."""
    if resolver is None:
        return None
    resolve = getattr(resolver, "resolve", resolver)
    if not callable(resolve):
        raise DefinitionError("resolver must be a function of the request, or an object with `resolve`")
    found: Callable[..., Any] = resolve
    return found
