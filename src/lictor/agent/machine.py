"""What an agent run does next: a pure fold over its log.

Level-triggered: `advance` returns everything that is due in the new state, so a driver that
refolds a log after a crash goes on exactly where the old one stood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from lictor.agent.calls import (
    ALLOWED,
    DECIDED,
    DONE,
    ENDING,
    HELD,
    NESTED,
    NEW,
    RELEASE,
    RUNNING,
    UNKNOWN,
    WAITING,
    CallState,
    close_all,
    due_calls,
    interrupted,
    settle_wait,
)
from lictor.journal import Entry
from lictor.runs import Cause, Command
from lictor.values import frozen_texts

__all__ = ["AgentMachine", "AgentState", "Wait", "taken", "tally"]

STARTUP = (Command("startup", "startup"),)
INPUT = (Command("input", "input"),)
SHUTDOWN = (Command("shutdown", "shutdown"),)
NOTHING: tuple[Command, ...] = ()
GIVEN = ("id", "name", "args", "effect", "problem")
RECENT = 64  # finished responses with calls that are kept for loop breakers
UNJUDGED = tuple([CallState._field_defaults[name] for name in CallState._fields[len(GIVEN) :]])


class Wait(NamedTuple):
    """A step other than a tool call that waits for a decision, or was just decided."""

    request: str
    point: str
    verb: str | None = None


class AgentState(NamedTuple):
    """Everything the next decision depends on.

    `messages` is the transcript without instructions; `calls` the open batch, in call order;
    `step` the model calls made; `numbered` and `ids` the tool calls so far; `positions` the responses
    taken from each model, failed ones included (by runs below as `AGENT>MODEL`); `feedback` what only
    the next request shows; `recent` the last finished calls, by step; `released` step and text of an
    answer that is shown while it comes and not taken yet; `pending` the final text before its verdict
    (`None` inside when only the process that asked holds it), `source` the model it is from; `extra` is
    what a machine around this one keeps (a team).
    """

    phase: str = "new"
    messages: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[CallState, ...] = ()
    step: int = 0
    numbered: int = 0
    ids: Set[str] = frozenset()
    positions: Mapping[str, int] = {}
    feedback: tuple[Mapping[str, Any], ...] = ()
    reasks: int = 0
    retries_in_row: int = 0
    retries: int = 0
    misses: int = 0
    invalid: Mapping[str, int] = {}
    denied: Mapping[str, int] = {}
    recent: tuple[tuple[int, tuple[CallState, ...]], ...] = ()
    pending: tuple[str | None] | None = None
    released: tuple[int, str] | None = None
    source: str = ""
    waits: Mapping[str, Wait] = {}
    cause: Cause | None = None
    answered: bool = False
    finished: bool = False
    extra: Any = None

    def but(self, **changes: Any) -> AgentState:
        """This state with other values; `_replace` in a third of the time."""
        values = [*self]
        for name in changes:
            values[PLACES[name]] = changes[name]
        return _tuple(AgentState, values)

    def call(self, call_id: str) -> CallState:
        """The open call with this id."""
        for call in self.calls:
            if call.id == call_id:
                return call
        raise KeyError(call_id)

    def unanswered(self, call_id: str) -> CallState | None:
        """The same while it has no result; what comes after the first result changes nothing."""
        for call in self.calls:
            if call.id == call_id and call.status != DONE:
                return call
        return None


PLACES = {name: place for place, name in enumerate(AgentState._fields)}
EMPTY = AgentState()
_tuple = tuple.__new__


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMachine:
    """The agent's machine; `history` are the messages of the conversation so far."""

    kinds: ClassVar[frozenset[str]]
    """The entries that change the state."""

    history: tuple[Mapping[str, Any], ...] = ()
    numbered: int = 0
    positions: Mapping[str, int] | None = None

    def begin(self) -> AgentState:
        """The state before the first entry."""
        if not self.history and not self.numbered and not self.positions:
            return EMPTY
        ids = frozenset([call["id"] for message in self.history for call in message.get("tool_calls") or ()])
        return AgentState(messages=self.history, numbered=self.numbered, ids=ids, positions=self.positions or {})

    def advance(self, state: AgentState, event: Entry) -> tuple[AgentState, tuple[Command, ...]]:
        """Fold one entry; everything that is due afterwards."""
        payload = event.payload
        state = FOLD[event.kind](state, payload)
        if "ends" in payload:  # a verdict and what it does to the run are one entry, so that no crash parts them
            state = _cause(state, payload["ends"])
        if state.finished:
            return state, NOTHING
        if state.calls:
            return state, due_calls(state.calls, state.cause)
        if state.cause is not None or state.answered:
            return state, SHUTDOWN
        if state.phase == "loop":
            kind = "model" if state.pending is None else "output"
            due: tuple[Command, ...] = (_tuple(Command, (f"{kind}:{state.step}", kind, None)),)
        else:
            due = INPUT if state.phase == "input" else STARTUP
        wait = state.waits.get(due[0].key) if state.waits else None
        return state, due if wait is None or wait.verb is not None else NOTHING

    def fold(self, state: AgentState, event: Entry) -> AgentState:
        """Fold one entry; for a machine around this one, which says what is due."""
        state = FOLD[event.kind](state, event.payload)
        return _cause(state, event.payload["ends"]) if "ends" in event.payload else state

    def step_of(self, state: AgentState) -> tuple[Command, ...]:
        """The next step of a run that has no open calls and does not end; `advance` has it spelt out."""
        if state.phase == "loop":
            kind = "model" if state.pending is None else "output"
            due: tuple[Command, ...] = (Command(f"{kind}:{state.step}", kind),)
        else:
            due = INPUT if state.phase == "input" else STARTUP
        wait = state.waits.get(due[0].key)
        return due if wait is None or wait.verb is not None else NOTHING

    def finished(self, state: AgentState) -> bool:
        """Whether the outcome is recorded."""
        return state.finished

    def waiting(self, state: AgentState) -> Mapping[str, str]:
        """Command key -> id of the request it waits for."""
        found = {key: wait.request for key, wait in state.waits.items() if wait.verb is None}
        for call in state.calls:
            if call.status in (WAITING, HELD) and call.request is not None:
                found[f"call:{call.id}"] = call.request
        return found


def _started(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    return state


def _stint(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """A new driver: what was under way without a record is lost with the old one."""
    if state.calls:
        state = _with_calls(state, tuple(interrupted(call, state.cause) for call in state.calls))
    if state.pending == (None,) and f"output:{state.step}" not in state.waits:
        # The answer was nowhere but in the process: it is asked for again, at the same place.
        positions = {**state.positions, state.source: state.positions[state.source] - 1}
        state = state.but(pending=None, step=state.step - 1, positions=positions)
    return state


def _opened(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    phase = "loop" if state.phase == "again" else "input"
    return state.but(phase=phase, waits=_without(state.waits, "startup"))


def _resumed(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The next attempt of a failed run: it goes on where the last one stood."""
    phase = "again" if state.phase == "loop" else "new"
    return state.but(phase=phase, cause=None, finished=False, reasks=0, feedback=())


def _input(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    waits = _without(state.waits, "input") if state.waits else state.waits
    return state.but(phase="loop", messages=(*state.messages, payload["message"]), waits=waits)


def _attempt(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    return state.but(positions=_count(state.positions, payload["model"]))


def _model_finished(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    outcome = payload["outcome"]
    model, positions = payload["model"], state.positions
    taken = positions[model] + 1 if model in positions else 1
    changes: dict[str, Any] = {"step": state.step + 1, "positions": {**positions, model: taken}}
    if state.waits:
        changes["waits"] = _without(state.waits, f"model:{state.step}")
    if outcome == "reask":
        changes.update(reasks=state.reasks + 1, feedback=tuple(payload["feedback"]))
        return state.but(**changes)
    if outcome == "answer":
        changes["source"] = model
        if "message" not in payload:  # while it may get lost, what led to it is kept
            return state.but(pending=(None,), **changes)
        message = payload["message"]
        messages = (*state.messages, message)
        return state.but(pending=(message["content"],), messages=messages, reasks=0, feedback=(), **changes)
    changes["reasks"], changes["feedback"] = 0, ()
    calls = payload["calls"]
    changes["retries_in_row"], changes["released"] = 0, None
    changes["messages"] = (*state.messages, payload["message"])
    changes["numbered"] = state.numbered + len(calls)
    ids = state.ids
    for call in calls:
        ids |= {call["id"]}
    changes["ids"] = ids
    changes["calls"] = tuple([_tuple(CallState, (*[call[name] for name in GIVEN], *UNJUDGED)) for call in calls])
    if state.invalid or state.misses or "problems" in payload:
        changes.update(tally(state, calls))
    if state.cause is not None:  # the run was stopped while the model thought: none of this starts
        return _with_calls(state.but(**changes), close_all(changes["calls"], state.cause))
    return state.but(**changes)


def _delta(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """Text of an answer that is still coming was released (§12.1, the exception)."""
    before = "" if state.released is None else state.released[1]
    return state.but(released=(payload["step"], before + payload["text"]))


def _reset(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The caller was told to forget it."""
    return state.but(released=None)


def tally(state: AgentState, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count unknown tools in a row, and invalid arguments for each tool (E24: per tool, not in a row)."""
    unknown = [call for call in calls if (call.get("problem") or {}).get("error") == "unknown_tool"]
    misses = state.misses + len(unknown) if len(unknown) == len(calls) else 0
    invalid = state.invalid
    for call in calls:
        problem = (call.get("problem") or {}).get("error")
        if problem == "invalid_arguments":
            invalid = _count(invalid, call["name"])
        elif problem is None and call["name"] in invalid:
            invalid = _without(invalid, call["name"])
    return {"misses": misses, "invalid": invalid}


def _output(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    messages = state.messages
    if state.pending == (None,):
        messages = (*messages, payload["message"])
    elif payload.get("changed"):
        messages = (*messages[:-1], payload["message"])
    waits = _without(state.waits, f"output:{state.step}") if state.waits else state.waits
    return state.but(messages=messages, pending=None, released=None, answered=True, waits=waits)


def _feedback(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The output was sent back: the next request says why, the refused text is gone."""
    return state.but(
        pending=None,
        reasks=0,
        feedback=tuple(payload["feedback"]),
        retries=state.retries + 1,
        retries_in_row=state.retries_in_row + 1,
        waits=_without(state.waits, f"output:{state.step}"),
    )


def _judged(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    call = state.unanswered(payload["call"])
    if call is None:
        return state
    if payload["decision"] == "allow":
        after = call.but(
            status=ALLOWED,
            args=payload.get("args", call.args),
            request=payload.get("request"),
            digest=payload.get("digest"),
            verb=None,
            gated=call.gated,
            asked=_asked(call, payload),
        )
        state = _edited(state, payload)
    else:
        after = call.but(status=DONE, content=payload["content"], request=None, verb=None, remark=None)
    denied = payload.get("denied")
    if denied is not None:
        state = state.but(denied=_count(state.denied, denied))
    return _with_call(state, after)


def _edited(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The stored call shows the arguments that ran."""
    message = payload.get("message")
    if message is None:
        return state
    position = len(state.messages) - 1
    return state.but(messages=(*state.messages[:position], message))


def _asked(call: CallState, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The arguments that the model asked for, once others are to run in their place."""
    return call.args if call.asked is None and "message" in payload else call.asked


def _request_opened(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    call_id = payload.get("call")
    if call_id is None:
        waits = {**state.waits, payload["step"]: Wait(payload["request"], payload["point"])}
        return state.but(waits=waits)
    call = state.unanswered(call_id)
    if call is None:
        return state
    status = WAITING if payload["kind"] in ("tool_call", "unknown_effect") else HELD
    return _with_call(
        state,
        call.but(
            status=status,
            request=payload["request"],
            kind=payload["kind"],
            verb=None,
            attempt=call.attempt + 1,
            gated=call.gated or payload["kind"] == "tool_call",
        ),
    )


def _request_decided(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    request, verb = payload["request"], payload["verb"]
    for key, wait in state.waits.items():
        if wait.request == request:
            return state.but(waits={**state.waits, key: wait._replace(verb=verb)})
    for call in state.calls:
        if call.request == request and call.status in (WAITING, HELD):
            return _with_call(state, settle_wait(call, payload))
    return state


def _tool_started(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The intent. A single free call is judged and started in one entry."""
    call = state.call(payload["call"])
    child = payload["child"] if "child" in payload else None
    if "message" in payload:
        state, call = _edited(state, payload), call.but(asked=_asked(call, payload))
    return _with_call(
        state, call.but(status=RUNNING, child=child, request=None, args=payload["arguments"], starts=call.starts + 1)
    )


def _tool_finished(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    call = state.unanswered(payload["call"])
    if call is None:
        return state
    if "positions" in payload:
        state = state.but(positions=dict(Counter(state.positions) + Counter(payload["positions"])))
    return _with_call(state, call.but(status=DONE, content=payload["content"], request=None))


def _policy_changed(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """Approvals that were given under another policy and not used yet are asked again."""
    calls = [call.but(status=DECIDED) if call.status == ALLOWED and call.request else call for call in state.calls]
    return state.but(calls=tuple(calls))


def _child_parked(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    call = state.call(payload["call"])
    return _with_call(state, call.but(status=NESTED if state.cause is None else ENDING))


def _cause(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    """The first cause wins; calls that never started are answered at once."""
    if state.cause is not None or state.answered:
        return state
    cause = Cause.of(payload)
    state = state.but(cause=cause, pending=None)
    return _with_calls(state, close_all(state.calls, cause)) if state.calls else state


def _run_finished(state: AgentState, payload: Mapping[str, Any]) -> AgentState:
    return state.but(finished=True)


def _with_call(state: AgentState, after: CallState) -> AgentState:
    if not state.calls[1:]:
        return _with_calls(state, (after,))
    return _with_calls(state, tuple([after if call.id == after.id else call for call in state.calls]))


def _with_calls(state: AgentState, calls: tuple[CallState, ...]) -> AgentState:
    """When every call has a result they become messages, in call order."""
    remarked = False
    for call in calls:
        if call.status != DONE:
            return state.but(calls=calls)
        remarked = remarked or call.remark is not None
    results = tuple([frozen_texts(role="tool", tool_call_id=call.id, content=call.content or "") for call in calls])
    if remarked:
        results += tuple([frozen_texts(role="user", content=call.remark) for call in calls if call.remark])
    recent = (*state.recent[1 - RECENT :], (state.step, calls))
    return state.but(calls=(), messages=state.messages + results, recent=recent)


def taken(entries: Sequence[Entry]) -> dict[str, int]:
    """The responses that a run and those below it took from each model, as the run above counts them."""
    start = entries[0].payload
    machine = AgentMachine(positions=start.get("positions"))
    before = state = machine.begin()
    for entry in entries:
        if entry.kind in machine.kinds:
            state, _ = machine.advance(state, entry)
    counts = Counter(state.positions) - Counter(before.positions)
    return {f"{start['agent']}>{model}": count for model, count in counts.items()}


def _count(counts: Mapping[str, int], key: str) -> Mapping[str, int]:
    return {**counts, key: counts.get(key, 0) + 1}


def _without(items: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if not items or key not in items:
        return items
    return {name: value for name, value in items.items() if name != key}


FOLD: Mapping[str, Callable[[AgentState, Mapping[str, Any]], AgentState]] = {
    "run_started": _started,
    "stint_started": _stint,
    "resumed": _resumed,
    "session_opened": _opened,
    "input": _input,
    "model_retry": _attempt,
    "model_delta": _delta,
    "stream_reset": _reset,
    "model_finished": _model_finished,
    "output": _output,
    "feedback": _feedback,
    "call_judged": _judged,
    "request_opened": _request_opened,
    "request_decided": _request_decided,
    "tool_started": _tool_started,
    "tool_finished": _tool_finished,
    "call_closed": _tool_finished,
    "child_parked": _child_parked,
    "policy_changed": _policy_changed,
    "cause": _cause,
    "run_finished": _run_finished,
}
AgentMachine.kinds = frozenset(FOLD)
# Kept for readers of the log: every status a call can have.
CALL_STATUSES = (NEW, WAITING, DECIDED, ALLOWED, RUNNING, UNKNOWN, HELD, RELEASE, NESTED, ENDING, DONE)
