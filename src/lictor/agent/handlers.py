"""The commands of an agent run and what carries each of them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lictor.agent.modelstep import blocked, drop_held, model_step, output_step
from lictor.agent.session import Session
from lictor.agent.toolstep import ask_step, close_step, judge_step, refuse_step, release_step, run_step
from lictor.runs import DONE, Cause, Command, Performer
from lictor.values import freeze, frozen_texts

__all__ = ["STEPS"]

INPUT = Command("input", "input")
COMPLETED = Cause("completed")
ENDED = COMPLETED.json()
REASONS = {"completed": "completed", "cancelled": "cancelled"}


async def startup_step(session: Session, command: Command) -> bool:
    """`agent_startup`, once in the life of a run (§3, §6.1a)."""
    resolver = session.resolver("step", command.key) if session.approver is not None else None
    emission = await session.points.emit(session.builder.agent_startup, session.plan.names, resolver=resolver)
    if not emission.proceeds:
        return blocked(session, command, emission, resolver)
    if session.live.state.phase == "new":
        return await input_step(session, INPUT, opening=True)
    session.live.record("session_opened", {})
    return DONE


async def input_step(session: Session, command: Command, opening: bool = False) -> bool:
    """`input`: the task, as the verdict leaves it. Right after the startup both are one entry."""
    resolver = session.resolver("step", command.key) if session.approver is not None else None
    emission = await session.points.emit(session.builder.input, session.options.task, resolver=resolver)
    if not emission.proceeds:
        if opening:
            session.live.record("session_opened", {})
        return blocked(session, command, emission, resolver)
    target = emission.target
    role = "system" if target["role"] == "system" else "user"
    content = target["content"]
    message = (
        frozen_texts(role=role, content=content) if type(content) is str else freeze({"role": role, "content": content})
    )
    session.live.record("input", {"message": message}, session.live.clock.stamped)
    return DONE


async def shutdown_step(session: Session, command: Command) -> bool:
    """`agent_shutdown`, then the terminal outcome; a deny here is only recorded (§6.1a)."""
    live = session.live
    cause = live.state.cause or COMPLETED
    await session.points.emit(
        session.builder.agent_shutdown, REASONS[cause.status] if cause.status in REASONS else "error"
    )
    approver = session.approver
    if approver is not None and (approver.asked or live.woken):  # else nothing of it can be open
        approver.docket.withdraw(live.run_id)
        drop_held(session)
    told = ENDED if cause is COMPLETED else cause.json()
    payload: Mapping[str, Any] = {**told, "usage": live.ledger.usage.json()}
    live.record("run_finished", payload, live.clock.stamped)
    return DONE


STEPS: Mapping[str, Performer] = {
    "startup": startup_step,
    "input": input_step,
    "model": model_step,
    "output": output_step,
    "judge": judge_step,
    "tool": run_step,
    "ask": ask_step,
    "release": release_step,
    "close": close_step,
    "refuse": refuse_step,
    "shutdown": shutdown_step,
}
