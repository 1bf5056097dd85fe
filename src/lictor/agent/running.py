"""Running an agent in memory: `Agent.run` and `Agent.stream`, and the result of any agent run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from lictor.agent.assembly import assemble
from lictor.agent.children import final_text
from lictor.agent.session import NO_GOVERNANCE, Options, Session
from lictor.agent.stint import stint
from lictor.agent.trace import trace_of
from lictor.errors import DefinitionError, InterceptionBlocked
from lictor.journal import MemoryStore, Store
from lictor.runs import Budget, Event, Ledger, RunResult, Step, Usage, check_watchers, drive, follow_driven
from lictor.values import Clock, new_id

if TYPE_CHECKING:
    from lictor.agent.definition import Agent

__all__ = ["begin", "check_resolver", "result_of", "run_agent", "split_limits", "stream_agent"]


class Budgeted(Protocol):
    """What has a budget of its own: an agent, a team."""

    @property
    def budget(self) -> Budget | None: ...


BUDGET_FIELDS = frozenset(item.name for item in fields(Budget) if item.init and item.name != "per_member")
CLOCK = Clock()


def split_limits(agent: Budgeted, limits: Mapping[str, Any]) -> tuple[int | None, Budget | None]:
    """`**limits` of a run: `max_steps`, and fields of Budget that take the place of the agent's.

    Raises DefinitionError for a name that is no limit, or a limit that is no number.
    """
    unknown = set(limits) - BUDGET_FIELDS - {"max_steps"}
    if unknown:
        known = ", ".join(sorted((*BUDGET_FIELDS, "max_steps")))
        raise DefinitionError(f"{', '.join(sorted(unknown))}: no such option or limit; the limits are {known}")
    steps = limits.get("max_steps", 0)
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 0):
        raise DefinitionError(f"max_steps={steps!r}; give a whole number >= 0")
    own = {name: value for name, value in limits.items() if name in BUDGET_FIELDS}
    if not own:
        return limits.get("max_steps"), agent.budget
    base = agent.budget or Budget()
    merged = {name: own.get(name, getattr(base, name)) for name in BUDGET_FIELDS}
    return limits.get("max_steps"), Budget(**merged, per_member=base.per_member)


def check_resolver(resolver: Any) -> None:
    """Raise DefinitionError for what cannot resolve; None is nobody."""
    if resolver is not None and not callable(getattr(resolver, "resolve", resolver)):
        raise DefinitionError(f"resolver={resolver!r}; give a function of the request, or an object with resolve")


def begin(  # noqa: PLR0913 - the options of a run are its interface
    agent: Agent,
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
    history: str = "run",
    clock: Clock | None = None,
    **limits: Any,
) -> Session:
    """A session with its first entry recorded, ready to be driven."""
    if history not in ("run", "call"):
        raise DefinitionError(f"history={history!r}: use 'run' (store after output) or 'call' (after each model call)")
    check_resolver(resolver)
    max_steps, budget = split_limits(agent, limits) if limits else (None, agent.budget)
    clock = clock or CLOCK
    options = Options(
        task=task,
        interceptors=interceptors,
        governance=agent.governance or NO_GOVERNANCE,
        resolver=resolver if resolver is not None else agent.resolver,
        user=user,
        context=context,
        deps=deps,
        history=history,
        max_steps=max_steps,
        watchers=(*agent.watchers, *check_watchers(watchers)) if agent.watchers or watchers else (),
    )
    run_id = run_id or new_id()
    session = assemble(
        agent,
        options,
        run_id=run_id,
        path=(Step(agent.name, run_id),),
        store=store or MemoryStore(),
        clock=clock,
        ledger=Ledger(clock, budget),
        fresh=store is None,
    )
    session.live.record("run_started", {"agent": agent.name, "path": [[agent.name, run_id, None]]})
    return session


async def run_agent(agent: Agent, task: Any, **options: Any) -> RunResult:
    """Run to the end in memory.

    Arguments:
        task: text, or typed content parts.
        resolver: decides liftable denies in place: `resolve(request)` or a callable (§9). Without one
            they stand.
        interceptors: policies for this run only.
        user: a User or a name; context: JSON that tools and policies see; deps: any object for tools.
        history: `run` stores an answer after `output`, `call` after each `post_model_call`.
        clock: the time.
        **limits: `max_steps`, or fields of Budget.

    Raises InterceptionBlocked for `blocked`; CancelledError if the caller is cancelled.
    """
    session = begin(agent, task, **options)
    if session.options.watchers or session.sources is not None:
        await stint(session, session.options.watchers)
    else:
        await drive(session)
    result = result_of(session)
    if result.status == "blocked" and session.blocked_by is not None:
        raise InterceptionBlocked(session.blocked_by, result)
    return result


def stream_agent(agent: Agent, task: Any, **options: Any) -> AsyncIterator[Event]:
    """The events of a run in memory; nothing before its verdict. A slow reader never holds the run."""
    session = begin(agent, task, **options)
    live, watchers = session.live, session.options.watchers

    def driven() -> Awaitable[None]:
        return stint(session, watchers) if watchers or session.sources is not None else drive(session)

    return follow_driven(live.store, live.root, driven)


def result_of(session: Session, requests: tuple[Any, ...] = (), refusals: tuple[Any, ...] = ()) -> RunResult:
    """The outcome of a run, or where it waits, from its folded state."""
    live = session.live
    state = live.state
    entries = live.store.entries(live.run_id)
    status, answer = "suspended", None
    reason = by = error = None
    resumable = False
    if state.finished:
        status = "completed"
        if state.cause is not None and not state.answered:
            status, reason, by, error = state.cause.status, state.cause.reason, state.cause.by, state.cause.error
            resumable = state.cause.resumable
        else:
            answer = final_text(state)
            answer = answer if session.output is None else session.output.value(answer)
    usage: Usage = live.ledger.usage
    return RunResult(
        status=status,  # type: ignore[arg-type]
        answer=answer,
        reason=reason,
        by=by,
        error=error,
        requests=requests,
        usage=usage,
        records=tuple([entry.payload["record"] for entry in entries if entry.kind == "verdict"]),
        refusals=refusals,
        lost_records=session.points.gate.lost_records,
        resumable=resumable,
        run_id=live.run_id,
        trace=Trace(live.run_id, entries, session.options.messages)
        if session.mediator is None
        else session.mediator.trace(session),
    )


class Trace:
    """The trace of a result, folded when it is first looked at."""

    __slots__ = ("_entries", "_history", "_run_id", "_trace")

    def __init__(self, run_id: str, entries: Any, history: Any) -> None:
        self._run_id = run_id
        self._entries = entries
        self._history = history
        self._trace: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._trace is None:
            self._trace = trace_of(self._run_id, self._entries, self._history)
        return getattr(self._trace, name)

    def __repr__(self) -> str:
        return f"<trace of run {self._run_id}>"
