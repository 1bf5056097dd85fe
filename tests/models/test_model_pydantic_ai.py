"""pydantic-ai's own test models, and its OpenAI provider over a real socket, behind our protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any

import httpx2
import pytest
from driving import both_ways, play, tools_said
from overwire import BOTH, CALLS, DONE, READ, Waits, assert_valid, tools
from pydantic import BaseModel

from lictor import Agent, Usage
from lictor.errors import DefinitionError, ModelError
from lictor.models import (
    Call,
    HostedCall,
    ModelResponse,
    Price,
    PydanticAIModel,
    ReasoningDelta,
    TextDelta,
    assistant,
    resolve_model,
    system,
    tool_message,
    user,
)
from lictor.models.answer import LONGEST_ANSWER
from lictor.testing import PAUSE, FaultServer, HttpReply, StrictProvider
from lictor.testing.wire import chunk, piece, sse, usage

pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")

from pydantic_ai import exceptions, messages
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from lictor.models.failures import BY_CLASS, RETRYABLE

WEATHER = {
    "name": "weather",
    "description": "Say what the weather is.",
    "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def streaming(*turns: Any) -> FunctionModel:
    """A model that streams the items of one turn after the other; an exception among them is raised."""
    left = [list(turn) for turn in turns]

    async def stream(history: Any, info: Any) -> Any:
        for item in left.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item

    return FunctionModel(stream_function=stream)


def answering(*responses: Any) -> FunctionModel:
    """A model that does not stream; it answers with these responses, parts or texts."""
    left = list(responses)

    def answer(history: Any, info: Any) -> messages.ModelResponse:
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        if isinstance(given, messages.ModelResponse):
            return given
        return messages.ModelResponse(parts=[messages.TextPart(given)] if isinstance(given, str) else given)

    return FunctionModel(answer)


async def events(model: Any, *asked: Any, tools: Any = (), **settings: Any) -> list[Any]:
    """All events of one answer."""
    wrapped = model if isinstance(model, PydanticAIModel) else PydanticAIModel(model)
    return [event async for event in wrapped.respond(asked or [user("Hi")], tools, settings)]


async def failure(model: Any, **settings: Any) -> ModelError:
    """The error of one answer."""
    with pytest.raises(ModelError) as caught:
        await events(model, **settings)
    return caught.value


# ---- through a whole run -------------------------------------------------------------------------------


async def run(model: Any, how: str, **agent: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """Play an agent with the tools `read` and `write`; its history is valid in every request."""
    ran: list[tuple[str, Any]] = []
    wrapped = StrictProvider(PydanticAIModel(model))
    played = await play(Agent("clerk", **{"model": wrapped, "tools": tools(ran), **agent}), how=how, clock=Waits())
    assert_valid([played.messages])
    return played, ran


@both_ways
async def test_text_is_an_answer(how: str) -> None:
    """A streamed text is the answer, with the tokens that the library counts."""
    played, _ = await run(streaming(["Grüße ", "🦊"]), how)
    assert (played.status, played.answer) == ("completed", "Grüße 🦊")
    assert played.usage.output_tokens > 0


@both_ways
async def test_calls_run_and_their_results_go_back(how: str) -> None:
    """Two calls in one response, one of them in pieces, run side by side; the model sees both results."""
    seen: list[Any] = []

    async def stream(history: Any, info: Any) -> Any:
        seen.append(history)
        if len(seen) == 1:
            yield {
                0: DeltaToolCall("read", '{"p":', tool_call_id="a"),
                1: DeltaToolCall("write", '{"q": "é🍸"}', tool_call_id="b"),
            }
            yield {0: DeltaToolCall(json_args=" 1}")}
        else:
            yield "Done."

    played, ran = await run(FunctionModel(stream_function=stream), how, instructions="Be brief.")
    assert (played.status, played.answer, sorted(ran)) == ("completed", "Done.", BOTH)
    asked, said, told = seen[1]
    assert [type(part).__name__ for part in asked.parts] == ["SystemPromptPart", "UserPromptPart"]
    assert [(part.tool_name, part.args_as_dict()) for part in said.parts] == [
        ("read", {"p": 1}),
        ("write", {"q": "é🍸"}),
    ]
    assert [(part.tool_name, part.content) for part in told.parts] == [("read", "read 1"), ("write", "wrote é🍸")]
    assert [part.tool_call_id for part in told.parts] == [part.tool_call_id for part in said.parts]


@both_ways
async def test_its_test_model_calls_every_tool(how: str) -> None:
    """pydantic-ai's TestModel sees our schemas, calls each tool, and gets what they return."""
    played, ran = await run(TestModel(), how)
    assert (played.status, sorted(name for name, _ in ran)) == ("completed", ["read", "write"])
    assert "read 0" in played.answer


@both_ways
async def test_a_failure_is_retried_and_an_unclear_call_is_told(how: str) -> None:
    """A 503 is tried again, broken arguments and an unknown tool are error results, a cut answer is asked again."""
    turns = [
        exceptions.ModelHTTPError(503, "m"),
        messages.ModelResponse(parts=[messages.TextPart("Half")], finish_reason="length"),
        [messages.ToolCallPart("read", '{"p": '), messages.ToolCallPart("erase", {})],
        "Done.",
    ]
    played, ran = await run(answering(*turns), how)
    assert (played.status, played.answer, ran, played.usage.retries) == ("completed", "Done.", [], 1)
    told = [json.loads(content)["error"] for content in tools_said(played.messages)]
    assert told == ["invalid_arguments", "unknown_tool"]


@both_ways
async def test_three_failures_end_the_run(how: str) -> None:
    """The code of the last one is the reason."""
    played, _ = await run(answering(*[exceptions.ModelHTTPError(429, "m", headers={"retry-after": "3"})] * 3), how)
    assert (played.status, played.reason, played.usage.requests) == ("failed", "model_error:rate_limit", 3)


class Place(BaseModel):
    """Where something is."""

    city: str


@both_ways
@pytest.mark.parametrize(("supports", "mode"), [(True, "native"), (False, "prompted")])
async def test_answers_are_typed(how: str, supports: bool, mode: str) -> None:
    """The schema goes by the provider's own means or as a text, and an answer that does not fit is asked again."""
    seen: list[Any] = []
    left = ['{"town": "Paris"}', '{"city": "Paris"}']

    def answer(history: Any, info: Any) -> Any:
        seen.append(info.model_request_parameters)
        return messages.ModelResponse(parts=[messages.TextPart(left.pop(0))])

    model = FunctionModel(answer, profile={"supports_json_schema_output": supports})
    played, _ = await run(model, how, output_type=Place)
    assert played.status == "completed"
    assert Place.model_validate(
        played.answer if isinstance(played.answer, Place) else json.loads(played.answer)
    ) == Place(city="Paris")
    assert [each.output_mode for each in seen] == [mode] * 2
    assert seen[0].output_object.json_schema["properties"].keys() == {"city"}
    assert bool(seen[0].instruction_parts) is (not supports)


# ---- what is sent --------------------------------------------------------------------------------------


async def test_a_history_is_said_in_its_words() -> None:
    """Instructions, images, calls with their results, and half characters: as pydantic-ai writes them."""
    seen: list[Any] = []

    async def stream(history: Any, info: Any) -> Any:
        seen.append((history, info))
        yield "ok"

    pixel = "data:image/png;base64,iVBORw0KGgo="
    picture = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": pixel}}]
    linked = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    history = [
        system("Be brief."),
        {"role": "user", "content": picture},
        assistant("Let me see.", [Call("c1", "weather", '{"city": "Ulm"}')]),
        tool_message("c1", "sunny"),
        {"role": "user", "content": linked},
        assistant(None, [Call("c2", "weather", "{}")]),
        tool_message("c2", "a\ud83d"),
        {"role": "developer", "content": [{"type": "text", "text": "In "}, {"type": "text", "text": "German."}]},
        user("Well?"),
    ]
    await events(FunctionModel(stream_function=stream), *history, tools=[WEATHER])
    ((said, info),) = seen
    kinds = [[type(part).__name__ for part in message.parts] for message in said]
    assert kinds == [
        ["SystemPromptPart", "UserPromptPart"],
        ["TextPart", "ToolCallPart"],
        ["ToolReturnPart", "UserPromptPart"],
        ["ToolCallPart"],
        ["ToolReturnPart", "SystemPromptPart", "UserPromptPart"],
    ]
    text, image = said[0].parts[1].content
    assert (text, type(image).__name__, image.media_type) == ("What?", "BinaryImage", "image/png")
    assert said[2].parts[1].content[0].url == "https://example.com/a.png"
    assert [part.content for part in said[4].parts] == ["a\ufffd", "In German.", "Well?"]
    assert said[4].parts[0].tool_name == "weather"
    (offered,) = info.function_tools
    assert (offered.name, offered.description, offered.parameters_json_schema) == tuple(WEATHER.values())


async def test_settings_go_on_under_its_names() -> None:
    """Our own keys stay here, `stop` has another name, what is None is left out, and nothing is retried inside."""
    seen: list[Any] = []

    async def stream(history: Any, info: Any) -> Any:
        seen.append(info.model_settings)
        yield "ok"

    model = FunctionModel(stream_function=stream)
    await events(model, temperature=0.5, stop="END", position=3, timeout=9, top_p=None, openai_user="ana")
    assert seen == [{"temperature": 0.5, "stop_sequences": ["END"], "openai_user": "ana", "max_retries": 0}]


@pytest.mark.parametrize(
    ("asked", "settings", "told"),
    [
        ([{"role": "user", "content": [{"type": "input_audio"}]}], {}, "content part of type 'input_audio'"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}], {}, "cannot be read"),
        ([{"role": "user", "content": {1}}], {}, "no JSON"),
        ([user("Hi")], {"response_format": {"type": "json_object"}}, "no JSON Schema"),
        ([user("Hi")], {"response_format": "yes"}, "no JSON Schema"),
        ([user("Hi")], {"messages": []}, "may not contain 'messages'"),
        ([user("Hi")], {"timeout": 0}, "timeout"),
    ],
)
async def test_what_cannot_be_said_makes_no_request(asked: Any, settings: Any, told: str) -> None:
    """The caller's mistakes are found before anything is sent."""
    with pytest.raises(ModelError, match=told) as caught:
        await events(streaming(["never"]), *asked, **settings)
    assert (caught.value.code, caught.value.retryable) == ("bad_request", False)


@pytest.mark.parametrize("wanted", [{"type": "text"}, None])
async def test_no_format_is_no_format(wanted: Any) -> None:
    """`text` asks for nothing."""
    assert (await events(streaming(["ok"]), response_format=wanted))[-1].content == "ok"


# ---- what comes back -----------------------------------------------------------------------------------


async def test_deltas_add_up_to_the_answer() -> None:
    """Reasoning and text come as deltas and whole; a pair of surrogates that is cut in two is one character."""
    *deltas, last = await events(
        streaming(
            [{0: DeltaThinkingPart(content="Hm, ")}, {0: DeltaThinkingPart(content="so")}, "a\ud83c", "\udf78 b\ud83c"]
        )
    )
    assert deltas == [
        ReasoningDelta("Hm, "), ReasoningDelta("so"), TextDelta("a"), TextDelta("🍸 b"), TextDelta("\ufffd"),
    ]  # fmt: skip
    assert (last.content, last.reasoning, last.finish, last.calls) == ("a🍸 b\ufffd", "Hm, so", "stop", ())


async def test_calls_are_passed_on_as_they_came() -> None:
    """Text of arguments is not repaired, an object is written out, a missing one is empty."""
    parts = [
        messages.ToolCallPart("read", '{"p": 1', "a"),
        messages.ToolCallPart("read", {"p": 2512292042121000001, "q": "é"}, ""),
        messages.ToolCallPart("read", None, "c"),
    ]
    (last,) = await events(answering(parts))
    assert last.calls == (
        Call("a", "read", '{"p": 1'),
        Call(None, "read", '{"p": 2512292042121000001, "q": "é"}'),
        Call("c", "read", ""),
    )
    assert last.finish == "tool_calls"


async def test_calls_of_the_provider_are_hosted() -> None:
    """A search that the provider ran comes with its result."""
    parts = [
        messages.NativeToolCallPart("web_search", {"query": "x"}, "h", provider_name="p"),
        messages.NativeToolReturnPart("web_search", {"hits": [1]}, "h", provider_name="p"),
        messages.TextPart("Found."),
    ]
    last = (await events(answering(parts)))[-1]
    assert last.hosted == (HostedCall("web_search", {"query": "x"}, {"hits": [1]}),)
    assert last.content == "Found."


@pytest.mark.parametrize(
    ("given", "finish"),
    [
        ({"finish_reason": "stop"}, "stop"),
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": "content_filter"}, "content_filter"),
        ({"finish_reason": "tool_call"}, "tool_calls"),
        ({"provider_details": {"finish_reason": "sensitive"}}, "sensitive"),
        ({"provider_details": {"finish_reason": "END"}, "finish_reason": "stop", "provider_url": "u"}, "stop"),
        ({"state": "suspended", "finish_reason": "stop"}, "incomplete"),
        ({}, "stop"),
    ],
)
async def test_finish_reasons_are_ours(given: Any, finish: str) -> None:
    """Its words become ours, what it does not know is the provider's own word, a paused answer is no whole one."""
    response = messages.ModelResponse(parts=[messages.TextPart("x")], **given)
    assert (await events(answering(response)))[-1].finish == finish


@pytest.mark.parametrize(
    ("given", "code"), [({"finish_reason": "error"}, "server_error"), ({"provider_url": "https://x"}, "stream_cut")]
)
async def test_an_answer_that_broke_off_is_none(given: Any, code: str) -> None:
    """`error`, and no finish reason from a model that has an address, fail the call; it may be tried again."""
    error = await failure(answering(messages.ModelResponse(parts=[messages.TextPart("Half")], **given)))
    assert (error.code, error.retryable) == (code, True)


async def test_a_refusal_is_told() -> None:
    """The text with which an OpenAI model refuses is the refusal."""
    details = {"finish_reason": "content_filter", "refusal": "I will not."}
    response = messages.ModelResponse(parts=[], finish_reason="content_filter", provider_details=details)
    assert (await events(answering(response)))[-1].refusal == "I will not."


@pytest.mark.parametrize(
    ("usage", "price", "expected"),
    [
        (RequestUsage(input_tokens=10, output_tokens=2, cache_read_tokens=4), None, Usage(10, 2, 4)),
        (RequestUsage(input_tokens=10, output_tokens=2), Price(input=1.0, output=5.0), Usage(10, 2, cost_usd=20e-6)),
        (RequestUsage(input_tokens=10, unmeasured_requests=1), None, None),
    ],
)
async def test_usage_is_what_the_provider_says(usage: Any, price: Any, expected: Any) -> None:
    """Tokens, cached ones among them, and a cost where there is a price; None where the provider said nothing."""
    model = answering(messages.ModelResponse(parts=[messages.TextPart("x")], usage=usage))
    assert (await events(PydanticAIModel(model, prices=price)))[-1].usage == expected


async def test_too_much_is_refused() -> None:
    """An answer has the same limits as over the wire."""
    assert (await failure(streaming(["x" * (LONGEST_ANSWER + 1)]))).code == "too_large"
    assert (await failure(answering([messages.ToolCallPart("read", {}) for _ in range(1001)]))).code == "too_large"


# ---- how it fails --------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[Exception, str, bool]] = {
    "400": (exceptions.ModelHTTPError(400, "m"), "bad_request", False),
    "401": (exceptions.ModelHTTPError(401, "m"), "auth", False),
    "408": (exceptions.ModelHTTPError(408, "m"), "timeout", True),
    "429": (exceptions.ModelHTTPError(429, "m"), "rate_limit", True),
    "429, no quota": (
        exceptions.ModelHTTPError.for_category(exceptions.ModelQuotaExceededError, status_code=429, model_name="m"),
        "rate_limit",
        False,
    ),
    "500": (exceptions.ModelHTTPError(500, "m"), "server_error", True),
    "529": (exceptions.ModelHTTPError(529, "m"), "server_error", True),
    "rate limit": (exceptions.ModelRateLimitError("m", "slowly"), "rate_limit", True),
    "no quota": (exceptions.ModelQuotaExceededError("m", "pay"), "rate_limit", False),
    "overloaded": (exceptions.ModelOverloadedError("m", "busy"), "server_error", True),
    "rejected": (exceptions.ModelRequestRejectedError("m", "no"), "bad_request", False),
    "key": (exceptions.ModelAuthenticationError("m", "no"), "auth", False),
    "unknown model": (exceptions.ModelNotFoundError("m", "no"), "bad_request", False),
    "timeout": (exceptions.ModelTimeoutError("m", "late"), "timeout", True),
    "its own deadline": (exceptions.ModelRequestTimeout("m", 3.0), "timeout", True),
    "in the stream": (exceptions.ModelAPIError("m", "lost"), "server_error", True),
    "misbehaviour": (exceptions.UnexpectedModelBehavior("odd"), "bad_response", True),
    "mistake": (exceptions.UserError("no"), "bad_request", False),
    "no JSON": (json.JSONDecodeError("no", "", 0), "bad_response", True),
}


@pytest.mark.parametrize(("raised", "code", "retryable"), ERRORS.values(), ids=ERRORS)
async def test_errors_have_the_same_codes(raised: Exception, code: str, retryable: bool) -> None:
    """Before the answer and amid it, whatever the library raises is a ModelError that says whether to try again."""
    for model in (answering(raised), streaming([raised]), streaming(["Half", raised])):
        error = await failure(model)
        assert (error.code, error.retryable) == (code, retryable)


@pytest.mark.parametrize(("before", "code"), [([], "connect"), (["Half"], "stream_cut")])
async def test_a_lost_connection_is_told_apart_by_when(before: list[str], code: str) -> None:
    """Bare or wrapped, a lost connection is `connect` before the answer and `stream_cut` amid it."""
    for raised in (httpx2.ReadError("lost"), exceptions.ModelConnectionError("m", "lost", phase="request")):
        error = await failure(streaming([*before, raised]))
        assert (error.code, error.retryable) == (code, True)


async def test_retry_after_is_passed_on() -> None:
    """The wait that the provider asks for reaches the loop."""
    error = await failure(answering(exceptions.ModelHTTPError(429, "m", headers={"retry-after": "7"})))
    assert (error.retry_after, error.status) == (7.0, 429)


async def test_the_usage_of_a_broken_answer_is_on_the_error() -> None:
    """What was counted before the stream broke is not lost."""
    error = await failure(streaming(["Half an answer", httpx2.ReadError("lost")]))
    assert isinstance(error.usage, Usage)
    assert error.usage.output_tokens > 0


async def test_the_last_of_several_models_decides() -> None:
    """When a FallbackModel has nobody left, its last error is the error; when somebody answers, that is the answer."""
    lost, busy = exceptions.ModelHTTPError(500, "a"), exceptions.ModelHTTPError(429, "b")
    error = await failure(FallbackModel(streaming([lost]), streaming([busy])))
    assert (error.code, error.retryable) == ("rate_limit", True)
    assert (await events(FallbackModel(streaming([lost]), streaming(["ok"]))))[-1].content == "ok"


async def test_a_mistake_in_a_program_is_not_dressed_up() -> None:
    """What no provider raises is raised on."""
    with pytest.raises(ZeroDivisionError):
        await events(streaming([ZeroDivisionError()]))


def test_every_error_of_a_model_has_a_code() -> None:
    """No class below ModelAPIError and UnexpectedModelBehavior is missing in the table."""
    bases = (exceptions.ModelAPIError, exceptions.UnexpectedModelBehavior, exceptions.UserError)
    found = [getattr(exceptions, name) for name in exceptions.__all__]
    classes = [cls for cls in found if isinstance(cls, type) and issubclass(cls, bases)]
    assert len(classes) > 10
    assert [cls for cls in classes if not {each.__name__ for each in cls.__mro__} & set(BY_CLASS)] == []
    assert {BY_CLASS[cls.__name__] for cls in classes if cls.__name__ in BY_CLASS} <= {*RETRYABLE, "status", "object"}


async def test_the_timeout_is_for_the_whole_answer() -> None:
    """A model that falls silent is given up, and its stream is closed."""
    closed = asyncio.Event()

    async def stream(history: Any, info: Any) -> Any:
        try:
            yield "Half"
            await asyncio.Event().wait()
        finally:
            closed.set()

    error = await failure(FunctionModel(stream_function=stream), timeout=0.03)
    assert (error.code, error.retryable) == ("timeout", True)
    assert "within 0.03 s" in str(error)
    assert closed.is_set()


async def test_closing_the_iterator_closes_the_stream() -> None:
    """A reader that has seen enough ends the request."""
    closed = asyncio.Event()

    async def stream(history: Any, info: Any) -> Any:
        try:
            yield "Half"
            await asyncio.Event().wait()
        finally:
            closed.set()

    answer = PydanticAIModel(FunctionModel(stream_function=stream)).respond([user("Hi")], [], {})
    assert await anext(answer) == TextDelta("Half")
    await answer.aclose()
    assert closed.is_set()


# ---- names ---------------------------------------------------------------------------------------------


def test_a_name_is_a_provider_and_a_model() -> None:
    """The prefix is ours, the rest is its name; models have the ids they call themselves by."""
    model = resolve_model("pydantic-ai:anthropic:claude-sonnet-5")
    assert isinstance(model, PydanticAIModel)
    assert model.id == "pydantic-ai:anthropic:claude-sonnet-5"
    assert PydanticAIModel("test").id == "pydantic-ai:test"
    assert PydanticAIModel(TestModel()).id == "pydantic-ai:test:test"


@pytest.mark.parametrize("wrong", ["gpt-5", "openai:", ":x", " : ", "", 7, None])
def test_what_names_no_model_is_refused(wrong: Any) -> None:
    """A mistake shows where it is written."""
    with pytest.raises(DefinitionError, match="pydantic-ai"):
        PydanticAIModel(wrong)


async def test_a_provider_it_does_not_know_is_a_bad_request() -> None:
    """The library's own words say what is wrong."""
    error = await failure(PydanticAIModel("nobody:model"))
    assert (error.code, error.retryable) == ("bad_request", False)
    assert "Unknown model: nobody:model" in str(error)


async def test_without_a_key_there_is_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that needs a key says which variable holds it."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    error = await failure(PydanticAIModel("openai-chat:m"))
    assert error.code == "auth"
    assert "OPENAI_API_KEY" in str(error)


async def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    error = await failure(PydanticAIModel("openai-chat:m"))
    assert "lictor[pydantic-ai]" in str(error)


# ---- its OpenAI provider over a real socket ---------------------------------------------------------------


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model by name that talks to a server."""

    def make(server: FaultServer) -> PydanticAIModel:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        return PydanticAIModel("openai-chat:m")

    return make


@both_ways
@pytest.mark.wire
async def test_a_whole_agent_runs_over_its_wire(how: str, named: Any) -> None:
    """Calls, a 503, a cut stream, the answer: the same run as with the adapter of our own."""
    ran: list[tuple[str, Any]] = []
    cut = HttpReply(parts=[sse(chunk("Half", calls=[READ]), usage(10, 5), done=False)], end="cut")
    entries = [CALLS, HttpReply.error(503, "busy"), cut, DONE]
    async with FaultServer(entries, split=1) as server:
        model = named(server)
        agent = Agent("clerk", model=StrictProvider(model), tools=tools(ran))
        played = await play(agent, how=how, clock=Waits())
        await model.aclose()
    assert (played.status, played.answer, sorted(ran)) == ("completed", "Done.", BOTH)
    assert [len(request["messages"]) for request in server.requests] == [1, 4, 4, 4]
    assert (played.usage.input_tokens, played.usage.output_tokens) == (27, 28)
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["read", "write"]


@pytest.mark.wire
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (HttpReply.error(429, "slowly", retry_after="7"), "rate_limit"),
        (HttpReply.error(401, "sk-secret is wrong"), "auth"),
        (HttpReply.error(500, "broken"), "server_error"),
        (HttpReply(status=0, framing="close", end="cut"), "connect"),
        (sse(chunk("Half")), "stream_cut"),
        (sse(chunk("Half"), done=False), "stream_cut"),
        (HttpReply(parts=[sse(chunk("Half"), done=False)], end="cut"), "stream_cut"),
        (sse(chunk("Half"), b"oops"), "bad_response"),
        (sse(chunk("Half"), {"error": {"message": "lost"}}), "server_error"),
        (sse(chunk(calls=[READ, piece(0, "b", "read", '{"p": 2}')]), chunk(finish="stop")), "ambiguous_calls"),
        (
            sse(chunk(calls=[piece(0, "a", "read"), piece(0, "b", arguments="{}")]), chunk(finish="stop")),
            "ambiguous_calls",
        ),
    ],
)
async def test_faults_on_its_wire_have_the_same_codes(reply: Any, code: str, named: Any) -> None:
    """One request, one error, nothing tried again inside, no false success, and the key does not show."""
    async with FaultServer([reply] * 3) as server:
        model = named(server)
        error = await failure(model)
        await model.aclose()
    assert (error.code, len(server.requests)) == (code, 1)
    assert error.retryable is (code != "auth")
    assert error.retry_after == (7.0 if code == "rate_limit" else None)
    assert "sk-secret" not in str(error)


@pytest.mark.wire
async def test_a_silent_server_is_given_up(named: Any) -> None:
    """Nothing in time, from the start or amid the answer: `timeout`, and the connection is closed."""
    async with FaultServer(
        [DONE, HttpReply(parts=[PAUSE]), HttpReply(parts=[sse(chunk("x"), done=False), PAUSE])]
    ) as server:
        model = named(server)
        await events(model)
        for _ in range(2):
            server.hung_up.clear()
            assert (await failure(model, timeout=0.2)).code == "timeout"
            await server.hung_up.wait()
        await model.aclose()


@pytest.mark.wire
def test_each_loop_has_its_own_client(named: Any) -> None:
    """One model serves several event loops in turn, and each loop ends without an open connection."""
    models: list[PydanticAIModel] = []

    async def once() -> str:
        async with FaultServer([DONE, DONE]) as server:
            model = models[0] if models else named(server)
            models[:] = [model]
            named(server)
            for _ in range(2):
                last = (await events(model))[-1]
            assert server.connections == 1
            return str(last.content)

    for _ in range(2):
        assert asyncio.run(once()) == "Done."
        gc.collect()


async def test_a_response_is_one() -> None:
    """Every answer ends with exactly one response."""
    for model in (answering("x"), streaming(["x"]), TestModel(custom_output_text="x")):
        found = await events(model)
        assert [isinstance(event, ModelResponse) for event in found].count(True) == 1
        assert isinstance(found[-1], ModelResponse)
