"""Asking one interceptor. Every way in which it can fail is a deny in its own slot (§6.3)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple

from lictor.errors import VerdictInvalid
from lictor.hooks.context import Context
from lictor.hooks.interceptor import Bound
from lictor.hooks.points import INTERCEPTOR_FAILED, INTERCEPTOR_TIMEOUT, VERDICT_INVALID
from lictor.hooks.verdict import ALLOW, Verdict, host_error, read_verdict
from lictor.hooks.waiting import CancelledByItself, settled

__all__ = ["Raised", "ask", "verdict_of"]


class Raised(NamedTuple):
    """An interceptor raised this instead of answering."""

    error: BaseException


def ask(bound: Bound, context: Context) -> Any:
    """Return what the interceptor answers: a verdict, something awaitable, anything, or `Raised`."""
    try:
        return bound.call(context)
    except BaseException as error:  # noqa: BLE001 - sorted out by verdict_of
        return Raised(error)


async def verdict_of(answer: Any, timeout: float | None) -> Verdict:
    """Return the verdict an answer amounts to, awaiting it within `timeout` seconds if need be.

    Goes up, because it is no failure of the interceptor: the cancellation of the calling task, and
    SystemExit and the like.
    """
    if isinstance(answer, Raised):
        return _failure(answer.error)
    if not isinstance(answer, Verdict) and inspect.isawaitable(answer):
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                answer = await settled(answer)
        except Exception as error:  # noqa: BLE001 - whatever an interceptor raises is a deny (§6.3)
            timed_out = isinstance(error, TimeoutError) and limit.expired()
            return host_error(INTERCEPTOR_TIMEOUT) if timed_out else _failure(error)
    try:
        return answer if answer is ALLOW else read_verdict(answer)
    except VerdictInvalid as error:
        return host_error(VERDICT_INVALID, str(error))
    except Exception as error:  # noqa: BLE001 - a foreign to_wire may raise anything
        return host_error(VERDICT_INVALID, type(error).__name__)


def _failure(error: BaseException) -> Verdict:
    if isinstance(error, CancelledByItself):
        return host_error(INTERCEPTOR_FAILED, "CancelledError")
    if isinstance(error, (Exception, asyncio.CancelledError)):  # no await, so nobody else cancelled
        return host_error(INTERCEPTOR_FAILED, type(error).__name__)
    raise error
