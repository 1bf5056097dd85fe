"""What a team run does next: the machine of its supervisor, with the team's moments in between. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lictor.agent import AgentMachine, AgentState, due_calls
from lictor.journal import Entry
from lictor.runs import Command
from lictor.team.route import ASK, Ask, Finish, Go, Hierarchical, Move, Route, RouteState, Unroutable
from lictor.team.state import ENDED, ENDING, FINISHED, NEW, RUNNING, TEAM_FOLD, Task, TeamState, recorded

__all__ = ["MOST_REFUSED", "TeamMachine"]

MOST_REFUSED = 2
OPEN = Command("team_start", "team_start")
GIVE_UP = Command("give_up", "give_up")
TEAM_END = Command("team_end", "team_end")
ADMIT = "admit"
DECIDED = frozenset({"allowed", "done"})
EMPTY = TeamState()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMachine(AgentMachine):
    """Everything an agent's machine does, for the supervisor (or the team's own session, where nobody supervises).

    The team's part of the state is in `AgentState.extra`. Between the supervisor's steps it puts admissions,
    tasks of members and what comes after them; the protocol says who is next. `ends_nodes` says that somebody
    wants to know when the supervisor's step is over.
    """

    kinds: ClassVar[frozenset[str]]

    route: Route = field(default_factory=Hierarchical)
    members: tuple[str, ...] = ()
    ends_nodes: bool = False

    def begin(self) -> AgentState:
        """The state before the first entry."""
        return AgentMachine.begin(self).but(extra=EMPTY)

    def advance(self, state: AgentState, event: Entry) -> tuple[AgentState, tuple[Command, ...]]:
        """Fold one entry; everything that is due afterwards."""
        before, kind = state, event.kind
        if kind in AgentMachine.kinds:
            state = AgentMachine.fold(self, state, event)
            if before.retries_in_row and kind == "model_finished" and _only_finishes(event.payload):
                state = state.but(retries_in_row=before.retries_in_row)  # it answers again: that is still in a row
        elif kind == "member_finished" and event.payload.get("positions"):
            state = state.but(positions=dict(Counter(state.positions) + Counter(event.payload["positions"])))
        if kind not in AgentMachine.kinds and "ends" in event.payload:
            state = AgentMachine.fold(self, state, event._replace(kind="cause", payload=event.payload["ends"]))
        team: TeamState = before.extra
        if kind in TEAM_FOLD:
            team = TEAM_FOLD[kind](team, event.payload, before)
            if "record" in event.payload:
                team = recorded(team, event.payload["record"])
        if kind != "cause" and "ends" in event.payload:
            team = TEAM_FOLD["cause"](team, event.payload["ends"], before)
        if kind == "output" and before.extra.answer is not None:
            state = state.but(messages=(*before.messages, event.payload["message"]))
        if state.waits and kind in SETTLES:
            settled = SETTLES[kind].format(**event.payload)
            state = state.but(waits={key: wait for key, wait in state.waits.items() if key != settled})
        state = _with_team(state, team)
        return state, self.due(state)

    def due(self, state: AgentState) -> tuple[Command, ...]:
        """Everything to be done in `state`."""
        team: TeamState = state.extra
        if state.finished:
            return ()
        if state.cause is not None or state.answered:
            return tuple(_ending(state, team))
        if not team.opened:
            return () if _waits(state, OPEN.key) else (OPEN,)
        if state.calls:
            if team.node and self.ends_nodes and not [call for call in state.calls if call.status not in DECIDED]:
                key = f"node_end:{team.turn}"
                return () if _waits(state, key) else (Command(key, "node_end"),)
            return _working(state, team)
        if state.phase != "loop" or state.pending is not None:
            return AgentMachine.step_of(self, state)
        if [task for task in team.tasks if task.status != ENDED]:
            return tuple(_tasks(state, team.of_call(None)))
        if team.refused > MOST_REFUSED:
            return (GIVE_UP,)
        return self._next(state, team)

    def _next(self, state: AgentState, team: TeamState) -> tuple[Command, ...]:
        """Whose turn it is."""
        move = self._move(state, team)
        if isinstance(move, Ask):
            if team.admitted:
                return AgentMachine.step_of(self, state)
            key = f"{ADMIT}:{team.turn}"
            return () if _waits(state, key) else (Command(key, ADMIT),)
        if isinstance(move, Go):
            return (Command(f"route:{team.numbered}", "route", move),)
        kind = "answer" if isinstance(move, Finish) else "unroutable"
        return (Command(kind, kind, move),)

    def _move(self, state: AgentState, team: TeamState) -> Move:
        """What the protocol says; one that fails, or sends work to nobody, ends the run."""
        if type(self.route) is Hierarchical:  # always the same, whatever there is to see
            return ASK
        name = self.route.name
        try:
            move: Any = self.route.next(self.view(state), team.records[-1] if team.records else None)
        except Exception as exc:  # noqa: BLE001 - a protocol may be foreign code; its failure is an outcome
            return Unroutable(None, f"protocol:{name}", f"{type(exc).__name__}: {exc}")
        if not isinstance(move, Move):
            return Unroutable(None, f"protocol:{name}", f"it gave {type(move).__name__} instead of a move")
        if isinstance(move, Go) and not (move.members and all(member in self.members for member in move.members)):
            return Unroutable(None, f"protocol:{name}", f"it chose {', '.join(move.members) or 'nobody'}")
        if isinstance(move, Ask) and not self.route.supervised:
            return Unroutable(None, f"protocol:{name}", "it asks for a supervisor and says that there is none")
        return move

    def view(self, state: AgentState) -> RouteState:
        """What the protocol may know."""
        team: TeamState = state.extra
        task = next((message["content"] for message in reversed(state.messages) if message["role"] == "user"), "")
        return RouteState(self.members, str(task), team.outcomes, team.chosen, team.records, team.turn, team.handoffs)


def _with_team(state: AgentState, team: TeamState) -> AgentState:
    """The supervisor's state with the team's; many entries change nothing there."""
    pending = (team.answer,) if team.answer is not None and not state.calls and not state.answered else None
    if team is state.extra and team.refused == state.reasks and pending == state.pending:
        return state
    return state.but(extra=team, reasks=team.refused, pending=pending)


def _only_finishes(payload: Mapping[str, Any]) -> bool:
    return all(call["name"] == "finish" for call in payload.get("calls", ()))


def _waits(state: AgentState, key: str) -> bool:
    wait = state.waits.get(key) if state.waits else None
    return wait is not None and wait.verb is None


def _working(state: AgentState, team: TeamState) -> tuple[Command, ...]:
    """An open response: a decision that may run lets its members work first."""
    found: list[Command] = []
    for command in due_calls(state.calls, None):
        open_tasks: Sequence[Task] = ()
        if command.kind == "tool" and team.tasks:
            tasks = team.of_call(command.args)
            open_tasks = [task for task in tasks if task.status != ENDED]
        if open_tasks:
            found.extend(_tasks(state, open_tasks))
        else:
            found.append(command)
    return tuple(found)


def _tasks(state: AgentState, tasks: Sequence[Task]) -> Iterator[Command]:
    for task in tasks:
        command = _step(task)
        if command is not None and not _waits(state, command.key):
            yield command


def _step(task: Task) -> Command | None:
    # Admission and work are one command: a run that ends in between finds somebody who works, or nobody.
    if task.status in (NEW, RUNNING, ENDING):
        return Command(f"member:{task.id}", "member", task.id)
    if task.status == FINISHED:
        return Command(f"member:{task.id}:end", "member_end", task.id)
    return None


def _ending(state: AgentState, team: TeamState) -> Iterator[Command]:
    """The team ends: members that work end first, then calls, then the session, then whoever wants to know."""
    graceful = state.cause is not None and state.cause.graceful
    busy = [task for task in team.tasks if task.status in (RUNNING, ENDING)]
    for task in busy:
        command = _step(task)
        if command is not None and (task.status == ENDING or graceful):
            yield command
        elif command is not None:  # its step is cancelled, and ends it; unless nobody had begun with it yet
            yield Command(f"{command.key}:ending", "member_ending", task.id)
    waiting = {task.call for task in busy}
    if state.calls:
        yield from [command for command in due_calls(state.calls, state.cause) if command.args not in waiting]
        return
    if busy:
        return
    if team.settled and (team.hurried or not _waits(state, TEAM_END.key)):
        yield TEAM_END
    elif team.settled:
        return
    else:
        yield Command("shutdown", "shutdown")


SETTLES: Mapping[str, str] = {
    "team_opened": OPEN.key,
    "admitted": ADMIT + ":{turn}",
    "node_ended": "node_end:{turn}",
    "member_started": "member:{task}",
    "skipped": "member:{task}",
    "member_ended": "member:{task}:end",
}
"""The waits that an entry is the end of."""
TeamMachine.kinds = AgentMachine.kinds | frozenset(TEAM_FOLD)
