"""The one place where an agent run is put together: plan, gate, machine, log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lictor.agent.approvals import Approver
from lictor.agent.folded import VERSION, Beside, Folding, beside_after, from_json
from lictor.agent.handlers import STEPS
from lictor.agent.history import Window
from lictor.agent.incremental import Incremental, Stream
from lictor.agent.machine import AgentMachine
from lictor.agent.plan import Plan, gate_for, plan_for
from lictor.agent.points import Points
from lictor.agent.session import Options, Session
from lictor.agent.stint import SOURCED_STEPS, Sources
from lictor.journal import Entry, Store
from lictor.models import ChatModel
from lictor.runs import Ledger, LiveRun, Performer, Step, Usage, User
from lictor.values import Clock

if TYPE_CHECKING:
    from lictor.agent.definition import Agent

__all__ = ["assemble", "used_below"]


def assemble(  # noqa: PLR0913 - the parts of a run
    agent: Agent,
    options: Options,
    *,
    run_id: str,
    path: tuple[Step, ...],
    store: Store,
    clock: Clock,
    ledger: Ledger,
    fresh: bool = False,
    machine: AgentMachine | None = None,
    steps: Mapping[str, Performer] | None = None,
) -> Session:
    """Everything one run needs while it is driven; a log that is there already is refolded (never if `fresh`).

    `machine` and `steps` stand in for the agent's, where there is another machine around its own.
    """
    plan = plan_for(agent, options.scopes, options.interceptors, options.governance)
    if agent.sources:
        plan = plan.own()
    machine = machine or AgentMachine(history=options.messages, numbered=options.numbered, positions=options.positions)
    live: LiveRun[Any] = LiveRun(run_id=run_id, path=path, store=store, clock=clock, ledger=ledger, machine=machine)
    gate = plan.gate if options.governance.record_sink is None else gate_for(plan.order, options.governance)
    builder = plan.builder.for_session(run_id, clock)
    session = Session(
        agent=agent,
        live=live,
        options=options,
        plan=plan,
        points=Points(gate, builder, live, _about(options, path), options.resolver),
        max_steps=agent.max_steps if options.max_steps is None else options.max_steps,
        approver=None if options.docket is None else _approver(agent, options, live, plan),
        builder=builder,
        steps=steps or (SOURCED_STEPS if agent.sources else STEPS),
        sources=Sources(agent.sources) if agent.sources else None,
        models=agent.models if options.models is None else _models(agent, options),
        tools=plan.tools,
        output=plan.output,
        monotonic=time.monotonic if type(clock) is Clock else clock.monotonic,
        posture=options.governance.posture,
        store_each_call=options.history == "call",
        history=agent.history or (None if agent.history_window is None else Window()),
    )
    if agent.stream_mode != "buffered":
        how = agent.stream_mode
        session.stream = Stream(session, how if isinstance(how, Incremental) else Incremental())
        session.models = session.stream.mediate(session.models)
    if not fresh:
        gate.forget(run_id)
        _refold(session, root=path[0] is path[-1])
    elif options.labels:
        session.remember(())
    if store.durable and path[0] is path[-1] and session.folding is None:
        session.folding = Folding(run_id, Beside(labels=options.labels or {}), {})
    return session


def _refold(session: Session, root: bool) -> None:
    """Bring a session to where its log ends: from the last snapshot on if there is one, else from the start."""
    live, options = session.live, session.options
    kept = live.store.snapshot(live.run_id) if root else None
    known = None if kept is None or kept.version != VERSION else from_json(live.machine, kept.body)
    if kept is None or known is None:
        state, beside, after, cursor = None, Beside(labels=options.labels or {}), -1, 0
    else:
        state, beside = known
        after, cursor = kept.seq, kept.cursor
    entries = live.store.entries(live.run_id, after)
    if not entries and state is None:
        if options.labels:
            session.remember(())
        return
    live.refold(entries, state)
    beside = _with_all(live, beside, entries, cursor, root)
    session.builder.sequence = beside.sequence
    live.ledger.restore(beside.usage)
    live.ledger.started, live.ledger.children = beside.started, beside.children
    session.remember(entries, None if state is None else beside.labels)
    if live.store.durable and root:
        read = {run_id: log.size for run_id, log in live.store.appended(live.run_id).items()}
        session.folding = Folding(live.run_id, beside, read)


def _with_all(live: LiveRun[Any], beside: Beside, entries: Sequence[Entry], cursor: int, root: bool) -> Beside:
    """What was used by this run and those below it before this process drove them, added to what is known of it."""
    beside = beside_after(beside, entries, own=True)
    if not root:
        for run_id in _children(entries):
            beside = _with_child(live.store, beside, run_id)
    elif live.store.cursor(live.root) != cursor + len(entries):  # there are others
        others = [item.entry for item in live.store.root_entries(live.root, cursor) if item.run_id != live.root]
        beside = beside_after(beside, others, own=False)
    return beside


def _with_child(store: Store, beside: Beside, run_id: str) -> Beside:
    entries = store.entries(run_id)
    beside = beside_after(beside, entries, own=False)
    for each in _children(entries):
        beside = _with_child(store, beside, each)
    return beside


def _children(entries: Sequence[Entry]) -> list[str]:
    """The runs that these entries started, each once."""
    started = [entry.payload.get("child") for entry in entries if entry.kind in ("tool_started", "member_started")]
    return list(dict.fromkeys([run_id for run_id in started if run_id is not None]))


def used_below(store: Store, run_id: str) -> Usage:
    """What a run and those below it used, by their logs."""
    return _with_child(store, Beside(labels={}), run_id).usage


def _models(agent: Agent, options: Options) -> tuple[ChatModel, ...]:
    """The model and its fallbacks, or the one that the Runtime puts in their place."""
    instead = options.models.get(agent.name) if options.models else None
    return agent.models if instead is None else (instead,)


def _about(options: Options, path: tuple[Step, ...]) -> dict[str, Any]:
    """`extensions.lictor` of every context of the run; `purpose` is what its model requests are for."""
    about: dict[str, Any] = {"root": path[0].run_id, "parent": None, "path": [path[0].name], "purpose": "agent"}
    if path[0] is not path[-1]:
        about.update(parent=path[-2].run_id, path=[step.name for step in path])
    if options.conversation is not None:
        about["conversation"] = options.conversation
    if options.context is not None:
        about["context"] = options.context
    user = options.user
    if user is not None:
        about["user"] = {"id": user.id, "attributes": dict(user.attributes)} if isinstance(user, User) else {"id": user}
    return about


def _approver(agent: Agent, options: Options, live: LiveRun[Any], plan: Plan) -> Approver | None:
    """Approvals go to the docket unless the caller gave a resolver that decides in place."""
    if options.resolver is not None or options.governance.resolver is not None:
        return None
    user: Any = options.user
    return Approver(
        docket=options.docket,
        live=live,
        requester=agent.name,
        policy=plan.policy,
        conversation=options.conversation or live.root,
        user=user.id if isinstance(user, User) else user,
        deadline=options.approval_deadline,
    )
