"""Named crash points: places where a test may end, kill or stop the process.

The product calls `reach` at every place where a crash would be interesting. Nothing happens there
unless a test armed the point, in process with `arm` (`lictor.testing.crash_at` does) or, for a real
kill, through the environment of a child process:

    LICTOR_CRASH_AT=effect.after        SIGKILL when the point is reached
    LICTOR_CRASH_AT=append.before:3     SIGKILL at the fourth time
    LICTOR_PAUSE_AT=settle.after        SIGSTOP, to be continued with SIGCONT

Modelled on the debug triggers of DBOS: the points belong to the product, so a test names what it
means and does not depend on how the code is cut.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from lictor.errors import DefinitionError

__all__ = ["POINTS", "arm", "disarm", "reach"]

POINTS: Mapping[str, str] = MappingProxyType(
    {
        "submit.before": "a stint is about to be submitted; nothing is committed",
        "submit.after": "the submission is committed; nobody has claimed it",
        "claim.before_first_step": "a driver holds the run and has done nothing yet",
        "step.between": "one step is recorded, the next has not begun",
        "model.before": "a model call has passed its gate and is about to be sent",
        "model.after": "the model has answered; the answer is not recorded",
        "intent.before": "a call may run; its intent is not written",
        "intent.after": "the intent of a call is committed; the call has not started",
        "effect.before": "a tool is about to run",
        "effect.after": "a tool has run; its result is not recorded",
        "append.before": "events are about to be appended; nothing is committed",
        "append.after": "events are committed; nobody was told",
        "release.before": "an answer passed its gate; the caller has not seen it",
        "release.after": "the answer is released; the outcome may not be recorded",
        "park.before": "a run has to wait; its requests are not committed",
        "park.after": "a run waits as rows; its driver still holds it",
        "settle.before": "a decision was accepted; it is not committed",
        "settle.after": "the decision and the next stint are committed; nobody drives it yet",
        "finish.before": "the outcome is known; it is not committed",
        "finish.after": "the outcome is committed; nobody was told",
        "adopt.before": "an orphan was found; it is not adopted",
        "adopt.after": "an orphan is adopted; nothing of it has run",
        "deliver.before": "a letter is about to be delivered; nothing is committed",
        "deliver.after": "a letter is committed; its receiver is not woken",
    }
)
"""Every point with what is true there. Closed: `arm` refuses any other name."""

_SIGNALS: Mapping[str, str] = MappingProxyType({"LICTOR_CRASH_AT": "SIGKILL", "LICTOR_PAUSE_AT": "SIGSTOP"})


class _Trap:
    """An armed point: lets `after` passes by, then acts once."""

    __slots__ = ("_action", "_left", "_lock")

    def __init__(self, action: Callable[[], object], after: int) -> None:
        self._action = action
        self._left = after
        self._lock = threading.Lock()

    def hit(self, point: str) -> None:
        with self._lock:  # a store reaches points on its writer thread
            if self._left:
                self._left -= 1
                return
            if _armed.get(point) is not self:
                return
            del _armed[point]
        self._action()


_armed: dict[str, _Trap] = {}


def reach(point: str) -> None:
    """Say that execution got to `point`; a no-op unless the point is armed.

    The name is not checked here, so that the cost is one lookup in an empty dictionary;
    `tests/test_faults.py` checks the names in the source. Raises what the armed action raises.
    """
    if _armed and point in _armed:
        _armed[point].hit(point)


def arm(point: str, action: Callable[[], object], after: int = 0) -> Callable[[], None]:
    """Run `action` when `point` is reached, once, after letting `after` passes by.

    The action raises, kills or stops the process, or just looks. The point is disarmed before it
    runs, so what restarts afterwards gets through. Arming a point again replaces its action.
    Returns the undo of this arming. Raises `DefinitionError` for an unknown point or a negative `after`.
    """
    if point not in POINTS:
        raise DefinitionError(f"unknown crash point {point!r}; the points are {', '.join(sorted(POINTS))}")
    if after < 0:
        raise DefinitionError(f"after={after!r} must be 0 or more: the passes to let by before acting")
    trap = _armed[point] = _Trap(action, after)

    def undo() -> None:
        if _armed.get(point) is trap:
            del _armed[point]

    return undo


def disarm(point: str | None = None) -> None:
    """Disarm `point`, or every point when none is named; it need not be armed."""
    if point is None:
        _armed.clear()
    else:
        _armed.pop(point, None)


def _arm_from(environ: Mapping[str, str]) -> None:
    """Arm what the environment asks for; a wrong request fails at import and says so."""
    for variable, signal_name in _SIGNALS.items():
        wanted = environ.get(variable)
        if not wanted:
            continue
        point, _, after = wanted.partition(":")
        if not (after or "0").isdecimal():
            raise DefinitionError(f"{variable}={wanted!r} must read POINT or POINT:PASSES, with a whole number")
        arm(point, partial(os.kill, os.getpid(), signal.Signals[signal_name]), int(after or "0"))


_arm_from(os.environ)
