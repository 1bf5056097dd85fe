"""Scenario B: a member that only some users may set to work; the team goes on without it."""
import asyncio

from lictor import Agent, Team, TeamInterceptor
from lictor.testing import ScriptedModel, call, say

ROLES = {"ana": {"refund:approve"}, "ben": set()}


class Permission(TeamInterceptor):
    def should_agent_continue(self, trace, agent):
        return agent.name != "refunds" or "refund:approve" in ROLES[trace.user.id]


def closing(request):
    """The supervisor decides by what it was told, as a model would."""
    told = str(request.messages[-1]["content"])
    return call("finish", answer="A colleague will call you." if "skipped" in told else "Your 30 are on their way.")


def team():
    refunds = Agent("refunds", model=ScriptedModel([say("30 paid back.")]))
    model = ScriptedModel([call("assign", member="refunds", instruction="Pay 30 back."), closing])
    return Team("orders", members=[refunds], model=model, interceptors={"permission": Permission()})


async def main():
    result = await team().run("My mug broke", user="ana")
    assert result.answer == "Your 30 are on their way."

    result = await team().run("My mug broke", user="ben")
    assert (result.status, result.answer) == ("completed", "A colleague will call you.")
    [skip] = [record for record in result.trace.records if record.kind == "skip"]
    assert (skip.source, skip.content) == ("refunds", "[Skipped] Cancelled by team:orders/permission")
    print(result.answer, skip.content)


asyncio.run(main())
