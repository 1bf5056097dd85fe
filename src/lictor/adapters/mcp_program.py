"""A program that speaks MCP on its standard streams, and its end: the whole process group, whatever happened.

The `mcp` package has a transport like this. It keeps the process to itself, so that what a server leaves behind when
it crashes (a browser, say) could not be ended, and why it ended could not be told. On systems without
process groups that transport is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from typing import Any

__all__ = ["Program"]

MOST_LINE = 16 * 1024 * 1024
"""Bytes of one message; a server that writes a longer one is given up."""

GRACE_SECONDS = 2.0
"""How long a program may take to end when its input ends, and again after SIGTERM."""

LAST_BYTES = 2000
LAST_LINES = 3
LATE_SECONDS = 0.2
POLL_SECONDS = 0.01
_log = logging.getLogger("lictor.adapters.mcp")


class Program:
    """One start of a program. What it writes to stderr is logged (`lictor.adapters.mcp`, level INFO).

    Args:
        name: of the server, for the log.
        command: program and arguments.
        env: variables it gets besides the few that programs need (`PATH`, `HOME`, …).
        cwd: directory it is started in.
    """

    def __init__(self, name: str, command: tuple[str, ...], env: Mapping[str, str], cwd: str | None) -> None:
        self._name = name
        self._command = command
        self._env = env
        self._cwd = cwd
        self._last = b""
        self.exit_code: int | None = None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Start it; the two streams of messages that a client of the `mcp` package works with.

        Raises:
            OSError: it cannot be started.
        """
        from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

        environment = {**get_default_environment(), **self._env}
        if os.name != "posix":
            program, *arguments = self._command
            parameters = StdioServerParameters(command=program, args=arguments, env=environment, cwd=self._cwd)
            async with stdio_client(parameters) as streams:
                yield streams
            return
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self._cwd,
            start_new_session=True,
            limit=MOST_LINE,
        )
        try:
            async with self._connected(process) as streams:
                yield streams
        finally:
            # Before anything is awaited: not even a second cancellation leaves something behind.
            _signal(process.pid, signal.SIGKILL)
            try:
                await _within(LATE_SECONDS, lambda: process.returncode is not None and not _signal(process.pid, 0))
            finally:
                self.exit_code = process.returncode
                transport: Any = getattr(process, "_transport", None)
                if transport is not None:
                    transport.close()  # pipes that a survivor outside the group still holds

    def said(self) -> str:
        """How it ended and the last lines it wrote to stderr, as far as known."""
        lines = [line.strip() for line in self._last.decode("utf-8", "replace").splitlines() if line.strip()]
        ended = [] if self.exit_code is None else [f"exit code {self.exit_code}"]
        return "; ".join([*ended, *lines[-LAST_LINES:]])

    @contextlib.asynccontextmanager
    async def _connected(self, process: asyncio.subprocess.Process) -> AsyncGenerator[tuple[Any, Any]]:
        from anyio import create_memory_object_stream

        arrived, incoming = create_memory_object_stream[Any](0)
        outgoing, leaving = create_memory_object_stream[Any](0)
        with arrived, incoming, outgoing, leaving:
            async with asyncio.TaskGroup() as group:
                reading = [group.create_task(self._read(process, arrived)), group.create_task(self._listen(process))]
                writing = group.create_task(self._write(process, leaving, arrived))
                try:
                    yield incoming, outgoing
                finally:
                    incoming.close()  # what it still says is for nobody; reading on keeps it from blocking
                    writing.cancel()
                    await self._end(process)
                    _, unread = await asyncio.wait(reading, timeout=LATE_SECONDS)
                    for task in unread:  # a survivor that left the group may hold the pipes
                        task.cancel()

    async def _read(self, process: asyncio.subprocess.Process, arrived: Any) -> None:
        """Messages, a line each; lines that are none are logged. At the end, or at a line too long, no more come."""
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        with arrived:
            while line := await self._line(process):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    _log.info("%s: no message, passed over: %.200r", self._name, line)
                    continue
                if not await _passed_on(arrived, SessionMessage(message)):
                    break
        while process.stdout is not None and await process.stdout.read(65536):
            continue

    async def _line(self, process: asyncio.subprocess.Process) -> bytes:
        try:
            return b"" if process.stdout is None else await process.stdout.readline()
        except ValueError:
            _log.warning("%s: a line of more than %d bytes; the server is given up", self._name, MOST_LINE)
            return b""

    async def _write(self, process: asyncio.subprocess.Process, leaving: Any, arrived: Any) -> None:
        if process.stdin is None:
            return
        try:
            async for sent in leaving:
                process.stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
        except OSError:  # it reads no more: end the messages, so that whoever waits for an answer is told
            arrived.close()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Log what it writes to stderr, and keep the end of it."""
        rest = b""
        while process.stderr is not None and (data := await process.stderr.read(4096)):
            self._last = (self._last + data)[-LAST_BYTES:]
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-LAST_BYTES:]
            for line in lines:
                _log.info("%s: %s", self._name, line.decode("utf-8", "replace"))

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End its input, wait, then SIGTERM for all of its group, wait; SIGKILL for what is left comes after this."""
        if process.stdin is not None:
            process.stdin.close()
        await _within(GRACE_SECONDS, lambda: process.returncode is not None)
        if _signal(process.pid, signal.SIGTERM):
            await _within(GRACE_SECONDS, lambda: process.returncode is not None and not _signal(process.pid, 0))


async def _passed_on(arrived: Any, message: Any) -> bool:
    from anyio import BrokenResourceError, ClosedResourceError

    try:
        await arrived.send(message)
    except (BrokenResourceError, ClosedResourceError):
        return False
    return True


async def _within(seconds: float, over: Any) -> bool:
    """Whether something comes true in time; looked at, since `Process.wait` waits for pipes of survivors too."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + seconds
    while not over():
        if loop.time() >= limit:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is anybody in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is there, and belongs to somebody else
        return True
    return True
