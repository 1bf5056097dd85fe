"""What pages say about a request: who wants what, and what each decision will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["EFFECTS", "POINTS", "effect", "headline", "statuses", "who"]

POINTS: Mapping[str, str] = {
    "agent_startup": "the start",
    "input": "the task",
    "pre_model_call": "the request to the model",
    "post_model_call": "the model's response",
    "pre_tool_call": "the arguments",
    "post_tool_call": "the result",
    "output": "the answer",
    "agent_shutdown": "the end",
}
EFFECTS: Mapping[tuple[str, str], str] = {
    ("tool_call", "approve"): "{tool} runs once, with exactly these arguments.",
    ("tool_call", "reject"): "{tool} does not run. The agent is told why, and goes on.",
    ("tool_call", "edit"): "{tool} runs once, with your arguments, after every policy judged them.",
    ("tool_call", "respond"): "{tool} does not run. The agent takes your text for its result.",
    ("step", "approve"): "The run goes on with exactly what is shown.",
    ("step", "reject"): "What is shown is not used; the run is blocked there.",
    ("unknown_effect", "retry"): "{tool} is run again. If it did run, it happens twice.",
    ("unknown_effect", "skip"): "{tool} is not run again. The agent is told that nobody knows whether it ran.",
    ("unknown_effect", "respond"): "{tool} is not run again. The agent takes your text for its result.",
    ("external_call", "respond"): "The agent takes your text for the result of {tool}.",
    ("external_call", "reject"): "There is no result. The agent is told why, and goes on.",
}
TOOL_RESULT_REJECTED = "The agent does not get what is shown. It is told why, and goes on."
STATUSES: Mapping[str, tuple[str, str]] = {
    "pending": ("waits for a decision", "wait"),
    "approved": ("approved", "good"),
    "edited": ("approved with other arguments", "good"),
    "responded": ("answered by hand", "good"),
    "retried": ("run again", "good"),
    "rejected": ("rejected", "bad"),
    "expired": ("expired, so it does not run", "bad"),
    "skipped": ("not run again", "bad"),
    "cancelled": ("withdrawn, the run ended", "quiet"),
    "superseded": ("withdrawn, asked again under another policy", "quiet"),
    "undeliverable": ("withdrawn, nobody could get it", "quiet"),
    "queued": ("waits for a driver", "wait"),
    "running": ("runs", "wait"),
    "waiting": ("waits", "wait"),
    "cancelling": ("is ending", "wait"),
    "completed": ("completed", "good"),
    "blocked": ("blocked by a policy", "bad"),
    "stopped": ("stopped", "bad"),
    "exhausted": ("out of budget", "bad"),
    "failed": ("failed", "bad"),
}


def statuses(status: str) -> tuple[str, str]:
    """A status in words, and its tone: good, bad, wait or quiet."""
    return STATUSES.get(status, (status, "quiet"))


def headline(request: Mapping[str, Any]) -> tuple[str, str]:
    """What is asked, in two parts: `wants to run`, `refund`."""
    tool = request["tool"]
    if request["kind"] == "unknown_effect":
        return "may have run, or not,", tool or "a step"
    if request["kind"] == "external_call":
        return "needs the result of", tool or "a step"
    if tool is not None and request["kind"] == "tool_call":
        return "wants to run", tool
    if request["point"]:
        return "is held at", POINTS.get(request["point"], request["point"])
    return "asks about", tool or request["kind"]


def effect(request: Mapping[str, Any], verb: str) -> str:
    """What a decision will do, in one or two plain sentences."""
    if request["kind"] == "step" and verb == "reject" and request["point"] == "post_tool_call":
        return TOOL_RESULT_REJECTED
    told = EFFECTS.get((request["kind"], verb), f"The request becomes {verb}.")
    return told.format(tool=request["tool"] or "The step")


def who(parties: Sequence[Sequence[str]]) -> str:
    """Who has to approve: one of each party."""
    told = [" or ".join(party) for party in parties]
    return "; and ".join(told) if told else "anyone with the token of an approver"
