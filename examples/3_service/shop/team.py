"""The agent behind the service; its model plays a script, so that the example needs no key."""
import os
from pathlib import Path

from lictor import Agent, tool
from lictor.testing import ScriptedModel, call, say


@tool(effect="pure")
async def lookup_order(order_id: int) -> str:
    """Say where an order is."""
    return f"Order {order_id} is lost."


@tool(requires_approval=True, responders=["human:ana"])
def refund(order_id: int, amount: float) -> str:
    """Pay money back to the customer."""
    with Path(os.environ["TILL"]).open("a") as till:
        till.write(f"{order_id} {amount:.2f}\n")
    return f"{amount:.2f} paid back"


SCRIPT = [call("lookup_order", order_id=42), call("refund", order_id=42, amount=30.0), say("You get 30.00 back.")]
team = Agent("orders", model=ScriptedModel(SCRIPT), tools=[lookup_order, refund])
