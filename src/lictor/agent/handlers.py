"""The commands of an agent run and what carries each of them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lictor.agent.modelstep import blocked, model_step, output_step
from lictor.agent.results import render
from lictor.agent.session import Session
from lictor.agent.toolstep import ask_step, close_step, judge_step, refuse_step, release_step, run_step
from lictor.runs import DONE, Cause, Command, LiveRun
from lictor.values import freeze

__all__ = ["AgentHandlers"]

INPUT = Command("input", "input")
REASONS = {"completed": "completed", "cancelled": "cancelled"}


class AgentHandlers:
    """Handlers of one run; `session` is set by the assembly."""

    __slots__ = ("session",)

    session: Session

    def perform(self, live: LiveRun[Any], command: Command) -> Awaitable[bool]:
        """Carry one command out."""
        return STEPS[command.kind](self.session, command)

    async def collect(self, live: LiveRun[Any]) -> bool:
        """Record the decisions made on requests this run waits for."""
        approver = self.session.approver
        if approver is None:
            return False
        found = False
        for request_id in live.machine.waiting(live.state).values():
            request = approver.docket.find(request_id)
            if request.status == "pending":
                continue
            found = True
            live.record("request_decided", _decided(request))
        return found


def _decided(request: Any) -> dict[str, Any]:
    """The decision as the machine folds it and a reader sees it."""
    done = request.resolution
    verb = "expire" if request.status == "expired" else (done.verb if done is not None else request.status)
    payload: dict[str, Any] = {
        "request": request.id,
        "kind": request.kind,
        "tool": request.tool,
        "call": request.call_id,
        "verb": verb,
        "decided_by": str(done.decided_by) if done is not None else None,
    }
    if verb == "respond":
        payload["content"] = render(done.value)
    return payload


async def startup_step(session: Session, command: Command) -> bool:
    """`agent_startup`, once in the life of a run (§3, §6.1a)."""
    resolver = session.resolver("step", command.key) if session.approver is not None else None
    emission = await session.points.emit(session.builder.agent_startup, list(session.tools), resolver=resolver)
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
    session.live.record("input", {"message": freeze({"role": role, "content": target["content"]})})
    return DONE


async def shutdown_step(session: Session, command: Command) -> bool:
    """`agent_shutdown`, then the terminal outcome; a deny here is only recorded (§6.1a)."""
    live = session.live
    cause = live.state.cause or Cause("completed")
    await session.points.emit(session.builder.agent_shutdown, REASONS.get(cause.status, "error"))
    if session.approver is not None:
        session.approver.docket.withdraw(live.run_id)
    payload: Mapping[str, Any] = {**cause.json(), "usage": live.ledger.usage.json()}
    session.points.gate.forget(live.run_id)
    live.record("run_finished", payload)
    return DONE


STEPS: Mapping[str, Callable[[Session, Command], Awaitable[bool]]] = {
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
