"""The calls of one model response, and what is due for them; pure.

==========  ==========================================================  =================
status      meaning                                                     due
==========  ==========================================================  =================
new         not judged yet (or has a problem: never judged)             judge, or refuse
waiting     a request about the call itself is open                     nothing
decided     that request was decided; judged again with its batch       judge
allowed     may run once every call of the response is decided          tool
running     started, no result yet                                      tool (in flight)
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
    "NEW",
    "RELEASE",
    "RUNNING",
    "UNKNOWN",
    "WAITING",
    "CallState",
    "close_all",
    "due_calls",
    "interrupted",
    "settle_wait",
]

NEW, WAITING, DECIDED, ALLOWED = "new", "waiting", "decided", "allowed"
RUNNING, UNKNOWN, HELD, RELEASE, DONE = "running", "unknown", "held", "release", "done"
ENDING = "ending"
UNDECIDED = frozenset({NEW, WAITING, DECIDED})
STARTED = frozenset({ALLOWED, HELD, RELEASE})


class CallState(NamedTuple):
    """One call: own id, tool, the arguments that will run, and how far it came.

    `attempt` counts the requests opened for it; `gated` is set once one was; `digest` binds the
    arguments that an approval (`request`) covers; `child` is the run behind an agent used as a tool.
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

    def but(self, **changes: Any) -> CallState:
        """This call with other values; `_replace` in half the function calls."""
        return _tuple(CallState, map(changes.pop, CALL_FIELDS, self))


CALL_FIELDS = CallState._fields
_tuple = tuple.__new__


def due_calls(calls: tuple[CallState, ...], cause: Cause | None) -> tuple[Command, ...]:
    """What is due for an open batch.

    Every call is judged before any effect starts. Free calls then run at once; gated ones only
    when every gated call of the response is decided.
    """
    if cause is not None:
        return tuple([command for call in calls if (command := _ending(call, cause)) is not None])
    if len(calls) == 1:
        call = calls[0]
        if call.status == NEW and call.problem is None:
            return (_tuple(Command, (f"judge:{call.id}:0", "judge", call.id)),)
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
    return Command(f"close:{call.id}", "close", call.id) if call.status in STARTED else None


def close_all(calls: tuple[CallState, ...], cause: Cause) -> tuple[CallState, ...]:
    """Answer what was never allowed to start; the rest needs its `post_tool_call` or is in flight."""
    return tuple(
        [
            call if call.status in STARTED or call.status in (RUNNING, ENDING, DONE) else not_run(call, cause)
            for call in calls
        ]
    )


def not_run(call: CallState, cause: Cause) -> CallState:
    """The call with a result that says why it did not run."""
    kind: ErrorKind = "cancelled" if cause.status == "cancelled" else "not_run"
    if call.status == UNKNOWN:
        kind = "unknown"
    problem = call.problem or error_result(kind, cause.reason or cause.status, "the run ended before this call ran")
    return call.but(status=DONE, request=None, content=render(problem))


def interrupted(call: CallState, cause: Cause | None) -> CallState:
    """A call as the next driver finds it: without a recorded result it was lost on the way.

    `pure` and `idempotent` calls are started again, `once` is asked about, a child run goes on.
    """
    if call.status != RUNNING:
        return call
    if call.child is not None:
        return call if cause is None else call.but(status=ENDING)
    if cause is not None:
        return not_run(call.but(status=UNKNOWN if call.effect == "once" else RUNNING), cause)
    return call.but(status=UNKNOWN if call.effect == "once" else ALLOWED)


def settle_wait(call: CallState, payload: Mapping[str, Any]) -> CallState:
    """What a decision makes of a waiting call."""
    verb = payload["verb"]
    if call.status == HELD:
        return call.but(status=RELEASE, verb=verb)
    if call.kind == "unknown_effect":
        if verb == "retry":
            return call.but(status=ALLOWED, request=None, gated=False)
        if verb == "respond":
            return call.but(status=DONE, content=payload["content"], request=None)
        skipped = error_result("unknown", "skipped", "it may have run; a person chose not to run it again")
        return call.but(status=DONE, content=render(skipped), request=None)
    if verb == "respond":
        return call.but(status=DONE, content=payload["content"], request=None)
    return call.but(status=DECIDED, verb=verb)
