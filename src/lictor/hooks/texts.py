"""Reading and rewriting the strings of a target, whatever its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["map_texts", "texts"]


def texts(target: Any, *, keys: bool = False) -> Iterator[str]:
    """Yield every string in `target`, in order: plain text, typed parts, arguments, results.

    Args:
        target: any JSON value, usually `context["target"]`.
        keys: also yield the member names of objects.
    """
    if isinstance(target, str):
        yield target
    elif isinstance(target, dict):
        for key, item in target.items():
            if keys:
                yield key
            yield from texts(item, keys=keys)
    elif isinstance(target, list):
        for item in target:
            yield from texts(item, keys=keys)


def map_texts(target: Any, fn: Callable[[str], str]) -> Any:
    """Return `target` with `fn` applied to every string that `texts(target)` yields.

    Same shape, same keys. Parts in which nothing changed are the same objects, and so is the whole.
    """
    if isinstance(target, str):
        mapped = fn(target)
        return target if mapped == target else mapped
    if isinstance(target, dict):
        changed = {}
        for key, item in target.items():
            mapped = map_texts(item, fn)
            if mapped is not item:
                changed[key] = mapped
        return {**target, **changed} if changed else target
    if isinstance(target, list):
        items = [map_texts(item, fn) for item in target]
        return items if any(new is not old for new, old in zip(items, target, strict=True)) else target
    return target
