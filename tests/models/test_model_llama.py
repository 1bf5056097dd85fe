"""The adapter against a real model on a real server."""

import json

import pytest
from llama import llama_server, missing

from lictor.models import ModelResponse, OpenAIModel, TextDelta, assistant, tool_message, user

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

LOOKUP = {
    "name": "lookup_order",
    "description": "Look up an order by its number.",
    "schema": {
        "type": "object",
        "properties": {"order_id": {"type": "integer"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def model():
    """The model, over one server for all tests of this file."""
    with llama_server() as base_url:
        yield OpenAIModel("smollm2", base_url=base_url)


async def events(model, messages, tools=(), **settings):
    """All events of one answer."""
    return [event async for event in model.respond(messages, tools, settings)]


async def test_a_real_model_streams_its_answer(model):
    """The text comes in several deltas, adds up to the content, and its tokens are counted."""
    *deltas, last = await events(model, [user("Say hello to Ana.")], max_tokens=16)
    assert len(deltas) > 2
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert isinstance(last, ModelResponse)
    assert "".join(delta.text for delta in deltas) == last.content
    assert last.finish in {"stop", "length"}
    assert last.usage.input_tokens > 0
    assert 0 < last.usage.output_tokens <= 16


async def test_a_real_model_calls_a_tool_within_its_schema(model):
    """A tool offered under a JSON Schema is called with arguments that fit, and its result is told in words."""
    question = user("Where is order 42?")
    *_, asked = await events(model, [question], [LOOKUP])
    (call,) = asked.calls
    assert asked.finish == "tool_calls"
    assert call.name == "lookup_order"
    assert json.loads(call.arguments) == {"order_id": 42}
    history = [question, assistant(None, asked.calls), tool_message(call.id, "order 42 arrives on Monday")]
    *_, told = await events(model, history, [LOOKUP], max_tokens=60)
    assert told.calls == ()
    assert "Monday" in told.content


async def test_a_real_model_answers_in_a_given_structure(model):
    """`response_format` holds the answer inside the schema."""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    *_, last = await events(model, [user("Which city is the capital of France?")], response_format=schema)
    assert set(json.loads(last.content)) == {"city"}
