"""The life of every tool call in a log: judged before it ran, run once, as shown, and ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lictor.docket import Request
from lictor.errors import ValueDomainError
from lictor.testing.runlog import RunLog
from lictor.values import canonical_json

__all__ = ["call_problems"]


@dataclass(slots=True, kw_only=True)  # budget: it follows a call through the log
class _Call:
    id: str
    tool: str
    args: Any
    effect: str
    problem: bool
    verdict: str | None = None  # of the last judgement: allow or deny
    request: str | None = None  # the decision that the next start uses up
    digest: str | None = None
    running: bool = False
    lost: bool = False  # started by a driver that died
    retried: bool = False
    answered: bool = False  # somebody gave the result instead
    ended: bool = False

    def __str__(self) -> str:
        return f"call {self.id} ({self.tool})"


class _Walk:
    """Goes through one log; `problems` grows."""

    def __init__(self, log: RunLog) -> None:
        self.problems: list[str] = []
        self._requests = log.requests
        self._calls: dict[str, _Call] = {}
        self._used: set[str] = set()
        self._permitted = False  # the last verdict of pre_tool_call let its call pass, and nothing used that yet
        self._decided: set[str] = set()
        self._handlers: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "verdict": self._verdict,
            "model_finished": self._proposed,
            "call_judged": self._judged,
            "tool_started": self._started,
            "tool_finished": self._finished,
            "call_closed": self._finished,
            "request_decided": self._answered,
            "stint_started": self._new_driver,
        }
        for kind, payload in log.steps:
            handler = self._handlers.get(kind)
            if handler is not None:
                handler(payload)
        if log.finished:
            may_be_lost = bool(log.payloads("cause"))  # a run that ends answers what a dead driver left behind
            left = [call for call in self._calls.values() if call.running or (call.lost and not may_be_lost)]
            self.problems += [f"{call} started and never ended" for call in left if not (call.ended or call.answered)]

    def _say(self, problem: str) -> None:
        self.problems.append(problem)

    def _find(self, payload: Mapping[str, Any], what: str) -> _Call | None:
        call = self._calls.get(payload["call"])
        if call is None:
            self._say(f"{what} of call {payload['call']}, which no model response asked for")
        return call

    def _verdict(self, payload: Mapping[str, Any]) -> None:
        record = payload["record"]
        if record["interception_point"] == "pre_tool_call":
            self._permitted = record["mode"] == "evaluate_only" or record["verdict"]["decision"] != "deny"

    def _proposed(self, payload: Mapping[str, Any]) -> None:
        for item in payload.get("calls") or ():
            if item["id"] in self._calls:
                self._say(f"call id {item['id']} is used twice")
            self._calls[item["id"]] = _Call(
                id=item["id"],
                tool=item["name"],
                args=item["args"],
                effect=item.get("effect", "once"),
                problem=item.get("problem") is not None,
            )

    def _judged(self, payload: Mapping[str, Any]) -> None:
        call = self._find(payload, "a judgement")
        if call is None:
            return
        call.verdict = payload["decision"]
        call.request = payload.get("request")
        call.digest = payload.get("digest")
        call.ended = call.ended or call.verdict == "deny"
        self._change(call, payload)

    def _change(self, call: _Call, payload: Mapping[str, Any]) -> None:
        """A policy or an edit changed the arguments; the history shows the ones that run."""
        call.args = payload.get("args", call.args)
        message = payload.get("message")
        if message is None:
            return
        stored = [item["function"]["arguments"] for item in message["tool_calls"] if item["id"] == call.id]
        if len(stored) != 1 or not _same(json.loads(stored[0]), call.args):
            self._say(f"{call}: the history shows other arguments than were judged")

    def _started(self, payload: Mapping[str, Any]) -> None:
        call = self._find(payload, "a start")
        if call is None:
            return
        if call.verdict == "deny":
            self._say(f"{call} was denied and ran all the same")
        elif call.problem or (call.verdict is None and not self._permitted):
            self._say(f"{call} ran without having been judged")
        elif call.answered:
            self._say(f"{call} ran although somebody had given its result")
        elif call.running or call.ended:
            self._say(f"{call} was executed twice")
        elif call.lost and call.effect == "once" and not call.retried:
            self._say(f"{call} may have run before a crash and was run again without anybody's decision")
        self._change(call, payload)  # a single free call is judged and started in one entry
        if not _same(call.args, payload["arguments"]):
            self._say(f"{call} ran with other arguments than were judged")
        if call.request is not None:
            self._check_decision(call, payload["arguments"])
        self._permitted = False
        call.verdict = "allow"
        call.running, call.request, call.lost, call.retried = True, None, False, False

    def _check_decision(self, call: _Call, arguments: Any) -> None:
        """Shown = decided = ran, and each decision is used once."""
        if call.request in self._used:
            self._say(f"{call}: the decision on request {call.request} was executed twice")
        self._used.add(call.request or "")
        if self._requests is None:
            return
        request = self._requests.get(call.request or "")
        if request is None or request.status not in ("approved", "edited"):
            found = "does not exist" if request is None else f"is {request.status}"
            self._say(f"{call} ran on request {call.request}, which {found}")
            return
        if call.digest != request.digest:
            self._say(f"{call} ran under another digest than request {request.id} decided")
        if request.consumed_at is None:
            self._say(f"{call} ran, and request {request.id} was not used up")
        if not _as_decided(request, arguments):
            self._say(f"{call} ran with other arguments than request {request.id} showed or decided")

    def _finished(self, payload: Mapping[str, Any]) -> None:
        call = self._find(payload, "a result")
        if call is None:
            return
        if call.ended:
            self._say(f"{call} has two results")
        call.running, call.ended = False, True

    def _answered(self, payload: Mapping[str, Any]) -> None:
        if payload["request"] in self._decided:
            self._say(f"request {payload['request']} was decided twice")
        self._decided.add(payload["request"])
        call = self._calls.get(payload.get("call") or "")
        if call is None:
            return
        if payload.get("kind") == "unknown_effect":
            call.retried = payload["verb"] == "retry"
            call.answered = not call.retried
        elif payload.get("kind") == "tool_call" and payload["verb"] == "respond":
            call.answered = True

    def _new_driver(self, payload: Mapping[str, Any]) -> None:
        """What ran without a result is lost with its driver, unless it waits (a child run, a held result)."""
        for call in self._calls.values():
            if call.running and not call.ended:
                call.running, call.lost = False, True


def call_problems(log: RunLog) -> list[str]:
    """What is wrong with the calls of a run; see `lictor.testing.invariants`."""
    return _Walk(log).problems


def _as_decided(request: Request, arguments: Any) -> bool:
    """Whether a call ran with what was shown, or, after an edit, with what was decided."""
    done = request.resolution
    if done is None or done.verb != "edit":
        return _same(request.arguments, arguments)
    edited = done.arguments or {}
    if set(edited) != set(arguments):
        return False
    return all(_same(value, arguments[name]) or _written(value, arguments[name]) for name, value in edited.items())


def _written(edited: Any, ran: Any) -> bool:
    """Whether a schema may have written a value so: a text in its own form (a date), a long integer as text."""
    return isinstance(edited, str) or str(edited) == ran


def _same(one: Any, other: Any) -> bool:
    try:
        return canonical_json(one) == canonical_json(other)
    except ValueDomainError:  # a long integer, as the model wrote it
        return bool(one == other)
