"""The steps of one tool call: judge, run, ask, release, close, refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lictor import faults
from lictor.agent.approvals import StepResolver
from lictor.agent.calls import ALLOWED, ENDING, NEW, RUNNING, CallState, ended
from lictor.agent.held import Held
from lictor.agent.loops import LOOP
from lictor.agent.machine import taken
from lictor.agent.points import changed, decider, is_host_error, terminates
from lictor.agent.recall import recalled
from lictor.agent.results import ErrorKind, cut, error_result, render, safe_value
from lictor.agent.session import Session
from lictor.docket import Shown
from lictor.errors import LictorError, NotSerializable, RunAborted, ToolArgumentsInvalid, ToolError
from lictor.hooks import Emission
from lictor.runs import DONE, Cause, Command
from lictor.values import canonical_json, digest, freeze, new_id, thaw

__all__ = ["absent_step", "ask_step", "close_step", "judge_step", "refuse_step", "release_step", "run_step"]


async def judge_step(session: Session, command: Command) -> bool:
    """`pre_tool_call`: what the verdict approves is what will run (30-agent, 2)."""
    live = session.live
    call = live.state.call(command.args)
    args: Mapping[str, Any] = call.args or {}
    resolver = None
    if session.approver is not None:
        resolver = session.resolver("tool_call", f"call:{call.id}", call)
        try:
            args = _edited(session, call, resolver, args)
        except ToolArgumentsInvalid as exc:
            return _judged_no(session, call, error_result("invalid_arguments", call.name, "; ".join(exc.problems)))
    state = live.state
    more = _history_of(session, call, args) if state.recent or state.denied or call.attempt else None
    emission = await session.points.emit(
        session.builder.pre_tool_call, call.id, call.name, args, resolver=resolver, more=more
    )
    if live.state.cause is not None:
        return await _too_late(session, call, emission)
    if emission.proceeds:
        # `changed`, spelt out here and below: this is every tool call's way.
        final: Mapping[str, Any] | None = args
        if emission.denies or emission.verdict.decision == "transform":
            final = await _final(session, call, args, emission)
        if final is None:
            return DONE
        alone = not live.state.calls[1:] and not call.gated and session.mediator is None
        if alone and (resolver is None or resolver.used is None):
            # Nothing else of the response has to be decided first: the call starts at once.
            if not _start(session, call, session.tools[call.name], final):
                return DONE
            return await _run(session, live.state.calls[0], session.tools[call.name])
        return _judged_yes(session, call, final, resolver)
    if resolver is not None and resolver.parked is not None:
        return _park(session, call, resolver, "tool_call")
    return _denied(session, call, args, emission, resolver)


def _history_of(session: Session, call: CallState, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """What policies are told of the calls before this one, in `extensions.lictor`; None when there is nothing."""
    state = session.live.state
    more: dict[str, Any] = {}
    denials = state.denied.get(_call_digest(call.name, args), 0) if state.denied else 0
    if call.attempt or denials:
        more = {"attempt": call.attempt, "denials": denials}
    if session.plan.recalls:
        recent = recalled(state.recent, call.name, args, session.plan.recalls, session.tools)
        if recent is not None:
            more["recent"] = recent
    return more or None


def _edited(
    session: Session, call: CallState, resolver: StepResolver | None, args: Mapping[str, Any]
) -> Mapping[str, Any]:
    """After an edit, the edited arguments, checked; while it is the last word the request is bound to them."""
    if resolver is None or call.editor is None:
        return args
    docket = resolver.approver.docket
    earlier = docket.of_step(session.live.run_id, resolver.step)
    request = next(request for request in reversed(earlier) if request.status == "edited")
    valid = request is earlier[-1] and request.policy == resolver.approver.policy
    done = request.resolution
    edited: Mapping[str, Any] = session.tools[call.name].parse(done.arguments if done and done.arguments else {})
    if valid and request.consumed_at is None:
        docket.rebind(request.id, resolver.bind_edit(freeze(edited)))
    return edited


async def _final(
    session: Session, call: CallState, args: Mapping[str, Any], emission: Emission
) -> Mapping[str, Any] | None:
    """The arguments the verdict leaves; None (and an error result, closed at its point) when they became unfit."""
    if not changed(emission):
        return args
    final: Mapping[str, Any] = thaw(emission.target)
    if emission.verdict.decision != "transform" and canonical_json(final) == canonical_json(args):
        return args
    try:
        session.tools[call.name].parse(final)
    except ToolArgumentsInvalid as exc:
        problem = error_result("invalid_arguments", call.name, "; ".join(exc.problems))
        await session.points.emit(session.builder.post_tool_call, call.id, call.name, call.args, problem, True)
        _judged_no(session, call, problem)
        return None
    return final


def _changed(session: Session, call: CallState, final: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded beside a verdict when other arguments will run than the model asked for."""
    if final is call.args:
        return {}
    note = f"edited by {call.editor}" if call.editor else "changed by policy"
    return {"args": final, "message": session.rewritten(call.id, final, note)}


def _judged_yes(session: Session, call: CallState, final: Mapping[str, Any], resolver: StepResolver | None) -> bool:
    payload: dict[str, Any] = {"call": call.id, "decision": "allow", **_changed(session, call, final)}
    if resolver is not None and resolver.used is not None:
        payload["request"] = resolver.used.id
        payload["digest"] = resolver.digest
    session.live.record("call_judged", payload)
    return DONE


async def _too_late(session: Session, call: CallState, emission: Emission) -> bool:
    """The run ended while the call was judged: it has its result, but an allowed call is closed at the gate (§3.1)."""
    if emission.proceeds:
        problem = ended(call, session.live.state.cause)
        await session.points.emit(session.builder.post_tool_call, call.id, call.name, call.args, problem, True)
    return DONE


def _judged_no(
    session: Session,
    call: CallState,
    problem: Mapping[str, Any],
    denied: str | None = None,
    cause: Cause | None = None,
) -> bool:
    payload = {"call": call.id, "decision": "deny", "content": render(problem), "problem": problem}
    if denied is not None:
        payload["denied"] = denied
    return session.record_end("call_judged", payload, cause)


def _denied(
    session: Session,
    call: CallState,
    args: Mapping[str, Any],
    emission: Emission,
    resolver: StepResolver | None,
) -> bool:
    """A deny goes to the model as an error result; a stop or a failure of enforcement ends the run."""
    verdict = emission.verdict
    reason = verdict.reason or "denied"
    host = is_host_error(verdict.reason)
    extra: dict[str, Any] = dict(resolver.denied) if resolver is not None else {}
    if verdict.liftable and not session.has_approver:
        extra["note"] = "no_approver"
    problem = error_result("host_error" if host else "denied", reason, verdict.message or "", **extra)
    # Nobody decided about the call itself; what a loop breaker denies may be right again when something has changed.
    uncounted = host or reason in ("approval_expired", LOOP)
    digest_of = None if uncounted else _call_digest(call.name, args)
    return _judged_no(session, call, problem, digest_of, _consequence(session, emission))


def _consequence(session: Session, emission: Emission) -> Cause | None:
    """Why a deny at a tool's point ends the run, if it does (§6.2, posture)."""
    control = emission.control
    if control is not None and control.control == "stop":
        return Cause(control.status or "stopped", control.reason, decider(emission))
    if terminates(emission.verdict.reason, session.posture):
        session.block(emission)
        return Cause("blocked", emission.verdict.reason, decider(emission))
    return None


def _park(session: Session, call: CallState, resolver: StepResolver, kind: str) -> bool:
    request = resolver.parked
    if request is not None and request.id != call.request:
        session.live.record(
            "request_opened", {"step": resolver.step, "call": call.id, "request": request.id, "kind": kind}
        )
    return DONE


def _call_digest(name: str, args: Mapping[str, Any]) -> str:
    return digest({"tool": name, "args": args})


async def run_step(session: Session, command: Command) -> bool:
    """Run an allowed call once: consume the approval, record the intent, run, judge the result."""
    live = session.live
    call = live.state.call(command.args)
    if call.status not in (ALLOWED, RUNNING, ENDING):
        raise LictorError(f"call {call.id} is {call.status}; it may not run")
    tool = session.tools[call.name]
    if len(live.state.calls) <= session.agent.max_parallel_tools:
        return await _started(session, call, tool)
    async with session.slots:
        return await _started(session, call, tool)


async def _started(session: Session, call: CallState, tool: Any) -> bool:
    if call.status == ALLOWED and not _start(session, call, tool, call.args or {}):
        return DONE
    return await _run(session, session.live.state.call(call.id), tool)


def _start(session: Session, call: CallState, tool: Any, args: Mapping[str, Any]) -> bool:
    """Consume and record the intent in one go, right before the call; False when it may not start."""
    live = session.live
    approver = session.approver
    approved = None if approver is None else call.request
    if approver is not None and approved is not None and not approver.docket.covers(approved, call.digest or ""):
        raise LictorError(f"call {call.id}: its approval was used before or binds to other arguments")
    refused = live.ledger.start_tool()
    if refused is not None:
        if call.status == NEW:
            live.record("call_judged", {"call": call.id, "decision": "allow"})
        session.end(Cause("exhausted", refused, graceful=True))
        return False
    payload: dict[str, Any] = {"call": call.id, "tool": call.name, "arguments": args, "attempt": call.starts + 1}
    if args is not call.args:
        payload.update(_changed(session, call, args))
    if tool.agent is not None:
        payload["child"] = new_id()
    at = live.clock.stamped if call.status == NEW else None
    if approver is None or approved is None:
        live.record("tool_started", payload, at)
        return True
    with live.store.transaction(live.root):  # the intent and what it uses up, or neither
        live.record("tool_started", payload, at)
        if not approver.docket.consume(approved, call.digest or ""):
            raise LictorError(f"call {call.id}: its approval was used meanwhile")
    return True


async def _run(session: Session, call: CallState, tool: Any) -> bool:
    """The effect, and what came of it. A cancellation is recorded as the call's result, then goes on."""
    live = session.live
    if tool.external:
        return await _ask_outside(session, call, tool)
    if live.store.durable and tool.effect != "pure":
        faults.reach("intent.before")
        await live.store.barrier(live.root)
        faults.reach("intent.after")
    faults.reach("effect.before")
    started = session.monotonic()
    is_error = True
    stopped: asyncio.CancelledError | None = None
    aborted: Cause | None = None
    value: Any
    try:
        if tool.agent is None:
            value = await tool.run(call.args, session.tool_context(call, tool))
        else:
            value = await session.run_child(live.state.call(call.id), tool)
            if value is None:
                live.record("child_parked", {"call": call.id})
                return DONE
        value, notes = safe_value(value)
        is_error = False
        if notes:
            live.record("note", {"call": call.id, "tool": call.name, "changed": list(notes)})
    except asyncio.CancelledError as exc:
        stopped = None if _own() else exc
        value = _cancelled(session, stopped)
    except Exception as exc:  # noqa: BLE001 - a tool is foreign code; whatever it raises is its result
        aborted = Cause("failed", error=str(exc)) if isinstance(exc, RunAborted) else None
        value = _failure(exc, tool)
    faults.reach("effect.after")
    elapsed = (session.monotonic() - started) * 1000
    closed = None if stopped is None else "cancelled"
    done = await _finish(session, call, value, is_error, elapsed, closed, aborted)
    if stopped is not None:
        raise stopped
    return done


def _own() -> bool:
    """Whether a tool raised the cancellation itself (D06): nobody asked this task to stop."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


def _cancelled(session: Session, stopped: asyncio.CancelledError | None) -> dict[str, Any]:
    if stopped is None:
        return error_result("tool_failed", "CancelledError", "the tool cancelled itself")
    return error_result("cancelled", _why(session), "the call was cancelled while it ran")


def _why(session: Session) -> str:
    cause = session.live.state.cause
    return "cancelled" if cause is None else (cause.reason or cause.status)


def _failure(exc: Exception, tool: Any) -> dict[str, Any]:
    if isinstance(exc, RunAborted):
        return error_result("tool_failed", "aborted", str(exc))
    if isinstance(exc, ToolArgumentsInvalid):
        return error_result("invalid_arguments", exc.tool, "; ".join(exc.problems))
    if isinstance(exc, ToolError):
        return _told(exc)
    if isinstance(exc, NotSerializable):
        return error_result("tool_failed", "not_serializable", str(exc))
    if isinstance(exc, TimeoutError) and tool.timeout is not None and not exc.args:
        return error_result("tool_failed", "timeout", f"{tool.name} did not finish within {tool.timeout} s")
    return error_result("tool_failed", type(exc).__name__, str(exc))


def _told(exc: ToolError) -> dict[str, Any]:
    """What a tool says about its own failure, as JSON that can be judged."""
    kind: Any = exc.kind
    try:
        value: Any = safe_value({**exc.more, **error_result(kind, exc.reason, exc.message)})[0]
    except NotSerializable:
        return error_result(kind, str(exc.reason), "it failed, and what it said about that is no JSON")
    return dict(value)


async def _finish(
    session: Session,
    call: CallState,
    value: Any,
    is_error: bool,
    elapsed: float,
    closed: str | None = None,
    cause: Cause | None = None,
) -> bool:
    """`post_tool_call` over the whole result; then it is cut to what the model gets (30-agent, 12)."""
    live = session.live
    step = f"call:{call.id}:post"
    asking = session.approver is not None and closed is None and cause is None and live.state.cause is None
    resolver = session.resolver("step", step, call) if asking else None
    emission = await session.points.emit(
        session.builder.post_tool_call,
        call.id,
        call.name,
        call.args,
        value,
        is_error,
        duration_ms=elapsed,
        resolver=resolver,
    )
    if emission.proceeds:
        touched = emission.denies or emission.verdict.decision == "transform"
        final = thaw(emission.target) if touched else value
        if emission.labels:
            session.label(call.id, emission)
    elif resolver is not None and resolver.parked is not None:
        session.hold(resolver.parked.id, Held(value=value, is_error=is_error, elapsed=elapsed))
        return _park(session, call, resolver, "step")
    else:
        kind: ErrorKind = "host_error" if is_host_error(emission.verdict.reason) else "denied"
        final = error_result(kind, emission.verdict.reason or "denied", emission.verdict.message or "")
        is_error = True
        cause = _consequence(session, emission) or cause
    content = cut(render(final))
    payload: dict[str, Any] = {"call": call.id, "tool": call.name, "content": content, "is_error": is_error}
    below = () if call.child is None else live.store.entries(call.child)
    if below:
        payload["positions"] = taken(below)
    if closed is not None:
        return session.record_end("call_closed", {**payload, "why": closed}, cause)
    if cause is not None:
        return session.record_end("tool_finished", payload, cause)
    live.record("tool_finished", payload, live.clock.stamped)
    return DONE


async def release_step(session: Session, command: Command) -> bool:
    """The result that waited for a decision (or came from a person) passes `post_tool_call`."""
    call = session.live.state.call(command.args)
    request = call.request or ""
    held = session.kept(request) if call.kind == "step" else _given(session, call, request)
    done = await _finish(session, call, held.value, held.is_error, held.elapsed)
    session.let_go(request)
    return done


def _given(session: Session, call: CallState, request: str) -> Held:
    """What a person gave in place of a result, or the error that stands for it; and no time spent."""
    decision = session.approver.docket.find(request).resolution if session.approver is not None else None
    if decision is not None and decision.verb == "respond":
        return Held(value=safe_value(decision.value)[0])
    said = decision.feedback if decision is not None else None
    if call.kind == "unknown_effect":
        message = said or "it may have run; a person chose not to run it again"
        return Held(value=error_result("unknown", "skipped", message), is_error=True)
    return Held(value=error_result("denied", "rejected", said or "nobody gave a value"), is_error=True)


async def _ask_outside(session: Session, call: CallState, tool: Any) -> bool:
    """An external tool parks; the caller gives the value with `respond`."""
    approver = session.approver
    if approver is None:
        problem = error_result(
            "not_run", "no_approver", f"{tool.name} gets its value from outside; run it in a Runtime"
        )
        return await _finish(session, call, problem, True, 0.0, "no_approver")
    kind = "external_call" if session.mediator is None else session.mediator.asks
    binding = approver.binding(kind, {"tool": call.name, "arguments": call.args}, call.id)
    shown = Shown(tool=call.name, arguments=call.args)
    request = approver.open(
        kind,
        f"call:{call.id}:value",
        shown,
        binding,
        call_id=call.id,
        deadline=tool.deadline,
        responders=tuple(tool.responders),
    )
    payload = {"step": request.step, "call": call.id, "request": request.id, "kind": kind}
    session.live.record("request_opened", payload)
    return DONE


async def ask_step(session: Session, command: Command) -> bool:
    """A `once` call whose driver died: it may have run. A person says what to do, never we."""
    live = session.live
    call = live.state.call(command.args)
    approver = session.approver
    if approver is None:
        problem = error_result("unknown", "interrupted", "it may have run; nobody can be asked in this process")
        return await _finish(session, call, problem, True, 0.0, "unknown")
    what = {"tool": call.name, "arguments": call.args}
    request = approver.open(
        "unknown_effect",
        f"call:{call.id}:unknown:{call.attempt}",
        Shown(tool=call.name, arguments=call.args),
        approver.binding("unknown_effect", what, call.id),
        call_id=call.id,
    )
    payload = {"step": request.step, "call": call.id, "request": request.id, "kind": "unknown_effect"}
    live.record("request_opened", payload)
    return DONE


async def close_step(session: Session, command: Command) -> bool:
    """An allowed call that will not run, or a result nobody waits for: its `post_tool_call` all the same (§3.1)."""
    live = session.live
    call = live.state.call(command.args)
    if call.request is not None:
        session.let_go(call.request)
    return await _finish(session, call, ended(call, live.state.cause), True, 0.0, _why(session))


async def refuse_step(session: Session, command: Command) -> bool:
    """An unknown tool or arguments that do not fit: no `pre_tool_call`, an error at `post_tool_call` (05-api)."""
    call = session.live.state.call(command.args)
    return await _finish(session, call, dict(call.problem or {}), True, 0.0)


async def absent_step(session: Session, command: Command, problem: Mapping[str, Any]) -> bool:
    """A call whose tool is not there any more (its source is gone): it never runs, and has this result."""
    call = session.live.state.call(command.args)
    if call.status == ALLOWED:
        return await _finish(session, call, dict(problem), True, 0.0)
    return _judged_no(session, call, problem)
