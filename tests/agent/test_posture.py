"""`Governance(posture=…)`: what a `host_error:*` deny at a tool does to the run (§13.1)."""

from __future__ import annotations

import pytest
from driving import both_ways, play, policy

from lictor import ALLOW, Agent, Composition, Governance, Verdict, tool
from lictor.models import ScriptedModel, call


@tool(effect="pure")
async def look(order_id: int) -> int:
    """Look an order up."""
    return order_id


@both_ways
@pytest.mark.parametrize(
    ("posture", "status"), [("terminate", "completed"), ("continue", "completed"), ("terminate_all", "blocked")]
)
async def test_the_letter_of_terminate_ends_runs_after_composed_denies(how: str, posture: str, status: str) -> None:
    """`terminate_all` ends a run for what policies composed; the other two postures tell the model and go on."""
    rules = Governance(composition=Composition("parallel/unanimous"), posture=posture)
    deny = policy("pre_tool_call", lambda context: Verdict.deny("no"), name="deny")
    allow = policy("pre_tool_call", lambda context: ALLOW, name="allow")
    model = ScriptedModel([call("look", order_id=1), "done"])
    played = await play(
        Agent("clerk", model=model, tools=[look], interceptors=[deny, allow], governance=rules), how=how
    )
    assert played.status == status
    assert played.reason == (None if status == "completed" else "host_error:composition_disagreement")
