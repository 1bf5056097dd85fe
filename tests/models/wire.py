"""An HTTP server on loopback that answers chat completions with exactly the bytes a test wants.

`FaultServer` serves one `Reply` per request, in order. A reply is a list of parts; with chunked framing
(the default) each part reaches the client as a piece of its own, however the network packs it, so a test
decides where a stream is split. `PAUSE` among the parts waits for `server.release()`.

The builders below make the bodies: `sse(chunk(...), chunk(...))`.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

PAUSE = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one request gets.

    parts: pieces of the body (bytes), and `PAUSE`.
    status, headers: of the answer; status 0 sends nothing at all.
    framing: `chunked`, `length` (a Content-Length), or `close` (the body ends with the connection).
    end: `clean`, `cut` (closed before the body is complete) or `reset` (a TCP reset).
    """

    parts: tuple = ()
    status: int = 200
    headers: dict = field(default_factory=dict)
    framing: str = "chunked"
    end: str = "clean"


class FaultServer:
    """`async with FaultServer([reply, …]) as server:`, then talk to `server.base_url`.

    A reply may also be bytes: one part of an event stream. Past the last reply every request gets a 500.
    `requests` are the bodies received, `headers` the header fields of each (lower case),
    `connections` how many connections were opened.
    """

    def __init__(self, replies: Iterable[Reply | bytes] = ()) -> None:
        self._replies = [stream(each) if isinstance(each, bytes) else each for each in replies]
        self._handlers: set[asyncio.Task] = set()
        self._released = asyncio.Event()
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.paused = asyncio.Event()  # a reply stands at PAUSE
        self.hung_up = asyncio.Event()  # a client closed its connection

    async def __aenter__(self) -> "FaultServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    def release(self) -> None:
        """Let a reply at PAUSE go on, and all later ones pass."""
        self._released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        self._handlers.add(handler)
        self.connections += 1
        try:
            while await self._receive(reader) and await self._answer(self._next(), reader, writer):
                pass
        except ConnectionError:
            pass  # clients may leave
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self.hung_up.set()
            self._handlers.discard(handler)
            writer.close()

    def _next(self) -> Reply:
        served = len(self.requests) - 1
        return self._replies[served] if served < len(self._replies) else error_reply(500, "the script is over")

    async def _receive(self, reader: asyncio.StreamReader) -> bool:
        """Read one request; False at the end of the connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        lines = head.decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append(headers)
        self.requests.append(json.loads(body) if body else {})
        return True

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one reply; True if the connection stays open."""
        if reply.status:
            writer.write(_head(reply))
        for part in reply.parts:
            if part is PAUSE:
                await writer.drain()
                await self._pause(reader)
            else:
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if reply.framing == "chunked" else part)
                await writer.drain()
        if reply.end == "clean" and reply.framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.end == "reset":
            linger = struct.pack("ii", 1, 0)  # close with a reset, not with the usual goodbye
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return reply.end == "clean" and reply.framing != "close"

    async def _pause(self, reader: asyncio.StreamReader) -> None:
        """Wait for release, or for the client to leave."""
        self.paused.set()
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(reader.read(1))
            freed = group.create_task(self._released.wait())
            await asyncio.wait({gone, freed}, return_when=asyncio.FIRST_COMPLETED)
            left = gone.done()
            gone.cancel()
            freed.cancel()
        if left:
            raise ConnectionResetError("the client left")


def _head(reply: Reply) -> bytes:
    headers = {"Content-Type": "text/event-stream"} | reply.headers
    if reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif reply.framing == "length":
        headers["Content-Length"] = str(sum(len(part) for part in reply.parts if part is not PAUSE))
    else:
        headers["Connection"] = "close"
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{fields}\r\n".encode()


def stream(*parts: object, **fields: object) -> Reply:
    """A streamed answer in these parts."""
    return Reply(parts=parts, **fields)


def error_reply(status: int, message: str, *, code: object = None, **headers: str) -> Reply:
    """An error as the API words it; `retry_after="2"` becomes a Retry-After header."""
    body = {"error": {"message": message, "type": "test", "code": code}}
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return json_reply(body, status=status, **named)


def json_reply(body: object, *, status: int = 200, **headers: str) -> Reply:
    """An answer that is one JSON document."""
    fields = {"Content-Type": "application/json"} | headers
    return Reply(parts=(json.dumps(body).encode(),), status=status, headers=fields, framing="length")


def sse(*chunks: object, done: bool = True) -> bytes:
    """An event stream of these chunks (bytes stand for themselves), with `[DONE]` at its end."""
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in chunks]
    return b"".join(b"data: %b\n\n" % line for line in [*lines, *([b"[DONE]"] if done else [])])


def chunk(content: str | None = None, *, calls: Iterable[dict] = (), finish: str | None = None, **more: object) -> dict:
    """One chunk with one choice; `more` are further fields of its delta."""
    delta = {"content": content, "tool_calls": list(calls), **more}
    filled = {name: value for name, value in delta.items() if value not in (None, [])}
    return envelope({"index": 0, "delta": filled, "finish_reason": finish})


def envelope(*choices: object, **fields: object) -> dict:
    """A chunk around any choices."""
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    return frame | {"choices": list(choices)} | fields


def usage(spent: int, made: int, cached: int = 0) -> dict:
    """The chunk with the usage, which has no choices."""
    numbers = {"prompt_tokens": spent, "completion_tokens": made, "total_tokens": spent + made}
    return envelope(usage=numbers | {"prompt_tokens_details": {"cached_tokens": cached}})


def piece(index: object = 0, id: object = None, name: str | None = None, arguments: object = None) -> dict:
    """A piece of a tool call, with only the fields that are given."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {"index": index, "id": id, "function": function}
    return {key: value for key, value in fields.items() if value is not None}
