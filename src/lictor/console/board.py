"""What a live view knows of a run: members, counters and open requests, folded from its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lictor.console.lines import inline
from lictor.docket import Request
from lictor.runs import NO_USAGE, Event, Usage

__all__ = ["SUPERVISOR", "Board", "Line", "Seat"]

SUPERVISOR = "supervisor"
ABOUT_MEMBERS = frozenset({"member_finished", "skipped"})
TOLD_BY_OTHERS = frozenset({"should_agent_continue", "should_supervisor_continue"})  # a record tells what they did
VERDICTS: Mapping[str, str] = {"deny": "denied", "transform": "changed", "suspend": "waits"}
PARKED = "host_error:approval_unresolved"  # the run waits for a decision (§9); no failure


class Line(NamedTuple):
    """One step, for people: who, what kind (`denied`, `tool`, …), and what happened."""

    who: str
    kind: str
    text: str
    at: float


@dataclass(slots=True, kw_only=True)  # budget: it is what the fold changes
class Seat:
    """Somebody who works: `idle`, `works`, `waits`, `done`, `skipped` or `failed`, and what they are at."""

    state: str = "idle"
    doing: str = ""
    turns: int = 0
    tokens: int = 0


@dataclass(slots=True, kw_only=True)  # budget: it is what the fold changes
class Board:
    """The state of a view. `take` folds an event and gives the lines that it is worth.

    Arguments:
        name: of the run's agent or team.
        members: of a team, in order; empty for an agent.
        limits: that hold for the run.
        started: seconds since the epoch.
    """

    name: str
    members: Sequence[str] = ()
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    started: float = 0.0
    now: float = 0.0
    status: str = "queued"
    turns: int = 0
    handoffs: int = 0
    usage: Usage = NO_USAGE
    tool_calls: int = 0
    seats: dict[str, Seat] = field(default_factory=dict[str, Seat])
    requests: dict[str, Request] = field(default_factory=dict[str, Request])
    tools: dict[str, str] = field(default_factory=dict[str, str])
    given: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        head = [SUPERVISOR] if self.members else [self.name]
        self.seats = {name: Seat() for name in (*head, *self.members)}

    def take(self, event: Event, detail: Mapping[str, Any]) -> list[Line]:
        """Fold an event.

        Arguments:
            detail: what the event itself does not hold: the `request` it is about.
        """
        self.now = max(self.now, event.at)
        self.status = "running" if self.status == "queued" else self.status
        who = self.who(event)
        seat = self.seats.setdefault(who, Seat())
        said = TAKES[event.kind](self, seat, event, detail) if event.kind in TAKES else ()
        below = [step.name for step in event.path[2:]]
        if event.kind in ABOUT_MEMBERS:
            who, below = (
                (event.payload["member"], []) if len(event.path) == 1 else (who, [*below, event.payload["member"]])
            )
        return [Line("/".join([who, *below]), kind, text, event.at) for kind, text in said]

    def who(self, event: Event) -> str:
        """The seat that an event belongs to."""
        if len(event.path) < 2 or not self.members:
            return SUPERVISOR if self.members else self.name
        return event.path[1].name


Said = Sequence[tuple[str, str]]


def _stint(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    board.status = "running"
    return ()


def _decides(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    payload = event.payload
    if len(event.path) > 1:
        return ()
    chosen = payload["kind"] in ("route", "handoff")
    seat.turns += not chosen and payload["turn"] > board.turns
    board.turns = payload["turn"]
    board.handoffs += payload["kind"] == "handoff"
    if payload["assignments"] and seat.state == "works":
        seat.state, seat.doing = (
            "idle",
            f"gave work to {inline(', '.join(work['member'] for work in payload['assignments']))}",
        )
    for work in payload["assignments"]:
        board.given[work["member"]] = work["instruction"]
    return ()


def _asked(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    seat.state, seat.doing = "works", f"asks {inline(event.payload['model'])}"
    return ()


def _answered(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    used = Usage.of(event.payload["usage"])
    board.usage = board.usage + used
    seat.tokens += used.total_tokens
    names = ", ".join([call["tool"] for call in event.payload["calls"]])
    seat.doing = f"wants {inline(names)}" if names else "has written"
    return ()


def _again(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    board.usage = board.usage + Usage.of(event.payload.get("usage"))
    return [("retry", inline(f"the model call failed ({event.payload['error']}), once more"))]


def _calls(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    board.tool_calls += 1  # decisions are calls too
    if _routes(board, event):
        return ()
    shown = call_of(event.payload["tool"], event.payload["arguments"])
    board.tools[event.payload["call"]] = shown
    seat.state, seat.doing = "works", shown
    return ()


def _called(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    if _routes(board, event):
        return ()
    shown = board.tools.pop(event.payload["call"], event.payload["tool"])
    return [("tool", f"{shown} = {inline(event.payload['content'])}")]


def _routes(board: Board, event: Event) -> bool:
    """Whether it is a call of the supervisor: its decisions are told by what members do."""
    return bool(board.members) and len(event.path) < 2


def call_of(tool: str | None, arguments: Mapping[str, Any] | None) -> str:
    """A call as people write one."""
    given = ", ".join([f"{name}={value!r}" for name, value in (arguments or {}).items()])
    return inline(f"{tool}({given})")


def _begins(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    name = event.payload["member"]
    if len(event.path) > 1:
        return [("begins", inline(name))]
    member = board.seats.setdefault(name, Seat())
    member.state, member.doing, member.turns = "works", "begins", member.turns + 1
    board.seats[SUPERVISOR].state = "idle"
    board.seats[SUPERVISOR].doing = f"gave work to {inline(name)}"
    given = board.given.pop(name, None)
    return [("assigns", inline(f"{name}: {given}" if given else name))]


def _ends(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    payload, value = event.payload, event.payload["value"]
    record = payload["record"]
    good = value["status"] == "completed"
    text = inline(record["content"])
    if len(event.path) == 1:
        member = board.seats.setdefault(payload["member"], Seat())
        member.state, member.doing = "done" if good else "failed", text
    return [("done" if good else "failed", text)]


def _skips(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    if event.payload["member"] == SUPERVISOR:
        return [("stops", inline(event.payload["record"]["content"]))]
    if len(event.path) > 1:
        return [("skipped", inline(f"by {event.payload['by']}: {event.payload['reason']}"))]
    member = board.seats.setdefault(event.payload["member"], Seat())
    member.state, member.doing = "skipped", inline(f"by {event.payload['by']}: {event.payload['reason']}")
    return [("skipped", member.doing)]


def _judged(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    payload = event.payload
    reason = payload["reason"] or "no reason given"
    place = payload["point"]
    if payload["decision"] == "allow" or reason == PARKED or place in TOLD_BY_OTHERS:
        return ()
    return [
        (VERDICTS.get(payload["decision"], "warned"), inline(f"{place}, by {payload['by'] or 'the host'}: {reason}"))
    ]


def _opens(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    request: Request | None = detail.get("request")
    if request is None or request.status != "pending":
        return ()
    board.requests[request.id] = request
    seat = _about(board, request) or seat
    seat.state, seat.doing = "waits", wanted(request)
    return [("waits", f"for a decision: {wanted(request)}")]


def _about(board: Board, request: Request) -> Seat | None:
    """The member whose work a request at a moment of the team itself is about."""
    value = request.shown.value
    name = value.get("member") if isinstance(value, Mapping) and len(request.path) == 1 else None
    return board.seats.get(name) if isinstance(name, str) else None


def wanted(request: Request) -> str:
    """What is asked, in one line."""
    if request.tool is not None:
        return call_of(request.tool, request.arguments)
    reason = next((each.message or each.reason for each in request.reasons), None)
    return inline(f"{request.shown.point or request.kind}: {reason or 'no reason given'}")


def _decided(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    request = board.requests.pop(event.payload["request"], None)
    seat = (_about(board, request) if request is not None else None) or seat
    seat.state, seat.doing = "works", "goes on"
    return [("decided", inline(f"{event.payload['verb']}, by {event.payload['decided_by']}"))]


def _hands(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    return [("hands over", inline(f"to {event.payload['to']}: {event.payload['note']}"))]


def _noted(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    text = event.payload.get("text")
    return [("note", inline(text))] if text else ()


def _over(board: Board, seat: Seat, event: Event, detail: Mapping[str, Any]) -> Said:
    status = event.payload["status"]
    if len(event.path) < 2:
        board.status = status
        board.requests.clear()
        for each in board.seats.values():
            each.state = "idle" if each.state in ("works", "waits") else each.state
    if board.members and len(event.path) > 1:
        return ()  # its member_finished says it
    good = status == "completed"
    why = event.payload.get("error") or event.payload.get("reason") or ""
    by = f", by {event.payload['by']}" if event.payload.get("by") else ""
    seat.state, seat.doing = "done" if good else "failed", inline(status if good else f"{status}{by}: {why}")
    return [] if good else [("ends", seat.doing)]


TAKES: Mapping[str, Any] = {
    "stint_started": _stint,
    "decision": _decides,
    "model_started": _asked,
    "model_finished": _answered,
    "model_retry": _again,
    "tool_started": _calls,
    "tool_finished": _called,
    "member_started": _begins,
    "member_finished": _ends,
    "skipped": _skips,
    "verdict": _judged,
    "request_opened": _opens,
    "request_decided": _decided,
    "handoff": _hands,
    "note": _noted,
    "run_finished": _over,
}
