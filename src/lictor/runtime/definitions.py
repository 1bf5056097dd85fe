"""The definitions a Runtime knows, and how a stored run becomes a session of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from lictor.agent import NO_GOVERNANCE, Agent, Options, Session, assemble, here_only, split_limits
from lictor.docket import Docket
from lictor.errors import DefinitionConflict, DefinitionError, DefinitionNotFound, LictorError
from lictor.hooks import Governance
from lictor.journal import Store
from lictor.models import ChatModel
from lictor.runs import Budget, Ledger, Step, check_watchers
from lictor.runtime.row import RunRow
from lictor.runtime.wiring import wiring_of
from lictor.team import Team, assemble_team, split_team_limits
from lictor.values import Clock, freeze

__all__ = ["Definition", "Definitions", "Load", "check_limits", "limits_of", "lost_of"]

Definition: TypeAlias = Agent | Team
Load: TypeAlias = Callable[[str], Definition]


class Definitions:
    """Agents and teams by name, and what the Runtime adds to each run of them.

    `given` holds what a caller gave for one run and is never stored: interceptors, watchers, deps.
    `load` makes an agent of the place a run was started from; each place is tried once, `retry`
    lets it be tried again.
    """

    __slots__ = (
        "_agents",
        "_deps",
        "_governance",
        "_load",
        "_lost",
        "_models",
        "_scopes",
        "_sources",
        "_unloadable",
        "_watchers",
        "_wirings",
        "given",
    )

    def __init__(
        self,
        governance: Governance | None,
        interceptors: Any,
        deps: Any,
        models: Mapping[str, ChatModel],
        watchers: Sequence[Any],
        load: Load | None = None,
    ) -> None:
        self._agents: dict[str, Definition] = {}
        self._sources: dict[str, Definition] = {}
        self._unloadable: dict[str, str] = {}
        self._wirings: dict[int, str] = {}
        self._lost: dict[int, tuple[str, ...]] = {}
        self._load = load
        self._governance = governance
        self._scopes = (("runtime", interceptors),) if interceptors else ()
        self._deps = deps
        self._models = models
        self._watchers = check_watchers(watchers)
        self.given: dict[str, dict[str, Any]] = {}

    def find(self, row: RunRow) -> Definition:
        """The agent of a run: the one of that name, else the one at the place it was started from.

        Raises DefinitionNotFound.
        """
        agent = self._agents.get(row.definition) or self._sources.get(row.source or "")
        if agent is None:
            if self._load is None or row.source is None:
                raise DefinitionNotFound(
                    f"run {row.run_id} is one of {row.definition!r}; pass it in Runtime(definitions=…)"
                )
            agent = self._loaded(self._load, row.source)
        if agent.name != row.definition:
            raise DefinitionNotFound(
                f"run {row.run_id} is one of {row.definition!r}, and {row.source} is {agent.name!r}"
            )
        return agent

    def _loaded(self, load: Load, source: str) -> Definition:
        if source not in self._unloadable:
            try:
                agent = load(source)
                self._fit(agent)
            except LictorError as exc:
                self._unloadable[source] = str(exc)
            else:
                self._sources[source] = agent
                return agent
        raise DefinitionNotFound(self._unloadable[source])

    def knows(self, row: RunRow) -> bool:
        """Whether a run can be driven here."""
        try:
            self.find(row)
        except DefinitionNotFound:
            return False
        return True

    def wiring(self, row: RunRow) -> str:
        """How the agent of a run is put together, as a digest; made once."""
        agent = self.find(row)
        if id(agent) not in self._wirings:
            self._wirings[id(agent)] = wiring_of(agent)
        return self._wirings[id(agent)]

    def lost(self, definition: Definition, session: Session) -> tuple[str, ...]:
        """What of a run another process could not find; made once for runs without interceptors of their own."""
        if session.options.interceptors:
            return lost_of(definition, session)
        if id(definition) not in self._lost:
            self._lost[id(definition)] = lost_of(definition, session)
        return self._lost[id(definition)]

    def retry(self, row: RunRow) -> None:
        """Try again to load what could not be loaded."""
        self._unloadable.pop(row.source or "", None)

    def register(self, definition: Any, name: str) -> Definition:
        """Know an agent; the same one again is a no-op. Raises DefinitionConflict, DefinitionError."""
        if not isinstance(definition, Agent | Team):
            raise DefinitionError(f"{definition!r} is no Agent or Team")
        known = self._agents.setdefault(name, definition)
        if known is not definition:
            raise DefinitionConflict(f"another definition is registered as {name!r}; names of definitions are unique")
        self._fit(definition)
        return known

    def _fit(self, agent: Definition) -> None:
        if self._governance is not None and agent.governance is not None:
            raise DefinitionError(f"both the Runtime and {agent.name!r} set governance; only the outermost may")

    def give(self, run_id: str, interceptors: Any = (), deps: Any = None, watchers: Any = ()) -> None:
        """Keep what was given for one run, until it is over or this process ends."""
        kept = {"interceptors": interceptors, "watchers": check_watchers(watchers)}
        self.given[run_id] = {**kept, "deps": self._deps if deps is None else deps}

    def forget(self, run_id: str) -> None:
        """Keep nothing more for a run: it is over."""
        self.given.pop(run_id, None)

    def session(self, row: RunRow, store: Store, clock: Clock, docket: Docket, fresh: bool = False) -> Session:
        """A session of a stored run, refolded from its log unless it is `fresh`. Raises DefinitionNotFound."""
        agent = self.find(row)
        given = self.given.get(row.run_id) or {"interceptors": (), "watchers": (), "deps": self._deps}
        max_steps, bounds, budget = check_limits(agent, row.limits)
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
        how: dict[str, Any] = {"run_id": row.run_id, "path": path, "store": store, "clock": clock, "ledger": ledger}
        if isinstance(agent, Team):
            return assemble_team(agent, options, **how, fresh=fresh, limits=bounds)
        return assemble(agent, options, **how, fresh=fresh)


def check_limits(
    definition: Definition, limits: Mapping[str, Any]
) -> tuple[int | None, Mapping[str, int], Budget | None]:
    """`max_steps`, the limits of a team, and the budget, as a run is started with them. Raises DefinitionError."""
    if isinstance(definition, Team):
        bounds, budget = split_team_limits(definition, limits)
        return None, bounds, budget
    max_steps, budget = split_limits(definition, limits)
    return max_steps, {}, budget


def limits_of(definition: Definition | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The limits that hold for a run that was started with `given`; only those when its agent is not known."""
    if definition is None:
        return given
    max_steps, bounds, budget = check_limits(definition, given)
    found = {name: getattr(definition, name, None) for name in ("max_steps", "max_turns", "max_handoffs")}
    found |= bounds if max_steps is None else {"max_steps": max_steps}
    for name in () if budget is None else [each.name for each in fields(budget) if each.init]:
        both = [value for value in (found.get(name), getattr(budget, name)) if value is not None]
        found[name] = min(both) if len(both) > 1 else (both or [None])[0]
    return {name: value for name, value in found.items() if value is not None}


def lost_of(definition: Definition, session: Session) -> tuple[str, ...]:
    """What of a run another process could not find by an import path."""
    found = {*here_only(session.agent, session.plan.order)}
    for agent in _agents_of(definition):
        found |= {*here_only(agent, ())}
    return tuple(sorted(found))


def _agents_of(definition: Any) -> Iterator[Agent]:
    if isinstance(definition, Agent):
        yield definition
    for member in getattr(definition, "members", ()):
        yield from _agents_of(member)
