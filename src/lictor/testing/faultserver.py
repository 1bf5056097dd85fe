"""A model endpoint on loopback that speaks real HTTP and fails like the real ones."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any

from lictor.errors import DefinitionError, ModelError
from lictor.models import ModelResponse, Reply, ScriptedModel, TextDelta

__all__ = ["FaultServer", "HttpReply"]

FRAMINGS = ("chunked", "length", "close")
ENDS = ("clean", "cut", "reset")
MODEL = "test-model"
CODES: Mapping[str, int] = {"rate_limit": 429, "auth": 401, "bad_request": 400, "conflict": 409, "timeout": 408}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An answer to the byte.

    Arguments:
        parts: pieces of the body; with chunked framing each reaches the client as a piece of its own.
        status: of the answer; 0 sends nothing at all.
        headers: besides those of the framing; an event stream unless it says otherwise.
        framing: `chunked`, `length` (a Content-Length) or `close` (the body ends with the connection).
        end: `clean`, `cut` (closed before the body is complete) or `reset` (a TCP reset).

    Raises DefinitionError for another framing or end.
    """

    parts: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "chunked"
    end: str = "clean"

    def __post_init__(self) -> None:
        if self.framing not in FRAMINGS or self.end not in ENDS:
            raise DefinitionError(
                f"framing={self.framing!r}, end={self.end!r}: use {' or '.join(FRAMINGS)}, and {' or '.join(ENDS)}"
            )


class FaultServer:
    """`async with FaultServer([say("hi"), fail(429)]) as server:`, then talk to `server.base_url`.

    It answers chat completions as an OpenAI compatible endpoint does, one entry for each request, in
    the order they come; past the end it answers 500.

    Arguments:
        entries: entries of a script (`say`, `call`, a list of calls, `chunks`, `fail`, text), bytes of
            an event stream, or HttpReplies.
        split: cuts every body into pieces of this many bytes; 1 parts each character from the next.

    Attributes:
        base_url: where it listens, `http://127.0.0.1:PORT/v1`.
        requests: the bodies received. headers: the header fields of each, in lower case.

    Raises DefinitionError for what is no entry, or cannot be said over this wire (`hosted`, functions).
    """

    def __init__(self, entries: Iterable[Any] = (), *, split: int | None = None) -> None:
        if split is not None and split < 1:
            raise DefinitionError(f"split={split}: give a number of bytes of at least 1")
        self._replies = [_split(_reply(entry), split) for entry in entries]
        self._handlers: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.base_url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        if handler is not None:
            self._handlers.add(handler)
        try:
            while await self._receive(reader) and await self._answer(self._next(), writer):
                pass
        except ConnectionError:
            pass  # clients may leave
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            if handler is not None:
                self._handlers.discard(handler)
            writer.close()

    def _next(self) -> HttpReply:
        served = len(self.requests) - 1
        over = _error(500, f"the script has {len(self._replies)} entries and was asked {served + 1} times")
        return self._replies[served] if served < len(self._replies) else over

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

    async def _answer(self, reply: HttpReply, writer: asyncio.StreamWriter) -> bool:
        """Send one reply; True if the connection stays open."""
        chunked = reply.framing == "chunked"
        if reply.status:
            writer.write(_head(reply))
        for part in reply.parts:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        if reply.end == "clean" and chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.end == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        return reply.end == "clean" and reply.framing != "close"


def _head(reply: HttpReply) -> bytes:
    headers = {"Content-Type": "text/event-stream", **reply.headers}
    if reply.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif reply.framing == "length":
        headers["Content-Length"] = str(sum(map(len, reply.parts)))
    else:
        headers["Connection"] = "close"
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{fields}\r\n".encode()


def _split(reply: HttpReply, size: int | None) -> HttpReply:
    if size is None:
        return reply
    body = b"".join(reply.parts)
    return replace(reply, parts=[body[start : start + size] for start in range(0, len(body), size)])


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
    return HttpReply(parts=[*map(_sse, _chunks(scripted)), b"data: [DONE]\n\n"])


def _failing(reply: Reply, error: ModelError) -> HttpReply:
    """A failure: after text the stream breaks, before it an error with its status, or no answer at all."""
    pieces = [event.text for event in reply.events if isinstance(event, TextDelta)]
    if pieces or error.code == "stream_cut":
        parts = [_sse(_choice({"content": piece})) for piece in pieces]
        return HttpReply(parts=parts, end="cut")
    status = error.status or CODES.get(error.code, 0)
    if error.code == "server_error":
        status = error.status or 500
    if not status:
        return HttpReply(status=0, end="reset")
    headers = {} if error.retry_after is None else {"Retry-After": f"{error.retry_after:g}"}
    return _error(status, str(error), headers)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> HttpReply:
    body = json.dumps({"error": {"message": message, "type": "test", "code": None}}).encode()
    fields = {"Content-Type": "application/json", **(headers or {})}
    return HttpReply(parts=[body], status=status, headers=fields, framing="length")


def _chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed completion: deltas, calls, the finish reason, the usage."""
    response = reply.response
    if response.hosted:
        raise DefinitionError("hosted(...) is no part of the chat completions API; use a ScriptedModel")
    for event in reply.events:
        if not isinstance(event, ModelResponse):
            yield _choice({"content" if isinstance(event, TextDelta) else "reasoning_content": event.text})
    if response.refusal is not None:
        yield _choice({"refusal": response.refusal})
    for index, call in enumerate(response.calls):
        function = {"name": call.name, "arguments": call.arguments}
        given = {} if call.id is None else {"id": call.id}
        yield _choice({"tool_calls": [{"index": index, "type": "function", **given, "function": function}]})
    yield _choice({}, response.finish)
    usage = response.usage
    if usage is not None:
        details = {"cached_tokens": usage.cached_tokens}
        numbers = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        yield _envelope([], usage={**numbers, "total_tokens": usage.total_tokens, "prompt_tokens_details": details})


def _choice(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return _envelope([{"index": 0, "delta": delta, "finish_reason": finish}])


def _envelope(choices: Sequence[Any], **more: Any) -> dict[str, Any]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return {**frame, "choices": choices, **more}


def _sse(chunk: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(chunk, ensure_ascii=False).encode()
