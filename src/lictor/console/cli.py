"""The verbs of `lictor`. Errors of the user are one line on stderr; exit codes are 0 done, 1 a failed
check or run, 2 usage, 3 refused."""

from __future__ import annotations

import asyncio
import getpass
import io
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lictor.errors import LictorError

if TYPE_CHECKING:
    from lictor.console.demo import Outcome
    from lictor.console.screen import Screen
    from lictor.models import OpenAIModel

__all__ = ["app", "main"]

FAILED, USAGE, INTERRUPTED = 1, 2, 130
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
def demo(
    model: Annotated[
        str | None, typer.Option(metavar="openai:NAME", help="A real model instead of the script.", show_default=False)
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where that model answers; OPENAI_BASE_URL by default.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Its key; better set OPENAI_API_KEY, others can read options.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and ask nobody.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
) -> None:
    """Show a governed agent at work.

    A clerk with a scripted model looks orders up and wants to pay money back. You see a call denied by a policy, a card
    number masked, and the audit record, and you are asked to approve the payment; without a terminal the demo answers
    itself. It needs no key, no network and no file.
    """
    try:
        outcome, screen = _run_demo(model, base_url, api_key, as_json=as_json, yes=yes)
    except KeyboardInterrupt:
        typer.echo(err=True)
        stop(INTERRUPTED, "interrupted; nothing more was run")
    if as_json:
        typer.echo(json.dumps(_demo_json(outcome, model or "scripted"), ensure_ascii=False, indent=2))
    elif screen is not None:
        _show_end(outcome, screen)
    result = outcome.result
    if result.status == "failed":
        stop(FAILED, _failure(result.reason, result.error, model, base_url))


def _run_demo(
    model: str | None, base_url: str | None, api_key: str | None, *, as_json: bool, yes: bool
) -> tuple[Outcome, Screen | None]:
    from lictor.console.demo import TASK, USER, run_demo

    chosen = _model(model, base_url, api_key)
    if as_json:
        from lictor.console.silence import Silence

        return asyncio.run(run_demo(Silence(), chosen)), None
    from rich.console import Console

    from lictor.console.screen import Screen

    console = Console(highlight=False)
    person, why = _person(yes)
    screen = Screen(console, person=person, why=why, slow=chosen is not None)
    told = "a scripted model (no key, no network)" if model is None else f"{model} at {_url(base_url)}"
    screen.intro(told, USER, TASK)
    return asyncio.run(run_demo(screen, chosen)), screen


def _model(model: str | None, base_url: str | None, api_key: str | None) -> OpenAIModel | None:
    """The model that the options name; None for the script."""
    if model is None:
        if base_url is not None or api_key is not None:
            stop(USAGE, "--base-url and --api-key belong to a real model; add --model openai:NAME")
        return None
    from lictor.models import OpenAIModel, resolve_model

    try:
        resolve_model(model)
    except LictorError as error:
        stop(USAGE, str(error))
    if not _url(base_url).startswith(("http://", "https://")):
        stop(USAGE, f"the base URL {_url(base_url)!r} must begin with http:// or https://")
    if _url(base_url) == OPENAI and not (api_key or os.environ.get("OPENAI_API_KEY")):
        stop(USAGE, f"{model} at {OPENAI} needs a key: set OPENAI_API_KEY, or name another server with --base-url")
    return OpenAIModel(model.partition(":")[2], base_url=base_url, api_key=api_key)


def _url(base_url: str | None) -> str:
    return base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI


def _person(yes: bool) -> tuple[str | None, str]:
    """Who is at the terminal to be asked, or why nobody is."""
    if yes:
        return None, "--yes was given"
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return None, "there is no terminal to ask in"
    try:
        return f"os:{getpass.getuser()}", ""
    except (OSError, KeyError, ImportError):  # no such user, for example in a container
        return "os:unknown", ""


def _show_end(outcome: Outcome, screen: Screen) -> None:
    result = outcome.result
    if result.status == "completed":
        screen.line("answer", str(result.answer))
    elif result.status != "failed":
        screen.line("ended", f"{result.status}, {result.reason or 'no reason given'}, by {result.by or 'the run'}")
    if not screen.calls and result.status != "failed":
        screen.line("note", "the model called no tool, so there was little to govern; small models often do not")
    if result.status != "failed":
        screen.console.print()
        screen.records(result.records)
    screen.line("status", f"{result.status}; what was really paid: {', '.join(outcome.paid) or 'nothing'}")


def _demo_json(outcome: Outcome, model: str) -> dict[str, Any]:
    result = outcome.result
    return {
        "status": result.status,
        "answer": result.answer,
        "reason": result.reason,
        "by": result.by,
        "error": result.error,
        "model": model,
        "run_id": result.run_id,
        "paid": list(outcome.paid),
        "requests": [_request_json(request) for request in outcome.requests],
        "usage": result.usage.json(),
        "records": [dict(record) for record in result.records],
    }


def _request_json(request: Any) -> dict[str, Any]:
    done = request.resolution
    return {
        "id": request.id,
        "kind": request.kind,
        "tool": request.tool,
        "arguments": request.arguments,
        "digest": request.digest,
        "reasons": [reason.reason for reason in request.reasons],
        "status": request.status,
        "verb": None if done is None else done.verb,
        "decided_by": None if done is None else str(done.decided_by),
    }


def _failure(reason: str | None, error: str | None, model: str | None, base_url: str | None) -> str:
    """The line about a run that failed: what to do, with the URL it was about."""
    told = (error or "no further word").splitlines()[0]
    url = _url(base_url)
    code = (reason or "").removeprefix("model_error:")
    if model is not None and code in ("connect", "timeout"):
        return f"{url} does not answer ({code}): {told}. Is the server running, and is the URL right?"
    if model is not None and code == "auth":
        return f"{url} refused the key: {told}. Set OPENAI_API_KEY or give --api-key"
    if model is not None and reason is not None and reason.startswith("model_error:"):
        return f"{model} at {url} failed ({code}): {told}"
    return f"the run failed ({reason or 'fault'}): {told}"


@app.command()
def hooks(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file.py:agent or module:agent")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print who judges an agent, and in which order.

    Shown are its interceptors with versions and fingerprints, the order at each point, and the policy fingerprint that
    a run is bound to. What a Runtime or a single run adds around them cannot be seen from here.
    """
    from lictor.console.order import order_of
    from lictor.runtime import agent_of

    try:
        order = order_of(agent_of(target))
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


import_module("lictor.console.verbs")  # registers the verbs over a stored run
import_module("lictor.console.serving")  # and `serve`
