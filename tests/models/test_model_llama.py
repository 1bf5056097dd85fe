"""The adapter against a real model on a real server."""

import json
import math
from typing import Literal

import pytest
from driving import both_ways, play, tools_said
from llama import llama_server, missing
from overwire import assert_valid
from pydantic import BaseModel

from lictor import Agent, DenyTools, tool
from lictor.errors import ModelError
from lictor.models import (
    ModelResponse,
    OpenAIModel,
    PydanticAIModel,
    TextDelta,
    assistant,
    tool_message,
    user,
)
from lictor.testing import StrictProvider

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
    """All events of one answer; asked twice, as the loop does, when the server had closed an idle connection."""
    try:
        return [event async for event in model.respond(messages, tools, settings)]
    except ModelError as error:
        if not error.retryable:
            raise
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


async def test_a_real_model_says_how_sure_it_is(model):
    """Each token has its logarithm of probability and the likeliest others, of which it is the first."""
    *_, last = await events(
        model, [user("Is Paris in France? Say yes or no.")], max_tokens=4, logprobs=True, top_logprobs=3
    )
    assert "".join(token.token for token in last.logprobs) == last.content
    for token in last.logprobs:
        assert len(token.top) == 3
        assert token.top[0][0] == token.token
        assert 0 < math.exp(token.logprob) <= 1
        assert sum(math.exp(logprob) for _, logprob in token.top) <= 1 + 1e-6


def lookup(ran):
    """A tool that the model can call."""

    @tool(effect="pure")
    async def lookup_order(order_id: int) -> str:
        """Look up an order by its number.

        Args:
            order_id: its number
        """
        ran.append(order_id)
        return f"order {order_id} arrives on Monday"

    return lookup_order


@both_ways
@pytest.mark.parametrize("adapter", ["openai", "pydantic-ai"])
async def test_a_real_model_goes_through_the_whole_loop(how, adapter, model, monkeypatch):
    """It calls the tool within its schema, the result goes back, its words are the answer, by either adapter."""
    ran = []
    chosen = model
    if adapter == "pydantic-ai":
        pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")
        monkeypatch.setenv("OPENAI_BASE_URL", model._base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        chosen = PydanticAIModel("openai-chat:smollm2")
    agent = Agent("clerk", model=StrictProvider(chosen), tools=[lookup(ran)], settings={"max_tokens": 60})
    played = await play(agent, "Where is order 42?", how=how)
    assert (played.status, ran) == ("completed", [42])
    assert "Monday" in played.answer
    assert tools_said(played.messages) == ["order 42 arrives on Monday"]
    assert (played.usage.requests, played.usage.tool_calls) == (2, 1)
    assert played.usage.input_tokens > 0
    assert played.usage.output_tokens > 0
    assert_valid([played.messages])


async def test_what_a_policy_denies_a_real_model_does_not_get(model):
    """The call is denied, the tool does not run, and the model goes on with the denial."""
    ran = []
    policy = DenyTools("lookup_order")
    agent = Agent("clerk", model=model, tools=[lookup(ran)], interceptors=[policy], settings={"max_tokens": 40})
    played = await play(agent, "Where is order 42?")
    assert (played.status, ran) == ("completed", [])
    assert json.loads(played.result_of())["error"] == "denied"


class Mood(BaseModel):
    """What the model makes of a text."""

    mood: Literal["good", "bad"]
    score: int


async def test_a_real_model_gives_a_typed_answer(model):
    """The schema of an output type holds the model's tokens, so that its answer fits."""
    agent = Agent("judge", model=model, output_type=Mood, settings={"max_tokens": 60})
    played = await play(agent, "I love it. Which mood is that, with which score from 0 to 9?")
    assert played.status == "completed"
    Mood.model_validate_json(played.messages[-1]["content"])
