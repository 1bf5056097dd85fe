"""What is kept while a decision about it is awaited: a response, a result, an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lictor.agent.asking import Answer
from lictor.journal import Table

__all__ = ["HELD", "Held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A value that waits for its verdict, under the id of its request.

    Arguments:
        value: the result of a tool, or the text of the final answer.
        is_error, elapsed: of a tool's result; milliseconds.
        answer: the model's response instead.
    """

    value: Any = None
    is_error: bool = False
    elapsed: float = 0.0
    answer: Answer | None = None


HELD: Table[Held] = Table(name="held", kind=Held)
