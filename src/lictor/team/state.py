"""What a team run is: its tasks and records, a pure fold over its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lictor.agent import AgentState
from lictor.runs import Cause
from lictor.team.decisions import decision_of

__all__ = [
    "ENDED",
    "ENDING",
    "FINISHED",
    "NESTED",
    "NEW",
    "RUNNING",
    "TEAM_FOLD",
    "Outcome",
    "Record",
    "Task",
    "TeamState",
    "recorded",
]

NEW, RUNNING, NESTED, ENDING, FINISHED, ENDED = "new", "running", "nested", "ending", "finished", "ended"
WORKED = frozenset({"completed", "skipped"})
DECISIONS = frozenset({"assign", "delegate", "finish", "ask_human"})
"""The tools of a supervisor: each accepted call of one is a decision."""


class Record(NamedTuple):
    """One line of a team's trace.

    Arguments:
        source: the member, `supervisor`, or who else it is from.
        kind: `decision`, `output`, `skip`, `error`, `human` or `system`.
        content: the text.
        duration: seconds.
        tokens: used by the run behind it.
        run_id: that run.
        digest: of the whole content, which may be cut here.
        tools: (tool, digest of arguments, digest of result) of each call in that run.
    """

    source: str
    kind: str
    content: str
    duration: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    digest: str | None = None
    tools: tuple[tuple[str, str, str], ...] = ()

    @property
    def is_agent(self) -> bool:
        """Whether a member produced it."""
        return self.kind in ("output", "error")


class Outcome(NamedTuple):
    """How a task ended: `completed`, `skipped`, or the status of the run; `to` when it was handed over.

    `resumable` says that what failed may be tried again.
    """

    member: str
    status: str
    answer: Any = None
    reason: str | None = None
    to: str | None = None
    note: str = ""
    resumable: bool = False


class Task(NamedTuple):
    """Work for one member: of a call of the supervisor, or chosen by the protocol (`call` is None).

    `status` is `new` (not admitted yet), `running`, `nested` (its run waits), `ending` (its run has to
    end), `finished` (its run is over, the hooks after it are due) or `ended`. `known` is how many records there
    were when it was given: what it is told of the work so far, whoever works beside it meanwhile; `taken` the
    responses taken from each model until then.
    """

    id: str
    member: str
    instruction: str
    call: str | None = None
    status: str = NEW
    child: str | None = None
    value: Mapping[str, Any] | None = None
    known: int = 0
    taken: Mapping[str, int] = {}


class TeamState(NamedTuple):
    """What a team adds to the state of its supervisor.

    `admitted` says that the supervisor may think, `node` that its step is not over yet; `turn` counts
    decisions and members chosen without one; `tasks` are all so far; `numbered` counts them, `chosen` those that
    the protocol chose and that count for it;
    `outcomes` and `records` are kept whole; `refused` counts what was asked again since the last accepted
    decision, `skips` denied members in a row; `answer` is the final text before its verdict; `settled` says
    that the outcome stands, `hurried` that nobody is to be waited for any more.
    """

    opened: bool = False
    admitted: bool = False
    node: bool = False
    turn: int = 0
    handoffs: int = 0
    tasks: tuple[Task, ...] = ()
    numbered: int = 0
    chosen: int = 0
    outcomes: tuple[Outcome, ...] = ()
    records: tuple[Record, ...] = ()
    refused: int = 0
    skips: int = 0
    last: str | None = None
    answer: str | None = None
    extras: Mapping[str, Any] = {}
    settled: bool = False
    hurried: bool = False

    def but(self, **changes: Any) -> TeamState:
        """This state with other values; `_replace` in a third of the time."""
        values = [*self]
        for name in changes:
            values[PLACES[name]] = changes[name]
        return _tuple(TeamState, values)

    def task(self, task_id: str) -> Task:
        """The task with this id; mostly the newest is asked for."""
        for task in self.tasks[::-1]:
            if task.id == task_id:
                return task
        raise KeyError(task_id)

    def of_call(self, call_id: str | None) -> tuple[Task, ...]:
        """The tasks of one call of the supervisor, or those that the protocol chose."""
        return tuple([task for task in self.tasks if task.call == call_id])


PLACES = {name: place for place, name in enumerate(TeamState._fields)}
_tuple = tuple.__new__
Fold = Callable[[TeamState, Mapping[str, Any], AgentState], TeamState]


def _opened(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(opened=True)


def _admitted(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(admitted=True, node=True)


def _node_ended(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(node=False)


def _call_judged(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """An accepted decision makes its tasks; a denied one is asked for again."""
    call = state.unanswered(payload["call"])
    if call is None or call.name not in DECISIONS:
        return team
    if payload["decision"] != "allow":
        again = any(one.status == "done" for one in state.calls) or not team.admitted
        return team if again else team.but(refused=team.refused + 1)  # once for each response
    args = payload.get("args", call.args) or {}
    team = team.but(refused=0, admitted=False, turn=team.turn + team.admitted)  # several calls, one decision
    decided = Record("supervisor", "decision", decision_of(call.name, args).text)
    team = team.but(records=(*team.records, decided))
    if call.name == "finish":
        return team.but(answer=str(args.get("answer") or ""))
    given = args.get("assignments", ()) if call.name == "delegate" else (args,) if call.name == "assign" else ()
    tasks = tuple(
        Task(
            id=str(team.numbered + place),
            member=each["member"],
            instruction=each["instruction"],
            call=call.id,
            known=len(team.records),
            taken=state.positions,
        )
        for place, each in enumerate(given)
    )
    last = tasks[0].member if tasks else team.last
    return team.but(tasks=(*team.tasks, *tasks), numbered=team.numbered + len(tasks), last=last)


def _model_finished(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(refused=team.refused + 1) if payload["outcome"] == "reask" else team


def _chosen(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    members = payload["members"]
    tasks = tuple(
        Task(
            id=str(team.numbered + place),
            member=member,
            instruction=payload["instruction"],
            known=len(team.records),
            taken=state.positions,
        )
        for place, member in enumerate(members)
    )
    return team.but(
        tasks=(*team.tasks, *tasks),
        numbered=team.numbered + len(tasks),
        chosen=team.chosen + len(tasks),
        last=members[0],
        turn=team.turn + len(tasks),
        handoffs=team.handoffs + (len(tasks) if payload["handoff"] else 0),
    )


def _tool_finished(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """What a person answered is a record."""
    call = state.unanswered(payload["call"])
    if call is None or call.name != "ask_human":
        return team
    return team.but(records=(*team.records, Record("human", "human", payload["content"])))


def _member_started(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    task = team.task(payload["task"])
    return _with_task(team, task._replace(status=RUNNING, child=payload["child"])).but(last=task.member)


def _member_parked(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    status = NESTED if state.cause is None else ENDING
    return _with_task(team, team.task(payload["task"])._replace(status=status))


def _skipped(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    task = team.task(payload["task"])
    value = {"status": "skipped", "reason": payload["reason"], "by": payload["by"]}
    if "message" in payload:
        value["message"] = payload["message"]
    team = _with_task(team, task._replace(status=ENDED, value=value))
    outcome = Outcome(task.member, "skipped", reason=payload["reason"])
    return team.but(skips=team.skips + 1, last=task.member, outcomes=(*team.outcomes, outcome))


def _member_finished(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    task, value = team.task(payload["task"]), payload["value"]
    team = _with_task(team, task._replace(status=FINISHED, value=value))
    outcome = Outcome(
        task.member,
        value["status"],
        value.get("answer"),
        value.get("reason"),
        value.get("to"),
        value.get("note", ""),
        payload.get("resumable", False),
    )
    return team.but(skips=0, outcomes=(*team.outcomes, outcome))


def _member_ended(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return _with_task(team, team.task(payload["task"])._replace(status=ENDED))


def _record(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return recorded(team, payload)


def recorded(team: TeamState, payload: Mapping[str, Any]) -> TeamState:
    """The team with one record more."""
    return team.but(records=(*team.records, record_of(payload)))


def _answered(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(answer=payload["answer"])


def _sent_back(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """The output was not accepted: whoever answered has another turn."""
    return team.but(answer=None)


def _extras(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    kept = {name: value for name, value in team.extras.items() if name not in payload["dropped"]}
    return team.but(extras={**kept, **payload["extras"]})


def _settled(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    return team.but(settled=True)


def _stint(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """A new driver: members whose run was under way go on, or end with the team."""
    status = RUNNING if state.cause is None else ENDING
    tasks = tuple([t._replace(status=status) if t.status in (RUNNING, NESTED) else t for t in team.tasks])
    return team.but(tasks=tasks)


def _cause(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """The team ends: what waits has to end too, what was not admitted never starts."""
    if state.answered:
        return team.but(hurried=True)
    if state.cause is not None:
        return team
    cause = Cause.of(payload)
    tasks = []
    for task in team.tasks:
        if task.status == NESTED:
            task = task._replace(status=ENDING)
        elif task.status in (NEW, FINISHED):
            value = task.value or {"status": "not_run", "reason": cause.reason or cause.status}
            task = task._replace(status=ENDED, value=value)
        tasks.append(task)
    return team.but(tasks=tuple(tasks), answer=None)


def _resumed(team: TeamState, payload: Mapping[str, Any], state: AgentState) -> TeamState:
    """The next attempt: what failed at the end is chosen again, what came to something is not repeated."""
    outcomes = team.outcomes
    if team.chosen:
        while outcomes and outcomes[-1].status not in WORKED:
            outcomes = outcomes[:-1]
    kept = [task for task in team.tasks if task.call is not None or (task.value or {}).get("status") in WORKED]
    tasks = tuple([task._replace(status=ENDED) for task in kept])
    chosen = len([task for task in tasks if task.call is None])
    return team.but(settled=False, refused=0, skips=0, tasks=tasks, outcomes=outcomes, chosen=chosen)


def _with_task(team: TeamState, after: Task) -> TeamState:
    return team.but(tasks=tuple([after if task.id == after.id else task for task in team.tasks]))


def record_of(payload: Mapping[str, Any]) -> Record:
    """A record from its entry."""
    return Record(
        payload["source"],
        payload["kind"],
        payload["content"],
        payload.get("duration", 0.0),
        payload.get("tokens", 0),
        payload.get("run"),
        payload.get("digest"),
        tuple([(tool, arguments, result) for tool, arguments, result in payload.get("tools", ())]),
    )


TEAM_FOLD: Mapping[str, Fold] = {
    "team_opened": _opened,
    "admitted": _admitted,
    "node_ended": _node_ended,
    "call_judged": _call_judged,
    "model_finished": _model_finished,
    "chosen": _chosen,
    "tool_finished": _tool_finished,
    "member_started": _member_started,
    "member_parked": _member_parked,
    "skipped": _skipped,
    "member_finished": _member_finished,
    "member_ended": _member_ended,
    "record": _record,
    "answered": _answered,
    "feedback": _sent_back,
    "extras": _extras,
    "settled": _settled,
    "stint_started": _stint,
    "cause": _cause,
    "resumed": _resumed,
}
"""What each entry does to a team; it is given the supervisor's state before that entry."""
