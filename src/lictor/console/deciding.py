"""The verbs of `lictor` that decide: on requests, on standing approvals, and on the end of a run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from lictor.console.cli import USAGE, app
from lictor.console.driving import GRACE, go_on, request_lines, show_result
from lictor.console.opening import (
    As,
    Json,
    RequestId,
    RunId,
    Store,
    actor_of,
    existing,
    fail,
    go,
    print_json,
    read,
    say,
)
from lictor.errors import NotResumable

if TYPE_CHECKING:
    from lictor.runtime import Runtime

__all__: list[str] = []

T = TypeVar("T")
NoRun = Annotated[
    bool,
    typer.Option("--no-run", help="Only write it down; a process that waits for the run, or lictor resume, goes on."),
]
Message = Annotated[str | None, typer.Option("-m", "--message", metavar="TEXT", help="Text for the model.")]


@app.command()
def approve(
    request_id: RequestId,
    scope: Annotated[
        Literal["once", "same_arguments"],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="`once`, for this call, or `same_arguments`: also later calls of the conversation with them.",
        ),
    ] = "once",
    message: Message = None,
    no_run: NoRun = False,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Approve a request, as it is shown in the inbox.

    If nobody drives its run, this command does, to its next park or its end, and prints what it came to; so do all
    verbs that decide. The agent is loaded from where the run was started.
    """
    _decide(request_id, "approve", actor, store, as_json, no_run, feedback=message, scope=scope)


@app.command()
def reject(
    request_id: RequestId,
    message: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="Why; the model reads it.")],
    no_run: NoRun = False,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Reject a request; the model is told why."""
    _decide(request_id, "reject", actor, store, as_json, no_run, feedback=message)


@app.command()
def edit(
    request_id: RequestId,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Arguments to change; a value is JSON, or else text."),
    ] = None,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Instead: all arguments as one JSON object."),
    ] = None,
    no_run: NoRun = False,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Approve a call with other arguments; every policy judges them again."""
    if (arguments is None) == (not changes):
        fail(USAGE, "give the changes as NAME=VALUE, or all arguments with --arguments JSON")
    made = _changed(changes or []) if arguments is None else _whole(arguments)
    _decide(request_id, "edit", actor, store, as_json, no_run, arguments=made)


def _whole(text: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    try:
        given = json.loads(text)
    except ValueError as error:
        fail(USAGE, f"--arguments is no JSON ({error}); write for example --arguments '{{\"amount\": 10}}'")
    if not isinstance(given, dict):
        fail(USAGE, "--arguments must be one JSON object with all arguments of the call")
    return lambda _: given


def _changed(changes: list[str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What was shown, with these changes; the decision binds to what was shown."""
    new: dict[str, Any] = {}
    for change in changes:
        name, sign, text = change.partition("=")
        if not sign or not name:
            fail(USAGE, f"{change!r} is no change; write NAME=VALUE, for example amount=10")
        try:
            new[name] = json.loads(text)
        except ValueError:
            new[name] = text
    return lambda shown: {**shown, **new}


@app.command()
def respond(
    request_id: RequestId,
    message: Annotated[str, typer.Option("-m", "--message", metavar="TEXT", help="The result that the model reads.")],
    no_run: NoRun = False,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Give the result of a call yourself; it does not run."""
    _decide(request_id, "respond", actor, store, as_json, no_run, text=message)


@app.command()
def retry(
    request_id: RequestId, no_run: NoRun = False, actor: As = None, store: Store = None, as_json: Json = False
) -> None:
    """Run a call again of which nobody knows whether it ran."""
    _decide(request_id, "retry", actor, store, as_json, no_run)


@app.command()
def skip(
    request_id: RequestId, no_run: NoRun = False, actor: As = None, store: Store = None, as_json: Json = False
) -> None:
    """Do not run a call again of which nobody knows whether it ran; the model is told."""
    _decide(request_id, "skip", actor, store, as_json, no_run)


def _decide(
    prefix: str, verb: str, actor: str | None, store: str | None, as_json: bool, no_run: bool, **given: Any
) -> None:
    from lictor.console import query
    from lictor.console.lines import inline

    async def ask(runtime: Runtime) -> tuple[dict[str, Any], list[str]]:
        shown = await runtime.docket.get(query.find_request(runtime, prefix))
        if verb == "edit":
            given.update(arguments=given["arguments"](shown.arguments or {}), digest=shown.digest)
        after = await runtime.docket.decide(shown.id, verb, by=actor_of(actor), **given)
        view = query.request_view(after) | {"run": None, "left": None}
        if after.status == "pending":
            return view, []
        view["run"], view["left"] = (None, "--no-run") if no_run else await go_on(runtime, after.root_run)
        return view, request_lines(runtime, view["run"]["requests"], store) if view["run"] else []

    view, waits = _go(store, ask, no_run)
    if as_json:
        print_json(view)
    what = f"{inline(view['tool'] or view['kind'])} of run {view['root_run'][:12]}"
    if view["status"] == "pending":
        told = f"approved so far by {inline(', '.join(view['approvals']))}: {what}; others are still asked"
    else:
        by = view["resolution"]["decided_by"]
        told = f"{view['status']} by {inline(by['kind'] + ':' + by['id'])}: {what}"
    if not as_json:
        typer.echo(told)
    _show_rest(view, waits, store, as_json)


def _go(store: str | None, ask: Callable[[Runtime], Awaitable[T]], no_run: bool) -> T:
    """Ask a Runtime that drives the runs it is told to."""
    url = existing(store)

    async def work() -> T:
        from lictor.runtime import Runtime, definition_of

        async with Runtime(url, drive=False if no_run else "own", load=definition_of, grace=GRACE) as runtime:
            return await ask(runtime)

    return go(work())


def _show_rest(view: Mapping[str, Any], waits: list[str], store: str | None, as_json: bool) -> None:
    """What the run came to after a decision, or who goes on with it."""
    from lictor.console.lines import inline, resume_command

    if view["run"] is not None:
        show_result(view["run"], waits, store, as_json, printed=as_json)
    elif view["left"] is not None and not as_json:
        known = view["root_run"]
        told = "" if view["left"] == "--no-run" else f"; {inline(view['left'])}"
        typer.echo(f"the run was not driven here{told}; if nobody does: {resume_command(known, store)}")


# ---- standing approvals -----------------------------------------------------------------------


@app.command()
def grants(
    revoke: Annotated[str | None, typer.Option("--revoke", metavar="ID", help="End this standing approval.")] = None,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """List the standing approvals, or end one."""
    from lictor.console import query
    from lictor.console.lines import grant_lines

    async def ask(runtime: Runtime) -> list[dict[str, Any]]:
        if revoke is not None:
            known = query.find_id(revoke, [grant.id for grant in await runtime.docket.grants()], "grant")
            await runtime.docket.revoke(known, by=actor_of(actor))
        return await query.grants(runtime)

    found = read(store, ask)
    if as_json:
        print_json({"grants": found})
        return
    say(grant_lines(found))


# ---- ending -----------------------------------------------------------------------------------


@app.command()
def stop(
    run_id: RunId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it becomes the reason of the end.")],
    no_run: NoRun = False,
    actor: As = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Stop a run; a tool that runs may finish."""

    async def end(runtime: Runtime, known: str) -> None:
        await runtime.commands.stop(known, reason=reason, by=actor_of(actor))

    _end(run_id, end, store, as_json, no_run)


@app.command()
def cancel(run_id: RunId, no_run: NoRun = False, actor: As = None, store: Store = None, as_json: Json = False) -> None:
    """Cancel a run, and whatever it does; open calls are answered."""

    async def end(runtime: Runtime, known: str) -> None:
        await runtime.commands.cancel(known, by=actor_of(actor))

    _end(run_id, end, store, as_json, no_run)


def _end(
    prefix: str, end: Callable[[Runtime, str], Awaitable[None]], store: str | None, as_json: bool, no_run: bool
) -> None:
    from lictor.console import query
    from lictor.console.lines import inline, resume_command

    async def ask(runtime: Runtime) -> dict[str, Any]:
        from lictor.runs import TERMINAL

        known = query.find_run(runtime, prefix)
        before = runtime.row(known).status
        if before in TERMINAL:
            raise NotResumable(f"run {known} is {before} already; nothing is left to end")
        await end(runtime, known)
        driver = runtime.store.holder(known, runtime.clock.now())
        _, left = (None, None) if no_run or driver is not None else await go_on(runtime, known)
        return query.run_view(runtime.row(known)) | {"driven": driver is not None, "left": left}

    view = _go(store, ask, no_run)
    if as_json:
        print_json(view)
        return
    if view["status"] in ("cancelled", "stopped"):
        typer.echo(f"run {view['run_id']}: {view['status']}")
        return
    typer.echo(f"run {view['run_id']}: ending")
    if not view["driven"]:
        told = f" ({inline(view['left'])})" if view["left"] else ""
        command = resume_command(view["run_id"], store)
        typer.echo(f"a process that waits for the run ends it{told}; if none does: {command}")
