"""From options to a store and an actor, from errors to exit codes."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from lictor.console.cli import FAILED, USAGE
from lictor.console.cli import stop as fail
from lictor.errors import (
    ConversationBusy,
    DecisionRefused,
    DefinitionError,
    DefinitionNotFound,
    LictorError,
    NotResumable,
    NotSerializable,
    PolicyChanged,
    StoreError,
    ToolArgumentsInvalid,
    UnknownRequest,
)

if TYPE_CHECKING:
    from lictor.docket import Actor
    from lictor.runtime import Runtime

__all__ = [
    "As",
    "Json",
    "RequestId",
    "RunId",
    "Store",
    "Wait",
    "actor_of",
    "existing",
    "fail",
    "go",
    "line_of",
    "print_json",
    "read",
    "say",
    "url_of",
]

REFUSED = 3
STORE = "sqlite:///lictor.db"
T = TypeVar("T")

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store; else LICTOR_STORE, else that of a team.yaml, else sqlite:///lictor.db.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
As = Annotated[
    str | None, typer.Option("--as", metavar="ACTOR", help="Who decides, like human:ana; else human: and your login.")
]
Wait = Annotated[
    Literal["park", "end"],
    typer.Option(
        "--wait", metavar="WHEN", help="When to return: `park`, as soon as it waits for a decision, or `end`."
    ),
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or a unique beginning of it.")]
RequestId = Annotated[str, typer.Argument(metavar="ID", help="The id of a request, or a unique beginning of it.")]


def actor_of(text: str | None) -> Actor:
    """Who decides, as the command line: the given actor, or the login."""
    from dataclasses import replace

    from lictor.docket import Actor

    if text is None:
        try:
            text = f"human:{getpass.getuser()}"
        except (OSError, KeyError, ImportError):  # no such user, for example in a container
            raise DefinitionError("this login has no name; say who you are with --as human:NAME") from None
    return replace(Actor.of(text), via="cli")


def url_of(store: str | None) -> str:
    """The URL of the store: the option, LICTOR_STORE, or the default."""
    url = store or os.environ.get("LICTOR_STORE") or STORE
    if url == "memory:":
        fail(USAGE, "memory: ends with this command; name a file with --store sqlite:///FILE.db")
    if not url.startswith("sqlite:///") or url == "sqlite:///":
        fail(USAGE, f"{url!r} is no store; write --store sqlite:///FILE.db, or sqlite:////absolute/FILE.db")
    return url


def existing(store: str | None) -> str:
    """The URL of a store that is there: looking makes no file."""
    url = url_of(store)
    path = url.removeprefix("sqlite:///")
    if not Path(path).exists():
        fail(USAGE, f"there is no store {path} (looked in {Path.cwd()}); name it with --store sqlite:///FILE.db")
    return url


def read(store: str | None, ask: Callable[[Runtime], Awaitable[T]]) -> T:
    """Ask a Runtime that drives nothing."""
    url = existing(store)

    async def work() -> T:
        from lictor.runtime import Runtime

        async with Runtime(url, drive=False) as runtime:
            return await ask(runtime)

    return go(work())


def go(work: Coroutine[Any, Any, T]) -> T:
    """Run it; what Lictor raises ends the command with one line and its code."""
    try:
        return asyncio.run(work)
    except LictorError as error:
        fail(_code(error), line_of(error))
    except BaseExceptionGroup as group:
        found = group.subgroup(LictorError)
        if found is None:
            raise
        fail(FAILED, line_of(_first(found)))


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _code(error: LictorError) -> int:
    if isinstance(error, UnknownRequest | DefinitionError | ToolArgumentsInvalid | NotSerializable):
        return USAGE
    if isinstance(error, DecisionRefused | NotResumable | PolicyChanged | ConversationBusy):
        return REFUSED
    return FAILED


def line_of(error: BaseException) -> str:
    """The one line about an error, in the words of the command line."""
    from lictor.console.lines import whole

    text = " ".join(str(error).split())
    if isinstance(error, UnknownRequest):
        text += "; lictor inbox and lictor runs show what there is"
    if isinstance(error, PolicyChanged):
        text = f"the policy changed: {'; '.join(error.changes)}; add --accept-policy-change to go on under the new one"
    if isinstance(error, DefinitionNotFound):
        text = text.partition(";")[0] + "; name it with --definitions FILE.py:NAME"
    if isinstance(error, StoreError) and "store" not in text:
        text = f"store: {text}"
    return whole(text)


def say(lines: Iterable[str], err: bool = False) -> None:
    """Print lines."""
    for line in lines:
        typer.echo(line, err=err)


def print_json(value: Any) -> None:
    """Pure ASCII: nothing in it can move a cursor."""
    typer.echo(json.dumps(value, indent=2, default=str))
