"""A request put to somebody at a terminal: everything it binds to, and one key for each verb."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lictor.console.keyboard import read_line
from lictor.console.lines import inline, whole
from lictor.docket import Request

__all__ = ["Choice", "choose", "question"]

WIDEST = 110  # columns
MEANINGS: Mapping[str, str] = {
    "approve": "let it happen, once, exactly as shown",
    "reject": "it does not happen; the model is told, with your reason",
    "edit": "change arguments; policies judge them again before it runs",
    "respond": "give the result yourself; it does not run",
    "retry": "run it again, although it may have run",
    "skip": "do not run it again",
}
KEYS: Mapping[str, str] = {"approve": "a", "reject": "r", "edit": "e", "respond": "w", "retry": "t", "skip": "s"}
TEXTS: Mapping[str, str] = {"reject": "why? (the model reads it) › ", "respond": "the result › "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A verb, and what goes with it."""

    verb: str
    text: str | None = None
    arguments: Mapping[str, Any] | None = None

    def options(self) -> dict[str, Any]:
        """As arguments of `docket.decide`."""
        if self.verb == "edit":
            return {"arguments": self.arguments}
        return {"text": self.text or ""} if self.verb == "respond" else {"feedback": self.text or None}


async def choose(console: Console, request: Request) -> Choice | None:
    """Wait for a key and what goes with it; None when the input has ended."""
    console.print(question(request, console.width))
    keys = {KEYS[verb]: verb for verb in request.verbs if verb in KEYS}
    while True:
        line = await _line(console, f"{', '.join(keys)}, then Enter › ")
        if line is None:
            return None
        verb = keys.get(line.strip().lower()[:1])
        if verb is None:
            continue
        if verb == "edit":
            arguments = await _edited(console, request)
            if arguments is not None:
                return Choice(verb=verb, arguments=arguments)
            continue
        return Choice(verb=verb, text=await _line(console, TEXTS[verb]) if verb in TEXTS else None)


def question(request: Request, width: int) -> Panel:
    """What is asked, uncut, and which keys there are."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    path = " / ".join([inline(step.name) for step in request.path])
    grid.add_row("who", f"{path}, for {inline(request.user)}" if request.user else path)
    grid.add_row("wants", Text(inline(request.tool or f"{request.kind} {request.shown.point or ''}"), "bold"))
    for name, value in (request.arguments or {}).items():
        grid.add_row("", Text.assemble((f"{inline(name)} = ", "dim"), whole(json.dumps(value, ensure_ascii=False))))
    if request.shown.value is not None:
        grid.add_row("", Text(whole(json.dumps(request.shown.value, ensure_ascii=False, default=str))))
    for reason in request.reasons:
        grid.add_row("why", inline(f"{reason.reason}: {reason.message or reason.name}"))
    for party in request.parties:
        grid.add_row("for", inline(", ".join(party)))
    grid.add_row("bound to", f"{request.digest[:19]}…")
    grid.add_row()
    for verb in request.verbs:
        if verb in KEYS:
            grid.add_row(Text(f"{KEYS[verb]}  {verb}", "bold not dim"), MEANINGS[verb])
    title = f"request {request.id[:8]}"
    return Panel(grid, title=title, title_align="left", box=ROUNDED, padding=(0, 1), width=min(width, WIDEST))


async def _line(console: Console, prompt: str) -> str | None:
    console.print(Text(prompt, "bold"), end="")
    return await read_line()


async def _edited(console: Console, request: Request) -> Mapping[str, Any] | None:
    """All arguments, with the changes somebody types as `name=value`; None for no change."""
    line = await _line(console, "name=value › ")
    changes: dict[str, Any] = {}
    for part in (line or "").split():
        name, sign, text = part.partition("=")
        if sign and name:
            changes[name] = _value(text)
    if not changes:
        console.print(Text("no change was given; write for example amount=10", "yellow"))
        return None
    return {**(request.arguments or {}), **changes}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
