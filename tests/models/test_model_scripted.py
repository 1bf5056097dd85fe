"""The scripted model: what each entry streams, and where it stands."""

import asyncio
import cProfile

import pytest

from lictor.errors import DefinitionError, ModelError
from lictor.models import (
    Call,
    HostedCall,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ScriptedModel,
    TextDelta,
    call,
    chunks,
    fail,
    hosted,
    say,
    user,
)
from lictor.models.failures import by_status
from lictor.runs import Usage


async def events(entry, **settings):
    """All events of a script with one entry."""
    return [event async for event in ScriptedModel([entry]).respond([user("Hi")], [], settings)]


async def failure(entry, **settings):
    """The error of a script with one entry, and the events before it."""
    seen = []
    try:
        async for event in ScriptedModel([entry]).respond([], [], settings):
            seen.append(event)
    except ModelError as error:
        return error, seen
    raise AssertionError(f"no failure after {seen}")


async def test_text_is_streamed_in_words():
    """A text comes word by word, with its white space, and then as a whole."""
    found = await events(say("Hello  big\nworld "))
    assert found[:-1] == [TextDelta("Hello  "), TextDelta("big\n"), TextDelta("world ")]
    assert found[-1] == ModelResponse("Hello  big\nworld ")


async def test_plain_text_is_said():
    """A string is short for `say`."""
    assert await events("Hi there") == await events(say("Hi there"))


async def test_chunks_are_streamed_as_they_are():
    """The pieces of `chunks` are the deltas."""
    assert await events(chunks(["He", "", "llo wor", "ld"])) == [
        TextDelta("He"),
        TextDelta("llo wor"),
        TextDelta("ld"),
        ModelResponse("Hello world"),
    ]


async def test_reasoning_comes_before_the_text():
    """Reasoning has deltas of its own, and its place in the response."""
    first, second, last = await events(say("Yes", reasoning="Hm", finish="length", usage=Usage(3, 2)))
    assert (first, second) == (ReasoningDelta("Hm"), TextDelta("Yes"))
    assert last == ModelResponse("Yes", (), "length", Usage(3, 2), "Hm")


async def test_calls_are_dumped_to_text():
    """Arguments come as keywords, as a mapping, or as raw text; the loop gets text."""
    for entry in (call("add", a=1, b="ü"), call("add", {"a": 1, "b": "ü"}), call("add", '{"a": 1, "b": "ü"}')):
        assert await events(entry) == [ModelResponse(None, (Call(None, "add", '{"a": 1, "b": "ü"}'),), "tool_calls")]
    (broken,) = await events(call("add", '{"a":', id="c1", usage=Usage(1, 1)))
    assert broken.calls == (Call("c1", "add", '{"a":'),)
    assert broken.usage == Usage(1, 1)


async def test_a_list_is_several_calls_at_once():
    """Calls of a list share one response, and their usage is summed."""
    (found,) = await events([call("a", id="1", usage=Usage(1, 1)), call("b", id="2", usage=Usage(2, 2)), call("c")])
    assert [each.name for each in found.calls] == ["a", "b", "c"]
    assert (found.finish, found.usage, found.content) == ("tool_calls", Usage(3, 3), None)


async def test_text_and_calls_go_together():
    """`say` takes calls, and keeps its finish reason (G12: `stop` with calls)."""
    found = (await events(say(None, calls=[call("a", x=1), Call("9", "b", "{}")])))[-1]
    assert found == ModelResponse(None, (Call(None, "a", '{"x": 1}'), Call("9", "b", "{}")), "stop")


async def test_hosted_calls_come_with_an_answer():
    """In a list with `say` a hosted call is reported next to the text."""
    *deltas, last = await events([hosted("web_search", {"q": "x"}, ["y"]), say("Found y.")])
    assert [delta.text for delta in deltas] == ["Found ", "y."]
    assert last == ModelResponse("Found y.", hosted=(HostedCall("web_search", {"q": "x"}, ["y"]),))


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 429, 500, 503])
async def test_failures_are_those_of_the_adapter(status):
    """`fail(status)` has the code and the retryability that the OpenAI adapter gives the status."""
    error, _ = await failure(fail(status, 1.5))
    assert (error.code, error.status, error.retry_after) == (by_status(status), status, 1.5)
    assert error.retryable is (status >= 500 or status in {408, 409, 429})


async def test_a_failure_without_status_is_a_lost_connection():
    """`fail()` could not connect; a code names another failure."""
    error, _ = await failure(fail())
    assert (error.code, error.status, error.retryable) == ("connect", None, True)
    error, _ = await failure(fail(code="timeout"))
    assert error.code == "timeout"


async def test_d17_a_stream_may_break_after_some_text():
    """D17: what came before the failure was streamed, and no response follows it."""
    error, seen = await failure(fail(code="stream_cut", text="par tial"))
    assert (error.code, error.retryable) == ("stream_cut", True)
    assert seen == [TextDelta("par "), TextDelta("tial")]


async def test_functions_see_the_request():
    """A function, plain or async, gets the ModelRequest and returns any entry."""

    async def slowly(request):
        return [call("at", position=request.position)]

    model = ScriptedModel([lambda request: f"{len(request.messages)} message", slowly, lambda request: fail(500)])
    texts = [event async for event in model.respond([user("Hi")], [], {})]
    assert texts[-1].content == "1 message"
    (asked,) = [event async for event in model.respond([], [], {"position": 1})]
    assert asked.calls[0].arguments == '{"position": 1}'
    with pytest.raises(ModelError):
        [event async for event in model.respond([], [], {"position": 2})]


async def test_a_function_that_hangs_is_given_up():
    """`timeout` holds for a function that does not answer."""

    async def hangs(_request):
        await asyncio.Event().wait()

    error, _ = await failure(hangs, timeout=0.01)
    assert (error.code, error.retryable) == ("timeout", True)


async def test_the_position_is_the_callers():
    """The same position gives the same entry again; nothing is counted inside."""
    model = ScriptedModel(["zero", "one"])
    for position in (1, 0, 1):
        found = [event async for event in model.respond([], [], {"position": position})]
        assert found[-1].content == ["zero", "one"][position]


@pytest.mark.parametrize("position", [1, 7, -1])
async def test_past_the_end_the_script_is_exhausted(position):
    """The error names the position, and is not tried again."""
    error, seen = await failure("only", position=position)
    assert (error.code, error.retryable, seen) == ("script_exhausted", False, [])
    assert str(position) in str(error)


async def test_requests_are_kept_as_they_were():
    """`requests` holds copies: what the caller adds later is not in them."""
    model, messages, settings = ScriptedModel(["a"]), [user("Hi")], {"position": 0, "temperature": 1}
    tool = {"name": "t", "description": "", "schema": {}}
    [event async for event in model.respond(messages, [tool], settings)]
    messages.append(user("more"))
    settings["position"] = 5
    assert model.requests == [ModelRequest((user("Hi"),), (tool,), {"position": 0, "temperature": 1}, 0)]


@pytest.mark.parametrize("entry", [None, 5, [], ["text"], [fail(500), call("a")], {"a": 1}])
def test_other_entries_are_refused(entry):
    """A mistake in a script shows where it is written."""
    with pytest.raises(DefinitionError):
        ScriptedModel([entry])


def test_other_arguments_are_refused():
    """Arguments given twice, unknown codes, and failures as calls are mistakes."""
    with pytest.raises(DefinitionError, match="arguments twice"):
        call("a", {"x": 1}, y=2)
    with pytest.raises(DefinitionError, match="bad_request"):
        fail(code="nope")
    with pytest.raises(DefinitionError, match="stands alone"):
        say("x", calls=[fail(500)])


def test_a_scripted_answer_takes_few_function_calls():
    """The double is cheap enough for benchmarks: about ten function calls for an answer of one word."""
    model = ScriptedModel(["done"])

    async def once():
        async for _ in model.respond([], [], {"position": 0}):
            pass

    def drive():
        with pytest.raises(StopIteration):
            once().send(None)

    drive()
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        once().send(None)
    except StopIteration:
        pass
    profile.disable()
    assert sum(entry.callcount for entry in profile.getstats()) <= 8
