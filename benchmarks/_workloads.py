"""The workloads: what every contender runs, and how its shape is checked before anything is timed.

Standard library only: a peer's own Python imports this file too.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

SYSTEM = "You are a careful assistant. Use the tool when asked, then answer."
TASK = "Add the numbers and tell me the result."
FINAL = "The answer is 42. Done."
WORDS = ("The ", "answer ", "is ", "42. ", "Done.")  # FINAL as it is streamed
ARGUMENTS = {"a": 19, "b": 23}
# One for each call of a run: who asks for the same thing twenty times goes round in circles.
MOST_CALLS = 200
ARGUMENTS_JSON = [json.dumps({**ARGUMENTS, "b": ARGUMENTS["b"] + step}) for step in range(MOST_CALLS)]
REWRITTEN = ARGUMENTS["a"] + 1
TOOL_CALLS = {"W0": 0, "W1": 1, "W2": 20, "W4": 1, "W5": 1, "W7": 1}  # in one run
MEANING = {
    "W0": "no tool call, 1 model call (only the fixed part of a run)",
    "W1": "1 tool call, 2 model calls",
    "W2": "20 tool calls, 21 model calls",
    "W4": "W1 with interception at model and tool, argument 19 -> 20",
    "W5": "100 concurrent W1, a real yield in every model call",
    "W7": "W1, streamed",
}
CONCURRENT = 100

Run = Callable[[], Awaitable[str]]


class ShapeError(Exception):
    """A run did not do what its workload says; timing it would compare different things."""


class Tally:
    """What one execution of a workload really did; `yielding` makes every model call give way once."""

    def __init__(self) -> None:
        self.yielding = False
        self.reset()

    def reset(self) -> None:
        """Forget everything counted so far."""
        self.models = self.tools = self.model_hooks = self.tool_hooks = self.emissions = 0
        self.first = 0

    def add(self, a: int, b: int) -> str:
        """The tool of every contender."""
        self.tools += 1
        self.first = a
        return str(a + b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """What is measured.

    Arguments:
        name: as in the tables.
        versions: of what it is made of.
        workloads: name -> a callable that does one run (W5: a hundred) and returns the last answer.
        governed: an interceptor sits at all eight points in every workload.
        shape: as `check_shape`, for workloads other than the ones above.
        opened: gives what is open while runs are made, a Runtime for instance.
    """

    name: str
    versions: dict[str, str]
    workloads: dict[str, Run]
    governed: bool = False
    shape: Callable[[str, "Contender", Tally, str], None] | None = None
    opened: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext


def check_shape(workload: str, contender: Contender, tally: Tally, answer: str) -> None:
    """Raise ShapeError unless the execution that `tally` counted has the shape of `workload`."""
    runs = CONCURRENT if workload == "W5" else 1
    tools = TOOL_CALLS[workload]
    hooked = contender.governed or workload == "W4"
    expected = {
        "answer": FINAL,
        "models": runs * (tools + 1),
        "tools": runs * tools,
        "first": (REWRITTEN if workload == "W4" else ARGUMENTS["a"]) if tools else 0,
        "model_hooks": runs * (tools + 1) if hooked else 0,
        "tool_hooks": runs * tools if hooked else 0,
        # startup, input, output and shutdown; two points for each model call and each tool call
        "emissions": runs * (4 + 2 * (tools + 1) + 2 * tools) if contender.governed else 0,
    }
    for field, value in expected.items():
        found = answer if field == "answer" else getattr(tally, field)
        if found != value:
            raise ShapeError(f"{contender.name} {workload}: {field} is {found!r}, not {value!r}")
