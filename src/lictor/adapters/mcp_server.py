"""MCP servers as tool sources: what is declared about one, and its tools while it is open."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lictor.adapters.mcp_connection import Address
from lictor.adapters.mcp_link import Link
from lictor.adapters.mcp_schema import tool_schema
from lictor.agent import SourceTool, Tool, ToolContext, fingerprint, foreign_tool, tool
from lictor.errors import DefinitionError, LictorError

if TYPE_CHECKING:
    from mcp.types import Tool as ListedTool

__all__ = ["MCPServer"]

DECLARED = ("name", "effect", "read_only", "requires_approval", "responders", "deadline", "timeout", "polling")
EMPTY: Mapping[str, Any] = {}


class MCPServer:
    """An MCP server whose tools agents may call: `Agent(tools=[server])`, or `tools=[server["lookup"]]`.

    This is a definition: nothing is started or connected where it is written. Each stint of a run has a
    connection of its own, opened before its first model call and closed when it parks or ends. What a
    server says about its tools besides schema and description (its annotations) is not believed: effects
    and approvals are declared here.

    Arguments:
        name: for people, messages and the policy fingerprint; 1 to 64 of `A-Za-z0-9_-`.
        command: program and arguments of a server on stdio.
        url: endpoint of a server on streamable HTTP; one of the two is given.
        env: added to the few variables that a program gets anyway (`PATH`, `HOME`, …); may hold secrets.
        cwd: directory the program is started in.
        headers: of every HTTP request; may hold secrets.
        default_effect: effect of tools that are not declared: `pure`, `idempotent` or `once`.
        tools: the server's name of a tool -> what is declared about it: `effect`, `read_only`,
            `requires_approval`, `responders`, `deadline`, `timeout`, `polling`, and `name`, what the model
            calls it. A tool that is declared has to be there.
        prefix: in front of the names of tools that are not declared with a `name`.
        timeout: seconds (or a timedelta) for connecting, for listing, and for a call that declares none.

    Raises:
        DefinitionError: something is wrong as written.
    """

    def __init__(  # noqa: PLR0913 - the constructor is the definition
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        default_effect: Any = "once",
        tools: Mapping[str, Mapping[str, Any]] = EMPTY,
        prefix: str | None = None,
        timeout: float | timedelta = 60.0,
    ) -> None:
        self.name = name
        self._default_effect = default_effect
        self._prefix = prefix or ""
        _template(name, name, {}, default_effect, 1.0)  # the name, and the effect
        self._address = Address(
            name=name,
            command=_command(name, command, url, env, cwd),
            url=_url(name, url, headers),
            env=_texts(name, "env", env),
            headers=_texts(name, "headers", headers),
            cwd=None if cwd is None else os.fspath(cwd),
            timeout=_seconds(name, timeout),
        )
        if not isinstance(tools, Mapping):
            raise DefinitionError(f"MCPServer {name!r}: tools={tools!r}; give tool name -> {{option: value}}")
        self._templates = {item: self._declare(item, options) for item, options in tools.items()}
        names = [template.name for template in self._templates.values()]
        if len(set(names)) != len(names):
            raise DefinitionError(f"MCPServer {name!r}: two of its tools are declared with the same name")
        self._link: Link | None = None
        self._listing: Mapping[str, ListedTool] | None = None
        self._tools: tuple[Tool, ...] = ()
        self.left_out: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"MCPServer({self.name!r}, {'url' if self._address.url else 'command'}=…)"

    def __copy__(self) -> MCPServer:
        """The same definition, not open; what each stint works with."""
        twin = object.__new__(MCPServer)
        twin.__dict__.update(self.__dict__, _link=None, _listing=None, _tools=(), left_out={})
        return twin

    def __getitem__(self, tool: str) -> SourceTool:
        """One of its tools, by the server's own name, for `Agent(tools=…)`."""
        template = self._templates.get(tool) or self._declare(tool, {})
        return SourceTool(self, template.name)

    @property
    def known(self) -> tuple[str, ...]:
        """Names, as models see them, of the tools that are declared."""
        return tuple(template.name for template in self._templates.values())

    def declared(self) -> dict[str, Any]:
        """What the policy fingerprint covers; no environment, no headers, nothing behind a `?`."""
        address = self._address
        where = {"command": list(address.command)} if address.command else {"url": address.url.partition("?")[0]}
        each = {item: _fingerprint(template) for item, template in self._templates.items()}
        return {**where, "default_effect": self._default_effect, "prefix": self._prefix, "declared": each}

    async def open(self) -> Sequence[Tool]:
        """Connect and list the tools. Raises ToolError `server_unreachable`, which says why."""
        if self._link is not None:
            raise LictorError(f"MCPServer {self.name!r} is open already; use a copy of it")
        await _have_package()
        self._link = Link(self._address)
        await self._link.open()
        return self._made(self._link)

    async def listed(self) -> Sequence[Tool]:
        """The tools there are now; the server is asked again only if it said that they changed."""
        if self._link is None:
            return ()
        await self._link.refresh()
        return self._made(self._link)

    async def close(self) -> None:
        """Disconnect; a program that was started is gone afterwards."""
        if self._link is not None:
            await self._link.close()

    def _declare(self, item: Any, options: Any) -> Tool:
        if not isinstance(item, str) or not isinstance(options, Mapping):
            raise DefinitionError(f"MCPServer {self.name!r}: tools={{{item!r}: {options!r}}}; give {{option: value}}")
        unknown = set(options) - set(DECLARED)
        if unknown:
            raise DefinitionError(
                f"MCPServer {self.name!r}: tool {item!r}: there is no option {', '.join(map(str, sorted(unknown)))}; "
                f"they are {', '.join(DECLARED)}"
            )
        return _template(self.name, self._prefix + item, options, self._default_effect, self._address.timeout)

    def _made(self, link: Link) -> tuple[Tool, ...]:
        """The server's list as tools; what cannot be one is left out, and why is kept."""
        listing = link.tools
        if listing is self._listing:
            return self._tools
        tools: list[Tool] = []
        left_out = dict.fromkeys(link.doubles, "the server lists two tools with this name; the first one is taken")
        for listed in listing.values():
            try:
                tools.append(self._tool(link, listed))
            except Exception as exc:  # noqa: BLE001 - a foreign schema; it costs one tool, never the server
                left_out[listed.name] = str(exc)
        self._listing, self._tools, self.left_out = listing, tuple(tools), left_out
        return self._tools

    def _tool(self, link: Link, listed: ListedTool) -> Tool:
        template = self._templates.get(listed.name) or self._declare(listed.name, {})

        async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await link.call(listed, template.effect == "once", arguments, context)

        about = (listed.description or listed.title or "").encode("utf-8", "replace").decode()
        made = foreign_tool(template.name, call, schema=tool_schema(listed.input_schema), description=about)
        return replace(template, schema=made.schema, description=about, fn=call, binding=made.binding, is_async=True)


async def _have_package() -> None:
    """Import what connections need, in a thread: it takes a second, and others run in this event loop."""
    if "mcp.client.client" in sys.modules:
        return
    try:
        await asyncio.to_thread(importlib.import_module, "mcp")
    except ImportError as exc:
        raise LictorError("MCP servers need the package mcp: pip install 'lictor[mcp]'") from exc


def _template(server: str, name: str, options: Mapping[str, Any], effect: Any, timeout: float) -> Tool:
    """A tool with what is declared, and nothing to call yet."""

    async def call(arguments: dict[str, Any]) -> None: ...

    call.__name__ = f"{server}[{name}]"
    declared: dict[str, Any] = {"name": name, "effect": effect, "timeout": timeout, **options}
    return tool(**declared)(call)


def _fingerprint(template: Tool) -> dict[str, Any]:
    facts = fingerprint(template)
    del facts["schema"]  # of nothing
    return facts


def _command(name: str, command: Any, url: Any, env: Any, cwd: Any) -> tuple[str, ...]:
    if (command is None) == (url is None):
        raise DefinitionError(f"MCPServer {name!r}: give command=[…] (stdio) or url=… (streamable HTTP)")
    if command is None:
        if env is not None or cwd is not None:
            raise DefinitionError(f"MCPServer {name!r}: env= and cwd= belong to command=; use headers= with url=")
        return ()
    if isinstance(command, str) or not command or not all(isinstance(part, str) and part for part in command):
        raise DefinitionError(f"MCPServer {name!r}: command={command!r}; give a list: ['program', 'argument']")
    return tuple(command)


def _url(name: str, url: Any, headers: Any) -> str:
    if url is None:
        if headers is not None:
            raise DefinitionError(f"MCPServer {name!r}: headers= belong to url=; use env= with command=")
        return ""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError(f"MCPServer {name!r}: url={url!r}; give one that begins with http:// or https://")
    if parts.username or parts.password:
        raise DefinitionError(f"MCPServer {name!r}: a url holds no password; put it into headers=")
    return str(url)


def _texts(name: str, option: str, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(item, str) for pair in given.items() for item in pair):
        raise DefinitionError(f"MCPServer {name!r}: {option}= takes a mapping of names to texts")
    return dict(given)


def _seconds(name: str, timeout: Any) -> float:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise DefinitionError(f"MCPServer {name!r}: timeout={timeout!r}; use seconds above 0, or a timedelta")
    return float(seconds)
