"""`lictor audit`, `lictor migrate`, `lictor runs prune`: the file of a store, looked at and kept in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lictor.console.cli import FAILED, USAGE, app
from lictor.console.opening import Json, Store, existing, fail, line_of, print_json, read, say
from lictor.console.verbs import runs_app
from lictor.errors import LictorError

if TYPE_CHECKING:
    from lictor.runtime import Pruned, Runtime

__all__: list[str] = []

FORMAT = "lictor-checkpoint/1"
T = TypeVar("T")
audit = typer.Typer(
    name="audit",
    help="Check the log of a store, and write down how far it has come.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(audit)


@audit.command()
def verify(
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="FILE", help="What `lictor audit checkpoint` wrote earlier: shows a cut."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only this run, those below it, and its requests.")
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Check the log of a store: is it intact, and is it complete?

    Intact: every entry is as it was written, and so is every decision. Complete: no entry is missing, no call of an
    ended run is without its result, and nothing that a checkpoint knows was cut. Changes nothing; others may go on
    writing. Ends with 1 when something was found. The key in LICTOR_AUDIT_KEY is needed if the store was written with
    one.
    """
    url = existing(store)
    known = None if checkpoint is None else _checkpoint(checkpoint)
    found = _told(lambda: _check(url, known, run_id))
    if found["key"] != "ok":
        fail(USAGE, KEYS[found["key"]])
    if as_json:
        print_json(found)
    else:
        say(_lines(found))
    if not (found["intact"] and found["complete"]):
        raise typer.Exit(FAILED)


KEYS: Mapping[str, str] = {
    "missing": "the log of this store is keyed; set LICTOR_AUDIT_KEY to the key it was written with",
    "wrong": "LICTOR_AUDIT_KEY is not the key that the log of this store was written with",
}


@audit.command()
def checkpoint(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to; else it is printed.", show_default=False)
    ] = None,
    store: Store = None,
) -> None:
    """Write down how far every log of a store has come.

    Kept where whoever may write to the store cannot write, it shows later what was cut off or written anew.
    """
    from lictor.journal import checkpoints_of

    url = existing(store)
    ends = _told(lambda: checkpoints_of(url))
    text = json.dumps({"format": FORMAT, "runs": {run: list(point) for run, point in ends.items()}}, indent=1) + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        fresh = out.with_name(out.name + ".new")
        fresh.write_text(text)
        fresh.replace(out)  # a reader finds the old one or the new one, never half
    except OSError as error:
        fail(USAGE, f"{out} cannot be written: {error.strerror}")
    typer.echo(f"{len(ends)} logs: {out}")


@app.command()
def migrate(store: Store = None, as_json: Json = False) -> None:
    """Bring a store to the schema of this Lictor; one that has it is left as it is.

    A store of a newer Lictor is refused. Processes of the older one must be stopped before: they refuse the new schema.
    """
    from lictor.journal import migrate_store

    url = existing(store)
    done = _told(lambda: migrate_store(url))
    if as_json:
        print_json({"store": url, "from": done.before, "to": done.after})
    elif done.before == done.after:
        typer.echo(f"schema {done.after}: nothing to do")
    else:
        typer.echo(f"schema {done.before} -> {done.after}")


@runs_app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="How long ago they ended: 90m, 12h, 30d or 8w.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be erased.")] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Erase what ended runs said and did; that they did it stays.

    Gone for good are messages, tasks, contexts, arguments, results, and what was shown and given in decisions, of runs
    that ended long enough ago and of those below them; a conversation loses its messages when all its runs are erased.
    Runs that are not over are never touched. Ids, times, kinds, who decided, and digests stay: `lictor audit verify`
    finds the log as intact as before. The file is written anew, so that the text is nowhere in it.
    """
    age = _seconds(older_than)

    async def ask(runtime: Runtime) -> Pruned:
        from lictor.runtime import prune

        return await prune(runtime, older_than=age, dry_run=dry_run)

    done = read(store, ask)
    if as_json:
        print_json({"dry_run": dry_run, **asdict(done)})
        return
    verb = "would erase" if dry_run else "erased"
    talks = len(done.conversations)
    typer.echo(f"{verb} {len(done.runs)} runs, {done.entries} entries, {done.requests} requests, {talks} conversations")


UNITS: Mapping[str, int] = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _seconds(age: str) -> float:
    number, unit = age[:-1], age[-1:]
    if unit not in UNITS or not number.isdigit():
        fail(USAGE, f"--older-than {age!r}: write a whole number and m, h, d or w, for example 30d")
    return float(int(number) * UNITS[unit])


def _told(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except LictorError as error:
        fail(FAILED, line_of(error))


def _checkpoint(path: Path) -> dict[str, list[Any]]:
    try:
        found = json.loads(path.read_text())
        if found["format"] != FORMAT:
            raise ValueError(found["format"])
        return {str(run): [int(seq), str(mark)] for run, (seq, mark) in found["runs"].items()}
    except OSError as error:
        fail(USAGE, f"{path} cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        fail(USAGE, f"{path} is no checkpoint; lictor audit checkpoint --out FILE writes one")


def _check(url: str, known: Mapping[str, Any] | None, run: str | None) -> dict[str, Any]:
    from lictor.docket import forged
    from lictor.journal import audit_store, read_file

    roots: list[str] | None = None
    logs: list[str] | None = None
    if run is not None:
        with read_file(url) as file:
            roots = [_root(file, run)]
            logs = [*roots, *_requests(file, roots[0])]
    report = audit_store(url, known=known, roots=logs)
    changed = [*report.changed, *forged(url, roots)]
    return {
        "store": url,
        "intact": not changed,
        "complete": report.complete,
        "key": report.key,
        "logs": report.runs,
        "entries": report.entries,
        "erased": report.erased,
        "changed": changed,
        "missing": list(report.missing),
        "open_calls": list(report.open_calls),
        "against_checkpoint": known is not None,
    }


def _root(file: Any, prefix: str) -> str:
    from lictor.console.query import find_id

    try:
        return find_id(prefix, [key for (key,) in file.rows("SELECT key FROM run")], "run")
    except LictorError as error:
        fail(USAGE, line_of(error))


def _requests(file: Any, root: str) -> list[str]:
    from lictor.docket import log_of

    return [log_of(key) for (key,) in file.rows("SELECT key FROM request WHERE root_run = ?", root)]


def _lines(found: Mapping[str, Any]) -> list[str]:
    """What was found, for people; nothing of a payload is in it."""
    from lictor.console.lines import whole

    yes = {True: "yes", False: "NO"}
    erased = f", {found['erased']} of them erased" if found["erased"] else ""
    cut = "" if found["against_checkpoint"] else " (without --checkpoint a tail that was cut does not show)"
    return [
        f"checked   {found['entries']} entries in {found['logs']} logs{erased}",
        f"intact    {yes[found['intact']]}",
        *[f"  {whole(line)}" for line in found["changed"]],
        f"complete  {yes[found['complete']]}{cut}",
        *[f"  {whole(line)}" for line in found["missing"]],
        *[f"under way {whole(line)}: started, no result yet" for line in found["open_calls"]],
    ]
