"""The model call with its two points, and the final answer with its one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lictor.agent.approvals import StepResolver
from lictor.agent.asking import ONE_REQUEST, Answer, Refusal, ask, failed
from lictor.agent.held import Held
from lictor.agent.history import problems_of
from lictor.agent.incremental import UNSUPPORTED
from lictor.agent.machine import tally
from lictor.agent.points import decider
from lictor.agent.responses import (
    REASK,
    Proposed,
    assistant_message,
    fault_of,
    invalid_arguments,
    propose,
    response_context,
    revise,
    unknown_tool,
)
from lictor.agent.session import Session
from lictor.errors import StoreError, ToolArgumentsInvalid
from lictor.hooks import Emission
from lictor.models import ModelResponse
from lictor.runs import DONE, PARKED, Cause, Command, Usage
from lictor.values import freeze, frozen_texts, thaw

__all__ = ["blocked", "drop_held", "model_step", "output_step"]

USAGE_OF_ONE = ONE_REQUEST.json()
MOST_REASKS = 2
MOST_MISSES = 3
RETRIES_IN_ROW = 3
RETRIES = 6


async def model_step(session: Session, command: Command) -> bool:
    """pre_model_call → model → post_model_call → record (30-agent, the loop)."""
    live = session.live
    waits = live.state.waits
    wait = waits.get(command.key) if waits else None
    if wait is not None and wait.point == "post_model_call":
        held = session.kept(wait.request).answer
        if held is None:
            raise StoreError(f"request {wait.request} is not about a response")
        done = await _judge_response(session, command, held)
        session.let_go(wait.request)
        return done
    if live.state.step >= session.max_steps:
        return session.end(Cause("exhausted", "max_steps"))
    messages, specs, settings = _messages(session), session.plan.specs, session.plan.settings
    if session.mediator is not None:
        messages, specs, settings = await session.mediator.prepare(session, messages)
    resolver = session.resolver("step", command.key) if session.approver is not None else None
    emission = await session.points.emit(
        session.builder.pre_model_call,
        session.plan.model,
        messages,
        tools=specs or None,
        resolver=resolver,
    )
    if not emission.proceeds:
        return blocked(session, command, emission, resolver)
    answer = await ask(live, session.models, emission.target, specs, settings)
    if type(answer) is Answer:
        return await _judge_response(session, command, answer)
    if type(answer) is Refusal:
        return session.end(Cause("exhausted", answer.reason, graceful=True))
    return session.end(failed(answer))


def _messages(session: Session) -> Sequence[Any]:
    """Instructions, the selected history, and what only this request says."""
    state = session.live.state
    history: Sequence[Any] = state.messages
    if session.history is not None:
        history = session.history.select(history, session.history_window)
        faults = problems_of(history)
        if faults:
            raise ValueError(f"the history policy returned an invalid history: {faults[0]}")
    return (*session.plan.instructions, *history, *state.feedback)


async def _judge_response(session: Session, command: Command, answer: Answer) -> bool:
    live = session.live
    model_id, response, usage = answer
    calls = propose(response, live.state.numbered, live.state.ids, session.tools)
    shown = response_context(response, calls)
    stream, resolver = session.stream, None
    emission = None if stream is None else stream.ended()
    if emission is None:
        # Not the step of `pre_model_call`: what is asked here is never taken for what was asked there.
        resolver = session.resolver("step", f"{command.key}:post") if session.approver is not None else None
        tokens = None if response.usage is None else _context_usage(usage)
        emission = await session.points.emit(
            session.builder.post_model_call, session.plan.model, shown, usage=tokens, resolver=resolver
        )
    base = {
        "model": model_id,
        "step": live.state.step,
        "usage": USAGE_OF_ONE if usage is ONE_REQUEST else usage.json(),
        "finish": response.finish,
    }
    if not emission.proceeds:
        if resolver is not None and resolver.parked is not None:
            session.hold(resolver.parked.id, Held(answer=answer))
            return blocked(session, command, emission, resolver)
        return _discard(session, base, emission)
    content, finish = shown["content"], response.finish
    if emission.denies or emission.verdict.decision == "transform":  # `changed`, spelt out
        content, calls, finish = revise(emission.target, calls, live.state.numbered)
    if content is not None and type(content) is not str:
        content = thaw(content)
    if emission.labels:
        session.label("response", emission)
    refused = None if stream is None else await stream.finish(response, content, calls, finish)
    if refused is not None:
        return _discard(session, base, refused)
    return _take(session, base, response, content, calls, finish)


def _discard(session: Session, base: dict[str, Any], emission: Emission) -> bool:
    """A response that was denied: counted, not kept, and the end of the run (§6.1), or asked for again by a team."""
    again = None if session.mediator is None else session.mediator.again(session, emission)
    if again is not None:
        return _reask(session, base, "decision_denied", again)
    denied = {**base, "outcome": "reask", "feedback": (), "denied": True}
    return session.record_end("model_finished", denied, _cause_of(session, emission))


def _take(
    session: Session,
    base: dict[str, Any],
    response: ModelResponse,
    content: Any,
    calls: tuple[Proposed, ...],
    finish: str,
) -> bool:
    """Record what the response is: calls, the final answer, or something that cannot be used."""
    live = session.live
    unusable = {**base, "outcome": "reask", "feedback": ()}
    if response.refusal is not None:
        refused = Cause("failed", "content_filter", error=f"the model refused: {content}")
        return session.record_end("model_finished", unusable, refused)
    unlisted = [h.name for h in response.hosted if h.name not in session.agent.hosted_tools] if response.hosted else []
    if unlisted:
        told = f"the provider ran {', '.join(unlisted)}; name it in hosted_tools"
        return session.record_end("model_finished", unusable, Cause("failed", "unknown_tool", error=told))
    fault = fault_of(content, calls, finish)
    problem = None if fault is None else REASK[fault]
    if fault is None and not calls and session.output is not None:
        problem = session.output.problem(content)
        fault = None if problem is None else "no_answer"
    if session.mediator is not None:
        fault, problem = session.mediator.fault(fault, problem, calls)
    if fault is not None:
        return _reask(session, base, fault, problem or "")
    if calls:
        return _take_calls(session, base, content, calls)
    payload = {**base, "outcome": "answer"}
    if session.store_each_call:
        payload["message"] = freeze({"role": "assistant", "content": content})
    else:
        session.answer = content
    live.record("model_finished", payload, live.clock.stamped)
    return DONE


def _reask(session: Session, base: dict[str, Any], fault: str, text: str) -> bool:
    """Ask again without storing anything, at most twice in a row (30-agent, 11)."""
    over = session.live.state.reasks >= MOST_REASKS
    feedback = () if over else (freeze({"role": "user", "content": text}),)
    payload = {**base, "outcome": "reask", "why": fault, "feedback": feedback}
    return session.record_end("model_finished", payload, Cause("failed", fault) if over else None)


def _take_calls(session: Session, base: dict[str, Any], content: Any, calls: tuple[Proposed, ...]) -> bool:
    live = session.live
    message = freeze(assistant_message(content, calls))
    checked = [_checked(session, call) for call in calls]
    payload = {**base, "outcome": "calls", "message": message, "calls": checked}
    for call in checked:
        if call["problem"] is not None:
            payload["problems"] = True
    if "problems" in payload:
        return session.record_end("model_finished", payload, _missed(session, checked))
    live.record("model_finished", payload, live.clock.stamped)
    return DONE


def _missed(session: Session, calls: Sequence[Mapping[str, Any]]) -> Cause | None:
    """Why calls that cannot run end the run: the third unknown tool in a row, or one called wrongly three times."""
    counts = tally(session.live.state, calls)
    if counts["misses"] >= MOST_MISSES:
        return Cause("failed", "unknown_tool")
    wrong = any(count >= MOST_MISSES for count in counts["invalid"].values())
    return Cause("failed", "invalid_arguments") if wrong else None


def _checked(session: Session, call: Proposed) -> dict[str, Any]:
    """The call as it is stored: known tool, arguments that fit its schema, or the problem (before any gate)."""
    tool = session.tools[call.name] if call.name in session.tools else None
    item: dict[str, Any] = {"id": call.id, "provider_id": call.provider_id, "name": call.name, "args": call.args}
    item["effect"] = "pure" if tool is None or tool.external else tool.effect  # outside nothing runs here
    item["problem"] = None
    if tool is None:
        item["problem"] = unknown_tool(call, tuple(session.tools))
    elif call.problems:
        item["problem"] = invalid_arguments(call, call.problems)
    else:
        try:
            item["args"] = freeze(tool.parse(call.args))  # its bytes are made once, for three uses
        except ToolArgumentsInvalid as exc:
            item["problem"] = invalid_arguments(call, exc.problems)
    return item


async def output_step(session: Session, command: Command) -> bool:
    """`output`, once for the final answer; nothing is released or stored before it permits (§12.1a)."""
    live = session.live
    state = live.state
    wait = state.waits.get(command.key) if state.waits else None
    if wait is not None:
        text = session.kept(wait.request).value  # let go with the end of the run, which comes next
    else:
        text = state.pending[0] if state.pending[0] is not None else session.answer
    resolver = session.resolver("step", command.key) if session.approver is not None else None
    emission = await session.points.emit(session.builder.output, text, resolver=resolver)
    if not emission.proceeds:
        control = emission.control
        if control is not None and control.control == "retry":
            return _send_back(session, emission)
        if resolver is not None and resolver.parked is not None:
            session.hold(resolver.parked.id, Held(value=text))
        return blocked(session, command, emission, resolver)
    final = emission.target["content"]
    final = final if type(final) is str else thaw(final)
    rewritten = emission.denies != () or emission.verdict.decision == "transform"
    if session.output is not None:
        problem = session.output.problem(final)
        if problem is not None:
            return session.end(Cause("failed", "no_answer", error=f"the answer after the output verdict: {problem}"))
    if emission.labels:
        session.label("output", emission)
    text = type(final) is str
    message = frozen_texts(role="assistant", content=final) if text else freeze({"role": "assistant", "content": final})
    shown = final if type(final) is str else str(final)
    if state.released is not None:  # incremental: the rest of what was shown while it came
        if not shown.startswith(state.released[1]):
            refused = await session.points.refuse(UNSUPPORTED, session.builder.output, final)
            return blocked(session, command, refused, None)
        shown = shown[len(state.released[1]) :]
    live.record("output", {"message": message, "text": shown, "changed": rewritten}, live.clock.stamped)
    session.answer = None
    return DONE


def _send_back(session: Session, emission: Emission) -> bool:
    """`Verdict.retry`: the agent tries again, without seeing the refused text; bounded (05-api)."""
    state, verdict = session.live.state, emission.verdict
    if state.retries_in_row >= RETRIES_IN_ROW or state.retries >= RETRIES:
        return session.end(Cause("stopped", verdict.reason, decider(emission)))
    text = f"Your answer was not accepted: {verdict.reason or 'denied'}. {verdict.message or ''}".strip()
    session.live.record("feedback", {"feedback": (freeze({"role": "user", "content": text}),)})
    session.answer = None
    return DONE


def blocked(session: Session, command: Command, emission: Emission, resolver: StepResolver | None) -> bool:
    """A deny at a point that is not a tool's: park if it waits for somebody, else end the run."""
    if resolver is not None and resolver.parked is not None:
        request = resolver.parked
        point = emission.record["interception_point"]
        wait = session.live.state.waits.get(command.key)
        if wait is None or wait.request != request.id:
            session.live.record(
                "request_opened", {"step": command.key, "request": request.id, "kind": "step", "point": point}
            )
        return PARKED
    return session.end(_cause_of(session, emission))


def _cause_of(session: Session, emission: Emission) -> Cause:
    if emission.verdict.reason == UNSUPPORTED and emission.record["mode"] != "enforce":
        # Nothing was enforced (§8): the stream failed by itself.
        return Cause("failed", "model_error:stream_cut", error="the stream ended without its finish", resumable=True)
    verdict = emission.control or emission.verdict
    stopped = emission.control is not None and emission.control.control == "stop"
    session.block(emission)
    alone = "no_approver: nobody could be asked" if emission.verdict.liftable and not session.has_approver else None
    status = (stopped and verdict.status) or "blocked"
    return Cause(status, verdict.reason, decider(emission), error=alone)


def drop_held(session: Session) -> None:
    """Forget what was kept for decisions nobody waits for any more; a model response among it still ends its call."""
    live = session.live
    for wait in live.state.waits.values():
        held = session.held(wait.request)
        if held is not None and held.answer is not None:
            model, response, usage = held.answer
            base = {"model": model, "step": live.state.step, "usage": usage.json(), "finish": response.finish}
            live.record("model_finished", {**base, "outcome": "reask", "feedback": (), "denied": True})
    if session.approver is not None:
        for request in session.approver.docket.of_run(live.run_id):
            session.let_go(request.id)


def _context_usage(usage: Usage) -> Mapping[str, int]:
    return {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
