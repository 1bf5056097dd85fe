"""Which part of a transcript a request shows; call and result are never parted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lictor.errors import DefinitionError

__all__ = ["History", "Window", "blocks", "problems_of"]

Message = Mapping[str, Any]


@runtime_checkable
class History(Protocol):
    """A policy that shortens a transcript before a model call, e.g. by compaction.

    `budget` is the number of messages wanted, or None. What it returns must be a valid history
    (each call with exactly one result); anything else fails the run.
    """

    def select(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]: ...


def blocks(messages: Sequence[Message]) -> list[list[Message]]:
    """The transcript in pieces that stand or fall together: a message, or a batch of calls with its results."""
    found: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and found:
            found[-1].append(message)
        else:
            found.append([message])
    return found


class Window:
    """Keeps the newest messages, at most `budget` of them, but always the newest block whole."""

    def select(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """The newest blocks that fit (D18: a batch is kept or dropped whole, in order)."""
        if budget is None or len(messages) <= budget:
            return messages
        if budget < 1:
            raise DefinitionError(f"history_window={budget}: give a number of messages >= 1, or None for all")
        kept: list[list[Message]] = []
        size = 0
        for block in reversed(blocks(messages)):
            if kept and size + len(block) > budget:
                break
            kept.append(block)
            size += len(block)
        return [message for block in reversed(kept) for message in block]


def problems_of(messages: Sequence[Message]) -> list[str]:
    """What a strict provider would refuse: a call without exactly one result behind it, a result without a call."""
    problems: list[str] = []
    open_calls: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id in open_calls:
                open_calls.remove(str(call_id))
            else:
                problems.append(f"message {number}: a result for {call_id!r}, which is no open call")
            continue
        if open_calls:
            problems.append(f"message {number}: comes before the results of {', '.join(open_calls)}")
            open_calls = []
        for call in message.get("tool_calls") or ():
            if not call["id"] or call["id"] in seen:
                problems.append(f"message {number}: call id {call['id']!r} is empty or used before")
            seen.add(call["id"])
            open_calls.append(call["id"])
    if open_calls:
        problems.append(f"the end: no results for {', '.join(open_calls)}")
    return problems
