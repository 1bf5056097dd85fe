"""Running a team: put together once, in memory here, over a store in `runtime`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lictor.agent import NO_GOVERNANCE, Options, Session, assemble, check_resolver, result_of, split_limits, stint
from lictor.errors import DefinitionError, StoreError
from lictor.hooks import arrange
from lictor.journal import MemoryStore, Store
from lictor.runs import Cause, Event, Ledger, RunResult, Step, check_watchers, follow_driven
from lictor.team.interceptor import has
from lictor.team.live import CURRENT, TeamHistory, TeamLive
from lictor.team.machine import TeamMachine
from lictor.team.members import begun
from lictor.team.steps import TEAM_STEPS
from lictor.team.trace import TeamOptions, Told
from lictor.team.wrapping import SupervisorModel, WrappedStep, around, wraps_of
from lictor.values import Clock, new_id

if TYPE_CHECKING:
    from lictor.team.definition import Team

__all__ = ["assemble_team", "begin_team", "drive_team", "run_team", "split_team_limits", "stream_team"]

CLOCK = Clock()
TURNS = ("max_turns", "max_handoffs")


def split_team_limits(team: Team, limits: Mapping[str, Any]) -> tuple[Mapping[str, int], Any]:
    """`**limits` of a run: `max_turns`, `max_handoffs`, and fields of Budget in place of the team's.

    Raises DefinitionError for a name that is no limit, or a limit that is no number.
    """
    own = {name: limits[name] for name in TURNS if name in limits}
    for name, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DefinitionError(f"{name}={value!r}; give a whole number >= 0")
    rest = {name: value for name, value in limits.items() if name not in TURNS}
    if "max_steps" in rest:
        raise DefinitionError("max_steps is a limit of agents; a team has max_turns")
    _, budget = split_limits(team, rest)
    return own, budget


def assemble_team(  # noqa: PLR0913 - the parts of a run
    team: Team,
    options: Options,
    *,
    run_id: str,
    path: tuple[Step, ...],
    store: Store,
    clock: Clock,
    ledger: Ledger,
    limits: Mapping[str, int] | None = None,
    fresh: bool = False,
) -> Session:
    """Everything one team run needs while it is driven; a log that is there already is refolded (never if `fresh`).

    `options.scopes` are the interceptors above the team.
    """
    supervision = team.supervision
    given = per_run = options.interceptors
    hooks = supervision.hooks(options.scopes, per_run)
    added = supervision.added(hooks)
    if added:
        given = [*arrange([("run", per_run)]), *added]
    options = replace(options, scopes=supervision.scopes(options.scopes), interceptors=given)
    machine = TeamMachine(
        history=options.messages,
        numbered=options.numbered,
        positions=options.positions,
        route=team.route,
        members=tuple(team.table),
        ends_nodes=any(has(hook.target, "on_node_end") for hook in hooks),
    )
    session = assemble(
        supervision.agent,
        options,
        run_id=run_id,
        path=path,
        store=store,
        clock=clock,
        ledger=ledger,
        fresh=fresh,
        machine=machine,
        steps=TEAM_STEPS,
    )
    bounds = {**{name: getattr(team, name) for name in TURNS}, **(limits or {})}
    entries = () if fresh else store.entries(run_id)
    told = Told(
        run_id,
        team.name,
        options.user,
        options.context,
        TeamOptions(bounds["max_turns"], bounds["max_handoffs"], team.record_window, team.history_window),
        entries[0].at if entries else clock.now(),
    )
    session.mediator = mediator = TeamLive(team, hooks, told, per_run)
    session.history = TeamHistory(len(options.messages), team.history_window, team.record_window)
    names = tuple(team.table)
    wraps = mediator.wrapping
    session.models = tuple([SupervisorModel(model, names, team.finish_marker, wraps) for model in session.models])
    return session


def begin_team(  # noqa: PLR0913 - the options of a run are its interface
    team: Team,
    task: Any,
    *,
    store: Store | None = None,
    run_id: str | None = None,
    resolver: Any = None,
    interceptors: Any = (),
    watchers: Any = (),
    user: Any = None,
    context: Mapping[str, Any] | None = None,
    deps: Any = None,
    clock: Clock | None = None,
    **limits: Any,
) -> Session:
    """A session with its first entry recorded, ready to be driven."""
    check_resolver(resolver)
    bounds, budget = split_team_limits(team, limits)
    clock = clock or CLOCK
    options = Options(
        task=task,
        interceptors=interceptors,
        governance=team.governance or NO_GOVERNANCE,
        resolver=resolver if resolver is not None else team.resolver,
        user=user,
        context=context,
        deps=deps,
        watchers=(*team.watchers, *check_watchers(watchers)),
    )
    run_id = run_id or new_id()
    session = assemble_team(
        team,
        options,
        run_id=run_id,
        path=(Step(team.name, run_id),),
        store=store or MemoryStore(),
        clock=clock,
        ledger=Ledger(clock, budget),
        limits=bounds,
        fresh=store is None,
    )
    session.live.record("run_started", begun(session))
    return session


async def drive_team(session: Session) -> None:
    """One stint, inside whatever wraps the flow."""
    await flow(session, session.options.watchers)


async def flow(session: Session, watchers: Sequence[Any]) -> None:
    """One stint of a team, which its own tools and interceptors are about meanwhile, or of an agent."""
    if session.mediator is None:
        await stint(session, watchers)
        return
    token = CURRENT.set(session)
    try:
        await _wrapped(session, watchers)
    finally:
        CURRENT.reset(token)


async def _wrapped(session: Session, watchers: Sequence[Any]) -> None:
    """A stint of a team inside its wraps; one that fails, or does not let it go on, ends the run."""
    team: Any = session.mediator
    if not wraps_of(team.wrapping, "flow"):
        await stint(session, watchers)
        return
    begun: list[bool] = []

    async def inner(step: WrappedStep) -> None:
        begun.append(True)
        await stint(session, watchers)

    step = WrappedStep(kind="flow", name=team.team.name, given=session.options.task)
    cause = Cause("stopped", "not_continued", "wrap")
    try:
        await around(team.wrapping, step, inner)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - a wrap is foreign code; what it raises ends the run, typed and recorded
        cause = Cause("failed", by="wrap", error=f"{type(exc).__name__}: {exc}")
        begun.clear()
    if not begun and not session.live.finished and not session.live.crashed:
        session.live.record("cause", cause.json())
        await stint(session, watchers)


async def run_team(team: Team, task: Any, **options: Any) -> RunResult:
    """Run a team to the end in memory.

    Arguments:
        task: text, or typed content parts.
        resolver, interceptors, watchers, user, context, deps, clock: as for an agent.
        **limits: `max_turns`, `max_handoffs`, or fields of Budget.

    Every outcome is returned, `blocked` too. Raises CancelledError if the caller is cancelled.
    """
    session = begin_team(team, task, **options)
    await drive_team(session)
    return result_of(session)


def stream_team(team: Team, task: Any, **options: Any) -> AsyncGenerator[Event]:
    """The events of a team run in memory; a slow reader never holds the run."""
    session = begin_team(team, task, **options)
    return follow_driven(session.live.store, session.live.root, lambda: drive_team(session))
