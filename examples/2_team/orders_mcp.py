"""Stands in for the company's MCP server; what it paid is in paid.txt."""
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("orders", log_level="ERROR")


@server.tool()
def lookup_order(order_id: int) -> str:
    """Say what is known of an order."""
    return f"Order {order_id}: a mug, delivered on Monday, reported broken; paid with 4111 1111 1111 1111."


@server.tool()
def refund(order_id: int, amount: float) -> str:
    """Pay money back."""
    if "--read-write" not in sys.argv:
        return "not allowed here"
    with Path("paid.txt").open("a") as bank:
        bank.write(f"{amount:.2f} for order {order_id}\n")
    return f"{amount:.2f} paid back"


server.run("stdio")
