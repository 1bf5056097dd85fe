"""What a host owes (AGENT-HOOKS-0.1), as questions about what was observed of one run.

The same questions are put to Lictor (tests/agent/test_host_guarantees.py) and to agent-framework
(test_agent_framework.py), so that "ours holds, theirs does not" is one comparison. Standard library only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PRE, POST = "pre_tool_call", "post_tool_call"
LABEL = "pii"


def unclosed(seen: Iterable[Sequence[Any]]) -> list[str]:
    """Calls that a policy allowed at `pre_tool_call` and that had not exactly one `post_tool_call` (§3.1).

    `seen` are (point, call id) in the order in which an interceptor that denies nothing was asked.
    """
    points = [(point, call) for point, call in seen if point in (PRE, POST)]
    opened = [call for point, call in points if point == PRE]
    closed = [call for point, call in points if point == POST]
    return [call for call in opened if closed.count(call) != 1]


def forgotten(seen: Sequence[Sequence[Any]], stored: str) -> list[str]:
    """Where a label given at `post_tool_call` is missing that §5.4 wants to be stored and shown again.

    `seen` are (point, source labels) as an interceptor was asked, `stored` is all that the host kept of
    the run as text. The model call after the tool, its response and the output derive from the result.
    """
    first = next(index for index, (point, _) in enumerate(seen) if point == POST)
    later = [(point, labels) for point, labels in seen[first + 1 :] if point != "agent_shutdown"]
    missing = [point for point, labels in later if LABEL not in labels]
    return missing if LABEL in stored else ["stored", *missing]


def ended_by_composition(facts: Mapping[str, Any]) -> list[str]:
    """What went wrong for a run in which the composition, not the machinery, denied one tool call (§7.5).

    `facts`: reason of the record, how the run ended, model calls made, tool calls run.
    """
    wanted = {"ended": "completed", "models": 2, "tools": 0}
    return [f"{name} is {facts[name]!r}" for name, value in wanted.items() if facts[name] != value]
