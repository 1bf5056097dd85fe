"""What a loop breaker is told about the calls before: the host's word, folded from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lictor.agent.calls import CallState
from lictor.agent.loops import DENIED
from lictor.hooks import Bound
from lictor.values import digest

__all__ = ["recalled", "wanted"]

Recent = Sequence[tuple[int, Sequence[CallState]]]


def wanted(order: Sequence[Bound]) -> int:
    """How many finished calls the interceptors of an order want to be told about; 0 for none."""
    asked = [getattr(bound.interceptor, "recalls", 0) for bound in order]
    return max([number for number in asked if isinstance(number, int)], default=0)


def recalled(
    recent: Recent, name: str, args: Mapping[str, Any], most: int, tools: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """The last `most` finished calls, oldest first, if this very call is among them; None for a new one."""
    if not _known(recent[-most:], name, args):
        return None
    calls = [(step, call) for step, batch in recent for call in batch]
    return [_row(step, call, tools) for step, call in calls[-most:]]


def _known(recent: Recent, name: str, args: Mapping[str, Any]) -> bool:
    """Whether it was made before. Most calls were not, and this is every call's way."""
    for _, batch in recent:
        for call in batch:
            if call.name == name and (call.args if call.asked is None else call.asked) == args:
                return True
    return False


def _asked(call: CallState) -> Mapping[str, Any] | None:
    """The arguments as the model gave them: a policy that changes them does so each time."""
    return call.args if call.asked is None else call.asked


def _row(step: int, call: CallState, tools: Mapping[str, Any]) -> dict[str, Any]:
    content = call.content or ""
    return {
        "call": call.id,
        "step": step,
        "tool": call.name,
        "arguments": digest(_asked(call)),
        "result": DENIED if content.startswith('{"error":"denied"') else digest(content),
        "polling": call.name in tools and tools[call.name].polling,
    }
