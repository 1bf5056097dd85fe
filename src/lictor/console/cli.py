"""The verbs of `lictor`. Errors of the user are one line on stderr; exit codes are 0 done, 1 a failed
check or run, 2 usage, 3 refused."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lictor.errors import LictorError

if TYPE_CHECKING:
    pass

__all__ = ["app", "main"]

FAILED, USAGE, INTERRUPTED = 1, 2, 130
TARGETS = "file.py:agent, module:agent, team.yaml or team.yaml:NAME"
OPENAI = "https://api.openai.com/v1"

app = typer.Typer(
    name="lictor",
    help="Run LLM agents whose every step passes a gate.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these characters is no reason to stop
    app()


def stop(code: int, message: str) -> NoReturn:
    """End with one line on stderr."""
    typer.echo(f"lictor: {message}", err=True)
    raise typer.Exit(code)


def _version(wanted: bool) -> None:
    if not wanted:
        return
    typer.echo(f"lictor {_lictor_version()}")
    raise typer.Exit


def _lictor_version() -> str:
    try:
        return version("lictor")
    except PackageNotFoundError:  # run from a source tree
        return "(not installed)"


@app.callback()
def lictor(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run LLM agents whose every step passes a gate."""


@app.command()
def hooks(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="file.py:agent, module:agent, team.yaml or team.yaml:NAME")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print who judges an agent or a team, and in which order.

    Shown are its interceptors with versions and fingerprints, the order at each point, and the policy fingerprint that
    a run is bound to. What a Runtime or a single run adds around them cannot be seen from here.
    """
    from lictor.console.order import order_of
    from lictor.runtime import definition_of

    try:
        order = order_of(definition_of(target))
    except LictorError as error:
        stop(USAGE, str(error))
    if as_json:
        typer.echo(json.dumps(order, ensure_ascii=False, indent=2))
    else:
        _show_order(order)


def _show_order(order: Mapping[str, Any]) -> None:
    from rich.console import Console

    from lictor.console.order import show

    show(Console(highlight=False), order)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a team.yaml, for editors.

    Save it beside the file, `lictor schema > team.schema.json`, and begin the file with
    `# yaml-language-server: $schema=./team.schema.json`.
    """
    from lictor.runtime import file_schema

    typer.echo(json.dumps(file_schema(), indent=2))


@app.command()
def conformance(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    as_page: Annotated[bool, typer.Option("--page", help="Print the page of the claim, docs/conformance.md.")] = False,
) -> None:
    """Run the Conformance Test Kit of AGENT-HOOKS-0.1 over the production loop.

    Every vector of the installed kit is run by a real agent with a scripted model, in both postures, buffered and
    incremental. The kit is a package of its own: pip install "agent-hooks-sdk[ctk]==0.1.0b3". Exit code 1 if one fails.
    """
    from lictor.console.conformance import page, summary
    from lictor.testing import conformance as kit

    if as_json and as_page:
        stop(USAGE, "give --json or --page, not both")
    try:
        report = kit.run_kit()
    except LictorError as error:
        stop(USAGE, str(error))
    if as_json:
        typer.echo(json.dumps(report.json(), ensure_ascii=False, indent=2))
    elif as_page:
        typer.echo(page(report, _lictor_version()), nl=False)
    else:
        typer.echo("\n".join(summary(report)))
    if not report.passed:
        raise typer.Exit(FAILED)


for verbs in ("showing", "verbs", "deciding", "auditing", "serving"):
    import_module(f"lictor.console.{verbs}")  # registers the verbs over a store and its runs
