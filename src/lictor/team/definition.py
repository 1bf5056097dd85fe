"""The definition of a team: immutable, checked when it is written."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lictor.agent import Agent, LoopBreaker, check_resolver
from lictor.errors import DefinitionError
from lictor.hooks import Governance, arrange
from lictor.models import ChatModel
from lictor.runs import Budget, Event, RunResult, check_watchers
from lictor.team.route import Handoff, Hierarchical, Route, Sequential, Unrouted

__all__ = ["Member", "Team"]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
RESERVED = frozenset({"supervisor", "start", "end", "finish", "human", "system", "team", "user"})
PROTOCOLS: Mapping[str, type[Any]] = {
    "hierarchical": Hierarchical,
    "sequential": Sequential,
    "none": Unrouted,
    "handoff": Handoff,
}
LIMITS = ("max_turns", "max_handoffs", "history_window", "record_window", "retries")


@runtime_checkable
class Member(Protocol):
    """Anything that can work in a team beside agents and teams.

    `work` gets the task as text and gives the answer. It has no log of its own: after a crash in the
    middle it is called again.
    """

    @property
    def name(self) -> str: ...

    async def work(self, task: str, /) -> Any: ...


class Team:
    """Members, and how it is decided who works next.

    Arguments:
        name: letters, digits, `_` and `-`, at most 64.
        members: agents, teams, or objects with `name` and `async work(task)`. Names are unique
            regardless of case; ids that a protocol uses itself are refused.
        model: the supervisor's; needed by protocols with a supervisor (`hierarchical`).
        protocol: `hierarchical` (a supervisor decides after every step), `sequential` (each member once,
            in order), `handoff` (members transfer to each other), `none` (all side by side), or an object
            with `name`, `supervised` and `next(state, event)`.
        instructions: for the supervisor, beside what it is told of its members.
        interceptors: policies and TeamInterceptors: a list, a mapping name -> object, or (object, index)
            pairs. They hold for the supervisor and for everything below it.
        watchers: told what happens.
        budget: limits for the run and everything below it.
        loop_breaker: stops a team that goes in circles; None switches it off.
        max_turns: decisions, and members chosen without one.
        max_handoffs: transfers under `handoff`.
        finish_marker: begins a line with which a supervisor without tool calls gives the answer.
        history_window: messages of the conversation that the supervisor sees.
        record_window: decisions with their results that a request shows, and outputs that a member is told of.
        retries: denied members in a row that stop the run.
        feedback: whether the supervisor may ask a person (`ask_human`).
        description: what it is good for, where it is a member itself.
        settings: go to the supervisor's model.
        governance: how verdicts compose; only the outermost counts, one further in is an error.
        resolver: decides liftable denies in place; without one they park in a Runtime's docket.

    Raises DefinitionError, at once, for whatever is wrong as written.
    """

    def __init__(  # noqa: PLR0913 - the constructor is the definition
        self,
        name: str,
        *,
        members: Sequence[Any],
        model: str | ChatModel | Sequence[str | ChatModel] | None = None,
        protocol: str | Route = "hierarchical",
        instructions: str = "",
        interceptors: Any = (),
        watchers: Sequence[Any] = (),
        budget: Budget | None = None,
        loop_breaker: LoopBreaker | None = LoopBreaker(),  # noqa: B008 - it holds no state
        max_turns: int = 8,
        max_handoffs: int = 8,
        finish_marker: str = "FINISH",
        history_window: int = 8,
        record_window: int = 8,
        retries: int = 3,
        feedback: bool = False,
        description: str = "",
        settings: Mapping[str, Any] | None = None,
        governance: Governance | None = None,
        resolver: Any = None,
    ) -> None:
        self.name = name
        self.members = tuple(members)
        self.model = model
        self.protocol = protocol
        self.instructions = instructions
        self.interceptors = interceptors
        self.watchers = check_watchers(watchers)
        self.budget = budget
        self.loop_breaker = loop_breaker
        self.max_turns = max_turns
        self.max_handoffs = max_handoffs
        self.finish_marker = finish_marker
        self.history_window = history_window
        self.record_window = record_window
        self.retries = retries
        self.feedback = feedback
        self.description = description
        self.settings = dict(settings or {})
        self.governance = governance
        self.resolver = resolver
        self.route: Route = _route(name, protocol)
        _check_name("team", name)
        _check_limits(self)
        self.table = _table(self)
        if self.route.supervised and model is None:
            raise DefinitionError(f"Team {name!r}: protocol {self.route.name!r} has a supervisor; give it a model=")
        check_resolver(resolver)
        if loop_breaker is not None and not isinstance(loop_breaker, LoopBreaker):
            raise DefinitionError(f"Team {name!r}: loop_breaker={loop_breaker!r}; give a LoopBreaker, or None for none")
        arrange([(f"team:{name}", interceptors)])
        from lictor.team.supervisor import Supervision

        self.supervision = Supervision(self)

    def __repr__(self) -> str:
        return f"Team({self.name!r}, members={[member.name for member in self.members]}, protocol={self.route.name!r})"

    async def run(self, task: Any, **options: Any) -> RunResult:
        """Run to the end in memory, with the options of `Agent.run`; every outcome is returned, none raised."""
        from lictor.team.running import run_team

        return await run_team(self, task, **options)

    def stream(self, task: Any, **options: Any) -> AsyncGenerator[Event]:
        """The events of a run in memory, members included; nothing before its verdict."""
        from lictor.team.running import stream_team

        return stream_team(self, task, **options)


def _route(name: str, protocol: Any) -> Any:
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            raise DefinitionError(f"Team {name!r}: protocol={protocol!r}; choose from {', '.join(PROTOCOLS)}")
        return PROTOCOLS[protocol]()
    if not (callable(getattr(protocol, "next", None)) and isinstance(getattr(protocol, "name", None), str)):
        raise DefinitionError(f"Team {name!r}: protocol={protocol!r}; give a name, or an object with name and next")
    return protocol


def _check_name(what: str, name: Any) -> None:
    if not NAME.fullmatch(name if isinstance(name, str) else ""):
        raise DefinitionError(f"{what} {name!r}: use letters, digits, '_' and '-', at most 64")


def _check_limits(team: Team) -> None:
    for limit in LIMITS:
        value = getattr(team, limit)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DefinitionError(f"Team {team.name!r}: {limit}={value!r}; give a whole number >= 0")
    if not str(team.finish_marker).strip():
        raise DefinitionError(f"Team {team.name!r}: finish_marker={team.finish_marker!r}; give a word")


def _table(team: Team) -> dict[str, Any]:
    """Members by name."""
    if not team.members:
        raise DefinitionError(f"Team {team.name!r} has no members")
    table: dict[str, Any] = {}
    for member in team.members:
        if not isinstance(member, Agent | Team | Member):
            raise DefinitionError(f"Team {team.name!r}: {member!r} is no member; give agents, teams, or {{name, work}}")
        _check_name(f"Team {team.name!r}: member", member.name)
        if member.name.lower() in RESERVED:
            raise DefinitionError(f"Team {team.name!r}: a member may not be called {member.name!r}")
        if member.name.lower() in [name.lower() for name in table]:
            raise DefinitionError(f"Team {team.name!r}: two members are called {member.name!r} (case does not count)")
        if getattr(member, "governance", None) is not None:
            raise DefinitionError(
                f"member {member.name!r} sets governance and works in team {team.name!r}; "
                "set it on the outermost team or the Runtime only"
            )
        table[member.name] = member
    return table
