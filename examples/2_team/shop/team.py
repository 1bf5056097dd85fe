"""A team with tools from an MCP server and a permission looked up live."""
from lictor import Agent, Budget, LoopBreaker, MCPServer, Team, TeamInterceptor

from shop.directory import directory
from shop.policy import POLICY

orders = MCPServer("orders", command=["orders-mcp", "--read-write"], default_effect="pure",
                   tools={"refund": {"effect": "once", "requires_approval": True}})


class RefundPermission(TeamInterceptor):
    async def should_agent_continue(self, trace, agent):
        return agent.name != "refunds" or await directory.has_role(trace.user.id, "refund:approve")


analyst = Agent("analyst", model="openai:gpt-5-mini", instructions="Find out what happened.",
                tools=[orders["lookup_order"]])
refunds = Agent("refunds", model="openai:gpt-5-mini", instructions="Refund when it is due.", tools=[orders["refund"]])
writer = Agent("writer", model="openai:gpt-5-mini", instructions="Answer the customer.", settings={"max_tokens": 800})
team = Team("orders", members=[analyst, refunds, writer], model="openai:gpt-5",
            interceptors=[*POLICY, RefundPermission()], loop_breaker=LoopBreaker(on_hit=("tell", "stop")),
            budget=Budget(max_total_tokens=200_000, max_cost_usd=1.50, max_seconds=300))
