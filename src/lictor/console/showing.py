"""`lictor demo`: its options, and how it ends."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lictor.console.cli import FAILED, INTERRUPTED, USAGE, app, stop
from lictor.console.opening import Json, Store, go, url_of
from lictor.errors import LictorError

if TYPE_CHECKING:
    from lictor.console.demo import Outcome
    from lictor.console.screen import Screen
    from lictor.models import OpenAIModel

__all__: list[str] = []

OPENAI = "https://api.openai.com/v1"


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
    yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
    park: Annotated[bool, typer.Option("--park", help="Ask nobody: end while the payment waits in the inbox.")] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Show a governed team at work.

    A shop's team, with scripted models, works on a customer's order. You see who is given work, a call denied by a
    policy, a card number masked, a member skipped by a permission, two members that go in circles stopped, and you are
    asked to approve a payment; without a terminal the demo answers itself, and so does --json. It needs no key and no
    network.

    The run is kept in a SQLite file: kill the demo while it waits, and decide in another terminal with `lictor inbox`
    and `lictor approve`, or on the page of `lictor serve`. What was paid is in a text file beside it.
    """
    if yes and park:
        stop(USAGE, "give --yes or --park, not both")
    chosen = _model(model, base_url, api_key)
    url = url_of(store)
    payments = Path(url.removeprefix("sqlite:///")).absolute().with_suffix(".payments.txt")
    from lictor.console.demo import run_demo
    from lictor.console.silence import Silence

    screen = None if as_json else _screen(model, base_url, store, url, yes=yes, park=park)
    audience = screen or Silence()
    try:
        outcome = go(run_demo(audience, url, payments, model=chosen, park=park))
    except KeyboardInterrupt:
        typer.echo(err=True)
        stop(INTERRUPTED, f"interrupted; {_kept(audience.run_id, store, loadable=chosen is None)}")
    if screen is None:
        typer.echo(json.dumps(_as_json(outcome, model or "scripted", url), ensure_ascii=False, indent=2))
    elif park and outcome.result.status == "suspended":
        _show_parked(outcome, screen, store)
    else:
        _show_end(outcome, screen)
    result = outcome.result
    if result.status == "failed":
        stop(FAILED, _failure(result.reason, result.error, model, base_url))


def _screen(model: str | None, base_url: str | None, store: str | None, url: str, *, yes: bool, park: bool) -> Screen:
    from rich.console import Console

    from lictor.console.lines import commands_for
    from lictor.console.orders import TASK, USER
    from lictor.console.screen import Screen

    console = Console(highlight=False)
    person, why = _person(yes)
    [elsewhere] = commands_for({"verbs": ["approve"]}, "{id}", store)
    screen = Screen(
        console,
        person=person,
        why=why,
        slow=model is not None,
        elsewhere=elsewhere if person is not None else "",
    )
    told = "a scripted model (no key, no network)" if model is None else f"{model} at {_url(base_url)}"
    screen.intro(told, url.removeprefix("sqlite:///"), USER, TASK)
    return screen


def _kept(run_id: str, store: str | None, *, loadable: bool) -> str:
    """How to go on with a run that was interrupted."""
    from lictor.console.lines import resume_command

    if not run_id or not loadable:
        return "nothing more was run"
    return f"the run is kept: {resume_command(run_id, store)}"


def _show_parked(outcome: Outcome, screen: Screen, store: str | None) -> None:
    """What waits, with the commands that decide it."""
    from lictor.console.lines import request_lines
    from lictor.console.query import request_view

    screen.line("waits", "decide it in this terminal or any other, now or in a week:")
    for request in outcome.result.requests:
        for line in request_lines(request_view(request), request.id[:8], store):
            screen.console.print(line, markup=False, soft_wrap=True)


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
        screen.records(outcome.records)
        screen.budget(result.usage.total_tokens, result.trace.turn_count)
    screen.line("status", f"{result.status}; what was really paid: {', '.join(outcome.paid) or 'nothing'}")


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


def _as_json(outcome: Outcome, model: str, url: str) -> dict[str, Any]:
    result = outcome.result
    return {
        "status": result.status,
        "answer": result.answer,
        "reason": result.reason,
        "by": result.by,
        "error": result.error,
        "model": model,
        "store": url,
        "run_id": result.run_id,
        "paid": list(outcome.paid),
        "requests": [_request_json(request) for request in outcome.requests],
        "usage": result.usage.json(),
        "records": [dict(record) for record in outcome.records],
        "route": list(result.trace.route),
        "turns": result.trace.turn_count,
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
