"""Field cases of class b: what a deny or a failing guard must stop, for good and everywhere."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from driving import Played, Seen, Strict, both_ways, cancelled, play, policy

from lictor import ALLOW, Agent, Governance, Verdict, tool
from lictor.models import call, fail, say

SECRET = "SECRET-4711"


@both_ways
@pytest.mark.parametrize("history", ["run", "json"])
async def test_B02_denied_output_is_nowhere(how: str, history: str) -> None:
    """A blocked answer cannot be read from the result, its trace, the exception, the store or the events."""
    guard = policy("output", lambda c: Verdict.deny("secret") if SECRET in json.dumps(c["target"]) else ALLOW)
    answer = f"my {SECRET}" if history == "run" else json.dumps({"key": SECRET})
    agent = Agent(
        "clerk",
        model=Strict([say(answer)]),
        interceptors=[guard],
        output_type=dict[str, str] if history == "json" else None,
    )
    played = await play(agent, how=how)
    assert (played.status, played.reason, played.by, played.answer) == ("blocked", "secret", "agent:clerk/policy", None)
    assert SECRET not in played.text
    if how == "plain":
        assert played.blocked is not None
        assert SECRET not in everything_in(played.blocked)


@both_ways
@pytest.mark.parametrize("point", ["input", "post_model_call", "post_tool_call"])
async def test_B02_nothing_denied_is_anywhere(how: str, point: str) -> None:
    """The same holds for a denied task, a denied model response and a denied tool result."""

    @tool
    async def read() -> str:
        return SECRET if point == "post_tool_call" else "nothing"

    guard = policy(point, lambda c: Verdict.deny("secret") if SECRET in json.dumps(c["target"]) else ALLOW)
    said = say(SECRET if point == "post_model_call" else "fine", calls=[call("read")])
    agent = Agent("clerk", model=Strict([said, say("done")]), tools=[read], interceptors=[guard])
    played = await play(agent, SECRET if point == "input" else "go", how)
    assert played.status == ("completed" if point == "post_tool_call" else "blocked")
    assert SECRET not in played.text
    if played.blocked is not None:
        assert SECRET not in everything_in(played.blocked)


def everything_in(exc: BaseException) -> str:
    """Public attributes of an exception and of what hangs on it, three levels deep, as text."""
    found = [repr(exc), str(exc)]
    todo: list[tuple[Any, int]] = [(exc, 0)]
    while todo:
        value, depth = todo.pop()
        found.append(repr(value))
        if depth == 3:
            continue
        names = [name for name in dir(value) if not name.startswith("_")]
        for name in names:
            item = getattr(value, name)
            if not callable(item):
                todo.append((item, depth + 1))
        if isinstance(value, tuple | list):
            todo += [(item, depth + 1) for item in value]
    return " ".join(found)


@both_ways
async def test_B04_input_deny_stops_before_the_model(how: str) -> None:
    """While the input check is still thinking no model is asked, and after its deny no task is alive."""
    told = asyncio.Event()
    ran: list[str] = []

    @tool
    async def w() -> str:
        ran.append("w")
        return "done"

    async def judge(context: Any) -> Any:
        await told.wait()
        return Verdict.deny("not_today")

    model = Strict([call("w"), say("done")])
    agent = Agent("clerk", model=model, tools=[w], interceptors=[policy("input", judge)])
    before = asyncio.all_tasks()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(play(agent, how=how))
        for _ in range(50):
            await asyncio.sleep(0)
        assert model.requests == []
        told.set()
    played = running.result()
    assert (played.status, played.reason) == ("blocked", "not_today")
    assert (ran, model.requests) == ([], [])
    assert asyncio.all_tasks() == before


@both_ways
@pytest.mark.parametrize("posture", ["terminate", "continue"])
@pytest.mark.parametrize("error", [EOFError("x"), TimeoutError(), KeyError("k"), json.JSONDecodeError("bad", "{", 0)])
async def test_B20_a_raising_hook_never_lets_the_tool_run(how: str, posture: str, error: Exception) -> None:
    """Whatever a pre_tool_call interceptor raises, the call is denied and the record names policy and type."""
    ran: list[str] = []

    @tool
    async def rm() -> str:
        ran.append("rm")
        return "gone"

    def judge(context: Any) -> Any:
        raise error

    agent = Agent(
        "clerk",
        model=Strict([call("rm"), say("done")]),
        tools=[rm],
        interceptors=[policy("pre_tool_call", judge, "guard")],
        governance=Governance(posture=posture),
    )
    played = await play(agent, how=how)
    assert ran == []
    record = next(item for item in played.records if item["interception_point"] == "pre_tool_call")
    slot = next(item for item in record["verdicts"] if item["name"] == "agent:clerk/guard")
    assert (slot["decision"], slot["reason"]) == ("deny", "host_error:interceptor_failed")
    assert record["verdict"]["message"] == type(error).__name__
    if posture == "terminate":
        assert (played.status, played.reason) == ("blocked", "host_error:interceptor_failed")
        assert played.by == "agent:clerk/guard"
    else:
        assert played.status == "completed"
        assert json.loads(played.result_of())["error"] == "host_error"


ENDINGS = ["completed", "stopped", "exhausted", "failed", "cancelled", "blocked"]


@both_ways
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("shutdown", ["allows", "raises", "denies"])
async def test_B24_shutdown_comes_once_for_every_ending(how: str, ending: str, shutdown: str) -> None:
    """The end-of-run point is emitted exactly once however a run ends; its own failure changes nothing."""
    seen = Seen()

    def closing(context: Any) -> Any:
        if shutdown == "raises":
            raise RuntimeError("broken closing")
        return ALLOW if shutdown == "allows" else Verdict.deny("no")

    def judge(context: Any) -> Any:
        if ending == "stopped" and len(seen.at("pre_model_call")) == 1:
            return Verdict.stop("enough")
        return ALLOW

    looking = asyncio.Event()

    @tool
    async def look() -> str:
        looking.set()
        if ending == "cancelled":
            await asyncio.Event().wait()
        return "seen"

    entries: list[Any] = [call("look"), fail(400) if ending == "failed" else say("done")]
    outgoing = policy("output", lambda c: Verdict.deny("no") if ending == "blocked" else ALLOW, "outgoing")
    agent = Agent(
        "clerk",
        model=Strict(entries),
        tools=[look],
        interceptors=[policy("pre_model_call", judge), outgoing, seen, policy("agent_shutdown", closing, "closing")],
        max_steps=1 if ending == "exhausted" else 20,
    )
    if ending == "cancelled":
        assert (await cancelled(agent, looking, how)).status == "cancelled"
    else:
        assert (await play(agent, how=how)).status == ending
    assert seen.order.count("agent_shutdown") == 1
    assert seen.order[-1] == "agent_shutdown"
    expected = {"completed": "completed", "cancelled": "cancelled"}.get(ending, "error")
    assert seen.at("agent_shutdown") == [{"reason": expected}]


@both_ways
async def test_B27_each_blocked_call_has_its_own_reason(how: str) -> None:
    """In one batch each denied call carries the reason of its own deny, and the allowed one runs."""

    @tool(effect="pure")
    async def sh(cmd: str) -> str:
        return f"ran {cmd}"

    def judge(context: Any) -> Any:
        reasons = {"alpha": "A", "beta": "B"}
        reason = reasons.get(context["target"]["cmd"])
        return ALLOW if reason is None else Verdict.deny(f"reason_{reason}", f"message {reason}")

    batch = [call("sh", cmd=cmd) for cmd in ("alpha", "beta", "ok")]
    agent = Agent(
        "clerk", model=Strict([batch, say("done")]), tools=[sh], interceptors=[policy("pre_tool_call", judge)]
    )
    played = await play(agent, how=how)
    alpha, beta, ok = (played.result_of(number) for number in range(3))
    assert json.loads(alpha) == {"error": "denied", "reason": "reason_A", "message": "message A"}
    assert json.loads(beta) == {"error": "denied", "reason": "reason_B", "message": "message B"}
    assert ok == "ran ok"
    judged = [record for record in played.records if record["interception_point"] == "pre_tool_call"]
    assert [record["verdict"].get("reason") for record in judged] == ["reason_A", "reason_B", None]


class Backend:
    """A safety service that fails in one of many ways."""

    def __init__(self, failure: str) -> None:
        self.failure = failure

    async def intercept(self, context: Any) -> Any:
        """Ask the service about a tool call."""
        if context["interception_point"] != "pre_tool_call":
            return ALLOW
        match self.failure:
            case "status 500":
                raise RuntimeError("500")
            case "reset":
                raise ConnectionResetError("peer")
            case "hangs":
                await asyncio.Event().wait()
        body = {"no field": {}, "garbage": "<html>", "empty": None, "wrong type": {"flagged": "yes"}}[self.failure]
        flagged = body["flagged"]  # type: ignore[index]
        if not isinstance(flagged, bool):
            raise TypeError("flagged is no boolean")
        return ALLOW


FAILURES = ["status 500", "reset", "hangs", "no field", "garbage", "empty", "wrong type"]


@both_ways
@pytest.mark.parametrize("composition", ["sequential/run_all", "sequential/first_deny", "parallel/strictest"])
@pytest.mark.parametrize("failure", FAILURES)
async def test_B29_a_failing_guard_blocks(how: str, composition: str, failure: str) -> None:
    """Every failure of an outside safety service blocks the call and is recorded as a guard failure."""
    ran: list[str] = []

    @tool
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    agent = Agent(
        "clerk",
        model=Strict([call("pay"), say("done")]),
        tools=[pay],
        interceptors=[Backend(failure)],
        governance=Governance(composition=composition, timeout=0.01),
    )
    played: Played = await play(agent, how=how)
    expected = "host_error:interceptor_timeout" if failure == "hangs" else "host_error:interceptor_failed"
    assert (ran, played.status, played.reason) == ([], "blocked", expected)
    judged = [record for record in played.records if record["interception_point"] == "pre_tool_call"]
    assert [record["verdict"]["decision"] for record in judged] == ["deny"]
    gc.collect()
