"""The second fingerprint of a definition: how it is wired. Another one is recorded, and the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lictor.agent import Agent
from lictor.runs import Budget
from lictor.team import Team
from lictor.values import digest

__all__ = ["wiring_of"]

LIMITS = ("max_steps", "max_parallel_tools", "max_depth", "max_children", "max_turns", "max_handoffs", "retries")


def wiring_of(definition: Any) -> str:
    """Digest of names, models, digests of instructions, members, protocol and limits (20-durability, identity)."""
    return digest(_declared(definition))


def _declared(definition: Any) -> Mapping[str, Any]:
    told: dict[str, Any] = {"name": definition.name}
    agent = definition.supervision.agent if isinstance(definition, Team) else definition
    if isinstance(agent, Agent):
        told["models"] = [model.id for model in agent.models]
        told["instructions"] = digest(agent.instructions)
        told["limits"] = {name: getattr(definition, name) for name in LIMITS if hasattr(definition, name)}
        told["budget"] = _budget(definition.budget)
    if isinstance(definition, Team):
        told["protocol"] = definition.route.name
        told["members"] = [_declared(member) for member in definition.members]
    return told


def _budget(budget: Budget | None) -> Mapping[str, Any] | None:
    if budget is None:
        return None
    found = {item.name: getattr(budget, item.name) for item in fields(budget) if item.init}
    return {**found, "per_member": _budget(found["per_member"])}
