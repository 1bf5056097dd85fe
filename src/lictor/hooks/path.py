"""Transform paths: the `$target` subset of JSONPath (§5.2)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from lictor.errors import PathError, ValueDomainError
from lictor.hooks.points import CONTEXT_INVALID, TRANSFORM_INVALID, TRANSFORM_TARGET_FORBIDDEN
from lictor.values import FrozenDict, FrozenList, canonical_json, freeze

__all__ = ["parse_path", "replace_at"]

_ROOT: Final = re.compile(r"\$(?:target|policy_target)")  # the second is an alias until agent-hooks 0.3
_SEGMENT: Final = re.compile(r'\.([A-Za-z0-9_-]+)|\["([A-Za-z0-9_-]+)"\]|\[([0-9]+)\]')
_INDEX_DIGITS: Final = 9  # no list in a 5 MiB context has an index of ten digits


@lru_cache(maxsize=512)
def parse_path(path: str) -> tuple[str | int, ...]:
    """Return the segments of `path`: member names and list indexes.

    Raises:
        PathError: `transform_target_forbidden` when the root is not `$target`, `transform_invalid`
            when a segment does not fit the grammar.
    """
    root = _ROOT.match(path)
    if root is None:
        raise PathError(TRANSFORM_TARGET_FORBIDDEN, "a transform path starts with $target")
    segments: list[str | int] = []
    position = root.end()
    while position < len(path):
        segment = _SEGMENT.match(path, position)
        if segment is None:
            raise PathError(TRANSFORM_INVALID, f'no .member, [index] or ["member"] at character {position}')
        dotted, quoted, index = segment.groups()
        if index is None:
            segments.append(dotted or quoted)
        elif len(index) <= _INDEX_DIGITS:
            segments.append(int(index))
        else:
            raise PathError(TRANSFORM_INVALID, "a list index is out of range")
        position = segment.end()
    return tuple(segments)


def replace_at(target: Any, segments: tuple[str | int, ...], value: Any) -> Any:
    """Return frozen `target` with the addressed location replaced by `value`.

    Everything beside the path is shared with the old target: members keep their order, siblings
    their exact values (§5.2). The location must exist.

    Raises:
        PathError: `transform_invalid` when the path does not resolve, `context_invalid` when the
            value is outside the JSON domain or would be nested too deeply (§10.2, §12.3).
    """
    trail: list[Any] = []
    node = target
    for segment in segments:
        trail.append(node)
        node = _step(node, segment, len(trail))
    try:
        new = freeze(value)
        sure = type(new) is str and new.isascii()
        if not sure and type(new) is not int and new is not None:
            canonical_json(new)  # lone surrogates show only in bytes
        while trail:
            new = freeze(_with(trail.pop(), segments[len(trail)], new))
    except ValueDomainError as error:
        raise PathError(CONTEXT_INVALID, error.problem) from None
    return new


def _step(node: Any, segment: str | int, position: int) -> Any:
    if isinstance(segment, str):
        if type(node) is FrozenDict and segment in node:
            return node[segment]
    elif type(node) is FrozenList and segment < len(node):
        return node[segment]
    raise PathError(TRANSFORM_INVALID, f"segment {position} of the path does not resolve")


def _with(node: Any, segment: str | int, value: Any) -> Any:
    if isinstance(segment, str):
        return {**node, segment: value}
    items = [*node]
    items[segment] = value
    return items
