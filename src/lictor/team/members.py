"""A member's work: a run below the team's, in the same stint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lictor.agent import SOURCED_STEPS, STEPS, Agent, Session, assemble, cut, outcome_value, safe_value, used_below
from lictor.journal import Entry
from lictor.runs import NO_USAGE, Cause, Command, Ledger, Performer, Step, Usage
from lictor.team.definition import Team
from lictor.team.live import TeamLive, handed
from lictor.team.state import Outcome, Task, TeamState
from lictor.team.trace import formatted
from lictor.values import digest

__all__ = ["Worked", "broken_off", "input_of", "work"]

MOST_SHOWN = 20_000  # bytes of a result that a record keeps; the whole is in the member's own log


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a member came to: the value for the supervisor, usage, and (tool, arguments, result) digests; `resumable`
    says that it failed in a way that may pass."""

    value: Mapping[str, Any]
    usage: Usage = NO_USAGE
    tools: Sequence[Sequence[str]] = ()
    resumable: bool = False
    positions: Mapping[str, int] = field(default_factory=dict)


async def work(session: Session, team: TeamLive, task: Task) -> Worked | None:
    """Run a member, or go on with it; None while it waits for somebody."""
    member = team.team.supervision.member(task.member)
    live = session.live
    if not isinstance(member, Agent | Team):
        if live.state.cause is not None:  # whoever drove it is gone, and nobody wants its work any more
            return Worked(value={"status": "cancelled", "reason": "cancelled"})
        return await _plain(session, member, task)
    child_id = task.child or ""
    fresh = child_id in team.unborn or not live.store.entries(child_id)
    team.unborn.discard(child_id)
    if fresh:
        refused = _refusal(session)
        if refused is not None:
            return Worked(value={"status": "failed", "reason": refused})
    child = child_of(session, team, member, task, fresh)
    if fresh:
        live.ledger.root.children += 1
        child.live.record("run_started", begun(child))
    if live.state.cause is not None and not child.live.finished:
        child.live.record("cause", Cause("cancelled", by="parent").json())
    child.live.join(live)
    team.children[child.live.run_id] = child
    try:
        await _driven(child, member)
    finally:
        del team.children[child.live.run_id]
    if not child.live.finished:
        return None
    return _worked(child)


async def _driven(child: Session, member: Any) -> None:
    from lictor.team.running import flow

    await flow(child, member.watchers)


def _refusal(session: Session) -> str | None:
    if len(session.live.path) > session.agent.max_depth:
        return "max_depth"
    return "max_children" if session.live.ledger.root.children >= session.agent.max_children else None


def broken_off(session: Session, team: TeamLive, task: Task) -> Worked:
    """What a member came to that was cancelled, maybe just after its end; what it had used is counted."""
    value = {"status": "cancelled", "reason": "cancelled"}
    entries = session.live.store.entries(task.child or "")
    if task.child is None or not entries:
        return Worked(value=value)
    if entries[-1].kind == "run_finished":
        return _worked(child_of(session, team, team.team.supervision.member(task.member), task))
    return Worked(value=value, usage=used_below(session.live.store, task.child))


async def _plain(session: Session, member: Any, task: Task) -> Worked:
    """A member without a run of its own; what it raises is its failure."""
    try:
        answer = safe_value(await member.work(input_of(session, task)))[0]
    except Exception as exc:  # noqa: BLE001 - a member is foreign code; whatever it raises is its result
        return Worked(value={"status": "failed", "error": f"{type(exc).__name__}: {exc}"})
    return Worked(value={"status": "completed", "answer": answer})


def child_of(session: Session, team: TeamLive, member: Any, task: Task, fresh: bool = False) -> Session:
    """The run of a member, refolded unless it is `fresh`."""
    live, options = session.live, session.options
    run_id = task.child or ""
    below = replace(
        options,
        task=input_of(session, task),
        interceptors=team.per_run,
        max_steps=None,
        messages=(),
        numbered=0,
        positions=_positions(session, member, task, fresh),
        labels=None,
    )
    path = (*live.path, Step(task.member, run_id, task.call))
    share = live.ledger.budget.per_member
    account = live.ledger if share is None else team.account(session, task.member, share)
    ledger = Ledger(live.clock, member.budget, parent=account)
    if isinstance(member, Team):
        from lictor.team.running import assemble_team

        return assemble_team(
            member, below, run_id=run_id, path=path, store=live.store, clock=live.clock, ledger=ledger, fresh=fresh
        )
    steps = None
    if team.team.route.name == "handoff":
        steps = {**(SOURCED_STEPS if member.sources else STEPS)}
        steps["model"] = _unless_handed(steps["model"])
    return assemble(
        member,
        below,
        run_id=run_id,
        path=path,
        store=live.store,
        clock=live.clock,
        ledger=ledger,
        steps=steps,
        fresh=fresh,
    )


def _positions(session: Session, member: Any, task: Task, fresh: bool) -> Mapping[str, int]:
    """The responses that a member took from each model before it was given this task, over the conversation."""
    entries = () if fresh else session.live.store.entries(task.child or "")
    if entries:
        kept: Mapping[str, int] = entries[0].payload.get("positions") or {}
        return kept
    below = f"{member.name}>"
    return {key.removeprefix(below): count for key, count in task.taken.items() if key.startswith(below)}


def _taken(child: Session) -> dict[str, int]:
    """Those it took in this run, as the team counts them."""
    counts = Counter(child.live.state.positions) - Counter(child.options.positions or {})
    return {f"{child.agent.name}>{model}": count for model, count in counts.items()}


def _unless_handed(model: Performer) -> Performer:
    """After a transfer the member is not asked again: its own work ends there."""

    async def step(session: Session, command: Command) -> bool:
        if handed(session) is not None:
            return session.end(Cause("stopped", "handoff", session.agent.name))
        return await model(session, command)

    return step


def begun(child: Session) -> dict[str, Any]:
    """The first entry of a run."""
    path = [list(step) for step in child.live.path]
    team: Any = child.mediator
    told: dict[str, Any] = {"path": path}
    if child.options.positions and len(path) > 1:
        told["positions"] = child.options.positions
    if team is None:
        return {"agent": child.agent.name, **told}
    user = getattr(team.told.user, "id", team.told.user)
    members, protocol = list(team.team.table), team.team.route.name
    told |= {"options": list(team.told.options), "members": members, "protocol": protocol, "user": user}
    return {"team": team.team.name, **told}


def _worked(child: Session) -> Worked:
    entries = child.live.store.entries(child.live.run_id)
    value = outcome_value(child)
    made = handed(child)
    if made is not None and value["status"] == "stopped" and value["reason"] == "handoff":
        value = {"status": "completed", "answer": "", "to": made["to"], "note": made["note"]}
    cause = child.live.state.cause
    again = cause is not None and cause.resumable and not child.live.state.answered
    return Worked(
        value=value,
        usage=child.live.ledger.usage,
        tools=_tools(entries),
        resumable=again,
        positions=_taken(child),
    )


def _tools(entries: Sequence[Entry]) -> list[list[str]]:
    """What the member called, as digests: (tool, arguments, result)."""
    started: dict[str, tuple[str, str]] = {}
    found: list[list[str]] = []
    for entry in entries:
        payload = entry.payload
        if entry.kind == "tool_started":
            started[payload["call"]] = (payload["tool"], digest(payload["arguments"]))
        elif entry.kind == "tool_finished" and payload["call"] in started:
            found.append([*started[payload["call"]], digest(payload["content"])])
    return found


def input_of(session: Session, task: Task) -> str:
    """What a member is asked: the task, the work so far, and its own part. Never a sender's whole output."""
    team: TeamState = session.live.state.extra
    live: Any = session.mediator
    machine: Any = session.live.machine
    view = machine.view(session.live.state)
    parts = [view.task]
    if live.team.route.name == "handoff":
        sender, note = _sender(team.outcomes, task), task.instruction
        if note:
            parts.append(f"Note from {sender}: {note}" if sender else note)
        return "\n\n".join(parts)
    done = formatted(team.records[: task.known], live.team.record_window)
    if done:
        parts.append(f"Work so far:\n\n{done}")
    if task.instruction:
        parts.append(f"Your part: {task.instruction}")
    return "\n\n".join(parts)


def _sender(outcomes: Sequence[Outcome], task: Task) -> str | None:
    """Who transferred the work to this member; nobody, if the last transfer went nowhere."""
    last = outcomes[-1] if outcomes else None
    return last.member if last is not None and last.to == task.member else None


def shown(value: Mapping[str, Any]) -> str:
    """What a record shows of a result."""
    answer = value.get("answer")
    if value["status"] == "completed" and value.get("to"):
        return f"transferred to {value['to']}: {value.get('note', '')}"
    if value["status"] == "completed":
        return cut(answer if isinstance(answer, str) else str(answer))
    return f"[{value['status']}] {value.get('error') or value.get('reason') or ''}".strip()
