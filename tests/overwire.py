"""Whole agent runs over a real socket: an Agent, the OpenAI adapter, a FaultServer, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from driving import Played, play

from lictor import Agent, OpenAIModel, tool
from lictor.agent import problems_of
from lictor.testing import FaultServer, StrictProvider
from lictor.testing.wire import chunk, piece, sse, usage
from lictor.values import Clock

READ = piece(0, "a", "read", '{"p": 1}')
WRITE = piece(1, "b", "write", '{"q": "é🍸"}')
BOTH = [("read", 1), ("write", "é🍸")]
CALLS = sse(
    chunk("Let me see: "),
    chunk("naïve 🍸."),
    chunk(calls=[piece(0, "a", "read", '{"p":'), piece(1, "b", "write", "")]),
    chunk(calls=[piece(1, arguments='{"q": "é🍸"}'), piece(0, arguments=" 1}")]),
    chunk(finish="tool_calls"),
    usage(10, 20, 5),
)
"""Text, two calls whose pieces alternate, characters of two to four bytes, usage. `BOTH` is what it runs."""

DONE = sse(chunk("Done."), chunk(finish="stop"), usage(7, 3))
"""The final answer."""


class Waits(Clock):
    """A clock that keeps what it is asked to wait, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def sleep(self, seconds: float, *, jump: bool = True) -> None:
        """Write it down."""
        self.asked.append(seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True, kw_only=True)
class Served:
    """A run over the wire.

    `ran` are the tool calls that were executed, (tool, argument); `requests` the bodies that the server
    got; `codes` the failed attempts; `waits` the seconds that were waited for between attempts.
    """

    played: Played
    ran: list[tuple[str, Any]]
    requests: list[dict[str, Any]]
    codes: list[str]
    waits: list[float]

    @property
    def outcome(self) -> tuple[str, str | None]:
        """Status and reason."""
        return self.played.status, self.played.reason

    @property
    def told(self) -> list[str]:
        """What the model was told last: the contents of the tool messages and of a re-ask in the last request."""
        return [message["content"] for message in self.requests[-1]["messages"] if message["role"] == "tool"]


def tools(ran: list[tuple[str, Any]]) -> list[Any]:
    """The tools `read(p: int)` and `write(q: str)`; they add what they were called with to `ran`."""

    @tool(effect="pure")
    async def read(p: int) -> str:
        """Read."""
        ran.append(("read", p))
        return f"read {p}"

    @tool(effect="pure")
    async def write(q: str) -> str:
        """Write."""
        ran.append(("write", q))
        return f"wrote {q}"

    return [read, write]


async def served(entries: Iterable[Any], how: str = "plain", *, split: int | None = None, **agent: Any) -> Served:
    """Run an agent with `tools` against a server with these entries; `agent` are more arguments of Agent.

    Whatever came of it: the histories of all requests and of the run are valid, and the usage is the sum
    of what the log says (`play` checks that).
    """
    ran: list[tuple[str, Any]] = []
    clock = Waits()
    async with FaultServer(entries, split=split) as server:
        model = OpenAIModel("m", base_url=server.base_url)
        clerk = Agent("clerk", **{"model": StrictProvider(model), "tools": tools(ran), **agent})
        played = await play(clerk, how=how, clock=clock)
        await model.aclose()
    assert_valid(request["messages"] for request in server.requests)
    assert_valid([played.messages])
    codes = [event.payload["error"] for event in played.events if event.kind == "model_retry"]
    return Served(played=played, ran=ran, requests=server.requests, codes=codes, waits=clock.asked)


def assert_valid(histories: Iterable[Sequence[Any]]) -> None:
    """Every one of these histories is one that a provider takes."""
    assert [problem for history in histories for problem in problems_of(history)] == []
