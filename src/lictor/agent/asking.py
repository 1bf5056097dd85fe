"""One answer from a model: timeouts, retries, fallbacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from lictor.errors import ModelError
from lictor.models import ChatModel, ModelResponse, Price
from lictor.runs import DEFAULT_MAX_TOKENS, NOTHING, Cause, LiveRun, Reservation, Usage
from lictor.values import canonical_json

__all__ = ["ATTEMPTS", "DEFAULT_TIMEOUT", "Answer", "Refusal", "ask", "delay_before", "failed"]

ATTEMPTS = 3
DEFAULT_TIMEOUT = 120.0
LEAST_TIMEOUT = 0.001
OTHER_LIMIT = "max_completion_tokens"  # what newer models call `max_tokens`
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
ONE_REQUEST = Usage(requests=1)
ONE_RETRY = Usage(requests=1, retries=1)


@final
class Refusal(NamedTuple):
    """The ledger refused the call before it started; `reason` is a word of the closed list."""

    reason: str


_answer = tuple.__new__


@final
class Answer(NamedTuple):
    """Which model answered, what, and what it cost."""

    model: str
    response: ModelResponse
    usage: Usage


async def ask(
    live: LiveRun[Any],
    models: Sequence[ChatModel],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> Answer | Refusal | ModelError:
    """Ask the models in order, each up to three times, until one answers.

    Every failed attempt is recorded as `model_retry`; a retry never repeats a tool. Gives a Refusal
    when the budget does not allow the call, and the last failure when nobody answered.
    """
    failure: ModelError | None = None
    for model in models:
        last = model is models[-1]
        for attempt in range(1, ATTEMPTS + 1):
            options = _options(live, model, settings)
            outcome = await _attempt(live, model, attempt, (messages, tools), options, last)
            if type(outcome) is Answer or type(outcome) is Refusal:
                return outcome
            failure = outcome
            if live.state.cause is not None:
                return failure  # the run ended meanwhile: nobody else is asked
            if not failure.retryable:
                break
            if attempt < ATTEMPTS:
                await live.clock.sleep(delay_before(attempt, failure.retry_after))
    return failure or ModelError("no_model", "the agent has no model")


async def _attempt(
    live: LiveRun[Any],
    model: ChatModel,
    attempt: int,
    request: tuple[Any, Any],
    options: dict[str, Any],
    last: bool,
) -> Answer | Refusal | ModelError:
    """One attempt, on the ledger and in the log; the failure of the last one says that it ends the run."""
    reserved = _reserve(live, model, request, options) if live.ledger.limited else NOTHING
    if type(reserved) is Refusal:
        return reserved
    started = {"model": model.id, "step": live.state.step, "attempt": attempt}
    live.record("model_started", started, live.clock.stamped if attempt == 1 else None)
    try:
        response = await _once(live, model, *request, options)
    except ModelError as exc:
        spent = ONE_RETRY + exc.usage if isinstance(exc.usage, Usage) else ONE_RETRY  # broken answers cost too
        live.ledger.settle(reserved, spent)
        payload = {"model": model.id, "attempt": attempt, "error": exc.code, "usage": spent.json()}
        if last and (attempt == ATTEMPTS or not exc.retryable):
            payload["ends"] = failed(exc).json()
        live.record("model_retry", payload)
        return exc
    except asyncio.CancelledError:  # it was sent all the same, and what started has to end
        live.ledger.settle(reserved, ONE_REQUEST)
        usage = ONE_REQUEST.json()
        live.record("model_retry", {"model": model.id, "attempt": attempt, "error": "cancelled", "usage": usage})
        raise
    usage_of = response.usage
    used = ONE_REQUEST if usage_of is None else usage_of + ONE_REQUEST
    if reserved is NOTHING:
        live.ledger.book(used)
    else:
        live.ledger.settle(reserved, used)
    return _answer(Answer, (model.id, response, used))


def failed(failure: ModelError) -> Cause:
    """How a run ends when no model answers."""
    return Cause("failed", f"model_error:{failure.code}", error=str(failure), resumable=failure.retryable)


def delay_before(attempt: int, retry_after: float | None) -> float:
    """Seconds to wait before the next attempt: what the provider said, else doubling with jitter."""
    if retry_after is not None:
        return min(max(retry_after, 0.0), LONGEST_DELAY * 2)
    spread: float = random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
    return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (attempt - 1)) * spread)


def _options(live: LiveRun[Any], model: ChatModel, settings: Mapping[str, Any]) -> dict[str, Any]:
    positions = live.state.positions
    position = positions[model.id] if model.id in positions else 0
    options = {"timeout": DEFAULT_TIMEOUT, **settings, "position": position}
    if live.ledger.limited and live.ledger.needs_max_tokens and options.get(OTHER_LIMIT) is None:
        options.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    return options


def _reserve(
    live: LiveRun[Any], model: ChatModel, request: tuple[Any, Any], options: Mapping[str, Any]
) -> Reservation | Refusal:
    """Set aside canonical bytes / 3 + `max_tokens`, and what that may cost, or say why it does not fit."""
    ledger = live.ledger
    want = NOTHING
    if ledger.needs_max_tokens:
        limit = options.get(OTHER_LIMIT) or options["max_tokens"]
        spent, made = sum(len(canonical_json(list(part))) for part in request) // 3, int(limit)
        prices: Price | None = getattr(model, "prices", None)
        want = Reservation(spent + made, ledger.root.dearest if prices is None else prices.cost(spent, made, 0))
    refused = ledger.reserve(want)
    if refused is not None:
        return Refusal(refused)
    return want


async def _once(
    live: LiveRun[Any],
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    options: dict[str, Any],
) -> ModelResponse:
    """One request, bounded in time; deltas are dropped, what counts is the response (§12.1)."""
    if live.ledger.limited:
        options["timeout"] = _within_budget(live, options["timeout"])
    seconds = options["timeout"]
    try:
        try:
            bounded: bool = model.keeps_timeout  # type: ignore[attr-defined] # an attribute a model may have
        except AttributeError:
            bounded = False
        if bounded:
            response = await _last(model, messages, tools, options)
        else:
            async with asyncio.timeout(seconds):
                response = await _last(model, messages, tools, options)
    except TimeoutError as exc:
        raise ModelError("timeout", f"{model.id} did not answer within {seconds} s", retryable=True) from exc
    except ModelError:
        raise
    except Exception as exc:
        raise ModelError("model_failed", f"{model.id} raised {type(exc).__name__}: {exc}") from exc
    if response is None:
        raise ModelError("stream_cut", f"{model.id} ended without a response", retryable=True)
    return response


def _within_budget(live: LiveRun[Any], seconds: Any) -> Any:
    """The timeout, or what is left of `max_seconds` if that is less; a model takes no 0."""
    remaining = live.ledger.remaining_seconds()
    if remaining is None or (isinstance(seconds, int | float) and seconds <= remaining):
        return seconds
    return max(remaining, LEAST_TIMEOUT)


async def _last(
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> ModelResponse | None:
    """The response that ends the stream; nothing partial leaves this function."""
    response: ModelResponse | None = None
    async for event in model.respond(messages, tools, options):
        if type(event) is ModelResponse:
            response = event
    return response
