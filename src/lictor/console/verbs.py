"""The verbs of `lictor` over a stored run: start it, look at it, decide, stop it, go on with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lictor.console.cli import FAILED, INTERRUPTED, USAGE, app
from lictor.console.driving import drive, request_lines, watched
from lictor.console.opening import (
    Json,
    RunId,
    Store,
    Wait,
    existing,
    fail,
    go,
    line_of,
    print_json,
    read,
    say,
)
from lictor.errors import DefinitionError, LictorError

if TYPE_CHECKING:
    from lictor.agent import Agent
    from lictor.runtime import Run, Runtime
    from lictor.team import Team

__all__: list[str] = []

Watch = Annotated[bool, typer.Option("--watch", help="Show it live in a terminal; elsewhere print each step.")]
runs_app = typer.Typer(name="runs", rich_markup_mode=None)
app.add_typer(runs_app)

# ---- running ----------------------------------------------------------------------------------


@app.command()
def run(  # noqa: PLR0913 - the options of the command
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="file.py:agent, module:agent, team.yaml or team.yaml:NAME")
    ],
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the agent is to do.")],
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The same key gives the same run, never a second one.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Whom the run is for.")] = None,
    store: Store = None,
    wait: Wait = "park",
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Start an agent or a team on a task, in a store.

    Prints the outcome, or what the run waits for and the commands that decide it: it may be decided in any other
    process, now or in a week. A run that waits ends this command with 0, as a completed one; any other end is 1. Killed
    or interrupted, a run is not lost: `lictor resume` goes on with it.
    """
    agent = _loaded(target)
    if store is None and not os.environ.get("LICTOR_STORE"):
        store = _store_of(target)

    async def begin(runtime: Runtime) -> Run:
        handle = await runtime.start(agent, task, key=key, user=user, source=_place_of(target))
        row = runtime.row(handle.id)
        if row.definition != agent.name:
            raise DefinitionError(
                f"the key {key!r} is that of run {row.run_id} of {row.definition!r}; give another --key"
            )
        return handle

    drive({agent.name: agent}, begin, store, wait, as_json, watch)


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
    watch: Watch = False,
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

    drive({name: agent}, begin, store, wait, as_json, watch)


def _place_of(target: str) -> str:
    """A target that means the same from another folder, if it is a file."""
    from lictor.runtime import file_of

    file = file_of(target)
    return target if file is None else f"{Path(file).resolve()}{target.removeprefix(file)}"


def _store_of(target: str) -> str | None:
    """The store that a team.yaml names, which must be one that stays."""
    from lictor.runtime import yaml_of

    file = yaml_of(target)
    return None if file is None else file.store


def _loaded(target: str) -> Agent | Team:
    from lictor.runtime import definition_of

    try:
        return definition_of(target)
    except LictorError as error:
        fail(USAGE, line_of(error))


def _definition(run_id: str, name: str, target: str | None, *, given: bool) -> Agent | Team:
    """The agent of a stored run, from where it was started or where the caller says."""
    if target is None:
        fail(USAGE, f"run {run_id} does not say where {name!r} is loaded from; add --definitions FILE.py:NAME")
    from lictor.runtime import file_of

    file = file_of(target)
    if not given and file is not None and not Path(file).is_file():
        fail(USAGE, f"{file} is gone; add --definitions FILE.py:NAME with the agent {name!r}")
    agent = _loaded(target)
    if agent.name != name:
        fail(
            USAGE, f"run {run_id} is one of {name!r}, and {target} is {agent.name!r}; name the other with --definitions"
        )
    return agent


# ---- looking ----------------------------------------------------------------------------------


@runs_app.callback(invoke_without_command=True)
def runs(context: typer.Context, store: Store = None, as_json: Json = False) -> None:
    """List the runs of a store, newest last."""
    if context.invoked_subcommand is not None:
        return
    from lictor.console import query
    from lictor.console.lines import run_lines

    found = read(store, query.runs)
    if as_json:
        print_json({"runs": found})
        return
    say(run_lines(found))


@app.command()
def trace(
    run_id: RunId,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as it goes on, whoever drives it, to its end; JSON is one per line.")
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Print what a run did, event by event, runs below it included.

    With --json also its transcript, its requests and the decisions that were refused. Nothing is shown that was denied.
    """
    from lictor.console import query
    from lictor.console.lines import event_line, inline

    def tell(event: dict[str, Any]) -> None:
        typer.echo(json.dumps(event, default=str) if as_json else event_line(event))

    async def ask(runtime: Runtime) -> dict[str, Any]:
        known = query.find_run(runtime, run_id)
        if follow:
            await watched(runtime, known, 0, tell)
            return query.run_view(runtime.row(known))
        return await query.trace(runtime, known)

    try:
        found = read(store, ask)
    except KeyboardInterrupt:
        fail(INTERRUPTED, "interrupted; the run goes on where it is driven")
    if follow:
        return
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
        return found, request_lines(runtime, found, store)

    found, lines = read(store, ask)
    if as_json:
        print_json({"requests": found})
    else:
        say(lines or ["nothing waits"])


@app.command()
def doctor(store: Store = None, as_json: Json = False) -> None:
    """Check a store: schema, damage, runs by status, open requests, stale leases.

    Also every promise about what is stored: requests are decided once, numbers have no gap, no effect is committed
    twice, what a run tells is what its row says. Changes nothing, an older schema is told and not migrated. Ends
    with 1 when the file is damaged, a promise is broken, or a driver died in the middle of a step.
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
    if found["broken"]:
        fail(FAILED, f"{url} breaks {len(found['broken'])} promise(s); keep a copy and report it")
    if found["stale_leases"]:
        fail(
            FAILED,
            f"nobody drives {len(found['stale_leases'])} running run(s) any more; lictor resume goes on with one",
        )
