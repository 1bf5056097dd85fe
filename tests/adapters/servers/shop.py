"""A shop's MCP server, written with the `mcp` package: `shop.py` speaks stdio, `shop.py http` streamable HTTP.

Over HTTP it listens on a free port of 127.0.0.1 and prints its address first. What it did, and which
process it is, it writes to the file that `SHOP_LEDGER` names, a line for each.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

LEDGER = Path(os.environ["SHOP_LEDGER"])
server = MCPServer("shop", log_level="ERROR")


def wrote(line: str) -> None:
    """Add a line to the ledger."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


class Line(BaseModel):
    """A line of an order."""

    item: str
    amount: int = 1


@server.tool()
def lookup_order(order_id: int) -> str:
    """Say where an order is."""
    return f"order {order_id} left on Monday — grüße, 東京 🚚"


@server.tool()
def refund(order_id: int, amount: float, reason: str = "") -> str:
    """Pay an order back."""
    wrote(f"refund {order_id} {amount} {reason}")
    return f"{amount:.2f} paid back"


@server.tool()
def order_of(lines: list[Line], express: bool = False) -> dict[str, Any]:
    """Order something."""
    return {"lines": len(lines), "express": express, "id": 2**60}


@server.tool()
def prices() -> dict[str, float]:
    """All prices."""
    return {"lamp": 3.5, "sofa": 250.0}


@server.tool(structured_output=False)
def picture(kind: Literal["small", "large"]) -> list[Any]:
    """A picture, and a word about it."""
    data = b"\x89PNG\r\n\x1a\n" + bytes(16 if kind == "small" else 100_000)
    return ["a lamp", Image(data=data, format="png")]


@server.tool()
def catalogue(size: int) -> str:
    """A long text."""
    return "begin" + "x" * size + "end"


@server.tool()
def broken() -> str:
    """Always fails."""
    raise ToolError("the shop is closed — wegen Umbau")


@server.tool()
def die() -> str:
    """Take the whole server down."""
    wrote("die")
    os._exit(3)


@server.tool()
async def slow() -> str:
    """Wait for ever, and write down when somebody gives up."""
    wrote("slow begins")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        wrote("slow was cancelled")
        raise
    return "never"


@server.tool()
async def counted(upto: int, context: Context) -> str:
    """Count, and report it."""
    for done in range(upto):
        await context.report_progress(done + 1, upto, "counting")
    return "done"


@server.tool()
async def restock(context: Context) -> str:
    """From now on there are umbrellas and no prices."""

    def umbrella(colour: str) -> str:
        """An umbrella."""
        return f"a {colour} umbrella"

    server.add_tool(umbrella)
    server.remove_tool("prices")
    await context.notify_tools_changed()
    return "restocked"


async def over_http() -> None:
    """Serve on a free port, as stateful sessions for clients of the older protocol."""
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)  # whoever reads the address may come at once
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    wrote(f"pid {os.getpid()}")
    if sys.argv[1:] == ["http"]:
        asyncio.run(over_http())
    else:
        server.run()
