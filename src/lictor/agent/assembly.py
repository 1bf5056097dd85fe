"""The one place where an agent run is put together: plan, gate, machine, log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from lictor.agent.approvals import Approver
from lictor.agent.definition import Agent
from lictor.agent.handlers import STEPS
from lictor.agent.history import Window
from lictor.agent.incremental import Incremental, Stream
from lictor.agent.machine import AgentMachine
from lictor.agent.plan import Plan, gate_for, plan_for
from lictor.agent.points import Points
from lictor.agent.session import Options, Session
from lictor.agent.stint import SOURCED_STEPS, Sources
from lictor.journal import Entry, Positioned, Store
from lictor.models import ChatModel
from lictor.runs import Ledger, LiveRun, Performer, Step, Usage, User
from lictor.values import Clock

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
    entries = () if fresh else store.entries(run_id)
    if not fresh:
        gate.forget(run_id)
    if entries:
        live.refold()
        verdicts = [entry.payload["record"]["sequence"] for entry in entries if entry.kind == "verdict"]
        builder.sequence = max(verdicts, default=-1) + 1
        _restore(ledger, store, path)
    if entries or options.labels:
        session.remember(entries)
    return session


def _restore(ledger: Ledger, store: Store, path: tuple[Step, ...]) -> None:
    """Book what this run and those below it used before this process drove them."""
    run_id = path[-1].run_id
    entries = store.root_entries(path[0].run_id)
    starts = {item.run_id: item.entry for item in entries if item.entry.kind == "run_started"}
    ledger.started = starts[run_id].at
    ledger.children = len(_below(starts, run_id)) - 1
    ledger.restore(used_below(entries, run_id))


def _below(starts: Mapping[str, Entry], run_id: str) -> set[str]:
    return {name for name, entry in starts.items() if any(step[1] == run_id for step in entry.payload["path"])}


def used_below(entries: Sequence[Positioned], run_id: str) -> Usage:
    """What a run and those below it used, by the log of their root."""
    starts = {item.run_id: item.entry for item in entries if item.entry.kind == "run_started"}
    below, used = _below(starts, run_id), Usage()
    for item in entries:
        kind, payload = item.entry.kind, item.entry.payload
        if item.run_id in below and kind in ("model_finished", "model_retry"):
            used = used + Usage.of(payload.get("usage"))
        elif item.run_id in below and kind == "tool_started":
            used = used + Usage(tool_calls=1)
    return used


def _models(agent: Agent, options: Options) -> tuple[ChatModel, ...]:
    """The model and its fallbacks, or the one that the Runtime puts in their place."""
    instead = options.models.get(agent.name) if options.models else None
    return agent.models if instead is None else (instead,)


def _about(options: Options, path: tuple[Step, ...]) -> dict[str, Any]:
    """`extensions.lictor` of every context of the run."""
    about: dict[str, Any] = {"root": path[0].run_id, "parent": None, "path": [path[0].name]}
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
