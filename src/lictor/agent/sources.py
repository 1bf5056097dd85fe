"""Tool sources in a definition: which ones an agent has, and what of them is known before they are open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lictor.agent.tools import ToolSource
from lictor.errors import DefinitionError

__all__ = ["Attached", "SourceTool", "attach", "is_source"]


@dataclass(frozen=True, slots=True)
class SourceTool:
    """One tool of a source, such as `server["lookup"]`: an agent that is given it gets no other tool of that source.

    Args:
        source: where the tool comes from.
        name: what the model calls it.
    """

    source: ToolSource
    name: str


@dataclass(frozen=True, slots=True)
class Attached:
    """A source as an agent has it: `names` must be there when it is opened; with `whole`, the others too."""

    source: ToolSource
    names: tuple[str, ...]
    whole: bool

    def declared(self) -> dict[str, Any]:
        """What the policy fingerprint covers: declared data, never what the source lists when it is open."""
        own = getattr(self.source, "declared", None)
        kind = type(self.source)
        what: Mapping[str, Any] = {"code": f"{kind.__module__}:{kind.__qualname__}"} if own is None else own()
        return {"source": self.source.name, "tools": "all" if self.whole else list(self.names), **what}


def is_source(item: Any) -> bool:
    """Whether something in `Agent(tools=…)` is a source or one tool of a source."""
    if isinstance(item, SourceTool):
        return True
    parts = (getattr(item, "open", None), getattr(item, "close", None))
    return not isinstance(item, type) and all(map(callable, parts)) and isinstance(getattr(item, "name", None), str)


def attach(agent: str, items: Sequence[Any], taken: Collection[str]) -> tuple[Attached, ...]:
    """The sources among the tools of an agent.

    Args:
        agent: its name, for messages.
        items: what was given as `tools`; what is no source is passed over.
        taken: names of its other tools.

    Raises:
        DefinitionError: names that are known already clash, or a source is given twice.
    """
    found: dict[str, Attached] = {}
    for item in items:
        if not is_source(item):
            continue
        source = item.source if isinstance(item, SourceTool) else item
        known = found.get(source.name)
        if known is not None and known.source is not source:
            raise DefinitionError(f"Agent {agent!r}: two tool sources are named {source.name!r}; rename one")
        if known is not None and (known.whole or not isinstance(item, SourceTool)):
            raise DefinitionError(
                f"Agent {agent!r}: tool source {source.name!r} is given whole and once more; "
                "give the source, or the tools it should have"
            )
        if isinstance(item, SourceTool):
            picked = () if known is None else known.names
            found[source.name] = Attached(source, (*picked, item.name), whole=False)
        else:
            found[source.name] = Attached(source, tuple(getattr(source, "known", ())), whole=True)
    _check_names(agent, tuple(found.values()), taken)
    return tuple(found.values())


def _check_names(agent: str, sources: Sequence[Attached], taken: Collection[str]) -> None:
    owners = dict.fromkeys(taken, "its own")
    for attached in sources:
        for name in attached.names:
            if name in owners:
                where = f"{owners[name]} and {attached.source.name!r}"
                raise DefinitionError(f"Agent {agent!r}: two tools are named {name!r} ({where}); rename one")
            owners[name] = repr(attached.source.name)
