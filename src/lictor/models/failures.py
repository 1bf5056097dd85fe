"""From whatever a provider call raises to a ModelError with a stable code.

The table goes by class name, so that nothing heavy is imported, and so that it holds for both HTTP
libraries under the `openai` client (httpx and httpx2 share their names). tests/models/test_model_failures.py
proves that no class is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from lictor.errors import ModelError
from lictor.models.untrusted import fields

__all__ = ["BY_CLASS", "RETRYABLE", "by_status", "in_stream", "model_error"]

LONGEST = 1000  # characters of a provider's message that are kept

RETRYABLE: Final[Mapping[str, bool]] = {
    "ambiguous_calls": True,
    "auth": False,
    "bad_request": False,
    "bad_response": True,
    "conflict": True,
    "connect": True,
    "rate_limit": True,
    "script_exhausted": False,
    "server_error": True,
    "stream_cut": True,
    "timeout": True,
    "too_large": False,
}

# `status`: by the HTTP status. `object`: by the error object that came with a 200. `connect` becomes
# `stream_cut` once the answer has begun.
BY_CLASS: Final[Mapping[str, str]] = {
    # openai
    "APIStatusError": "status",
    "APIError": "object",
    "APIConnectionError": "connect",
    "APITimeoutError": "timeout",
    "APIResponseValidationError": "bad_response",
    "ContentFilterFinishReasonError": "bad_response",
    "LengthFinishReasonError": "bad_response",
    "OAuthError": "auth",
    "SubjectTokenProviderError": "auth",
    "OpenAIError": "bad_request",
    # pydantic-ai; its errors of an HTTP status have both a category and the status
    "ModelHTTPError": "status",
    "ModelAPIError": "object",
    "ModelRateLimitError": "rate_limit",
    "ModelQuotaExceededError": "rate_limit",
    "ModelUnavailableError": "server_error",
    "ModelServerError": "server_error",
    "ModelConnectionError": "connect",
    "ModelTimeoutError": "timeout",
    "ModelRequestTimeout": "timeout",
    "ModelRequestRejectedError": "bad_request",
    "ModelAuthenticationError": "auth",
    "UnexpectedModelBehavior": "bad_response",
    "ConcurrencyLimitExceeded": "rate_limit",
    "UserError": "bad_request",
    # httpx and httpx2
    "HTTPError": "connect",
    "RequestError": "connect",
    "TransportError": "connect",
    "NetworkError": "connect",
    "ProxyError": "connect",
    "ProtocolError": "connect",
    "LocalProtocolError": "bad_request",
    "UnsupportedProtocol": "bad_request",
    "InvalidURL": "bad_request",
    "TooManyRedirects": "bad_request",
    "TimeoutException": "timeout",
    "HTTPStatusError": "status",
    "DecodingError": "bad_response",
    "CookieConflict": "bad_response",
    "SSEError": "bad_response",
    "StreamError": "connect",
    # anyio and the standard library
    "EndOfStream": "connect",
    "BrokenResourceError": "connect",
    "ClosedResourceError": "connect",
    "TimeoutError": "timeout",
    "OSError": "connect",
    "JSONDecodeError": "bad_response",
    "UnicodeDecodeError": "bad_response",
    "RecursionError": "bad_response",
    "ValueError": "bad_response",  # a number with more digits than Python reads
}


def by_status(status: int) -> str:
    """The code for an HTTP status that is not a success."""
    if status in (401, 403):
        return "auth"
    if status in (408, 409, 429):
        return {408: "timeout", 409: "conflict", 429: "rate_limit"}[status]
    return "server_error" if status >= 500 else "bad_request"


def model_error(error: BaseException, *, streaming: bool, secret: str | None = None) -> ModelError | None:
    """The ModelError for what a provider call raised, None if it is nothing of a provider.

    Arguments:
        error: what was raised.
        streaming: whether the answer had begun.
        secret: a text that must not show in the message (some gateways echo the key).
    """
    if isinstance(error, ModelError):
        return error
    if isinstance(error, BaseExceptionGroup):  # a model that is several models: the last one decides
        return model_error(error.exceptions[-1], streaming=streaming, secret=secret)
    code = _code(error)
    if code is None:
        return None
    if code in ("connect", "object"):
        code = _cause_of(error) or code
    told = _told(error, secret)
    if code == "status" or isinstance(getattr(error, "status_code", None), int):
        return _for_response(error, told)
    if code == "object":
        return in_stream(getattr(error, "body", None), told)
    if code == "connect" and streaming:
        code = "stream_cut"
    return ModelError(code, told, retryable=RETRYABLE[code] and not _is(error, "ModelQuotaExceededError"))


def in_stream(error: object, told: str | None = None) -> ModelError:
    """The ModelError for an error object inside an answer that began with status 200.

    It is the provider's failure and retryable, unless the object carries an HTTP status that is not.

    Arguments:
        error: the error object as parsed from JSON.
        told: the message to use; by default the object's own.
    """
    given = fields(error)
    text = told or str(given.get("message") or error or "the provider broke off its answer")[:LONGEST]
    for number in (given.get("status"), given.get("code")):
        status = int(number) if isinstance(number, int | str) and str(number).isdecimal() else 0
        if 400 <= status <= 599:
            code = by_status(status)
            return ModelError(code, text, status=status, retryable=RETRYABLE[code])
    return ModelError("server_error", text, retryable=True)


def _code(error: BaseException) -> str | None:
    """The table's entry for the nearest class that has one."""
    return next((BY_CLASS[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in BY_CLASS), None)


def _is(error: BaseException, name: str) -> bool:
    """Whether a class of this name is among the classes of `error`."""
    return any(cls.__name__ == name for cls in type(error).__mro__)


def _cause_of(error: BaseException) -> str | None:
    """What stopped a call that the client only calls a lost connection: the innermost cause that the table knows."""
    found, cause = None, error.__cause__
    while cause is not None:
        code = _code(cause)
        found = code if code not in (None, "status", "object") else found
        cause = cause.__cause__
    return found


def _told(error: BaseException, secret: str | None) -> str:
    """What the error says, with its cause, without the secret."""
    causes = [each for each in (error, error.__cause__) if each is not None]
    text = " <- ".join(f"{type(each).__name__}: {each}" if str(each) else type(each).__name__ for each in causes)
    if secret:
        text = text.replace(secret, "[api key]")
    return text[:LONGEST]


def _for_response(error: BaseException, told: str) -> ModelError:
    """The ModelError for an HTTP answer that is not a success."""
    response = getattr(error, "response", error)
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    status = int(getattr(response, "status_code", 500))
    code = by_status(status)
    if 300 <= status < 400:  # what was judged for one address is not sent to another
        told = f"redirects are not followed; the endpoint points to {headers.get('location')}"[:LONGEST]
    # An exhausted quota comes as 429 too, but waiting does not fill it.
    is_spent = getattr(error, "code", None) == "insufficient_quota" or _is(error, "ModelQuotaExceededError")
    retryable = RETRYABLE[code] and not is_spent
    wait = _retry_after(headers)
    return ModelError(code, told, status=status, retry_after=wait, retryable=retryable)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait (RFC 9110, 10.2.3); a date counts from the answer's own Date, not from our clock."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    from email.utils import parsedate_to_datetime  # late: it brings in much, for a rare kind of answer

    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):  # TypeError: only one of the two has a time zone
        return None
    return max(wait.total_seconds(), 0.0)
