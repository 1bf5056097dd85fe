"""What pages say about a request: who wants what, and what each decision will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "EFFECTS",
    "POINTS",
    "effect",
    "headline",
    "is_moment",
    "place",
    "reader",
    "statuses",
    "subject",
    "who",
    "working",
]

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
MOMENTS: Mapping[str, str] = {
    "on_team_start": "before the team begins",
    "on_node_start": "before a step of {who}",
    "should_supervisor_continue": "before the supervisor decides",
    "should_agent_continue": "before {who} works",
    "on_agent_end": "after the work of {who}",
    "on_node_end": "after a step of {who}",
    "on_team_end": "after the answer",
    "on_team_finished": "after the end",
}
"""Where a team asks whoever has a word, and waits if they want somebody to decide."""
HELD: Mapping[str, tuple[str, str]] = {
    "on_team_start": ("wants to begin", "its work"),
    "on_node_start": ("wants to begin a step of", "{who}"),
    "should_supervisor_continue": ("wants the next decision of", "{who}"),
    "should_agent_continue": ("wants to give work to", "{who}"),
    "on_agent_end": ("waits after the work of", "{who}"),
    "on_node_end": ("waits after a step of", "{who}"),
    "on_team_end": ("waits, before it ends, after", "its answer"),
}
AT_MOMENTS: Mapping[str, tuple[str, str]] = {
    "on_team_start": ("The team begins.", "The team does not begin; the run is blocked."),
    "on_node_start": (
        "The step begins.",
        "The step begins all the same: this moment only waits. That you rejected it is recorded.",
    ),
    "should_supervisor_continue": (
        "The supervisor is asked who works next.",
        "The supervisor is not asked any more. The run is stopped.",
    ),
    "should_agent_continue": (
        "{who} works once, on what is shown.",
        "{who} is skipped: it does not work, a turn is spent, and the team goes on without it. "
        "Too many skips in a row stop the run.",
    ),
    "on_agent_end": (
        "The team goes on.",
        "What is done stays done, and the team goes on. That you rejected it is recorded.",
    ),
    "on_node_end": (
        "The team goes on.",
        "What is done stays done, and the team goes on. That you rejected it is recorded.",
    ),
    "on_team_end": (
        "The run ends with its answer.",
        "The run ends with its answer all the same. That you rejected it is recorded.",
    ),
}
"""What approving and rejecting do at each moment."""
DECISION_EFFECTS: Mapping[str, str] = {
    "approve": "The decision counts: exactly this route is taken.",
    "reject": (
        "The decision does not count. The supervisor is told why and asked again; after three refused in a row "
        "the run fails."
    ),
    "edit": "Your decision counts in its place, after every policy judged it.",
}
RESPONSE_REJECTED = (
    "What is shown is not used. The supervisor is told why and asked again; after three refused in a row the run fails."
)
WORK: Mapping[str, tuple[str, str]] = {
    "idle": ("idle", "quiet"),
    "next": ("is next", "wait"),
    "works": ("working", "wait"),
    "waits": ("waits for a decision", "wait"),
    "done": ("done", "good"),
    "skipped": ("skipped", "warn"),
    "failed": ("failed", "bad"),
    "not_run": ("not run", "quiet"),
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
    ("feedback", "respond"): "The supervisor takes your text for the answer, and decides again.",
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
    if request["kind"] == "feedback":
        return "asks a person, with", tool or "a question"
    if is_decision(request):
        return "wants to decide:", str(tool)
    if tool is not None and request["kind"] == "tool_call":
        return "wants to run", tool
    if is_moment(request):
        told, about = HELD[request["point"]]
        return told, about.format(who=_about(request))
    if request["point"]:
        return "is held at", POINTS.get(request["point"], request["point"])
    return "asks about", tool or request["kind"]


def is_moment(request: Mapping[str, Any]) -> bool:
    """Whether a request was opened at a moment of a team, not at a point of an agent."""
    return request["kind"] == "step" and request["point"] in HELD


def is_decision(request: Mapping[str, Any]) -> bool:
    """Whether a request is about a decision of a supervisor that a hook of its team holds."""
    return request["kind"] == "tool_call" and _holds(request, ".on_supervisor_decision")


def _holds(request: Mapping[str, Any], hook: str) -> bool:
    reasons = request["reasons"]
    return bool(reasons) and all(reason["name"].endswith(hook) for reason in reasons)


def subject(request: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a request at a moment binds to: what people look for first, then where it is."""
    value = dict(request["value"])
    where = {name: value.pop(name) for name in ("moment", "step") if name in value}
    return value | where


def _about(request: Mapping[str, Any]) -> str:
    value = request["value"] if isinstance(request["value"], Mapping) else {}
    return str(value.get("member") or "the supervisor")


def effect(request: Mapping[str, Any], verb: str) -> str:
    """What a decision will do, in one or two plain sentences."""
    if is_moment(request) and verb in ("approve", "reject"):
        return AT_MOMENTS[request["point"]][verb == "reject"].replace("{who}", _about(request))
    if is_decision(request) and verb in DECISION_EFFECTS:
        return DECISION_EFFECTS[verb]
    if request["kind"] == "step" and verb == "reject" and _holds(request, ".on_model_end"):
        return RESPONSE_REJECTED
    if request["kind"] == "step" and verb == "reject" and request["point"] == "post_tool_call":
        return TOOL_RESULT_REJECTED
    told = EFFECTS.get((request["kind"], verb), f"The request becomes {verb}.")
    return told.replace("{tool}", request["tool"] or "The step")


def reader(request: Mapping[str, Any]) -> str:
    """Who reads what somebody writes with a rejection."""
    if is_moment(request):
        return "It stands in the record."
    return "The supervisor reads this." if is_decision(request) else "The agent reads this."


def place(point: str, member: str | None = None) -> str:
    """A point of an agent or a moment of a team, in words."""
    told = MOMENTS.get(point) or POINTS.get(point, point)
    return told.replace("{who}", member or "the supervisor")


def working(state: str) -> tuple[str, str]:
    """The state of a member or of its work in words, and its tone."""
    return WORK.get(state, (state, "quiet"))


def who(parties: Sequence[Sequence[str]]) -> str:
    """Who has to approve: one of each party."""
    told = [" or ".join(party) for party in parties]
    return "; and ".join(told) if told else "anyone with the token of an approver"
