"""The calls of one model response, and what is due for them; pure.

==========  ==========================================================  =================
status      meaning                                                     due
==========  ==========================================================  =================
new         not judged yet (or has a problem: never judged)             judge, or refuse
waiting     a request about the call itself is open                     nothing
decided     that request was decided; judged again with its batch       judge
allowed     may run once every call of the response is decided          tool
running     started, no result yet                                      tool (in flight)
nested      the run behind it waits; goes on with the next stint        nothing
unknown     started by a driver that died; effect `once`                ask
held        a request about the result (or an outside value) is open    nothing
release     that request was decided                                    release
ending      the run behind it has to end too                            tool
done        has its result                                              nothing
==========  ==========================================================  =================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lictor.agent.results import ErrorKind, error_result, render
from lictor.runs import Cause, Command

__all__ = [
    "ALLOWED",
    "DECIDED",
    "DONE",
    "ENDING",
    "HELD",
    "NESTED",
    "NEW",
    "RELEASE",
    "RUNNING",
    "UNKNOWN",
    "WAITING",
    "CallState",
    "close_all",
    "due_calls",
    "ended",
    "interrupted",
    "settle_wait",
]

NEW, WAITING, DECIDED, ALLOWED = "new", "waiting", "decided", "allowed"
RUNNING, UNKNOWN, HELD, RELEASE, DONE = "running", "unknown", "held", "release", "done"
NESTED, ENDING = "nested", "ending"
UNDECIDED = frozenset({NEW, WAITING, DECIDED})
OPEN_AT_GATE = frozenset({ALLOWED, UNKNOWN, HELD, RELEASE})


class CallState(NamedTuple):
    """One call: own id, tool, the arguments that will run, and how far it came.

    `attempt` counts the requests opened for it, `starts` how often it was started; `gated` is set once
    a request was opened; `digest` binds the arguments that an approval (`request`) covers; `child` is
    the run behind an agent used as a tool; `remark` is what an approver had to say, `editor` who
    changed the arguments, `asked` the model's own when others run.
    """

    id: str
    name: str
    args: Mapping[str, Any] | None
    effect: str
    problem: Mapping[str, Any] | None = None
    status: str = NEW
    request: str | None = None
    kind: str | None = None
    verb: str | None = None
    digest: str | None = None
    attempt: int = 0
    gated: bool = False
    child: str | None = None
    content: str | None = None
    starts: int = 0
    remark: str | None = None
    editor: str | None = None
    asked: Mapping[str, Any] | None = None

    @property
    def open_at_gate(self) -> bool:
        """Whether it waits for its `post_tool_call`: not in flight, but allowed, lost, or with a result to judge."""
        return self.status in OPEN_AT_GATE or self.lost

    @property
    def lost(self) -> bool:
        """Whether nobody knows if it ran."""
        return self.status == UNKNOWN or (self.status == WAITING and self.kind == "unknown_effect")

    def but(self, **changes: Any) -> CallState:
        """This call with other values; `_replace` in a third of the time."""
        values = [*self]
        for name in changes:
            values[PLACES[name]] = changes[name]
        return _tuple(CallState, values)


PLACES = {name: place for place, name in enumerate(CallState._fields)}
_tuple = tuple.__new__


def due_calls(calls: tuple[CallState, ...], cause: Cause | None) -> tuple[Command, ...]:
    """What is due for an open batch.

    Every call is judged before any effect starts. Free calls then run at once; gated ones only
    when every gated call of the response is decided.
    """
    if cause is not None:
        return tuple([command for call in calls if (command := _ending(call, cause)) is not None])
    if not calls[1:]:
        call = calls[0]
        if call.status == NEW and call.problem is None:
            return (_tuple(Command, (f"judge:{call.id}:0", "judge", call.id)),)
        if call.status == RUNNING:
            return (_tuple(Command, (f"tool:{call.id}", "tool", call.id)),)
        command = _due(call, False, False)
        return () if command is None else (command,)
    fresh = any(call.status == NEW and call.problem is None for call in calls)
    open_gate = any(call.gated and call.status in UNDECIDED and call.status != DECIDED for call in calls)
    rejudge = any(call.status == DECIDED for call in calls)
    due = [_due(call, fresh, open_gate, rejudge) for call in calls]
    return tuple([command for command in due if command is not None])


def _due(call: CallState, fresh: bool, open_gate: bool, rejudge: bool = False) -> Command | None:
    status = call.status
    if status == NEW:
        return (
            Command(f"judge:{call.id}:0", "judge", call.id)
            if call.problem is None
            else Command(f"refuse:{call.id}", "refuse", call.id)
        )
    if status == DECIDED:
        return None if open_gate else Command(f"judge:{call.id}:{call.attempt}", "judge", call.id)
    if status == ALLOWED:
        blocked = fresh or (call.gated and (open_gate or rejudge))
        return None if blocked else Command(f"tool:{call.id}", "tool", call.id)
    if status == RUNNING:
        return Command(f"tool:{call.id}", "tool", call.id)
    if status == UNKNOWN:
        return Command(f"ask:{call.id}:{call.attempt}", "ask", call.id)
    if status == RELEASE:
        return Command(f"release:{call.id}:{call.attempt}", "release", call.id)
    return None


def _ending(call: CallState, cause: Cause) -> Command | None:
    """When the run ends: started tools may finish if the cause is graceful; allowed ones are closed."""
    if call.status == ENDING or (call.status == RUNNING and cause.graceful):
        return Command(f"tool:{call.id}", "tool", call.id)
    return Command(f"close:{call.id}", "close", call.id) if call.open_at_gate else None


def close_all(calls: tuple[CallState, ...], cause: Cause) -> tuple[CallState, ...]:
    """Answer what was never allowed to start; the rest needs its `post_tool_call` or is in flight."""
    return tuple([_closed(call, cause) for call in calls])


def _closed(call: CallState, cause: Cause) -> CallState:
    if call.status == NESTED:
        return call.but(status=ENDING)
    return call if call.open_at_gate or call.status in (RUNNING, ENDING, DONE) else not_run(call, cause)


def not_run(call: CallState, cause: Cause) -> CallState:
    """The call with a result that says why it did not run."""
    return call.but(status=DONE, request=None, content=render(call.problem or ended(call, cause)))


def ended(call: CallState, cause: Cause | None) -> dict[str, Any]:
    """The result of a call that the end of its run keeps from having one."""
    reason = "cancelled" if cause is None else cause.reason or cause.status
    if call.lost:
        return error_result("unknown", reason, "it may have run; the run ended before anybody could say")
    kind: ErrorKind = "cancelled" if cause is not None and cause.status == "cancelled" else "not_run"
    return error_result(kind, reason, "the run ended before this call ran")


def interrupted(call: CallState, cause: Cause | None) -> CallState:
    """A call as the next driver finds it: without a recorded result it was lost on the way.

    `pure` and `idempotent` calls are started again, `once` is asked about, a child run goes on.
    """
    if call.status not in (RUNNING, NESTED):
        return call
    if call.child is not None:
        return call.but(status=RUNNING if cause is None else ENDING)
    return call.but(status=UNKNOWN if call.effect == "once" else ALLOWED)


def settle_wait(call: CallState, payload: Mapping[str, Any]) -> CallState:
    """What a decision makes of a waiting call."""
    verb = payload["verb"]
    if call.status == HELD:
        return call.but(status=RELEASE, verb=verb)
    if call.kind == "unknown_effect" and verb == "retry":
        return call.but(status=ALLOWED, request=None, gated=False)
    if call.kind == "unknown_effect" or verb == "respond":
        return call.but(status=RELEASE, verb=verb)
    said = payload.get("feedback") if verb in ("approve", "edit") else None
    remark = f"{payload['decided_by']} about {call.name}: {said}" if said else None
    editor = payload["decided_by"] if verb == "edit" else call.editor
    return call.but(status=DECIDED, verb=verb, remark=remark, editor=editor)
