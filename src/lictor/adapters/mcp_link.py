"""One opening of an MCP server: the present connection, the next one after it was lost, and calls through either."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lictor.adapters.mcp_connection import Address, Connection
from lictor.adapters.mcp_results import value_of
from lictor.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp import MCPError
    from mcp.types import Tool as ListedTool

    from lictor.agent import ToolContext

__all__ = ["Link"]

MOST_PROGRESS = 100
"""Reports of progress of one call that are passed on; the rest of them says nothing new."""

SESSION_GONE = "Session terminated"
"""What the `mcp` package says when a server knows a session no more (HTTP status 404): it did nothing."""


class Link:
    """`open` and `close` are called in one task, once; calls come from any task."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._group = asyncio.TaskGroup()
        self._lock = asyncio.Lock()
        self._connection = Connection(address)
        self._entered = False

    async def open(self) -> None:
        """Connect. Raises ToolError."""
        await self._group.__aenter__()
        self._entered = True
        await self._connection.open(self._group)

    async def close(self) -> None:
        """End the connection and what it started."""
        if not self._entered:
            return
        self._entered = False
        try:
            await self._connection.close()
        finally:
            await self._group.__aexit__(None, None, None)

    @property
    def tools(self) -> Mapping[str, ListedTool]:
        """The server's own list, as it is known now; not the same object when it was read again."""
        return self._connection.tools

    @property
    def doubles(self) -> tuple[str, ...]:
        """Names that the server lists more than once."""
        return self._connection.doubles

    async def refresh(self) -> None:
        """Read the list again if the server said that it changed."""
        if self._connection.stale and not self._connection.lost:
            await self._connection.relist()

    async def call(self, listed: ListedTool, once: bool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call a tool. The first call after the connection was lost tries, once, to get it back.

        Args:
            listed: the tool as it was listed when the call was judged.
            once: whether running it twice would matter.
            arguments: as judged.
            context: takes reports of progress.

        Raises:
            ToolError: see docs/mcp.md.
        """
        connection = await self._connected(listed)
        try:
            return await self._ask(connection, listed, once, arguments, context)
        except _SessionGone:
            connection = await self._connected(listed)
        return await self._ask(connection, listed, once, arguments, context)

    async def _connected(self, listed: ListedTool) -> Connection:
        """A connection over which the tool is still what it was."""
        async with self._lock:
            if self._connection.lost:
                await self._connection.close()
                self._connection = Connection(self._address)
                await self._connection.open(self._group)
        connection = self._connection
        now = connection.tools.get(listed.name)
        if now is not listed and (now is None or now.input_schema != listed.input_schema):
            what = "has no such tool any more" if now is None else "came back with another schema of it"
            raise ToolError("tool_changed", f"MCP server {self._address.name!r} {what}", kind="not_run")
        return connection

    async def _ask(
        self, connection: Connection, listed: ListedTool, once: bool, arguments: dict[str, Any], context: ToolContext
    ) -> Any:
        from mcp import MCPError

        client, reported = connection.client, 0

        async def reports(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reported
            reported += 1
            if reported <= MOST_PROGRESS:
                context.emit({"progress": progress, "total": total, "message": message})

        try:
            result = await client.call_tool(listed.name, arguments, progress_callback=reports)
        except MCPError as exc:
            raise await self._failure(connection, once, exc) from exc
        except Exception as exc:
            what = f"the answer of MCP server {self._address.name!r} cannot be used: {str(exc) or type(exc).__name__}"
            raise ToolError("bad_result", self._address.hide(what)) from exc
        finally:
            connection.called()
        return value_of(result)

    async def _failure(self, connection: Connection, once: bool, exc: MCPError) -> ToolError:
        from mcp.types import CONNECTION_CLOSED

        name = self._address.name
        if exc.message == SESSION_GONE and self._address.url:
            connection.drop()
            return _SessionGone("server_lost", f"MCP server {name!r} ended the session", kind="not_run")
        if exc.code != CONNECTION_CLOSED:
            text = self._address.hide(f"MCP server {name!r} answered: {exc.message}")
            return ToolError("protocol_error", text, code=exc.code)
        if await connection.never_sent():
            return ToolError("server_unreachable", f"MCP server {name!r} cannot be reached", kind="not_run")
        what = f"MCP server {name!r} went away during the call"
        if not once:
            return ToolError("server_lost", what)
        return ToolError("server_lost", f"{what}; it may have run", kind="unknown")


class _SessionGone(ToolError):
    """The server does not know the session any more: the call did nothing and may be sent again."""
