"""The order of interceptors: which ones are asked, under which names, in which sequence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lictor.errors import DefinitionError
from lictor.hooks.interceptor import Bound, bind, check_name, default_name

__all__ = ["arrange"]


def arrange(scopes: Iterable[tuple[str, Any]]) -> tuple[Bound, ...]:
    """Return the one fold over all scopes, outermost first.

    Within a scope: by index (0 unless given), then in the order written. An object that is reached
    twice runs once, in the outermost place.

    Args:
        scopes: pairs of a scope (`"team:orders"`, `"agent:clerk"`, `"runtime"`, `"run"`, or `""`)
            and its interceptors: a list of objects, functions, `Bound`s or `(object, index)` pairs,
            or a mapping from name to one of these.

    Raises:
        DefinitionError: something is no interceptor, or a name is bad or given twice in a scope.
    """
    fold: list[Bound] = []
    seen: set[int] = set()
    for scope, interceptors in scopes:
        for bound, _ in placed(scope, interceptors):
            if id(bound.interceptor) not in seen:
                seen.add(id(bound.interceptor))
                fold.append(bound)
    names = [bound.name for bound in fold]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"two interceptors are called {name!r}; give one another name")
    return tuple(fold)


def placed(scope: str, interceptors: Any) -> list[tuple[Bound, int]]:
    """Return the interceptors of one scope, bound and in order, each with its index."""
    entries = [_entry(name, item) for name, item in _items(interceptors)]
    entries.sort(key=lambda entry: entry[2])  # stable: the order written decides between equals
    taken = {name for name, _, _ in entries if name is not None}
    bounds = []
    for name, target, index in entries:
        if isinstance(target, Bound):
            bounds.append((target, index))
            continue
        chosen = name if name is not None else _free(default_name(target), taken)
        taken.add(chosen)
        bounds.append((bind(target, f"{scope}/{chosen}" if scope else chosen), index))
    return bounds


def _items(interceptors: Any) -> list[tuple[str | None, Any]]:
    if isinstance(interceptors, Mapping):
        return [(check_name(name), item) for name, item in interceptors.items()]
    if isinstance(interceptors, (str, bytes)) or not isinstance(interceptors, Iterable):
        raise DefinitionError(
            f"interceptors must be a list or a mapping from names, not {type(interceptors).__name__}; "
            "put a single one in a list"
        )
    return [(None, item) for item in interceptors]


def _entry(name: str | None, item: Any) -> tuple[str | None, Any, int]:
    if isinstance(item, tuple):
        if len(item) != 2 or type(item[1]) is not int:
            raise DefinitionError("a pair of an interceptor and its index is (object, 10)")
        return name, item[0], item[1]
    return name, item, 0


def _free(name: str, taken: set[str]) -> str:
    """Number names that were not chosen by anybody: mask, mask-2, mask-3."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
