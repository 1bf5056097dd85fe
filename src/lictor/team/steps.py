"""What carries out the commands of a team run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from lictor import faults
from lictor.agent import STEPS, Session, drop_held, safe_value
from lictor.errors import RunAborted, StoreError
from lictor.hooks import Verdict
from lictor.runs import DONE, TERMINAL, Cause, Command, Performer
from lictor.team.live import TeamLive
from lictor.team.members import Worked, broken_off, shown, work
from lictor.team.moments import Ruled, judge, park
from lictor.team.route import Finish, Go, Unroutable
from lictor.team.state import NEW, Task, TeamState
from lictor.team.trace import MemberResult
from lictor.team.wrapping import WrappedStep, around, wraps_of
from lictor.values import digest, new_id

__all__ = ["TEAM_STEPS"]

SUPERVISOR = "supervisor"
ENDS = TERMINAL | {"skipped"}


def _team(session: Session) -> TeamLive:
    return cast(TeamLive, session.mediator)


def _state(session: Session) -> TeamState:
    state: TeamState = session.live.state.extra
    return state


# ---- the team ---------------------------------------------------------------------------------


async def start_step(session: Session, command: Command) -> bool:
    """`on_team_start`: "no" blocks the run."""
    ruled = await judge(session, _team(session), "on_team_start", command.key)
    if ruled.request is not None:
        return park(session, command.key, "on_team_start", ruled)
    if not ruled.proceeds:
        return session.end(ruled.cause("blocked"))
    session.live.record("team_opened", {})
    return DONE


async def shutdown_step(session: Session, command: Command) -> bool:
    """`agent_shutdown`; from here on the outcome stands. Whoever wants to know is told after it."""
    live = session.live
    cause = live.state.cause
    status = "completed" if cause is None or live.state.answered else cause.status
    reason = status if status in ("completed", "cancelled") else "error"
    await session.points.emit(session.builder.agent_shutdown, reason)
    if session.approver is not None:
        session.approver.docket.withdraw(live.run_id)
        drop_held(session)
    live.record("settled", {"status": status})
    return DONE


async def end_step(session: Session, command: Command) -> bool:
    """`on_team_end` after success, it may ask somebody first; then `on_team_finished`. Neither changes the outcome."""
    live, team = session.live, _team(session)
    cause = live.state.cause or Cause("completed")
    if live.state.answered:
        cause = Cause("completed")
    if team.asked("on_team_end") or team.asked("on_team_finished"):
        await live.store.barrier(live.root)
    if live.state.answered and not _state(session).hurried:
        ruled = await judge(session, team, "on_team_end", command.key)
        if ruled.request is not None and not _state(session).hurried:
            return park(session, command.key, "on_team_end", ruled)
    if session.approver is not None:
        session.approver.docket.withdraw(live.run_id)
    outcome = {"status": cause.status, "reason": cause.reason, "by": cause.by, "run_id": live.run_id}
    await judge(session, team, "on_team_finished", command.key, outcome, asks=False)
    payload: Mapping[str, Any] = {**cause.json(), "usage": live.ledger.usage.json()}
    live.record("run_finished", payload)
    return DONE


# ---- the supervisor ---------------------------------------------------------------------------


async def admit_step(session: Session, command: Command) -> bool:
    """Node start, `should_supervisor_continue`, then the limits (in this order: seed 000)."""
    team = _team(session)
    for moment, about in (("on_node_start", (SUPERVISOR,)), ("should_supervisor_continue", ())):
        shown = {"turn": _state(session).turn, "last": _state(session).last}
        ruled = await judge(session, team, moment, command.key, *about, shown=shown)
        if ruled.request is not None:
            return park(session, command.key, moment, ruled)
        if not ruled.proceeds and (moment == "should_supervisor_continue" or _stops(ruled.verdict)):
            return _intercepted(session, ruled.cause("stopped"), ruled.verdict.message)
    over = _over(session)
    if over is not None:
        return _intercepted(session, over)
    session.live.record("admitted", {"turn": _state(session).turn})
    return DONE


async def node_end_step(session: Session, command: Command) -> bool:
    """The supervisor's step is over, its route is taken; nothing is undone, it may only suspend or stop here."""
    ruled = await judge(session, _team(session), "on_node_end", command.key, SUPERVISOR)
    if ruled.request is not None:
        return park(session, command.key, "on_node_end", ruled)
    cause = ruled.cause("stopped") if _stops(ruled.verdict) else None
    return session.record_end("node_ended", {"turn": _state(session).turn}, cause)


def _intercepted(session: Session, cause: Cause, message: str | None = None) -> bool:
    """No further turn: recorded together with the end of the run, so that no crash parts the two."""
    told = f" ({message})" if message else ""
    record = {"source": SUPERVISOR, "kind": "skip", "content": f"[Skipped] Intercepted by {cause.by}{told}"}
    return session.record_end("record", record, cause)


def _over(session: Session, more: int = 0, handoff: bool = False) -> Cause | None:
    """Why no further turn (or hand-off) may begin, after `more` that are about to."""
    team, state, ledger = _team(session), _state(session), session.live.ledger
    options, turn, handoffs = team.told.options, state.turn + more, state.handoffs + more
    if turn >= options.max_turns:
        return Cause("exhausted", "max_turns", "limit:max_turns")
    if handoff and handoffs >= options.max_handoffs:
        return Cause("exhausted", "max_handoffs", "limit:max_handoffs")
    refused = ledger.refuses_turn(turn, handoffs if handoff else None)
    return None if refused is None else Cause("exhausted", refused, f"limit:{refused}")


async def give_up_step(session: Session, command: Command) -> bool:
    """The last decision that was asked for again was not accepted either."""
    return session.end(Cause("failed", "decision_denied"))


# ---- the protocol -----------------------------------------------------------------------------


async def route_step(session: Session, command: Command) -> bool:
    """The protocol chose members: each is charged as a turn, and either all of them may work or none."""
    move: Go = command.args
    for place in range(len(move.members)):
        over = _over(session, place, move.handoff)
        if over is not None:
            return _intercepted(session, over)
    payload = {"members": list(move.members), "instruction": move.instruction, "handoff": move.handoff}
    session.live.record("chosen", payload)
    return DONE


async def answer_step(session: Session, command: Command) -> bool:
    """The protocol has an answer; `output` judges it."""
    move: Finish = command.args
    session.live.record("answered", {"answer": move.answer})
    return DONE


async def unroutable_step(session: Session, command: Command) -> bool:
    """Nobody is next and there is no answer."""
    move: Unroutable = command.args
    outcomes = _state(session).outcomes
    again = bool(outcomes) and outcomes[-1].resumable
    return session.end(Cause("failed", move.reason, move.by, error=move.error, resumable=again))


# ---- members ----------------------------------------------------------------------------------


async def _admitted(session: Session, command: Command, task: Task) -> bool | None:
    """Node start and `should_agent_continue`; "no" skips the member. None when it may work, else what the step is."""
    live, team = session.live, _team(session)
    member = team.team.table[task.member]
    shown = {"member": task.member, "instruction": task.instruction}
    ruled = await judge(session, team, "on_node_start", command.key, task.member, shown=shown)
    if ruled.request is not None:
        return park(session, command.key, "on_node_start", ruled)
    if not ruled.proceeds and _stops(ruled.verdict):
        return _skip(session, task, ruled)
    ruled = await judge(session, team, "should_agent_continue", command.key, member, shown=shown)
    if ruled.request is not None:
        return park(session, command.key, "should_agent_continue", ruled)
    if not ruled.proceeds:
        return _skip(session, task, ruled)
    if live.state.cause is not None:  # the run ended meanwhile
        return DONE
    payload: dict[str, Any] = {"task": task.id, "member": task.member, "call": task.call, "child": new_id()}
    faults.reach("effect.before")
    team.unborn.add(payload["child"])
    live.record("member_started", payload)
    return None


def _skip(session: Session, task: Task, ruled: Ruled) -> bool:
    if session.live.state.cause is not None:  # the run ended meanwhile
        return DONE
    verdict = ruled.verdict
    told = f": {verdict.message}" if verdict.message else ""
    record = {"source": task.member, "kind": "skip", "content": f"[Skipped] Cancelled by {ruled.by}{told}"}
    payload = {"task": task.id, "member": task.member, "reason": verdict.reason, "by": ruled.by, "record": record}
    if verdict.message:
        payload["message"] = verdict.message
    cause: Cause | None = None
    if ruled.stops:
        cause = ruled.cause("stopped")
    elif _state(session).skips + 1 >= max(1, _team(session).team.retries):
        cause = Cause("stopped", verdict.reason, ruled.by)
    return session.record_end("skipped", payload, cause)


async def member_step(session: Session, command: Command) -> bool:
    """The member is admitted and works. A cancellation is recorded as its result, then goes on."""
    team = _team(session)
    task = _state(session).task(command.args)
    if task.status == NEW:
        refused = await _admitted(session, command, task)
        if refused is not None:
            return refused
        task = _state(session).task(command.args)
    over = team.working[task.id] = asyncio.Event()
    try:
        return await _at_work(session, team, task)
    finally:
        del team.working[task.id]
        over.set()


async def ending_step(session: Session, command: Command) -> bool:
    """A member has to end with the team: whoever drives it is cancelled, and if that is nobody it is done here."""
    over = _team(session).working.get(command.args)
    if over is not None:
        await over.wait()
        return DONE
    return await member_step(session, command)


async def _at_work(session: Session, team: TeamLive, task: Task) -> bool:
    live = session.live
    begun = session.monotonic()
    stopped: asyncio.CancelledError | None = None
    aborted: Cause | None = None
    try:
        worked = await _wrapped(session, team, task)
    except asyncio.CancelledError as exc:
        if live.crashed:
            raise
        stopped, worked = exc, broken_off(session, team, task)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - a wrap is foreign code; what it raises is how the work ended
        worked = Worked(value={"status": "failed", "error": f"{type(exc).__name__}: {exc}"})
        aborted = Cause("failed", error=str(exc)) if isinstance(exc, RunAborted) else None
    if worked is None:
        live.record("member_parked", {"task": task.id, "member": task.member})
        return DONE
    faults.reach("effect.after")
    _finished(session, task, worked, session.monotonic() - begun, aborted)
    if stopped is not None:
        raise stopped
    return DONE


async def _wrapped(session: Session, team: TeamLive, task: Task) -> Worked | None:
    if not wraps_of(team.wrapping, "tool"):
        return await work(session, team, task)
    found: list[Worked | None] = []

    async def inner(step: WrappedStep) -> Any:
        found.append(await work(session, team, task))
        return None if found[-1] is None else found[-1].value

    value = await around(team.wrapping, WrappedStep(kind="tool", name=task.member, given=task.instruction), inner)
    worked = found[-1] if found else Worked(value={})
    if worked is None or value is worked.value:
        return worked
    value = safe_value(value)[0]
    if not isinstance(value, dict) or value.get("status") not in ENDS:  # what it is worth, not how it ended
        value = {"status": "completed", "answer": value}
    return Worked(value=value, usage=worked.usage, tools=worked.tools)


def _finished(session: Session, task: Task, worked: Worked, seconds: float, cause: Cause | None) -> None:
    value, usage = worked.value, worked.usage
    content = shown(value)
    record = {
        "source": task.member,
        "kind": "output" if value["status"] == "completed" else "error",
        "content": content,
        "duration": round(seconds, 6),
        "tokens": usage.total_tokens,
        "run": task.child,
        "digest": digest(content),
        "tools": list(worked.tools),
    }
    payload: dict[str, Any] = {"task": task.id, "member": task.member, "value": dict(value), "usage": usage.json()}
    payload["record"] = record
    if worked.positions:
        payload["positions"] = dict(worked.positions)
    if worked.resumable:
        payload["resumable"] = True
    session.record_end("member_finished", payload, cause)


async def member_end_step(session: Session, command: Command) -> bool:
    """`on_agent_end` and node end: recorded, they undo nothing; they may suspend before the next step."""
    team = _team(session)
    task = _state(session).task(command.args)
    member = team.team.table[task.member]
    result = _result(_state(session), task)
    for moment, about in (("on_agent_end", (member, result)), ("on_node_end", (task.member,))):
        ruled = await judge(
            session, team, moment, command.key, *about, shown={"member": task.member, **(task.value or {})}
        )
        if ruled.request is not None:
            return park(session, command.key, moment, ruled)
        if not ruled.proceeds and _stops(ruled.verdict):
            cause = ruled.cause("stopped")
            return session.record_end("member_ended", {"task": task.id, "member": task.member}, cause)
    session.live.record("member_ended", {"task": task.id, "member": task.member})
    return DONE


def _stops(verdict: Verdict) -> bool:
    """A stop, of either scope, starts no further member (05-api)."""
    return verdict.control == "stop"


def _result(state: TeamState, task: Task) -> MemberResult:
    value = task.value or {}
    record = next((each for each in reversed(state.records) if each.run_id == task.child and each.is_agent), None)
    return MemberResult(
        member=task.member,
        status=value.get("status", "failed"),
        answer=value.get("answer"),
        reason=value.get("reason"),
        partial=value.get("partial"),
        duration=0.0 if record is None else record.duration,
        tokens=0 if record is None else record.tokens,
        run_id=task.child,
    )


# ---- all of them ------------------------------------------------------------------------------


TEAM_STEPS: Mapping[str, Performer] = {
    **STEPS,
    "team_start": start_step,
    "admit": admit_step,
    "node_end": node_end_step,
    "route": route_step,
    "answer": answer_step,
    "unroutable": unroutable_step,
    "give_up": give_up_step,
    "member": member_step,
    "member_ending": ending_step,
    "member_end": member_end_step,
    "shutdown": shutdown_step,
    "team_end": end_step,
}
