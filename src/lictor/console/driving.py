"""Runs driven by the command line: to the next park or the end, and what is printed of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from lictor.console.cli import FAILED, INTERRUPTED
from lictor.console.opening import fail, go, print_json, say, url_of
from lictor.errors import DefinitionNotFound, NotResumable, PolicyChanged

if TYPE_CHECKING:
    from lictor.agent import Agent
    from lictor.runtime import Run, Runtime
    from lictor.team import Team

__all__ = ["GRACE", "drive", "go_on", "request_lines", "show_result", "watched"]

GRACE = 2.0  # seconds that leaving waits for a step under way


def drive(
    definitions: Mapping[str, Agent | Team],
    begin: Callable[[Runtime], Awaitable[Run]],
    store: str | None,
    wait: str,
    as_json: bool,
    watch: bool = False,
) -> None:
    """Drive a run to its next park or its end, and print what it came to."""
    from lictor.console import query

    url = url_of(store)
    started: list[str] = []

    async def work() -> tuple[dict[str, Any], list[str]]:
        from lictor.runtime import Runtime

        async with Runtime(url, definitions=definitions, drive="own", grace=GRACE) as runtime:
            handle = await begin(runtime)
            started.append(handle.id)
            if watch or wait == "end":
                await _tell(runtime, handle, store, wait, err=as_json, watch=watch)
            view = query.result_view(await handle.result(wait))
            waits = request_lines(runtime, view["requests"], store)
            return view | {"commands": _commands(runtime, view, store)}, waits

    try:
        view, waits = go(work())
    except KeyboardInterrupt:
        from lictor.console.lines import resume_command

        told = f"go on with: {resume_command(started[0], store)}" if started else "nothing was started"
        typer.echo(err=True)
        fail(INTERRUPTED, f"interrupted; {told}")
    show_result(view, waits, store, as_json)


async def _tell(runtime: Runtime, handle: Run, store: str | None, wait: str, *, err: bool, watch: bool) -> None:
    """Follow a run, and say on the way what it waits for; with `watch` everything that it does."""
    from lictor.console import query
    from lictor.console.lines import event_line

    if watch and not err and sys.stdout.isatty():
        from lictor.console import terminal

        await terminal.watch(handle, wait=wait)
        return
    async for event in handle.events(follow=wait == "end"):
        if watch:
            say([event_line(query.event_view(event))], err=err)
        if event.kind == "request_opened" and wait == "end":
            request = await runtime.docket.get(event.payload["request"])
            if request.status == "pending":
                say(request_lines(runtime, [query.request_view(request)], store), err=err)


async def watched(runtime: Runtime, run_id: str, after: int, tell: Callable[[dict[str, Any]], None]) -> None:
    """Tell the events of a run behind a cursor as they come, whoever drives it, to its end."""
    from lictor.console import query

    async for event in (await runtime.run(run_id)).events(after=after, follow=True):
        tell(query.event_view(event))


async def go_on(runtime: Runtime, run_id: str) -> tuple[dict[str, Any] | None, str | None]:
    """Drive a run to its next park or its end, if nobody else does and its agent can be loaded.

    Gives what it came to, or why it was left; then `lictor resume` goes on with it.
    """
    from lictor.console import query
    from lictor.runs import TERMINAL

    row = runtime.row(run_id)
    if runtime.store.holder(run_id, runtime.clock.now()) is not None:
        return None, "another process drives the run and goes on with it"
    if row.source is None:
        return None, "the process that started the run goes on with it, or lictor resume --definitions FILE.py:NAME"
    try:
        handle = await (runtime.run if row.status in TERMINAL else runtime.resume)(run_id)
        return query.result_view(await handle.result()), None
    except (DefinitionNotFound, NotResumable, PolicyChanged) as error:
        from lictor.console.opening import line_of

        return None, line_of(error)


def show_result(
    view: Mapping[str, Any], waits: Sequence[str], store: str | None, as_json: bool, printed: bool = False
) -> None:
    """Print what a run came to, unless that is `printed`, and end with 1 unless it is completed or waits."""
    from lictor.console.lines import inline, resume_command, whole

    if as_json and not printed:
        print_json(view)
    elif not as_json:
        typer.echo(f"run {view['run_id']}: {view['status']}")
        say(waits)
        if view["status"] == "completed":
            answer = view["answer"]
            typer.echo(whole(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)))
    if view["status"] not in ("completed", "suspended"):
        why = inline(view["error"] or view["reason"] or "no reason given")
        by = f" by {inline(view['by'])}" if view["by"] else ""
        again = f"; try again with: {resume_command(view['run_id'], store)}" if view["resumable"] else ""
        fail(FAILED, f"run {view['run_id']} {view['status']}{by}: {why}{again}")


def request_lines(runtime: Runtime, views: Sequence[Mapping[str, Any]], store: str | None) -> list[str]:
    """Open requests as people read them, with the commands that decide them."""
    from lictor.console import lines

    short = _short_requests(runtime)
    return [line for view in views for line in lines.request_lines(view, short[view["id"]], store)]


def _commands(runtime: Runtime, view: Mapping[str, Any], store: str | None) -> list[str]:
    from lictor.console.lines import commands_for

    short = _short_requests(runtime)
    return [command for each in view["requests"] for command in commands_for(each, short[each["id"]], store)]


def _short_requests(runtime: Runtime) -> dict[str, str]:
    from lictor.console import query
    from lictor.docket import REQUESTS

    return query.short_ids(runtime.store.table(REQUESTS))
