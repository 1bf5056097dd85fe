"""The team of `lictor demo`: a shop's people work on a customer's order, governed at every step.

Read it as an example. It has what most uses have: tools, policies, a permission, agents, and a team with a
supervisor. The models are scripts here, so that it needs no key; any other model would do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lictor.agent import Agent, LoopBreaker, ToolContext, tool
from lictor.hooks import ALLOW, Context, Mask, Verdict, interceptor
from lictor.models import Entry, ModelRequest, Reply, ScriptedModel, call, say
from lictor.runs import Budget, Usage
from lictor.team import Team, TeamInterceptor

__all__ = ["MOST_TOKENS", "PLACE", "TASK", "USER", "team"]

PLACE = "lictor.console.orders:team"  # from there `lictor approve` loads it
USER = "ana"
TASK = "My mug (order 42) broke, I want 30.00 back. And where is order 7?"
MOST_TOKENS = 20_000
BRIEF = {"max_tokens": 200}  # for real models: nobody here has to say more
ORDERS: Mapping[int, Mapping[str, str]] = {
    7: {"customer": "ben", "status": "on its way", "card": "5555 5555 5555 4444"},
    42: {"customer": "ana", "status": "delivered", "card": "4111 1111 1111 1111"},
}


@tool(read_only=True, effect="pure")
async def lookup_order(order_id: int) -> dict[str, str]:
    """Look up the status of an order and how it was paid."""
    order = ORDERS.get(order_id)
    return {"status": "unknown"} if order is None else {"status": order["status"], "card": order["card"]}


@tool(requires_approval=True)
def refund(order_id: int, amount: float, context: ToolContext) -> str:
    """Pay money back for an order, to the card it was paid with."""
    with Path(context.context["payments"]).open("a") as bank:
        bank.write(f"{context.root_run} {amount:.2f} for order {order_id}\n")
    return f"{amount:.2f} paid back for order {order_id}"


@interceptor(points=["pre_tool_call"], version="1")
def own_orders(context: Context) -> Verdict:
    """Customers see and change their own orders only, whatever a model thinks."""
    order = ORDERS.get(context["tool_call"]["args"].get("order_id", 0))
    if order is not None and order["customer"] != context["extensions"]["lictor"]["user"]["id"]:
        return Verdict.deny("not_your_order", "Not this customer's order.")
    return ALLOW


class Permission(TeamInterceptor):
    """The books are for the staff; a customer's run goes on without them."""

    def should_agent_continue(self, trace: Any, agent: Any) -> Verdict | None:
        """Skip the bookkeeper for everybody else."""
        if agent.name == "bookkeeper" and not getattr(trace.user, "attributes", {}).get("staff"):
            return Verdict.deny("not_permitted", "the books are for the staff")
        return None


SPENT = Usage(input_tokens=520, output_tokens=40)
MUSED = "The scan at the door does not say who took the parcel. The writer should ask the customer."
ASKED = "A question to the customer needs to say what we know. The analyst should find out more."


def told(text: str) -> Reply:
    """An answer that costs something."""
    return say(text, usage=SPENT)


def give(member: str, instruction: str) -> Reply:
    """A decision of the supervisor."""
    return call("assign", member=member, instruction=instruction, usage=SPENT)


def report(request: ModelRequest) -> Reply:
    """What the clerk says about the refund: what the tool said, or that there was none."""
    result = str(request.messages[-1]["content"])
    return told(f"Done: {result}." if "paid back" in result else "I was not allowed to pay anything back.")


def letter(request: ModelRequest) -> Reply:
    """The writer's last words; they depend on what became of the refund."""
    said = [line for line in str(request.messages[-1]["content"]).splitlines() if line.startswith("clerk: ")]
    return told(f"{said[-1].removeprefix('clerk: ')} Order 7 is not yours.")


def closing(request: ModelRequest) -> Reply:
    """The answer is the letter."""
    return call("finish", answer=json.loads(str(request.messages[-1]["content"]))["answer"], usage=SPENT)


SUPERVISOR: Sequence[Entry] = [
    give("clerk", "Look up orders 7 and 42."),
    give("bookkeeper", "Book a loss for order 42."),
    *[give("analyst", "Find out who took the parcel."), give("writer", "Ask the customer.")] * 2,
    give("analyst", "Find out who took the parcel."),
    give("clerk", "Pay 30.00 back for order 42."),
    give("writer", "Write the answer."),
    closing,
]
CLERK: Sequence[Entry] = [
    call("lookup_order", order_id=7, usage=SPENT),
    call("lookup_order", order_id=42, usage=SPENT),
    told("Order 42 was delivered. Order 7 belongs to somebody else."),
    call("refund", order_id=42, amount=30.0, usage=SPENT),
    report,
]

clerk = Agent(
    "clerk",
    model=ScriptedModel(CLERK, id="scripted"),
    description="looks orders up, pays money back",
    instructions="You are a shop's clerk. Look orders up with lookup_order, pay money back with refund.",
    tools=[lookup_order, refund],
    interceptors=[own_orders, Mask("card", points=["post_tool_call"])],
    max_steps=8,
    settings=BRIEF,
)
analyst = Agent(
    "analyst",
    model=ScriptedModel([told(MUSED)] * 3, id="scripted"),
    description="finds out what happened",
    instructions="You find out what happened to a parcel from what is known.",
    settings=BRIEF,
)
bookkeeper = Agent(
    "bookkeeper",
    model=ScriptedModel([told("Booked.")], id="scripted"),
    description="keeps the books",
    instructions="You keep the books of a shop.",
    settings=BRIEF,
)
writer = Agent(
    "writer",
    model=ScriptedModel([told(ASKED), told(ASKED), letter], id="scripted"),
    description="writes to customers",
    instructions="You write short, friendly letters to customers.",
    settings=BRIEF,
)
team = Team(
    "orders",
    members=[clerk, analyst, bookkeeper, writer],
    model=ScriptedModel(SUPERVISOR, id="scripted"),
    instructions="You lead a shop's team that answers customers about their orders.",
    interceptors=[Permission()],
    loop_breaker=LoopBreaker(on_hit=("tell", "stop")),
    budget=Budget(max_total_tokens=MOST_TOKENS),
    settings=BRIEF,
    max_turns=12,
)
