"""Which parts of an agent another process could not find again by an import path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lictor.agent.definition import Agent
from lictor.hooks import Bound

__all__ = ["here_only"]


def here_only(agent: Agent, order: Sequence[Bound]) -> tuple[str, ...]:
    """The callables of a run that have no import path: lambdas, closures and whatever is defined in `__main__`.

    They count with their `module:qualname` in the fingerprints, so that another process may hold something else under
    that name (20-durability, identity of definitions).

    Arguments:
        agent: what is run, with the agents that are its tools.
        order: the interceptors of the run.
    """
    found = [_place(bound.interceptor) for bound in order] + list(_tools(agent, set()))
    return tuple(sorted({place for place in found if _is_lost(place)}))


def _tools(agent: Agent, seen: set[int]) -> Iterator[str]:
    seen.add(id(agent))
    for tool in agent.tool_table.values():
        if tool.agent is None:
            yield _place(tool.fn)
        elif id(tool.agent) not in seen:
            yield from _tools(tool.agent, seen)


def _place(found: Any) -> str:
    kind = found if hasattr(found, "__qualname__") else type(found)
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_lost(place: str) -> bool:
    return place.startswith("__main__:") or "<" in place
