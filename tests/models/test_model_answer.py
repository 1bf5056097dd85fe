"""One answer from its chunks: text, reasoning, refusals, finish reasons, usage, errors inside."""

import pytest

from lictor.errors import ModelError
from lictor.models import Call, ModelResponse, Price, ReasoningDelta, TextDelta, TokenLogprob
from lictor.models.answer import LONGEST_ANSWER, Answer
from lictor.runs import Usage
from lictor.testing.wire import chunk, envelope, piece, usage


def events(*chunks, price=None):
    """All events of an answer in these chunks."""
    answer = Answer(price)
    return [event for each in chunks for event in answer.feed(each)] + list(answer.end())


def response(*chunks, price=None):
    """The last event."""
    return events(*chunks, price=price)[-1]


def failure(*chunks):
    """The error of an answer in these chunks."""
    with pytest.raises(ModelError) as caught:
        events(*chunks)
    return caught.value


def test_text_is_streamed_and_summed():
    """Each piece is a delta, and the response holds them all."""
    found = events(chunk("Hel"), chunk("lo"), chunk(finish="stop"))
    assert found == [TextDelta("Hel"), TextDelta("lo"), ModelResponse("Hello", model="test-model")]


def test_calls_and_text_may_come_together():
    """A response has text and calls side by side, in one delta or many."""
    calls = [piece(0, "a", "read", "{}"), piece(1, "b", "read", "{}")]
    found = response(chunk("Let me see.", calls=calls), chunk(finish="tool_calls"))
    assert (found.content, found.finish) == ("Let me see.", "tool_calls")
    assert found.calls == (Call("a", "read", "{}"), Call("b", "read", "{}"))


@pytest.mark.parametrize(
    ("finish", "content", "calls"),
    [("stop", None, ["c1"]), ("tool_calls", "text", []), ("stop", "", ["c1"]), ("stop", None, [])],
)
def test_g12_finish_reasons_are_passed_on(finish, content, calls):
    """G12: `stop` with calls and `tool_calls` without are given as they are; empty content is None."""
    pieces = [piece(0, each, "read", "{}") for each in calls]
    found = response(chunk(content, calls=pieces), chunk(finish=finish))
    assert (found.content, found.finish) == (content or None, finish)
    assert [call.id for call in found.calls] == calls


@pytest.mark.parametrize("finish", ["length", "content_filter", "sensitive", "function_call", "eos"])
def test_g25_unknown_finish_reasons_are_passed_on(finish):
    """G25: a finish reason nobody has heard of reaches the loop as text."""
    assert response(chunk("x"), chunk(finish=finish)).finish == finish


@pytest.mark.parametrize(
    "chunks", [[chunk("Hello")], [chunk("Hello"), usage(1, 1)], [chunk(calls=[piece(0, "a", "b", "{}")])], []]
)
def test_g11_an_answer_without_finish_is_cut(chunks):
    """G11: text or calls without a finish reason, and no chunk at all, are a cut stream, never an answer."""
    error = failure(*chunks)
    assert (error.code, error.retryable) == ("stream_cut", True)


@pytest.mark.parametrize("finish", [None, ""])
def test_an_empty_finish_reason_is_none(finish):
    """Gateways that send an empty finish reason with every chunk have not finished by it."""
    assert failure(chunk("Hello", finish=finish)).code == "stream_cut"


@pytest.mark.parametrize("choices", [[], None, "none", [None], {}])
def test_an_answer_without_choices_is_empty(choices):
    """Chunks without any choice end as an empty response with the finish `empty`."""
    if choices == [None]:
        assert failure(envelope() | {"choices": choices}).code == "stream_cut"
        return
    found = events(envelope() | {"choices": choices}, usage(3, 0))
    assert found == [ModelResponse(None, finish="empty", usage=Usage(3, 0), model="test-model")]


def test_a_refusal_is_no_content():
    """G25: the text of a refusal has a place of its own."""
    found = response(chunk(refusal="I can"), chunk(refusal="not."), chunk(finish="stop"))
    assert (found.content, found.refusal) == (None, "I cannot.")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_streamed_apart(field):
    """Both common fields for reasoning give deltas of their own and are summed."""
    found = events(chunk(**{field: "Hm, "}), chunk(**{field: "yes."}), chunk("Yes"), chunk(finish="stop"))
    assert found[:3] == [ReasoningDelta("Hm, "), ReasoningDelta("yes."), TextDelta("Yes")]
    assert (found[-1].content, found[-1].reasoning) == ("Yes", "Hm, yes.")


def test_content_may_come_in_parts():
    """Content as a list of parts gives its text and its thinking; parts of other kinds are left out."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    parts = [thinking, {"type": "text", "text": "Yes"}, {"type": "image_url"}, "junk", {"type": "text", "text": None}]
    found = response(envelope({"index": 0, "delta": {"content": parts}, "finish_reason": "stop"}))
    assert (found.content, found.reasoning) == ("Yes", "Hm")


def test_half_characters_wait_for_their_other_half():
    """G15: a surrogate pair split over two deltas is one character, in the stream and in the sum."""
    found = events(chunk("a\ud83c"), chunk("\udf78b"), chunk(finish="stop"))
    assert found[:2] == [TextDelta("a"), TextDelta("\U0001f378b")]
    assert found[-1].content == "a\U0001f378b"


def test_a_lone_half_is_replaced():
    """G15: a half character that stays alone becomes U+FFFD, at the end as well."""
    found = events(chunk("a\udf78\ud83c"), chunk(finish="stop"))
    assert found == [TextDelta("a\ufffd"), TextDelta("\ufffd"), ModelResponse("a\ufffd\ufffd", model="test-model")]


def test_only_the_first_choice_counts():
    """A second choice (n=2) is not mixed into the first."""
    other = {"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}
    first = {"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}
    assert response(envelope(first, other)).content == "A"


def test_a_whole_completion_is_read_too():
    """An endpoint that ignores `stream` sends one completion; its message counts as a delta."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Hi", "tool_calls": [call]}
    found = events(envelope({"index": 0, "message": message, "finish_reason": "tool_calls"}))
    assert found[0] == TextDelta("Hi")
    assert found[-1].calls == (Call("a", "read", "{}"),)


def test_usage_is_read_with_cached_tokens():
    """Input, output and cached tokens come from the last usage; requests are counted by who sends them."""
    found = response(chunk("x", finish="stop"), usage(1, 1), usage(100, 20, 60))
    assert found.usage == Usage(input_tokens=100, output_tokens=20, cached_tokens=60)


def test_usage_is_none_where_the_provider_gives_none():
    """Nothing is guessed."""
    assert response(chunk("x", finish="stop") | {"usage": None}).usage is None


@pytest.mark.parametrize("number", [None, -5, "many", 1.5, True])
def test_usage_that_is_no_number_counts_as_nothing(number):
    """Broken numbers of a gateway are zero, not an error."""
    broken = envelope(usage={"prompt_tokens": number, "completion_tokens": 2, "prompt_tokens_details": number})
    assert response(chunk("x", finish="stop"), broken).usage == Usage(0, 2)


def test_cost_follows_the_price():
    """Cost is charged per million tokens, cached ones at their own price or as input."""
    chunks = chunk("x", finish="stop"), usage(1_000_000, 500_000, 400_000)
    assert response(*chunks, price=Price(input=1.0, output=4.0, cached=0.1)).usage.cost_usd == pytest.approx(2.64)
    assert response(*chunks, price=Price(input=1.0, output=4.0)).usage.cost_usd == pytest.approx(3.0)
    assert response(*chunks).usage.cost_usd == 0.0


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "upstream lost"}, "server_error", True),
        ({"message": "slow down", "code": 429}, "rate_limit", True),
        ({"message": "bad", "code": "400"}, "bad_request", False),
        ({"message": "no", "status": 401, "code": "invalid_api_key"}, "auth", False),
        ({"message": "x", "code": "context_length_exceeded"}, "server_error", True),
        ("it broke", "server_error", True),
    ],
)
def test_g25_an_error_inside_an_answer_is_an_error(error, code, retryable):
    """G25: an error object, on the chunk or on the choice, fails the call; a partial text is no answer."""
    choice = {"index": 0, "delta": {"content": "Half"}, "finish_reason": "error", "error": error}
    for broken in (envelope(choice), envelope(error=error)):
        found = failure(chunk("Half"), broken)
        assert (found.code, found.retryable) == (code, retryable)
    assert str(found) in str(error)


def test_g25_finish_error_without_an_object_is_an_error_too():
    """G25: the finish reason alone says that the upstream was lost."""
    found = failure(chunk("Half"), chunk(finish="error"))
    assert (found.code, found.retryable) == ("server_error", True)


@pytest.mark.parametrize("junk", [None, [], "text", 5])
def test_a_chunk_that_is_no_object_is_refused(junk):
    """What is no object is no chunk."""
    error = failure(chunk("x"), junk)
    assert (error.code, error.retryable) == ("bad_response", True)


@pytest.mark.parametrize("field", ["model", "usage", "choices"])
@pytest.mark.parametrize("junk", [None, 5, "x", [], {}])
def test_fields_of_the_wrong_type_do_no_harm(field, junk):
    """A field with a strange value counts as absent."""
    found = response(chunk("Hello"), envelope() | {field: junk}, chunk(finish="stop"))
    assert found.content == "Hello"


def test_a_bad_finish_reason_is_not_taken_back():
    """Whatever says that something is wrong stays, even if `stop` follows."""
    assert response(chunk("x"), chunk(finish="length"), chunk(finish="stop")).finish == "length"
    assert response(chunk("x"), chunk(finish="stop"), chunk(finish="sensitive")).finish == "sensitive"
    assert response(chunk("x"), chunk(finish="stop"), chunk(finish="tool_calls")).finish == "tool_calls"


@pytest.mark.parametrize("given", [{"object": "error", "message": "lost"}, {"error": {"message": "lost"}}])
def test_usage_next_to_an_error_is_kept(given):
    """An error object that comes with a usage fails the call, and the tokens are still known."""
    answer = Answer()
    with pytest.raises(ModelError, match="lost") as caught:
        list(answer.feed(given | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
    assert caught.value.code == "server_error"
    assert answer.usage == Usage(3, 1)


def test_what_is_no_chunk_begins_no_answer():
    """Objects without choices, such as the body of an error event, are not an empty answer."""
    assert failure({"message": "lost"}).code == "stream_cut"


def test_choices_without_an_index_count_by_their_place():
    """Two choices that do not say which they are: the first."""
    choices = [{"delta": {"content": text}, "finish_reason": "stop"} for text in "AB"]
    assert response(envelope(*choices)).content == "A"


@pytest.mark.parametrize("field", ["content", "reasoning_content", "refusal"])
def test_an_answer_has_an_end(field):
    """More characters than an answer may have are refused, and not asked for again."""
    error = failure(*(chunk(**{field: "x" * 2**20}) for _ in range(LONGEST_ANSWER // 2**20 + 1)))
    assert (error.code, error.retryable) == ("too_large", False)


def test_parts_nest_once():
    """Content parts deeper than providers write them are not followed."""
    deep = "x"
    for _ in range(500):
        deep = [{"type": "text", "text": deep}]
    assert response(envelope({"index": 0, "delta": {"content": deep}, "finish_reason": "stop"})).content is None


def test_logprobs_are_read():
    """Tokens with the logarithm of their probability and the likeliest others; what is broken is left out."""
    tokens = [
        {"token": "Yes", "logprob": -0.1, "bytes": [89], "top_logprobs": [
            {"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.5}, {"token": "?", "logprob": None}, 7,
        ]},
        {"token": "\ud83c", "logprob": -1},
        {"token": "!", "logprob": float("nan")},
        {"token": "."},
        "junk",
    ]  # fmt: skip
    chunks = [
        envelope({"index": 0, "delta": {"content": "Yes"}, "logprobs": {"content": tokens}}),
        envelope({"index": 0, "delta": {}, "logprobs": None}),
        chunk(finish="stop"),
    ]
    assert response(*chunks).logprobs == (
        TokenLogprob("Yes", -0.1, (("Yes", -0.1), ("No", -2.5))),
        TokenLogprob("\ufffd", -1.0),
    )
