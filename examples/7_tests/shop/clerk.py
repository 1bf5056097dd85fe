"""A clerk who looks orders up by himself and pays money back only when a person agrees."""

from lictor import Agent, tool

ORDERS = {42: "left on Monday", 43: "is being packed"}


@tool(read_only=True, effect="pure")
async def lookup_order(order_id: int) -> str:
    """Say where an order is."""
    return f"Order {order_id} {ORDERS.get(order_id, 'is unknown')}."


@tool(requires_approval=True, deadline=4 * 3600)
async def refund(order_id: int, amount: float) -> str:
    """Pay money back to the customer."""
    return f"{amount:.2f} paid back for order {order_id}"


clerk = Agent(
    "clerk",
    model="openai:gpt-5-mini",
    instructions="You answer questions about orders.",
    tools=[lookup_order, refund],
)
