"""A run in a terminal, live: members, bars, steps and requests; and, if wanted, the answers to them."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lictor.console.board import Board
from lictor.console.lines import commands_for, event_line
from lictor.console.query import event_view
from lictor.docket import Request
from lictor.errors import LictorError
from lictor.runs import Event, RunResult
from lictor.team import Team

if TYPE_CHECKING:
    from rich.console import Console

    from lictor.console.asking import Choice
    from lictor.runtime import Run

__all__ = ["watch"]

TICK = 0.25  # seconds between two looks at the clock of the view
STORE = "sqlite:///lictor.db"


async def watch(run: Run, decide: bool = False, *, wait: str = "park", console: Console | None = None) -> RunResult:
    """Show a run until it ends or waits for somebody, and return what it came to.

    In a terminal the steps scroll by above a pane with members, limits and open requests; anywhere else each
    event is a plain line.

    Arguments:
        decide: ask about each request that the person at the terminal may decide, as `os:` and the login. What
            others have to decide is waited for. Without a terminal to ask in nobody is asked.
        wait: `park` returns when the run waits (and nobody is asked), `end` when it is over.
        console: where to; stdout by default.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    if not console.is_terminal:
        async for event in run.events(follow=wait == "end"):
            console.print(event_line(event_view(event)), markup=False, soft_wrap=True)
        return await run.result(wait)
    person = _person() if decide else None
    view = _View(run, console)
    while True:
        await view.show(past_parks=person is None and wait == "end", asks=person is not None)
        result = await run.result()
        if result.status != "suspended" or person is None:
            return result
        asked = await run.runtime.docket.pending(responder=person, run=run.id)
        if not asked:
            await view.show(past_parks=True, asks=True, until="request_decided")
        for request in asked:
            if not await view.decide(request, person):
                return result


class _View:
    """What is on the screen, and how far in the log."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._seen = 0
        runtime = run.runtime
        row = runtime.row(run.id)
        definition = runtime.definition(run.id)
        members = tuple(definition.table) if isinstance(definition, Team) else ()
        self._board = Board(
            name=row.definition, members=members, limits=runtime.limits(run.id), started=row.created, now=row.created
        )

    async def show(self, *, past_parks: bool, asks: bool = False, until: str | None = None) -> None:
        """Follow the run to its next park or end, or past parks to an event of the kind `until`."""
        from rich.live import Live

        with Live(self._pane(), console=self._console, auto_refresh=False) as live:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(self._tick(live))
                async with aclosing(self._run.events(after=self._seen, follow=past_parks)) as events:
                    async for event in events:
                        await self._take(event, live)
                        if event.kind == until:
                            break
                ticking.cancel()
            live.update(self._pane(), refresh=True)
            live.transient = asks and self._run.status == "waiting"  # the question takes the place of the pane

    async def _tick(self, live: Any) -> None:
        while True:
            await asyncio.sleep(TICK)  # of the screen, not of the run
            self._board.now = self._run.runtime.clock.now()
            live.update(self._pane(), refresh=True)

    async def _take(self, event: Event, live: Any) -> None:
        from lictor.console.pane import line_text

        self._seen = event.cursor
        for line in self._board.take(event, await self._detail(event)):
            clock = time.strftime("%H:%M:%S", time.localtime(line.at))
            live.console.print(line_text(line, clock), soft_wrap=True)
        live.update(self._pane(), refresh=True)

    async def _detail(self, event: Event) -> Mapping[str, Any]:
        runtime = self._run.runtime
        if event.kind == "request_opened":
            return {"request": await runtime.docket.get(event.payload["request"])}
        return {}

    def _pane(self) -> Any:
        from lictor.console.pane import pane

        return pane(self._board, self._run.id, self._commands(), self._console.width)

    def _commands(self) -> Mapping[str, str]:
        url = self._run.runtime.store.url
        if not url.startswith("sqlite:///"):
            return {}
        store = None if url == (os.environ.get("LICTOR_STORE") or STORE) else url
        every = {
            each.id: commands_for({"verbs": each.verbs}, each.id[:8], store) for each in self._board.requests.values()
        }
        return {request: commands[0] for request, commands in every.items() if commands}

    # asking

    async def decide(self, request: Request, person: str) -> bool:
        """Ask until there is an answer that the docket takes, here or elsewhere; False when nobody types any more."""
        from lictor.console.asking import choose

        while True:
            asked = await _first(choose(self._console, request), self._elsewhere(request))
            if asked is _ELSEWHERE:
                self._console.print("\nsomebody decided it in another process", style="dim")
                return True
            if asked is None:
                return False
            choice: Choice = asked
            try:
                await self._run.runtime.docket.decide(
                    request.id, choice.verb, by=person, digest=request.digest, **choice.options()
                )
            except LictorError as error:  # an edit that does not fit the tool, for one
                self._console.print(f"not taken: {error}", style="yellow", markup=False)
            else:
                return True

    async def _elsewhere(self, request: Request) -> Any:
        """Wait until another process decides the request or ends the run."""
        async with aclosing(self._run.events(after=self._seen, follow=True)) as events:
            async for event in events:
                if event.kind == "request_decided" and event.payload["request"] == request.id:
                    break
        return _ELSEWHERE


_ELSEWHERE = object()


async def _first(asked: Coroutine[Any, Any, Any], elsewhere: Coroutine[Any, Any, Any]) -> Any:
    """What comes first; the other one is given up."""
    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(asked), group.create_task(elsewhere)}
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
    return next(iter(done)).result()


def _person() -> str | None:
    """Who is at the terminal; None when nobody can be asked there."""
    if not (sys.stdin and sys.stdin.isatty()):
        return None
    try:
        return f"os:{getpass.getuser()}"
    except (OSError, KeyError, ImportError):  # no such user, for example in a container
        return "os:unknown"
