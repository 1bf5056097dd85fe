"""The body of a request: what is sent, what never is."""

import json
import math

import pytest

from lictor.errors import ModelError
from lictor.models import user
from lictor.models.chat_request import chat_request, limited_as, timeout_of

TOOL = {"name": "add", "description": "Add.", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def body(settings=None, *, messages=None, tools=()):
    """The request body."""
    return chat_request("m", messages or [user("Hi")], tools, settings or {})


def refused(settings):
    """The message with which these settings are refused."""
    with pytest.raises(ModelError) as caught:
        body(settings)
    assert (caught.value.code, caught.value.retryable) == ("bad_request", False)
    return str(caught.value)


def test_the_plain_request():
    """Model, messages, streaming with usage, and nothing else."""
    assert body() == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_wrapped():
    """A tool goes out in the API's shape; one without a schema takes no arguments."""
    sent = body(tools=[TOOL, {"name": "now", "description": "", "schema": None}])["tools"]
    assert sent[0] == {
        "type": "function",
        "function": {"name": "add", "description": "Add.", "parameters": TOOL["schema"]},
    }
    assert sent[1]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_settings_of_lictor_stay_here_and_others_go_out():
    """`position` and `timeout` are not the provider's; unknown keys are; None leaves a key out."""
    sent = body({"position": 3, "timeout": 9, "temperature": 0.5, "seed": None, "stream_options": None})
    assert sent["temperature"] == 0.5
    assert sorted(sent) == ["messages", "model", "stream", "temperature"]


def test_tool_settings_go_out_with_tools_only():
    """Providers refuse `tool_choice` where there is nothing to choose."""
    settings = {"tool_choice": "auto", "parallel_tool_calls": False}
    assert not settings.keys() & body(settings).keys()
    assert settings.items() <= body(settings, tools=[TOOL]).items()


@pytest.mark.parametrize("key", ["messages", "model", "tools", "stream"])
def test_settings_cannot_replace_what_was_judged(key):
    """A setting may not bring in messages or tools that no gate has seen."""
    assert repr(key) in refused({key: []})


CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (OPEN, False),
        (CLOSED | {"required": []}, False),
        (CLOSED | {"properties": {"a": OPEN}}, False),
        (CLOSED | {"properties": {"a": {"type": "array", "items": OPEN}}}, False),
        (CLOSED | {"properties": {"a": {"anyOf": [OPEN, {"type": "null"}]}}}, False),
        (CLOSED | {"$defs": {"b": {"type": "object"}}}, False),
    ],
)
def test_a_schema_for_the_answer_is_strict_if_it_can_be(schema, strict):
    """`response_format` takes a plain JSON Schema; strict mode is asked for exactly where the API allows it."""
    sent = body({"response_format": schema})["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def test_a_schema_gets_a_name_the_api_takes():
    """The title is the name, with what the API forbids replaced."""
    assert (
        body({"response_format": CLOSED | {"title": "Answer[int]"}})["response_format"]["json_schema"]["name"]
        == "Answer_int_"
    )


@pytest.mark.parametrize(
    "given", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "text"}]
)
def test_a_wrapped_format_stays_as_it_is(given):
    """Who writes the API's own shape gets it."""
    assert body({"response_format": given})["response_format"] == given


def test_g15_lone_surrogates_are_replaced_everywhere():
    """G15: messages, tools, keys and settings can be encoded, and a surrogate pair is its character."""
    spoilt = "a\ud83d", "\ud83c\udf78", "\x00\ufffe"
    messages = [user(text) for text in spoilt]
    tool = {"name": "t", "description": spoilt[0], "schema": {spoilt[0]: [spoilt[1]]}}
    sent = body({"user": spoilt[0]}, messages=messages, tools=[tool])
    json.dumps(sent, ensure_ascii=False).encode()
    assert [message["content"] for message in sent["messages"]] == ["a\ufffd", "\U0001f378", "\x00\ufffe"]
    assert sent["tools"][0]["function"]["parameters"] == {"a\ufffd": ["\U0001f378"]}
    assert sent["user"] == "a\ufffd"


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", {1}, {1: 2}, object()])
def test_what_is_no_json_is_refused_by_place(value):
    """The message names where the value sits, and not the value."""
    assert "request.logit_bias.a[1]" in refused({"logit_bias": {"a": [0, value]}})


def test_the_request_is_a_copy():
    """What the client does to the body does not reach the history."""
    message = user("Hi")
    sent = body({"stop": ("a", "b")}, messages=(message,))
    sent["messages"][0]["content"] = "other"
    assert message["content"] == "Hi"
    assert sent["stop"] == ["a", "b"]


@pytest.mark.parametrize(("given", "seconds"), [({}, 120.0), ({"timeout": 5}, 5.0), ({"timeout": None}, None)])
def test_the_timeout_is_two_minutes_by_default(given, seconds):
    """`timeout` is in seconds; None waits for ever."""
    assert timeout_of(given) == seconds


@pytest.mark.parametrize("given", [0, -1, True, "5", math.nan])
def test_a_timeout_is_a_positive_number(given):
    """Anything else is an error."""
    with pytest.raises(ModelError, match="timeout"):
        timeout_of({"timeout": given})


@pytest.mark.parametrize(
    "base_url", [None, "https://api.openai.com/v1", "https://API.openai.com", "https://api.openai.com:443/"]
)
def test_openai_takes_its_newer_name_for_the_limit(base_url):
    """`max_tokens`, which the loop sets under a budget, is what newer models take; a limit that was given stays."""
    assert limited_as({"max_tokens": 9, "model": "m"}, base_url) == {"max_completion_tokens": 9, "model": "m"}
    assert limited_as({"max_tokens": 9, "max_completion_tokens": 5}, base_url) == {"max_completion_tokens": 5}
    assert limited_as({"model": "m"}, base_url) == {"model": "m"}


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:8000/v1", "https://openrouter.ai/api/v1", "https://x/api.openai.com", "nowhere", ""]
)
def test_other_endpoints_take_the_older_name(base_url):
    """Compatible servers get `max_tokens` as it is."""
    assert limited_as({"max_tokens": 9}, base_url) == {"max_tokens": 9}
