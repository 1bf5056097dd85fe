"""One connection to an MCP server, in a task of its own from the first byte to the last.

The `mcp` package does the protocol; it is imported when the first connection is made. Its contexts are
anyio's: they have to be entered and left in one task, and may cancel it. That task is this one's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lictor.adapters.mcp_program import Program
from lictor.errors import ToolError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import Tool as ListedTool

__all__ = ["Address", "Connection"]

CLOSE_SECONDS = 6.0
"""A program has 2 s to end when its input ends, 2 more at SIGTERM, then it is killed; this is beyond."""

SETTLE_SECONDS = 0.5
"""How long the reason is waited for why a connection went away under a call."""

MOST_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is, and what it is given. `env` and `headers` hold secrets: they never show."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str]
    headers: Mapping[str, str]
    cwd: str | None = None
    timeout: float = 60.0

    def hide(self, text: str) -> str:
        """The text without what must not show: values of `env` and `headers`, and what follows `?` in the URL."""
        secrets = [*self.env.values(), *self.headers.values(), self.url.partition("?")[2]]
        secrets += [part for value in self.headers.values() for part in value.split()]
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) > 5:
                text = text.replace(secret, "[hidden]")
        return text


class Connection:
    """Opened by `open`, closed by `close`; when the server goes away it ends by itself and is `lost`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.tools: Mapping[str, ListedTool] = {}
        self.doubles: tuple[str, ...] = ()
        self.stale = False
        self.failure: BaseException | None = None
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._status: int | None = None
        self._changes = False
        program = Program(address.name, address.command, address.env, address.cwd)
        self._program = program if address.command else None

    @property
    def lost(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._over.is_set() or self._ended.is_set()

    @property
    def client(self) -> Client:
        """The client of the `mcp` package. Raises ToolError once the connection is lost."""
        if self._client is None or self.lost:
            raise ToolError("server_unreachable", f"MCP server {self.address.name!r} is not open", kind="not_run")
        return self._client

    async def open(self, group: asyncio.TaskGroup) -> None:
        """Connect and list the tools. Raises ToolError, `not_run`, and says why."""
        self._task = group.create_task(self._run())
        try:
            async with asyncio.timeout(self.address.timeout):
                await self._ready.wait()
        except TimeoutError:
            await self.close()
            raise self._unreachable(f"it did not answer within {self.address.timeout:g} s") from None
        except asyncio.CancelledError:
            self._give_up()
            raise
        if self._client is None:
            await self._ended.wait()
            raise self._unreachable(self._why())

    async def relist(self) -> None:
        """Look at the tools again; the old list stands if that fails.

        Raises:
            TimeoutError: no answer; such a connection is given up.
            Exception: what the request raised.
        """
        self.stale = False
        try:
            async with asyncio.timeout(self.address.timeout):
                await self._list(self.client)
        except TimeoutError:
            self.drop()
            raise
        except BaseException:
            self.stale = True
            raise

    def called(self) -> None:
        """A tool was called: if lists change here, that may have been it, and its notice may still be on the way."""
        self.stale = self.stale or self._changes

    def drop(self) -> None:
        """Let it end by itself: it is of no use any more."""
        self._over.set()

    async def close(self) -> None:
        """End it and whatever it started; a program is gone when this returns.

        A cancellation waits until then, which takes seconds at most.
        """
        if self._task is None:
            return
        self._give_up()
        cancelled: asyncio.CancelledError | None = None
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._ended.wait()
            except TimeoutError:
                self._task.cancel()
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:
            raise cancelled

    def _give_up(self) -> None:
        """Have it end; while it is still connecting it does not look at `_over` and is cancelled, once."""
        connecting = not self._over.is_set() and not self._ready.is_set()
        self._over.set()
        if connecting and self._task is not None:
            self._task.cancel()

    async def never_sent(self) -> bool:
        """After a request failed with the connection: whether it certainly did not reach the server."""
        if not self.address.url:
            return False
        with contextlib.suppress(TimeoutError):  # it goes on if only an answer was cut
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._ended.wait()
        import httpx2

        return isinstance(_leaf(self.failure), httpx2.ConnectError | httpx2.ConnectTimeout)

    async def _run(self) -> None:
        from mcp import Client
        from mcp.types import Implementation

        me = Implementation(name="lictor", version=_version())
        try:
            transport: Any = self._transport()
            async with Client(transport, client_info=me, cache=None, message_handler=self._noticed) as client:
                tools = client.server_capabilities.tools
                self._changes = tools is not None and bool(tools.list_changed)
                await self._list(client)
                self._client = client
                self._ready.set()
                await self._keep(client)
        except asyncio.CancelledError as exc:  # told to end, by `close` or by the transport's own task group
            self.failure = exc
        except BaseExceptionGroup as exc:
            self.failure = exc
        except Exception as exc:  # noqa: BLE001 - whatever a transport raises: the connection is lost, and says why
            self.failure = exc
        finally:
            self._ready.set()
            self._ended.set()

    async def _keep(self, client: Client) -> None:
        """Wait for the end; with servers of the newer protocol, ask to be told of changes meanwhile."""
        if client.session.discover_result is None or not self._changes:
            await self._over.wait()
            return
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(client))
            await self._over.wait()
            listening.cancel()

    async def _listen(self, client: Client) -> None:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.stale = True
        except Exception:  # noqa: BLE001 - without it a change is not noticed; the connection itself goes on
            self.stale = True

    async def _noticed(self, message: Any) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.stale = True

    async def _list(self, client: Client) -> None:
        found: dict[str, ListedTool] = {}
        doubles: list[str] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if tool.name in found:
                    doubles.append(tool.name)
                found.setdefault(tool.name, tool)
            cursor = page.next_cursor
            if cursor is None:
                break
        if found != self.tools or tuple(doubles) != self.doubles:
            self.tools, self.doubles = found, tuple(doubles)

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncGenerator[tuple[Any, Any]]:
        connect = self._http if self._program is None else self._program.streams
        async with connect() as (incoming, outgoing):
            yield _Ending(incoming, self._over.set), outgoing

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncGenerator[tuple[Any, Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # How long an answer may take is bounded by each call; a stream of notices may be silent for ever.
        limits = httpx2.Timeout(min(30.0, self.address.timeout), read=None)
        hooks: dict[str, list[Callable[[Any], Awaitable[None]]]] = {"response": [self._answered]}
        async with (
            httpx2.AsyncClient(headers=dict(self.address.headers), timeout=limits, event_hooks=hooks) as http,
            streamable_http_client(self.address.url, http_client=http) as streams,
        ):
            yield streams

    async def _answered(self, response: Any) -> None:
        if response.status_code >= 400:
            self._status = response.status_code

    def _why(self) -> str:
        """Why it could not be opened, for the one who configured it."""
        leaf = _leaf(self.failure)
        if isinstance(leaf, FileNotFoundError):
            return f"there is no {leaf.filename!r}"
        words = f"{type(leaf).__name__}: {leaf}" if leaf is not None else "it ended"
        if self._status is not None:
            words += f" (HTTP status {self._status})"
        said = "" if self._program is None else self._program.said()
        return f"{words}; {said}" if said else words

    def _unreachable(self, why: str) -> ToolError:
        text = self.address.hide(f"MCP server {self.address.name!r} could not be opened: {why}")
        return ToolError("server_unreachable", text, kind="not_run")


class _Ending:
    """A stream of messages that says when it ends: the server is gone, although nobody asked it anything."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Ending:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> _Ending:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._stream.__aexit__(*exc)


def _version() -> str:
    try:
        return importlib.metadata.version("lictor")
    except importlib.metadata.PackageNotFoundError:  # run from a tree that is not installed
        return "0"


def _leaf(exc: BaseException | None) -> BaseException | None:
    """The first error inside groups of errors."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
