"""Every error a provider call can raise becomes a ModelError with a known code."""

import http
import inspect
import json

import anyio
import httpx
import httpx2
import openai
import pytest

from lictor.errors import ModelError
from lictor.models.failures import BY_CLASS, RETRYABLE, by_status, model_error

# Exceptions of the client for parts of it that a chat completion does not touch.
ELSEWHERE = {"InvalidWebhookSignatureError", "WebSocketConnectionClosedError", "WebSocketQueueFullError"}


def exceptions(module):
    """The public exception classes of a module."""
    found = [getattr(module, name) for name in dir(module) if not name.startswith("_") and name not in ELSEWHERE]
    return [value for value in found if inspect.isclass(value) and issubclass(value, Exception)]


def bare(cls):
    """An instance without the arguments each class wants."""
    return cls.__new__(cls)


@pytest.fixture(scope="module")
def answered():
    """A function that gives the client's error for an HTTP answer."""
    with openai.OpenAI(api_key="k", base_url="http://127.0.0.1") as client:

        def error(status, *, body=None, **headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            request = httpx2.Request("POST", "http://127.0.0.1/v1")
            response = httpx2.Response(status, headers=named, json={"error": body or {}}, request=request)
            return client._make_status_error_from_response(response)

        yield error


@pytest.mark.parametrize("module", [openai, httpx, httpx2], ids=lambda module: module.__name__)
def test_every_exception_of_the_libraries_has_a_code(module):
    """No public exception class of the client or of either HTTP library is missing in the table."""
    lost = []
    for cls in exceptions(module):
        names = [each.__name__ for each in cls.__mro__]
        if not set(names) & set(BY_CLASS):
            lost.append(cls.__name__)
    assert lost == []


def test_the_table_names_only_codes_that_exist():
    """Each entry is a code with a known retryability, or says where the code comes from."""
    assert set(BY_CLASS.values()) <= {*RETRYABLE, "status", "object"}


@pytest.mark.parametrize("status", [each.value for each in http.HTTPStatus if each >= 400])
def test_every_http_status_has_a_code(answered, status):
    """4xx are final except 408, 409 and 429; 5xx may be tried again."""
    error = model_error(answered(status), streaming=False)
    assert (error.code, error.status) == (by_status(status), status)
    assert error.retryable is (status >= 500 or status in {408, 409, 429})


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "bad_request"), (401, "auth"), (403, "auth"), (404, "bad_request"), (408, "timeout"), (409, "conflict"),
     (422, "bad_request"), (429, "rate_limit"), (500, "server_error"), (503, "server_error"), (529, "server_error")],
)  # fmt: skip
def test_codes_by_status(status, code):
    """The statuses that providers use."""
    assert by_status(status) == code


@pytest.mark.parametrize(
    "cls", [httpx.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError, anyio.EndOfStream, OSError]
)
def test_a_lost_connection_is_told_apart_by_when(cls):
    """Before the answer it could not connect; in the middle the stream was cut; both may be tried again."""
    for streaming, code in ((False, "connect"), (True, "stream_cut")):
        error = model_error(bare(cls), streaming=streaming)
        assert (error.code, error.retryable) == (code, True)


@pytest.mark.parametrize(
    "cls", [httpx.ReadTimeout, httpx2.ConnectTimeout, httpx2.PoolTimeout, TimeoutError, openai.APITimeoutError]
)
def test_timeouts_are_timeouts(cls):
    """Whoever gives up first, the code is the same."""
    assert model_error(bare(cls), streaming=True).code == "timeout"


def test_the_cause_of_a_connection_error_decides():
    """A request that can never be sent is not tried again, although the client calls it a connection error."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    try:
        raise openai.APIConnectionError(request=request) from httpx2.UnsupportedProtocol("no http:// in front")
    except openai.APIConnectionError as caught:
        error = model_error(caught, streaming=False)
    assert (error.code, error.retryable) == ("bad_request", False)
    assert "no http:// in front" in str(error)


def test_broken_bytes_are_a_bad_response():
    """Lines that are no JSON or no UTF-8 may be better the next time."""
    for cls in (json.JSONDecodeError, UnicodeDecodeError, ValueError):
        error = model_error(bare(cls), streaming=True)
        assert (error.code, error.retryable) == ("bad_response", True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "Wed, 01 Jan 2025 00:00:30 GMT", "date": "Wed, 01 Jan 2025 00:00:00 GMT"}, 30.0),
        ({"retry_after": "Wed, 01 Jan 2025 00:00:00 GMT", "date": "Wed, 01 Jan 2025 00:00:30 GMT"}, 0.0),
        ({"retry_after": "Wed, 01 Jan 2025 00:00:30 GMT"}, None),
        ({"retry_after": "Wed, 01 Jan 2025 00:00:30 GMT", "date": "Wed, 01 Jan 2025 00:00:00 -0000"}, None),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read(answered, headers, seconds):
    """Seconds, milliseconds, or a date counted from the answer's own date; nonsense is nothing."""
    assert model_error(answered(429, **headers), streaming=False).retry_after == seconds


def test_an_exhausted_quota_is_not_tried_again(answered):
    """A 429 that waiting does not cure is final for this request."""
    error = model_error(answered(429, body={"code": "insufficient_quota", "message": "pay"}), streaming=False)
    assert (error.code, error.status, error.retryable) == ("rate_limit", 429, False)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_bad_request(answered, status):
    """The error says where it points to, and that nobody went there."""
    error = model_error(answered(status, location="http://elsewhere/v1"), streaming=False)
    assert (error.code, error.status, error.retryable) == ("bad_request", status, False)
    assert str(error) == "redirects are not followed; the endpoint points to http://elsewhere/v1"


def test_the_innermost_cause_of_a_lost_connection_decides():
    """Two clients on top of each other: what the transport said is what happened."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    inner = openai.APIConnectionError(request=request)
    inner.__cause__ = httpx2.ConnectTimeout("late")
    outer = openai.APIConnectionError(request=request)
    outer.__cause__ = inner
    assert model_error(outer, streaming=False).code == "timeout"


def test_the_key_does_not_show(answered):
    """A provider that echoes the key does not get it into events and logs; long messages are cut."""
    error = model_error(
        answered(401, body={"message": "wrong key sk-secret" + "x" * 5000}), streaming=False, secret="sk-secret"
    )
    assert "[api key]" in str(error)
    assert "sk-secret" not in str(error)
    assert len(str(error)) <= 1000


def test_errors_of_lictor_pass_and_foreign_ones_are_none():
    """A ModelError stays itself, and a mistake in a program is not dressed up as the provider's."""
    own = ModelError("stream_cut", "x")
    assert model_error(own, streaming=True) is own
    assert model_error(KeyError("x"), streaming=True) is None
