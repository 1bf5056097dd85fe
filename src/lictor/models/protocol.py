"""What a model is to the rest of Lictor: a stream of events that ends with one response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, final, runtime_checkable

from lictor.runs import Usage

__all__ = [
    "Call",
    "ChatModel",
    "HostedCall",
    "ModelEvent",
    "ModelRequest",
    "ModelResponse",
    "ReasoningDelta",
    "TextDelta",
    "TokenLogprob",
    "ToolSpec",
]

ToolSpec: TypeAlias = Mapping[str, Any]  # {"name": str, "description": str, "schema": JSON Schema of an object}


@dataclass(frozen=True, slots=True)  # budget: the loop and tests build it by position
class Call:
    """A tool call as the provider gave it.

    Arguments:
        id: the provider's id; a hint, it may be None, empty, or shared by two calls.
        name: the tool's name, `""` if the provider gave none.
        arguments: raw JSON text, as received; nobody has repaired or checked it.
    """

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)  # budget: the loop and tests build it by position
class HostedCall:
    """A call that the provider ran on its own side (a web search): already done, with its result.

    Arguments:
        name: the hosted tool.
        arguments: JSON value it was called with.
        result: JSON value it returned.
    """

    name: str
    arguments: Any
    result: Any


@dataclass(frozen=True, slots=True)  # budget: one is made for each piece of text
class TextDelta:
    """A piece of the answer's text, never empty, never half a character."""

    text: str


@dataclass(frozen=True, slots=True)  # budget: one is made for each piece of text
class ReasoningDelta:
    """A piece of the model's reasoning, where the provider shows it."""

    text: str


@final
class TokenLogprob(NamedTuple):
    """A token of an answer with the natural logarithm of its probability (`math.exp` makes it 0 to 1).

    The request asks for it with `logprobs=True` and, for `top`, `top_logprobs=5`. `top` are the likeliest
    tokens at this place, as (token, logprob), in the provider's order; the chosen one is usually among them.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)  # budget: the loop and tests build it by position
class ModelResponse:
    """What one model call came to; the last event of its stream.

    Arguments:
        content: the whole text; None if there was none.
        calls: the tool calls, in the order in which the model began them.
        finish: the provider's reason, as given (`stop`, `tool_calls`, `length`, `content_filter`, or any
            other text), or `empty` if a complete answer held no choice at all. A hint: `stop` may come
            with calls and `tool_calls` without.
        usage: tokens and cost of this request, None if the provider did not say. `requests`, `retries`
            and `tool_calls` in it are 0: who sends requests counts them.
        reasoning: the whole reasoning, where the provider shows it.
        refusal: the text with which the model refused.
        model: the name the provider answered under.
        hosted: calls that the provider ran on its own side.
        logprobs: the tokens of the content with their logarithmic probabilities, where the request asked
            for them (`settings["logprobs"]`) and the provider told.
    """

    content: str | None
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    usage: Usage | None = None
    reasoning: str | None = None
    refusal: str | None = None
    model: str | None = None
    hosted: tuple[HostedCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ModelResponse


@dataclass(frozen=True, slots=True)  # budget: the double makes one for each request
class ModelRequest:
    """A request as a model received it.

    Arguments:
        messages: the messages, oldest first.
        tools: the tools on offer.
        settings: everything else, reserved keys included.
        position: how many model responses were journalled for this agent in the conversation before.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[ToolSpec, ...]
    settings: Mapping[str, Any]
    position: int


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers a list of messages.

    `id` names it in events and records (`openai:gpt-5-mini`); it holds no secret.
    """

    id: str

    def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncIterator[ModelEvent]:
        """Stream one answer: deltas, then exactly one `ModelResponse`. Nothing is retried inside.

        Arguments:
            messages: OpenAI chat shape, oldest first.
            tools: mappings with `name`, `description`, `schema`.
            settings: reserved keys are `position` (int), `response_format` (a JSON Schema for the
                answer), `timeout` (seconds, default 120); others go to the provider as they are.

        Raises ModelError: the call failed, or the stream ended without its finish. Deltas that came
        before an error belong to no answer and are to be discarded. Closing the iterator (or
        cancelling its task) ends the request.
        """
        ...
