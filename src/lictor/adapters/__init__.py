"""Doors to other systems: tools of MCP servers."""

from __future__ import annotations

from lictor.adapters.mcp_server import MCPServer

__all__ = ["MCPServer"]
