"""TeamTrace: what a team run did and does, live for those who judge it, and afterwards from its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lictor.agent import AgentState
from lictor.journal import Entry
from lictor.runs import NO_USAGE, Usage, User
from lictor.team.machine import TeamMachine
from lictor.team.state import NESTED, Record, TeamState
from lictor.values import thaw

__all__ = ["MemberResult", "Metrics", "TeamOptions", "TeamTrace", "Told", "team_trace_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberResult:
    """What a member came to.

    Arguments:
        member: who.
        status: of its run: `completed`, `blocked`, `stopped`, …; never guessed from its words.
        answer: when it completed.
        reason, partial: why it did not, and the last text it wrote.
        duration: seconds.
        tokens: used below it.
        run_id: its run.
    """

    member: str
    status: str
    answer: Any = None
    reason: str | None = None
    partial: str | None = None
    duration: float = 0.0
    tokens: int = 0
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Sums over a team run: tokens, dollars, seconds since its start, and usage by who used it."""

    usage: Usage
    duration: float
    by: Mapping[str, int]

    @property
    def total_tokens(self) -> int:
        """Input and output tokens, everything below included."""
        return self.usage.total_tokens

    @property
    def cost_usd(self) -> float:
        """US dollars, where prices are known."""
        return self.usage.cost_usd


class TeamOptions(NamedTuple):
    """The limits of this run."""

    max_turns: int
    max_handoffs: int
    record_window: int
    history_window: int


class Told(NamedTuple):
    """What is known of a run beside its folded state."""

    run_id: str
    team: str
    user: User | str | None
    context: Mapping[str, Any] | None
    options: TeamOptions
    started: float


class TeamTrace:
    """A team run as it is now. Reading costs nothing until something is read.

    `suspend(reason)` makes the moment at hand wait for a person. `extras` is a dict of JSON that is
    stored with the run when a moment has changed it.
    """

    __slots__ = ("_about", "_history", "_machine", "_now", "_state", "_told", "_usage", "extras", "given", "suspended")

    def __init__(
        self,
        told: Told,
        state: AgentState,
        machine: TeamMachine,
        usage: Usage,
        now: float,
        history: Callable[[], Sequence[Entry]] = tuple,
    ) -> None:
        self._told = told
        self._state = state
        self._machine = machine
        self._usage = usage
        self._now = now
        self._history = history
        self.given: dict[str, Any] = thaw(state.extra.extras) if state.extra.extras else {}
        self.extras: dict[str, Any] = thaw(state.extra.extras) if state.extra.extras else {}
        self.suspended: str | None = None
        self._about: str | None = None

    def __repr__(self) -> str:
        return f"<TeamTrace {self._told.team!r}, turn {self.turn_count}, {self.record_count} records>"

    def suspend(self, reason: str) -> None:
        """Wait for a person before this moment is over, as `Verdict.escalate(reason)` does."""
        self.suspended = reason

    def resumed(self) -> str | None:
        """The reason of `suspend`, once."""
        reason, self.suspended = self.suspended, None
        return reason

    @property
    def _team(self) -> TeamState:
        team: TeamState = self._state.extra
        return team

    @property
    def run_id(self) -> str:
        """The run."""
        return self._told.run_id

    @property
    def name(self) -> str:
        """The team."""
        return self._told.team

    @property
    def user(self) -> User | None:
        """Whom it is for, as of the start; a name that was given has become a User."""
        user = self._told.user
        return User(user) if isinstance(user, str) else user

    @property
    def context(self) -> Mapping[str, Any]:
        """What was given at the start (JSON)."""
        return self._told.context or {}

    @property
    def options(self) -> TeamOptions:
        """The limits of this run."""
        return self._told.options

    @property
    def status(self) -> str:
        """`running`, `waiting`, or the terminal status."""
        state = self._state
        if not state.finished:
            nested = any(task.status == NESTED for task in self._team.tasks)
            return "waiting" if nested or self._machine.waiting(state) else "running"
        return "completed" if state.answered or state.cause is None else str(state.cause.status)

    @property
    def turn_count(self) -> int:
        """Decisions of the supervisor, and members chosen without one, skipped or not."""
        return self._team.turn

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was recorded, in order."""
        return self._team.records

    @property
    def record_count(self) -> int:
        """How many records there are, system records included."""
        return len(self._team.records)

    @property
    def metrics(self) -> Metrics:
        """Sums so far."""
        by: dict[str, int] = {}
        for record in self._team.records:
            if record.tokens:
                by[record.source] = by.get(record.source, 0) + record.tokens
        return Metrics(usage=self._usage, duration=max(0.0, self._now - self._told.started), by=by)

    def _last(self) -> Record | None:
        """The last output; a skip or a pause is none."""
        return next((record for record in reversed(self._team.records) if record.kind == "output"), None)

    @property
    def last_agent_name(self) -> str | None:
        """The member that works, worked or was refused last; at its admission it is set already."""
        return self._about or self._team.last

    def admitting(self, member: str) -> TeamTrace:
        """The same trace at the admission of one of several members that work side by side."""
        self._about = member
        return self

    @property
    def last_agent_content(self) -> str | None:
        """The last output of a member."""
        record = self._last()
        return None if record is None else record.content

    @property
    def last_agent_duration(self) -> float:
        """Seconds it took."""
        record = self._last()
        return 0.0 if record is None else record.duration

    @property
    def route(self) -> tuple[str, ...]:
        """The members in the order in which their work ended, skipped ones too."""
        return tuple([outcome.member for outcome in self._team.outcomes])

    @property
    def last_decision(self) -> str | None:
        """The last decision, in one line."""
        found = [record.content for record in self._team.records if record.kind == "decision"]
        return found[-1] if found else None

    @property
    def final_answer(self) -> str | None:
        """The answer, once it passed `output`."""
        return self._state.messages[-1]["content"] if self._state.answered else None

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """The transcript of the supervisor, without instructions."""
        return self._state.messages

    @property
    def entries(self) -> Sequence[Entry]:
        """The log up to here."""
        return self._history()

    @property
    def usage(self) -> Usage:
        """Everything used so far, members included."""
        return self._usage

    @property
    def steps(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """(kind, payload) of everything recorded, for people and tests."""
        return tuple([(entry.kind, entry.payload) for entry in self.entries])

    def formatted_history(self, window: int | None = None) -> str:
        """The last outputs as text, one paragraph each with its member; `window` of them, or all."""
        return formatted(self._team.records, window)


def formatted(records: Sequence[Record], window: int | None) -> str:
    """The last outputs as text."""
    outputs = [record for record in records if record.kind == "output"]
    if window is not None:
        outputs = outputs[len(outputs) - min(window, len(outputs)) :]
    return "\n\n".join([f"{record.source}: {record.content}" for record in outputs])


def team_trace_of(run_id: str, entries: Sequence[Entry], history: Sequence[Mapping[str, Any]] = ()) -> TeamTrace:
    """The trace of a stored run, from its own log alone."""
    machine = TeamMachine(history=tuple(history))
    state = machine.begin()
    usage = NO_USAGE
    for entry in entries:
        if entry.kind in machine.kinds:
            state, _ = machine.advance(state, entry)
        if entry.kind in ("model_finished", "model_retry") or entry.kind == "member_finished":
            usage = usage + Usage.of(entry.payload.get("usage"))
    begun = entries[0].payload if entries else {}
    options = TeamOptions(*begun.get("options", (0, 0, 0, 0)))
    last = entries[-1].at if entries else 0.0
    told = Told(run_id, begun.get("team", ""), begun.get("user"), None, options, entries[0].at if entries else 0.0)
    return TeamTrace(told, state, machine, usage, last, lambda: entries)
