"""How a live view looks: bars against the limits, a line for each member, and what waits for a decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lictor.console.board import Board, Line, Seat, wanted
from lictor.console.lines import inline
from lictor.console.screen import printable

__all__ = ["line_text", "pane"]

WIDEST = 110  # columns
TWO = 96  # columns from which on two counters stand side by side
BAR = 16
SIGNS: Mapping[str, tuple[str, str]] = {
    "idle": ("·", "dim"),
    "works": ("●", "bold green"),
    "waits": ("‖", "bold magenta"),
    "done": ("✓", "green"),
    "skipped": ("✗", "yellow"),
    "failed": ("✗", "red"),
}
KINDS: Mapping[str, str] = {
    "assigns": "bold",
    "tool": "green",
    "done": "green",
    "denied": "bold red",
    "failed": "bold red",
    "stops": "bold red",
    "ends": "bold red",
    "skipped": "bold yellow",
    "changed": "yellow",
    "waits": "bold magenta",
    "decided": "bold magenta",
}
STATES: Mapping[str, str] = {"running": "green", "waiting": "magenta", "completed": "bold green", "queued": "dim"}


def line_text(line: Line, clock: str) -> Text:
    """A step as one line of the scrollback."""
    return Text.assemble(
        (f"{clock} ", "dim"),
        (f"{inline(line.who):<12} ", ""),
        (f"{line.kind:<10} ", KINDS.get(line.kind, "dim")),
        line.text,
    )


def pane(board: Board, run_id: str, commands: Mapping[str, str], width: int) -> Panel:
    """The whole view.

    Arguments:
        commands: of each request id, what is typed elsewhere to decide it.
    """
    status = "waiting" if board.requests and board.status == "running" else board.status
    title = Text.assemble(
        (inline(board.name), "bold"), f"  run {run_id[:8]}  ", (status, STATES.get(status, "red")), f"  {_clock(board)}"
    )
    parts: list[RenderableType] = [_bars(board, 2 if width >= TWO else 1), Text(), _seats(board)]
    if board.requests:
        parts += [Text(), *_requests(board, commands)]
    return Panel(Group(*parts), title=title, title_align="left", box=ROUNDED, padding=(0, 1), width=min(width, WIDEST))


def _clock(board: Board) -> str:
    seconds = int(max(0.0, board.now - board.started))
    return f"{seconds // 60}:{seconds % 60:02d}" if seconds >= 60 else f"{seconds} s"


def _bars(board: Board, several: int) -> Table:
    """Counters, so many in a line; one with a limit has a bar."""
    grid = Table.grid(padding=(0, 2))
    cells = [_bar(*each) for each in _counters(board)]
    for _ in range(several):
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, width=BAR)
        grid.add_column(no_wrap=True)
    for at in range(0, len(cells), several):
        grid.add_row(*[part for cell in cells[at : at + several] for part in cell])
    return grid


def _counters(board: Board) -> Iterator[tuple[str, float, float | None, str]]:
    """(name, value, limit, format) of what is worth a counter."""
    limits, usage = board.limits, board.usage
    if board.members:
        yield "turns", board.turns, limits.get("max_turns"), "{:,.0f}"
    else:
        yield "steps", usage.requests, limits.get("max_steps"), "{:,.0f}"
    yield "tokens", usage.total_tokens, limits.get("max_total_tokens"), "{:,.0f}"
    if "max_cost_usd" in limits or usage.cost_usd:
        yield "dollars", usage.cost_usd, limits.get("max_cost_usd"), "{:,.2f}"
    if "max_seconds" in limits:
        yield "seconds", max(0.0, board.now - board.started), limits["max_seconds"], "{:,.0f}"
    if "max_tool_calls" in limits:
        yield "tool calls", board.tool_calls, limits["max_tool_calls"], "{:,.0f}"
    if board.handoffs:
        yield "hand-offs", board.handoffs, limits.get("max_handoffs"), "{:,.0f}"


def _bar(name: str, value: float, limit: float | None, form: str) -> tuple[Text, RenderableType, Text]:
    shown = form.format(value)
    if limit is None:
        return Text(name, "dim"), Text(), Text(shown)
    part = value / limit if limit else 1.0
    style = "red" if part >= 1 else "yellow" if part >= 0.8 else "green"
    bar = ProgressBar(total=max(limit, 1e-9), completed=min(value, limit), width=BAR, complete_style=style)
    bar.finished_style = style
    return Text(name, "dim"), bar, Text(f"{shown} / {form.format(limit)}")


def _seats(board: Board) -> Table:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=1)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True, style="dim")
    for name, seat in board.seats.items():
        sign, style = SIGNS[seat.state]
        grid.add_row(
            Text(sign, style), Text(inline(name), "bold" if seat.state == "works" else ""), _doing(seat), _sums(seat)
        )
    return grid


def _doing(seat: Seat) -> Text:
    return Text(printable(seat.doing), SIGNS[seat.state][1] if seat.state in ("waits", "skipped", "failed") else "")


def _sums(seat: Seat) -> str:
    turns = f"{seat.turns}× " if seat.turns else ""
    return f"{turns}{seat.tokens:,} tokens" if seat.tokens else turns.strip()


def _requests(board: Board, commands: Mapping[str, str]) -> Iterator[Text]:
    for request in board.requests.values():
        yield Text.assemble(
            (f"{request.id[:8]} ", "bold magenta"), f"{inline(request.requester)} wants {wanted(request)}"
        )
        for party in request.parties:
            yield Text(f"         for {inline(', '.join(party))}", "dim")
        if request.id in commands:
            yield Text(f"         {commands[request.id]}", "dim")
