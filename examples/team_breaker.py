"""Scenario A: a team that is stopped after ten rounds, or when it has used its tokens."""
import asyncio

from lictor import Agent, Team, TeamInterceptor, Usage
from lictor.testing import ScriptedModel, call, say

WORK = call("assign", member="analyst", instruction="look again")


class CostLimit(TeamInterceptor):
    """The first gate of every round: it comes before the team's own limits."""

    def __init__(self, rounds, tokens):
        self.rounds, self.tokens = rounds, tokens

    def should_supervisor_continue(self, trace):
        return trace.turn_count < self.rounds and trace.metrics.total_tokens < self.tokens


def team(limit):
    found = [say(f"Page {page} says nothing.", usage=Usage(input_tokens=4_000)) for page in range(1, 20)]
    analyst = Agent("analyst", model=ScriptedModel(found))
    return Team("orders", members=[analyst], model=ScriptedModel([WORK] * 20), interceptors={"cost-limit": limit},
                max_turns=50)


async def main():
    result = await team(CostLimit(rounds=10, tokens=100_000)).run("Where is order 42?")
    assert (result.status, result.by, result.trace.turn_count) == ("stopped", "team:orders/cost-limit", 10)

    result = await team(CostLimit(rounds=10, tokens=10_000)).run("Where is order 42?")
    assert (result.status, result.usage.total_tokens) == ("stopped", 12_000)
    assert result.trace.records[-1].content == "[Skipped] Intercepted by team:orders/cost-limit"
    print(result.status, "by", result.by, "after", result.trace.turn_count, "rounds:", result.trace.records[-1].content)


asyncio.run(main())
