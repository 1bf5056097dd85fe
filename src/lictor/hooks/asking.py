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
from lictor.hooks.waiting import _CancelledByItself, settled

__all__ = ["Raised", "ask", "awaited", "pending", "verdict_of"]


class Raised(NamedTuple):
    """An interceptor raised this instead of answering."""

    error: BaseException


class Late(NamedTuple):
    """An interceptor did not answer in time."""


def ask(bound: Bound, context: Context) -> Any:
    """Return what the interceptor answers: a verdict, something awaitable, anything, or `Raised`."""
    try:
        return bound.call(context)
    except BaseException as error:  # noqa: BLE001 - sorted out by verdict_of
        return Raised(error)


def pending(answer: Any) -> bool:
    """Tell whether an answer has to be awaited before it says anything."""
    return not isinstance(answer, (Verdict, Raised)) and inspect.isawaitable(answer)


async def awaited(answer: Any, timeout: float | None) -> Any:
    """Return what an awaitable answer comes to within `timeout` seconds: as `ask`, or the deny for being late.

    Goes up, because it is no failure of the interceptor: the cancellation of the calling task, and
    SystemExit and the like.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await settled(answer)
    except Exception as error:  # noqa: BLE001 - whatever an interceptor raises is a deny (§6.3)
        return Late() if isinstance(error, TimeoutError) and limit.expired() else Raised(error)


def verdict_of(answer: object) -> Verdict:
    """Return the verdict an answer amounts to."""
    if answer is ALLOW:
        return ALLOW
    if isinstance(answer, Raised):
        return _failure(answer.error)
    if isinstance(answer, Late):
        return host_error(INTERCEPTOR_TIMEOUT)
    try:
        return read_verdict(answer)
    except VerdictInvalid as error:
        return host_error(VERDICT_INVALID, str(error))
    except Exception as error:  # noqa: BLE001 - a foreign to_wire may raise anything
        return host_error(VERDICT_INVALID, type(error).__name__)


def _failure(error: BaseException) -> Verdict:
    if isinstance(error, _CancelledByItself):
        return host_error(INTERCEPTOR_FAILED, "CancelledError")
    if isinstance(error, (Exception, asyncio.CancelledError)):  # no await, so nobody else cancelled
        return host_error(INTERCEPTOR_FAILED, type(error).__name__)
    raise error
