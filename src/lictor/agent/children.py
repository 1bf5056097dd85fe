"""Agents as tools: a child run inside the parent's stint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lictor.agent.results import error_result
from lictor.agent.stint import stint
from lictor.agent.tools import Tool, foreign_tool
from lictor.errors import DefinitionError
from lictor.runs import Cause, Ledger, Step

if TYPE_CHECKING:
    from lictor.agent.calls import CallState
    from lictor.agent.definition import Agent
    from lictor.agent.session import Session

__all__ = ["agent_tool", "run_child"]

TASK = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["task"],
    "additionalProperties": False,
}


def agent_tool(agent: Agent, name: str | None, description: str | None) -> Tool:
    """An agent as a tool with the one argument `task`.

    Raises DefinitionError when the agent sets its own governance: one composition holds for a whole
    run, that of the outermost.
    """
    if agent.governance is not None:
        raise DefinitionError(
            f"Agent {agent.name!r} sets governance and is used as a tool; "
            "set it on the outermost agent or the Runtime only"
        )
    about = description or agent.description or f"Ask the agent {agent.name}."
    made = foreign_tool(name or agent.name, _never, schema=TASK, description=about, effect="idempotent")
    return replace(made, agent=agent)


def _never(arguments: Any, context: Any) -> Any:
    raise DefinitionError("an agent used as a tool runs only inside the run of another agent")


async def run_child(session: Session, call: CallState, tool: Tool) -> Any:
    """Run, or go on with, the run behind a call; what it came to, or None while it waits.

    It inherits policies, budget and cancellation; its outcome never ends the parent (00-overview).
    """
    live = session.live
    agent: Agent = tool.agent
    fresh = not live.store.entries(call.child or "")
    refused = _refusal(session, fresh)
    if refused is not None:
        return error_result("not_run", refused, f"no further agents may be started below this run ({refused})")
    child = _assemble(session, call, agent, tool.name)
    if fresh:
        live.ledger.root.children += 1
        path = [list(step) for step in child.live.path]
        told = {"agent": agent.name, "path": path}
        before = child.options.positions
        child.live.record("run_started", {**told, "positions": before} if before else told)
    if live.state.cause is not None and not child.live.finished:
        child.live.record("cause", Cause("cancelled", by="parent").json())
    child.live.join(live)
    await stint(child, agent.watchers)
    if not child.live.finished:
        return None
    return outcome_value(child)


def _refusal(session: Session, fresh: bool) -> str | None:
    if not fresh:
        return None
    if len(session.live.path) > session.agent.max_depth:
        return "max_depth"
    if session.live.ledger.root.children >= session.agent.max_children:
        return "max_children"
    return None


def _assemble(session: Session, call: CallState, agent: Agent, name: str) -> Session:
    from lictor.agent.assembly import assemble

    live, options = session.live, session.options
    run_id = call.child or ""
    arguments: Mapping[str, Any] = call.args or {}
    scopes = (*options.scopes, (f"agent:{session.agent.name}", session.agent.interceptors))
    entries = live.store.entries(run_id)
    below = f"{agent.name}>"
    positions = {key.removeprefix(below): n for key, n in live.state.positions.items() if key.startswith(below)}
    return assemble(
        agent,
        replace(
            options,
            task=arguments["task"],
            scopes=scopes,
            max_steps=None,
            messages=(),
            numbered=0,
            positions=entries[0].payload.get("positions") if entries else positions,
            labels=None,
        ),
        run_id=run_id,
        path=(*live.path, Step(name, run_id, call.id)),
        store=live.store,
        clock=live.clock,
        ledger=Ledger(live.clock, agent.budget, parent=live.ledger),
    )


def outcome_value(child: Session) -> dict[str, Any]:
    """What the parent's model is told: `{status, reason, answer, partial}` (05-api)."""
    state = child.live.state
    if state.answered:
        return {"status": "completed", "answer": final_text(state)}
    cause = state.cause
    value: dict[str, Any] = {"status": cause.status, "reason": cause.reason}
    if cause.error:
        value["error"] = cause.error
    partial = [m["content"] for m in state.messages if m["role"] == "assistant" and m.get("content")]
    if partial:
        value["partial"] = partial[-1]
    return value


def final_text(state: Any) -> Any:
    """The content of the final answer."""
    return state.messages[-1]["content"]
