"""A team while it is driven: what its hooks are told, and what it does to the run of its supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lictor.agent import Session, Window, safe_value, used_below
from lictor.errors import NotSerializable, ToolArgumentsInvalid
from lictor.hooks import Bound, Emission, Raised, Verdict, awaited, pending, verdict_of
from lictor.runs import Budget, Ledger, Usage
from lictor.team.decisions import unroutable
from lictor.team.interceptor import WRAPS, Hook, has
from lictor.team.trace import TeamTrace, Told
from lictor.team.wrapping import ModelRequestView
from lictor.values import freeze

if TYPE_CHECKING:
    from lictor.team.definition import Team

__all__ = ["BEFORE", "CURRENT", "TeamHistory", "TeamLive", "bound_of", "handed", "keep_extras"]

CURRENT: ContextVar[Session] = ContextVar("lictor.team")
"""The supervisor's run whose step is performed: what the team's own tools and interceptors are about."""
BEFORE = ("on_prepare", "on_model_start")


class TeamLive:
    """The volatile side of one team run; it holds nothing that must survive.

    Arguments:
        team: the definition.
        hooks: whoever has a word at a moment, outermost first.
        told: what traces show of the run.
        per_run: the interceptors given for this run, as they go on to the members.
    """

    __slots__ = (
        "_accounts",
        "_having",
        "children",
        "hooks",
        "per_run",
        "prepared",
        "team",
        "told",
        "unborn",
        "working",
        "wrapping",
    )

    asks = "feedback"

    def __init__(self, team: Team, hooks: Sequence[Hook], told: Told, per_run: Any = ()) -> None:
        self.team = team
        self.hooks = tuple(hooks)
        self.wrapping = tuple([hook for hook in hooks if any(has(hook.target, name) for name in ("wrap", *WRAPS))])
        self.per_run = per_run
        self.told = told
        self.children: dict[str, Session] = {}
        self.working: dict[str, asyncio.Event] = {}  # tasks whose step is under way here
        self.unborn: set[str] = set()  # runs of members that were announced here and have not begun
        self._accounts: dict[str, Ledger] = {}
        self._having: dict[str, list[Hook]] = {}  # who has a method for a moment, switched on or off
        self.prepared: dict[str, Any] = {}  # what the hooks before a model call said, until the gate asks for it

    def trace(self, session: Session) -> TeamTrace:
        """The run as it is now."""
        live = session.live
        machine: Any = live.machine
        return TeamTrace(self.told, live.state, machine, live.ledger.usage, live.clock.now(), live.history())

    def asked(self, moment: str) -> list[tuple[Hook, Any]]:
        """Whoever has a word at a moment and is not switched off, with the method that says it."""
        if moment not in self._having:
            self._having[moment] = [hook for hook in self.hooks if has(hook.target, moment)]
        having = self._having[moment]
        return [(hook, getattr(hook.target, moment)) for hook in having if getattr(hook.target, "enabled", True)]

    # between the supervisor and its model

    async def prepare(self, session: Session, messages: Sequence[Any]) -> tuple[Sequence[Any], Any, Mapping[str, Any]]:
        """Let the hooks before the call change the request; what they say comes as their slots of the emission."""
        plan = session.plan
        self.prepared.clear()
        asked = [(hook, name, method) for name in BEFORE for hook, method in self.asked(name)]
        if not asked:
            return messages, plan.specs, plan.settings
        view = ModelRequestView(messages=list(messages), tools=list(plan.specs), settings=dict(plan.settings))
        for hook, name, method in asked:
            trace = self.trace(session)
            answer: Any = await self._said(session, method, trace, view)
            reason = trace.resumed()
            if reason is not None and (answer is None or answer is True):
                answer = Verdict.escalate("suspended", reason)
            self.prepared[f"{hook.name}.{name}"] = keep_extras(session, trace) or answer
        return view.messages, view.tools, view.settings

    async def _said(self, session: Session, method: Any, *given: Any) -> Any:
        try:
            answer = method(*given)
            return await awaited(answer, session.options.governance.timeout) if pending(answer) else answer
        except Exception as exc:  # noqa: BLE001 - it is raised again where its slot is asked
            return exc

    def again(self, session: Session, emission: Emission) -> str | None:
        """Ask again when nobody but `on_model_end` denied (40-team); what could not say so ends the run."""
        stopped = emission.control is not None and emission.control.control == "stop"
        denies = emission.denies
        if stopped or not denies or not all(name.endswith(".on_model_end") for name, _ in denies):
            return None
        if any((verdict.reason or "").startswith("host_error:") for _, verdict in denies):
            return None
        verdict = emission.verdict
        return f"Your last answer was not accepted: {verdict.reason or 'denied'}. {verdict.message or ''}".strip()

    def fault(self, fault: str | None, problem: str | None, calls: Sequence[Any]) -> tuple[str | None, str | None]:
        """A response that decides nothing, or nothing that can be, is asked for again."""
        members = tuple(self.team.table)
        if fault is not None and fault != "empty_answer":
            return fault, problem
        wrong = [line for call in calls for line in self._wrong(call)]
        if len(calls) > 1 and any(call.name == "finish" for call in calls):
            wrong.append("finish comes alone")
        if calls and not wrong:
            return None, None
        told = unroutable(members)
        return "unroutable", f"{'; '.join(wrong)}. {told}" if wrong else told

    def _wrong(self, call: Any) -> Sequence[str]:
        """Why a call is no decision."""
        tool = self.team.supervision.tools.get(call.name)
        if tool is None:
            return [f"there is no {call.name!r}"]
        if call.problems or call.raw is not None:
            return call.problems or ["the arguments are no JSON object"]
        try:
            tool.parse(call.args)
        except ToolArgumentsInvalid as exc:
            return exc.problems
        return ()

    def kept(self, session: Session) -> tuple[Mapping[str, Any], ...]:
        """A conversation keeps the task and the answer; who worked on it is in the trace."""
        brought = session.options.messages
        state = session.live.state
        task = state.messages[len(brought) : len(brought) + 1]
        return (*brought, *task, *state.messages[-1:]) if state.answered else (*brought, *task)

    def account(self, session: Session, member: str, share: Budget) -> Ledger:
        """What one member used in this run, against its share; after a restart from the log."""
        if member not in self._accounts:
            live = session.live
            account = self._accounts[member] = Ledger(live.clock, share, parent=live.ledger)
            account.started = self.told.started
            for entry in live.store.entries(live.run_id):
                if entry.kind == "member_finished" and entry.payload["member"] == member:
                    account.restore(Usage.of(entry.payload["usage"]))
            for task in live.state.extra.tasks:
                if task.member == member and task.value is None and task.child:
                    account.restore(used_below(live.store, task.child))
        return self._accounts[member]

    def transfer(self, run_id: str, call_id: str, member: str, note: str) -> str:
        """A member hands its task over; only the first transfer of its run counts.

        Its run ends when the other calls of the same response have their results (C12).
        """
        child = self.children[run_id]
        made = handed(child)
        if made is None:
            child.live.record("handoff", {"to": member, "note": note, "call": call_id})
        elif made["call"] != call_id:
            return "only one transfer per turn"
        return f"transferred to {member}"

    def results(self, session: Session, call_id: str) -> Any:
        """What the members of a decision came to."""
        tasks = session.live.state.extra.of_call(call_id)
        found = [{"member": task.member, **(task.value or {"status": "not_run"})} for task in tasks]
        call = session.live.state.call(call_id)
        if call.name == "assign":
            return found[0]
        good = all(each["status"] == "completed" for each in found)
        return {"status": "completed" if good else "partial", "results": found}


def handed(child: Session) -> Mapping[str, Any] | None:
    """The transfer that a member made."""
    entries = child.live.store.entries(child.live.run_id)
    return next((entry.payload for entry in entries if entry.kind == "handoff"), None)


def keep_extras(session: Session, trace: TeamTrace) -> Verdict | None:
    """Store what a hook changed in `trace.extras`; what cannot be stored is a failure of the hook, and a deny."""
    before, after = trace.given, trace.extras
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    dropped = [name for name in before if name not in after]
    if not changed and not dropped:
        return None
    try:
        safe = {str(name): safe_value(value)[0] for name, value in changed.items()}
    except NotSerializable as exc:
        trace.extras = dict(before)
        return verdict_of(Raised(exc))
    session.live.record("extras", {"extras": freeze(safe), "dropped": dropped})
    trace.given = {**{name: before[name] for name in before if name not in dropped}, **safe}
    return None


class TeamHistory:
    """What a request of the supervisor shows: the end of the conversation, the task, the last decisions with results.

    Arguments:
        brought: how many messages the conversation brought.
        window: how many of them are shown. records: how many decisions with their results.
    """

    def __init__(self, brought: int, window: int, records: int) -> None:
        self._brought = brought
        self._window = window
        self._records = records

    def select(self, messages: Sequence[Mapping[str, Any]], budget: int | None) -> Sequence[Mapping[str, Any]]:
        """Pairs of call and result are never parted, and what is left of the conversation begins with a user."""
        old, new = messages[: self._brought], messages[self._brought :]
        shown = list(Window().select(old, self._window)) if self._window and old else []
        while shown and shown[0]["role"] != "user":  # some providers want somebody who asks first
            del shown[0]
        place, wanted = len(new), self._records
        while wanted and place > 1:
            place -= 1
            wanted -= new[place]["role"] != "tool"  # a result goes with the decision before it
        return [*shown, *new[:1], *new[place:]]


def bound_of(name: str, points: Sequence[str], target: Any, always: bool) -> Bound:
    """An interceptor of the team itself, under the name of the hook it speaks for."""
    return Bound(
        name=name,
        interceptor=target,
        points=frozenset(points),
        version="0",
        config=None,
        blocking=False,
        always_enforce=always,
        call=target.call,
    )
