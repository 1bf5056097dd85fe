"""The verbs of `lictor` over a stored run: start it, look at it, decide, stop it, go on with it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lictor.console.cli import FAILED, INTERRUPTED, USAGE, app
from lictor.console.opening import (
    As,
    Json,
    RequestId,
    RunId,
    Store,
    Wait,
    actor_of,
    existing,
    fail,
    go,
    line_of,
    print_json,
    read,
    say,
    url_of,
)
from lictor.errors import DefinitionError, LictorError, NotResumable

if TYPE_CHECKING:
    from lictor.agent import Agent
    from lictor.runtime import Run, Runtime

__all__: list[str] = []

GRACE = 2.0  # seconds that leaving waits for a step under way

# ---- running ----------------------------------------------------------------------------------


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file.py:agent or module:agent")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the agent is to do.")],
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The same key gives the same run, never a second one.")
    ] = None,
    store: Store = None,
    wait: Wait = "park",
    as_json: Json = False,
) -> None:
    """Start an agent on a task, in a store.

    Prints the outcome, or what the run waits for and the commands that decide it: it may be decided in any other
    process, now or in a week. A run that waits ends this command with 0, as a completed one; any other end is 1. Killed
    or interrupted, a run is not lost: `lictor resume` goes on with it.
    """
    agent = _loaded(target)

    async def begin(runtime: Runtime) -> Run:
        handle = await runtime.start(agent, task, key=key, source=_place_of(target))
        row = runtime.row(handle.id)
        if row.definition != agent.name:
            raise DefinitionError(
                f"the key {key!r} is that of run {row.run_id} of {row.definition!r}; give another --key"
            )
        return handle

    _drive({agent.name: agent}, begin, store, wait, as_json)


@app.command()
def resume(
    run_id: RunId,
    definitions: Annotated[
        str | None,
        typer.Option("--definitions", metavar="TARGET", help="file.py:agent, when not where the run was started from."),
    ] = None,
    accept_policy_change: Annotated[
        bool,
        typer.Option("--accept-policy-change", help="Go on under another policy; what is undecided is asked anew."),
    ] = False,
    store: Store = None,
    wait: Wait = "park",
    as_json: Json = False,
) -> None:
    """Go on with a run that nobody drives.

    That is one whose process was killed, one that was decided or cancelled while no process was there, or a failed one
    that may have another attempt. What was done is not done again.
    """

    async def place(runtime: Runtime) -> tuple[str, str, str | None]:
        from lictor.console import query

        row = runtime.row(query.find_run(runtime, run_id))
        return row.run_id, row.definition, row.source

    known, name, source = read(store, place)
    agent = _definition(known, name, definitions or source, given=definitions is not None)

    async def begin(runtime: Runtime) -> Run:
        return await runtime.resume(known, accept_policy_change=accept_policy_change)

    _drive({name: agent}, begin, store, wait, as_json)


def _place_of(target: str) -> str:
    """A target that means the same from another folder, if it is a file."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else target


def _loaded(target: str) -> Agent:
    from lictor.runtime import agent_of

    try:
        return agent_of(target)
    except LictorError as error:
        fail(USAGE, line_of(error))


def _definition(run_id: str, name: str, target: str | None, *, given: bool) -> Agent:
    """The agent of a stored run, from where it was started or where the caller says."""
    if target is None:
        fail(USAGE, f"run {run_id} does not say where {name!r} is loaded from; add --definitions FILE.py:NAME")
    if not given and target.rpartition(":")[0].endswith(".py") and not Path(target.rpartition(":")[0]).is_file():
        fail(USAGE, f"{target.rpartition(':')[0]} is gone; add --definitions FILE.py:NAME with the agent {name!r}")
    agent = _loaded(target)
    if agent.name != name:
        fail(
            USAGE, f"run {run_id} is one of {name!r}, and {target} is {agent.name!r}; name the other with --definitions"
        )
    return agent


def _drive(
    definitions: Mapping[str, Agent],
    begin: Callable[[Runtime], Awaitable[Run]],
    store: str | None,
    wait: str,
    as_json: bool,
) -> None:
    """Drive a run to its next park or its end, and print what it came to."""
    from lictor.console import query

    url = url_of(store)
    started: list[str] = []

    async def work() -> tuple[dict[str, Any], list[str]]:
        from lictor.runtime import Runtime

        async with Runtime(url, definitions=definitions, grace=GRACE) as runtime:
            handle = await begin(runtime)
            started.append(handle.id)
            if wait == "end":
                await _tell_waits(runtime, handle, store, as_json)
            view = query.result_view(await handle.result(wait))
            waits = _request_lines(runtime, view["requests"], store)
            return view | {"commands": _commands(runtime, view, store)}, waits

    try:
        view, waits = go(work())
    except KeyboardInterrupt:
        from lictor.console.lines import resume_command

        told = f"go on with: {resume_command(started[0], store)}" if started else "nothing was started"
        typer.echo(err=True)
        fail(INTERRUPTED, f"interrupted; {told}")
    _show_result(view, waits, store, as_json)


async def _tell_waits(runtime: Runtime, handle: Run, store: str | None, as_json: bool) -> None:
    """Follow a run to its end, and say on the way what it waits for."""
    from lictor.console import query

    async for event in handle.events(follow=True):
        if event.kind == "request_opened":
            request = await runtime.docket.get(event.payload["request"])
            if request.status == "pending":
                say(_request_lines(runtime, [query.request_view(request)], store), err=as_json)


def _commands(runtime: Runtime, view: Mapping[str, Any], store: str | None) -> list[str]:
    from lictor.console.lines import commands_for

    short = _short_requests(runtime)
    return [command for each in view["requests"] for command in commands_for(each, short[each["id"]], store)]


def _show_result(view: Mapping[str, Any], waits: Sequence[str], store: str | None, as_json: bool) -> None:
    from lictor.console.lines import inline, resume_command, whole

    if as_json:
        print_json(view)
    else:
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


# ---- looking ----------------------------------------------------------------------------------


@app.command()
def runs(store: Store = None, as_json: Json = False) -> None:
    """List the runs of a store, newest last."""
    from lictor.console import query
    from lictor.console.lines import run_lines

    found = read(store, query.runs)
    if as_json:
        print_json({"runs": found})
        return
    say(run_lines(found))


@app.command()
def trace(run_id: RunId, store: Store = None, as_json: Json = False) -> None:
    """Print what a run did, event by event, runs below it included.

    With --json also its transcript, its requests and the decisions that were refused. Nothing is shown that was denied.
    """
    from lictor.console import query
    from lictor.console.lines import event_line, inline

    async def ask(runtime: Runtime) -> dict[str, Any]:
        return await query.trace(runtime, query.find_run(runtime, run_id))

    found = read(store, ask)
    if as_json:
        print_json(found)
        return
    row = found["run"]
    typer.echo(f"run {row['run_id']}: {row['status']}, agent {inline(row['agent'])}, since {row['created']}")
    say(map(event_line, found["events"]))


@app.command()
def inbox(
    actor: Annotated[
        str | None, typer.Option("--as", metavar="ACTOR", help="Only what this actor may decide, like human:ana.")
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """List what waits for a decision, oldest first, with the commands that decide it."""
    from lictor.console import query

    async def ask(runtime: Runtime) -> tuple[list[dict[str, Any]], list[str]]:
        found = await query.inbox(runtime, actor)
        return found, _request_lines(runtime, found, store)

    found, lines = read(store, ask)
    if as_json:
        print_json({"requests": found})
    else:
        say(lines or ["nothing waits"])


@app.command()
def grants(store: Store = None, as_json: Json = False) -> None:
    """List the standing approvals."""
    from lictor.console import query
    from lictor.console.lines import grant_lines

    found = read(store, query.grants)
    if as_json:
        print_json({"grants": found})
        return
    say(grant_lines(found))


@app.command()
def doctor(store: Store = None, as_json: Json = False) -> None:
    """Check a store: schema, damage, runs by status, open requests, stale leases.

    Changes nothing, an older schema is told and not migrated. Ends with 1 when the file is damaged or a driver died in
    the middle of a step.
    """
    from lictor.console import query
    from lictor.console.lines import health_lines

    url = existing(store)

    async def work() -> dict[str, Any]:
        from lictor.journal import open_store
        from lictor.runtime import Runtime

        opened = open_store(url, migrate=False)
        try:
            async with Runtime(opened, drive=False) as runtime:
                return await query.health(runtime)
        finally:
            opened.close()

    found = go(work())
    if as_json:
        print_json(found)
    else:
        say(health_lines(found, store))
    if found["damage"]:
        fail(FAILED, f"{url} is damaged; restore a backup")
    if found["stale_leases"]:
        fail(
            FAILED,
            f"nobody drives {len(found['stale_leases'])} running run(s) any more; lictor resume goes on with one",
        )


# ---- deciding ---------------------------------------------------------------------------------


@app.command()
def approve(
    request_id: RequestId,
    once: Annotated[bool, typer.Option("--once", help="For this call only (the default).")] = False,
    same_arguments: Annotated[
        bool, typer.Option("--same-arguments", help="Also for later calls of the conversation with the same arguments.")
    ] = False,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Text for the model.")] = None,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Approve a request, as it is shown in the inbox.

    The run goes on in the process that waits for it, or with `lictor resume`.
    """
    if once and same_arguments:
        fail(USAGE, "give --once or --same-arguments, not both")
    scope = "same_arguments" if same_arguments else "once"
    _decide(request_id, "approve", actor, store, as_json, feedback=note, scope=scope)


@app.command()
def reject(
    request_id: RequestId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the model reads it.")],
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Reject a request; the model is told why."""
    _decide(request_id, "reject", actor, store, as_json, feedback=reason)


@app.command()
def edit(
    request_id: RequestId,
    arguments: Annotated[
        str, typer.Option("--arguments", metavar="JSON", help="All arguments as one JSON object, changed as you want.")
    ],
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Approve a call with other arguments; every policy judges them again."""
    try:
        given = json.loads(arguments)
    except ValueError as error:
        fail(USAGE, f"--arguments is no JSON ({error}); write for example --arguments '{{\"amount\": 10}}'")
    if not isinstance(given, dict):
        fail(USAGE, "--arguments must be one JSON object with all arguments of the call")
    _decide(request_id, "edit", actor, store, as_json, arguments=given)


@app.command()
def respond(
    request_id: RequestId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The result that the model reads.")],
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Give the result of a call yourself; it does not run."""
    _decide(request_id, "respond", actor, store, as_json, text=text)


@app.command()
def retry(request_id: RequestId, actor: As = None, store: Store = None, as_json: Json = False) -> None:
    """Run a call again of which nobody knows whether it ran."""
    _decide(request_id, "retry", actor, store, as_json)


@app.command()
def skip(request_id: RequestId, actor: As = None, store: Store = None, as_json: Json = False) -> None:
    """Do not run a call again of which nobody knows whether it ran; the model is told."""
    _decide(request_id, "skip", actor, store, as_json)


def _decide(prefix: str, verb: str, actor: str | None, store: str | None, as_json: bool, **given: Any) -> None:
    from lictor.console import query
    from lictor.console.lines import inline, resume_command

    async def ask(runtime: Runtime) -> dict[str, Any]:
        request_id = query.find_request(runtime, prefix)
        after = await runtime.docket.decide(request_id, verb, by=actor_of(actor), **given)
        return query.request_view(after)

    view = read(store, ask)
    if as_json:
        print_json(view)
        return
    what = f"{inline(view['tool'] or view['kind'])} of run {view['root_run'][:12]}"
    if view["status"] == "pending":
        typer.echo(f"approved so far by {inline(', '.join(view['approvals']))}: {what}; others are still asked")
        return
    by = view["resolution"]["decided_by"]
    typer.echo(f"{view['status']} by {inline(by['kind'] + ':' + by['id'])}: {what}")
    typer.echo(
        f"a process that waits for the run goes on with it; if none does: {resume_command(view['root_run'], store)}"
    )


# ---- ending -----------------------------------------------------------------------------------


@app.command()
def stop(
    run_id: RunId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it becomes the reason of the end.")],
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Stop a run; a tool that runs may finish."""

    async def end(runtime: Runtime, known: str) -> None:
        await runtime.commands.stop(known, reason=reason, by=actor_of(actor))

    _end(run_id, end, store, as_json)


@app.command()
def cancel(run_id: RunId, actor: As = None, store: Store = None, as_json: Json = False) -> None:
    """Cancel a run, and whatever it does; open calls are answered."""

    async def end(runtime: Runtime, known: str) -> None:
        await runtime.commands.cancel(known, by=actor_of(actor))

    _end(run_id, end, store, as_json)


def _end(prefix: str, end: Callable[[Runtime, str], Awaitable[None]], store: str | None, as_json: bool) -> None:
    from lictor.console import query
    from lictor.console.lines import resume_command

    async def ask(runtime: Runtime) -> dict[str, Any]:
        from lictor.runs import TERMINAL

        known = query.find_run(runtime, prefix)
        before = runtime.row(known).status
        if before in TERMINAL:
            raise NotResumable(f"run {known} is {before} already; nothing is left to end")
        await end(runtime, known)
        driver = runtime.store.holder(known, runtime.clock.now())
        return query.run_view(runtime.row(known)) | {"driven": driver is not None}

    view = read(store, ask)
    if as_json:
        print_json(view)
        return
    typer.echo(f"run {view['run_id']}: ending")
    if not view["driven"]:
        command = resume_command(view["run_id"], store)
        typer.echo(f"a process that waits for the run ends it; if none does: {command}")


def _short_requests(runtime: Runtime) -> dict[str, str]:
    from lictor.console import query
    from lictor.docket import REQUESTS

    return query.short_ids(runtime.store.table(REQUESTS))


def _request_lines(runtime: Runtime, views: Sequence[Mapping[str, Any]], store: str | None) -> list[str]:
    from lictor.console.lines import request_lines

    short = _short_requests(runtime)
    return [line for view in views for line in request_lines(view, short[view["id"]], store)]
