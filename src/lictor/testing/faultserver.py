"""A model endpoint on loopback that speaks real HTTP and fails like the real ones."""

from __future__ import annotations

import asyncio
import enum
import json
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from lictor.errors import DefinitionError, ModelError
from lictor.models import ModelResponse, Reply, ScriptedModel, TextDelta
from lictor.testing.wire import chunk, piece, sse, usage

__all__ = ["PAUSE", "FaultServer", "HttpReply"]

FRAMINGS = ("chunked", "length", "close")
ENDS = ("clean", "cut", "reset")
CODES: Mapping[str, int] = {"rate_limit": 429, "auth": 401, "bad_request": 400, "conflict": 409, "timeout": 408}


class _Pause(enum.Enum):
    PAUSE = "PAUSE"


PAUSE: Final = _Pause.PAUSE
"""Among the parts of a reply: nothing more is sent until `server.release()`, or until the client leaves."""

Part: TypeAlias = bytes | Literal[_Pause.PAUSE]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An answer to the byte.

    Arguments:
        parts: pieces of the body, and PAUSE; with chunked framing each piece reaches the client as a
            piece of its own.
        status: of the answer; 0 sends nothing at all.
        headers: besides those of the framing; an event stream unless it says otherwise.
        framing: `chunked`, `length` (a Content-Length) or `close` (the body ends with the connection).
        end: `clean`, `cut` (closed before the body is complete) or `reset` (a TCP reset).

    Raises DefinitionError for another framing or end.
    """

    parts: Sequence[Part] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "chunked"
    end: str = "clean"

    def __post_init__(self) -> None:
        if self.framing not in FRAMINGS or self.end not in ENDS:
            raise DefinitionError(
                f"framing={self.framing!r}, end={self.end!r}: use {' or '.join(FRAMINGS)}, and {' or '.join(ENDS)}"
            )

    @classmethod
    def json(cls, body: Any, *, status: int = 200, **headers: str) -> HttpReply:
        """An answer that is one JSON document, with a length; `retry_after="2"` is the header Retry-After."""
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        fields = {"Content-Type": "application/json", **named}
        return cls(parts=[json.dumps(body).encode()], status=status, headers=fields, framing="length")

    @classmethod
    def error(cls, status: int, message: str, *, code: str | None = None, **headers: str) -> HttpReply:
        """An error as the API words it; headers as in `json`."""
        return cls.json({"error": {"message": message, "type": "test", "code": code}}, status=status, **headers)


class FaultServer:
    """`async with FaultServer([say("hi"), fail(429)]) as server:`, then talk to `server.base_url`.

    It answers chat completions as an OpenAI compatible endpoint does, one entry for each request, in
    the order they come; past the end it answers 500.

    Arguments:
        entries: entries of a script (`say`, `call`, a list of calls, `chunks`, `fail`, text), bytes of
            an event stream (`lictor.testing.wire` writes them), or HttpReplies.
        split: cuts every body into pieces of this many bytes; 1 parts each character from the next.

    Attributes:
        base_url: where it listens, `http://127.0.0.1:PORT/v1`.
        requests: the bodies received. headers: the header fields of each, in lower case.
        connections: how many connections were opened.
        paused, hung_up: asyncio.Events, set when a reply stands at PAUSE, and when a client has closed
            a connection; clear them to wait for the next.

    Raises DefinitionError for what is no entry, or cannot be said over this wire (`hosted`, functions).
    """

    def __init__(self, entries: Iterable[Any] = (), *, split: int | None = None) -> None:
        if split is not None and split < 1:
            raise DefinitionError(f"split={split}: give a number of bytes of at least 1")
        self._replies = [_split(_reply(entry), split) for entry in entries]
        self._handlers: set[asyncio.Task[Any]] = set()
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.base_url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.paused = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def __aenter__(self) -> FaultServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    def release(self) -> None:
        """Let every reply that stands at PAUSE go on; the next PAUSE stops again."""
        released, self._released = self._released, asyncio.Event()
        self.paused.clear()
        released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        if handler is not None:
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
            if handler is not None:
                self._handlers.discard(handler)
            writer.close()

    def _next(self) -> HttpReply:
        served = len(self.requests) - 1
        over = f"the script has {len(self._replies)} entries and was asked {served + 1} times"
        return self._replies[served] if served < len(self._replies) else HttpReply.error(500, over)

    async def _receive(self, reader: asyncio.StreamReader) -> bool:
        """Read one request; False at the end of the connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        pairs = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.headers.append(headers)
        self.requests.append(json.loads(body) if body else {})
        return True

    async def _answer(self, reply: HttpReply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one reply; True if the connection stays open."""
        chunked = reply.framing == "chunked"
        if reply.status:
            writer.write(_head(reply))
        for part in reply.parts:
            if part is PAUSE:
                await writer.drain()
                await self._pause(reader)
                continue
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        if reply.end == "clean" and chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        return reply.end == "clean" and reply.framing != "close"

    async def _pause(self, reader: asyncio.StreamReader) -> None:
        """Wait for `release`. Raises ConnectionResetError when the client leaves before."""
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


def _head(reply: HttpReply) -> bytes:
    headers = {"Content-Type": "text/event-stream", **reply.headers}
    if reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif reply.framing == "length":
        headers.setdefault("Content-Length", str(sum(len(part) for part in reply.parts if part is not PAUSE)))
    else:
        headers["Connection"] = "close"
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{fields}\r\n".encode()


def _split(reply: HttpReply, size: int | None) -> HttpReply:
    if size is None:
        return reply
    return replace(reply, parts=[cut for part in reply.parts for cut in _cut(part, size)])


def _cut(part: Part, size: int) -> Sequence[Part]:
    return [part] if part is PAUSE else [part[start : start + size] for start in range(0, len(part), size)]


def _reply(entry: Any) -> HttpReply:
    """What an entry is on the wire."""
    if isinstance(entry, HttpReply):
        return entry
    if isinstance(entry, bytes):
        return HttpReply(parts=[entry])
    (scripted,) = ScriptedModel([entry])._script
    if not isinstance(scripted, Reply):
        raise DefinitionError("a FaultServer takes no functions: what it answers is known before")
    if scripted.failure is not None:
        return _failing(scripted, scripted.failure.error())
    return HttpReply(parts=[*(sse(each, done=False) for each in _chunks(scripted)), sse()])


def _failing(reply: Reply, error: ModelError) -> HttpReply:
    """A failure: after text the stream breaks, before it an error with its status, or no answer at all."""
    pieces = [event.text for event in reply.events if isinstance(event, TextDelta)]
    if pieces or error.code == "stream_cut":
        return HttpReply(parts=[sse(chunk(text), done=False) for text in pieces], end="cut")
    status = error.status or CODES.get(error.code, 0)
    if error.code == "server_error":
        status = error.status or 500
    if not status:
        return HttpReply(status=0, end="reset")
    wait = {} if error.retry_after is None else {"retry_after": f"{error.retry_after:g}"}
    return HttpReply.error(status, str(error), **wait)


def _chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed completion: deltas, calls, the finish reason, the usage."""
    response = reply.response
    if response.hosted:
        raise DefinitionError("hosted(...) is no part of the chat completions API; use a ScriptedModel")
    for event in reply.events:
        if not isinstance(event, ModelResponse):
            yield chunk(event.text) if isinstance(event, TextDelta) else chunk(reasoning_content=event.text)
    if response.refusal is not None:
        yield chunk(refusal=response.refusal)
    for index, call in enumerate(response.calls):
        yield chunk(calls=[{**piece(index, call.id, call.name, call.arguments), "type": "function"}])
    yield chunk(finish=response.finish)
    if response.usage is not None:
        yield usage(response.usage.input_tokens, response.usage.output_tokens, response.usage.cached_tokens)
