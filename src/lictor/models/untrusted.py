"""Reading JSON that somebody else wrote: what has the wrong type counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["count", "fields", "is_list", "is_object", "items", "text"]


def is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


def fields(value: object) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def items(value: object) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if is_list(value) else []


def text(value: object) -> str:
    """`value` if it is text, else `""`."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """`value` if it is a positive integer, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
