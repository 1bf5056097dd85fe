"""Scenario D: a log of who was given what; and a decision that is sent back."""
import asyncio
import logging

from lictor import ALLOW, Agent, Team, TeamInterceptor, Verdict
from lictor.testing import ScriptedModel, call, say

LOG = []
logging.basicConfig(format="%(message)s", level=logging.INFO)


class RoutingLog(TeamInterceptor):
    def on_supervisor_decision(self, trace, decision):
        LOG.append((trace.turn_count, decision.text))
        logging.getLogger("shop").info("turn=%s, decision=%s", trace.turn_count, decision.text)


class LookFirst(TeamInterceptor):
    def on_supervisor_decision(self, trace, decision):
        if decision.member == "writer" and not trace.record_count:
            return Verdict.deny("look_first", "Ask the analyst before anything is written.")
        return ALLOW


async def main():
    analyst = Agent("analyst", model=ScriptedModel([say("It broke on the way.")]))
    writer = Agent("writer", model=ScriptedModel([say("Dear Ana, …")]))
    decisions = [call("assign", member=name, instruction="Go on.") for name in ("writer", "analyst", "writer")]
    model = ScriptedModel([*decisions, call("finish", answer="Written.")])
    team = Team("orders", members=[analyst, writer], model=model, interceptors=[RoutingLog(), LookFirst()])
    result = await team.run("Write to Ana")
    assert LOG == [(0, "writer: Go on."), (0, "analyst: Go on."), (1, "writer: Go on."), (2, "finish")]
    assert [record.source for record in result.trace.records if record.is_agent] == ["analyst", "writer"]
    print(result.answer)


asyncio.run(main())
