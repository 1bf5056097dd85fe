"""What there is to see of a team's run: members, the route taken, verdicts at moments; and limits of any run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lictor.console.board import SUPERVISOR, Board
from lictor.docket import Request
from lictor.runs import TERMINAL, Event
from lictor.runtime import RunRow
from lictor.team import TeamTrace

__all__ = ["folded", "limits_view", "team_view"]

UNDER_WAY = frozenset({"next", "works", "waits"})
ENDS: Mapping[str, str] = {"completed": "done", "skipped": "skipped"}


@dataclass(slots=True, kw_only=True)  # budget: it is what the fold changes
class _Work:
    """One piece of work for a member: `next`, `works`, `waits`, `done`, `skipped`, `failed` or `not_run`."""

    member: str
    instruction: str | None
    state: str = "next"
    run_id: str | None = None
    status: str | None = None
    result: str | None = None
    reason: str | None = None
    by: str | None = None

    def json(self) -> dict[str, Any]:
        return {
            "member": self.member,
            "instruction": self.instruction,
            "state": self.state,
            "run_id": self.run_id,
            "status": self.status,
            "result": self.result,
            "reason": self.reason,
            "by": self.by,
        }


@dataclass(slots=True, kw_only=True)  # budget: it is what the fold changes
class _Route:
    """The decisions of the team itself, with the work that came of them; tasks are numbered as they are given."""

    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tasks: list[_Work] = field(default_factory=list[_Work])
    verdicts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    over: bool = False

    def take(self, event: Event) -> None:
        payload = event.payload
        if event.kind == "verdict" and "verdicts" in payload:
            self.verdicts.append(_verdict(event))
        if len(event.path) > 1:
            return
        if event.kind == "decision":
            given = [_Work(member=each["member"], instruction=each["instruction"]) for each in payload["assignments"]]
            self.tasks += given
            told = {name: payload.get(name) for name in ("turn", "kind", "reason")}
            self.turns.append({**told, "at": event.json()["at"], "work": given})
        elif event.kind == "member_started":
            work = self._task(payload)
            work.state, work.run_id = "works", payload["child"]
        elif event.kind == "member_finished":
            work, value = self._task(payload), payload["value"]
            work.state, work.status = ENDS.get(value["status"], "failed"), value["status"]
            work.reason, work.result = value.get("reason"), payload["record"]["content"]
        elif event.kind == "skipped" and "task" in payload:
            work = self._task(payload)
            work.state = work.status = "skipped"
            work.reason, work.by, work.result = payload["reason"], payload["by"], payload["record"]["content"]
        elif event.kind == "run_finished":
            self.over = True
        elif event.kind == "resumed":
            self.over = False

    def _task(self, payload: Mapping[str, Any]) -> _Work:
        at = int(payload["task"])
        while len(self.tasks) <= at:  # what was decided was erased
            self.tasks.append(_Work(member=payload["member"], instruction=None))
        return self.tasks[at]

    def settle(self, requests: Iterable[Request]) -> None:
        """Say of what is under way whether it waits for somebody, or never will be."""
        waits = [request for request in requests if request.status == "pending"]
        runs = {request.path[1].run_id for request in waits if len(request.path) > 1}
        steps = {_step(request) for request in waits if len(request.path) == 1}
        for number, work in enumerate(self.tasks):
            if work.state not in UNDER_WAY:
                continue
            if self.over:
                work.state = "not_run"
            elif work.run_id in runs or f"member:{number}" in steps:
                work.state = "waits"


def _step(request: Request) -> str | None:
    value = request.shown.value
    return str(value.get("step")).removesuffix(":end") if isinstance(value, Mapping) else None


def _verdict(event: Event) -> dict[str, Any]:
    """A verdict at a moment: what it came to, and what each one said."""
    told = event.json()
    payload = told["payload"]
    shown = {name: payload[name] for name in ("point", "member", "decision", "reason", "by", "verdicts")}
    return {"at": told["at"], "team": event.path[-1].name if event.path else None, **shown}


def folded(
    row: RunRow, events: Sequence[Event], requests: Sequence[Request], limits: Mapping[str, Any]
) -> tuple[Board, list[Event]]:
    """The board after the events of a run, and those of them that were not erased."""
    kept = [event for event in events if "erased" not in event.payload]
    known = {request.id: request for request in requests}
    begun = kept[0].payload if kept and kept[0].kind == "run_started" else {}
    board = Board(
        name=row.definition,
        members=tuple(begun.get("members", ())),
        limits=limits,
        started=row.created,
        now=row.created,
    )
    for event in kept:
        board.take(event, {"request": known.get(event.payload.get("request", ""))})
    return board, kept


def team_view(trace: TeamTrace, events: Sequence[Event], board: Board, requests: Sequence[Request]) -> dict[str, Any]:
    """The team of a run: who is in it and does what, what was decided, what came of it, who had a word at which moment.

    Arguments:
        events: of the whole run, what was erased left out; `board` is what they come to.
    """
    route = _Route()
    for event in events:
        route.take(event)
    route.settle(requests)
    begun = next((event.payload for event in events if event.kind == "run_started"), {})
    names = list(dict.fromkeys([*begun.get("members", ()), *[work.member for work in route.tasks]]))
    decides = board.seats[SUPERVISOR]
    supervised = any(turn["kind"] not in ("route", "handoff") for turn in route.turns) or decides.tokens > 0
    head = {"state": decides.state, "doing": decides.doing, "worked": decides.turns, "tokens": decides.tokens}
    head |= {"last": None, "reason": None, "by": None}
    return {
        "name": trace.name,
        "protocol": begun.get("protocol"),
        "supervisor": head if supervised or begun.get("protocol") == "hierarchical" else None,
        "members": [_member(name, route, board) for name in names],
        "turns": [{**turn, "work": [work.json() for work in turn["work"]]} for turn in route.turns],
        "route": list(trace.route),
        "verdicts": route.verdicts,
        "records": [
            {"source": each.source, "kind": each.kind, "content": each.content} for each in trace.records
        ],
    }  # fmt: skip


def _member(name: str, route: _Route, board: Board) -> dict[str, Any]:
    """A member: what it is at now, else how its last work ended."""
    mine = [work for work in route.tasks if work.member == name]
    states = [work.state for work in mine]
    state = next((each for each in ("waits", "works", "next") if each in states), None)
    seat = board.seats.get(name)
    outputs = [work.result for work in mine if work.result is not None and work.state != "skipped"]
    last = mine[-1] if mine else None
    return {
        "name": name,
        "state": state or (states[-1] if states else "idle"),
        "doing": seat.doing if seat is not None and state in ("waits", "works") else "",
        "worked": len([work for work in mine if work.run_id is not None]),
        "tokens": seat.tokens if seat is not None else 0,
        "last": outputs[-1] if outputs else None,
        "reason": last.reason if last is not None else None,
        "by": last.by if last is not None else None,
    }


def limits_view(row: RunRow, board: Board, now: float) -> list[dict[str, Any]]:
    """What a run used of each of its limits; of a team also what has none. `limit` is null where there is none."""
    limits, usage, of_team = board.limits, board.usage, bool(board.members)
    seconds = (board.now if row.status in TERMINAL else now) - row.created
    used: dict[str, tuple[str, float]] = {
        "max_turns": ("turns", board.turns),
        "max_handoffs": ("hand-offs", board.handoffs),
        "max_total_tokens": ("tokens", usage.total_tokens),
        "max_cost_usd": ("US dollars", round(usage.cost_usd, 4)),
        "max_tool_calls": ("tool calls", board.tool_calls),
        "max_seconds": ("seconds", round(max(0.0, seconds), 1)),
    }
    told = [{"name": name, "used": value, "limit": limits.get(key)} for key, (name, value) in used.items()]
    always = ("turns", "tokens", "tool calls") if of_team else ()
    unused = ("hand-offs",) if not board.handoffs else () if of_team else ("turns", "hand-offs")
    return [
        each for each in told if each["name"] in always or (each["limit"] is not None and each["name"] not in unused)
    ]
