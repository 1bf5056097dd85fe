"""The definitions a Runtime knows, and how a stored run becomes a session of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lictor.agent import NO_GOVERNANCE, Agent, Options, Session, assemble, split_limits
from lictor.docket import Docket
from lictor.errors import DefinitionConflict, DefinitionError, DefinitionNotFound
from lictor.hooks import Governance
from lictor.journal import Store
from lictor.models import ChatModel
from lictor.runs import Ledger, Step, check_watchers
from lictor.runtime.row import RunRow
from lictor.values import Clock, freeze

__all__ = ["Definitions"]


class Definitions:
    """Agents by name, and what the Runtime adds to each run of them.

    `given` holds what a caller gave for one run and is never stored: interceptors, watchers, deps.
    """

    __slots__ = ("_agents", "_deps", "_governance", "_models", "_scopes", "_watchers", "given")

    def __init__(
        self,
        governance: Governance | None,
        interceptors: Any,
        deps: Any,
        models: Mapping[str, ChatModel],
        watchers: Sequence[Any],
    ) -> None:
        self._agents: dict[str, Agent] = {}
        self._governance = governance
        self._scopes = (("runtime", interceptors),) if interceptors else ()
        self._deps = deps
        self._models = models
        self._watchers = check_watchers(watchers)
        self.given: dict[str, dict[str, Any]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    def register(self, definition: Any, name: str) -> Agent:
        """Know an agent; the same one again is a no-op. Raises DefinitionConflict, DefinitionError."""
        if not isinstance(definition, Agent):
            raise DefinitionError(f"{definition!r} is no Agent")
        known = self._agents.setdefault(name, definition)
        if known is not definition:
            raise DefinitionConflict(f"another agent is registered as {name!r}; names of definitions are unique")
        if self._governance is not None and definition.governance is not None:
            raise DefinitionError(f"both the Runtime and Agent {name!r} set governance; only the outermost may")
        return known

    def give(self, run_id: str, interceptors: Any = (), deps: Any = None, watchers: Any = ()) -> None:
        """Keep what was given for one run, until it is over or this process ends."""
        kept = {"interceptors": interceptors, "watchers": check_watchers(watchers)}
        self.given[run_id] = {**kept, "deps": self._deps if deps is None else deps}

    def forget(self, run_id: str) -> None:
        """Keep nothing more for a run: it is over."""
        self.given.pop(run_id, None)

    def session(self, row: RunRow, store: Store, clock: Clock, docket: Docket) -> Session:
        """A session of a stored run, refolded from its log. Raises DefinitionNotFound."""
        agent = self._agents.get(row.definition)
        if agent is None:
            raise DefinitionNotFound(
                f"run {row.run_id} is one of {row.definition!r}; pass it in Runtime(definitions=…)"
            )
        given = self.given.get(row.run_id) or {"interceptors": (), "watchers": (), "deps": self._deps}
        max_steps, budget = split_limits(agent, row.limits)
        options = Options(
            task=row.task,
            scopes=self._scopes,
            governance=self._governance or agent.governance or NO_GOVERNANCE,
            resolver=agent.resolver,
            docket=docket,
            user=row.user,
            context=row.context,
            conversation=row.conversation,
            history=row.history,
            approval_deadline=row.approval_deadline,
            max_steps=max_steps,
            messages=tuple(map(freeze, row.messages)),
            numbered=row.numbered,
            positions=row.positions,
            labels=row.labels,
            models=self._models,
            watchers=(*self._watchers, *agent.watchers, *given["watchers"]),
            interceptors=given["interceptors"],
            deps=given["deps"],
        )
        path = (Step(agent.name, row.run_id),)
        ledger = Ledger(clock, budget)
        return assemble(agent, options, run_id=row.run_id, path=path, store=store, clock=clock, ledger=ledger)
