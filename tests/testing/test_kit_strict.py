"""The strict provider: what it refuses, and that it changes nothing else."""

import pytest

from lictor import Agent, Runtime, tool
from lictor.errors import ModelError
from lictor.models import ChatModel, ModelResponse, assistant, system, tool_message, user
from lictor.models.chat_request import chat_request
from lictor.testing import ScriptedModel, StrictProvider, call, fail, say
from lictor.testing.strict import request_problems

ASKED = assistant(None, call("look", order_id=42, id="call_0").response.calls)
RESULT = tool_message("call_0", "Monday")
SOUND = [system("Be brief."), user("Where?"), ASKED, RESULT, assistant("Monday.")]
TOOL = {"name": "look", "description": "", "schema": {"type": "object", "properties": {}}}


def changed(message, **fields):
    return {**message, **fields}


def with_call(**fields):
    return changed(ASKED, tool_calls=[{**ASKED["tool_calls"][0], **fields}])


def with_function(**fields):
    return with_call(function={**ASKED["tool_calls"][0]["function"], **fields})


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "there is no message"),
        ([assistant("hello")], "it begins with assistant"),
        ([system("Be brief."), ASKED, RESULT], "it begins with system, assistant"),
        ([RESULT], "it begins with tool"),
        ([user("a"), changed(user("b"), role="robot")], "message 1: the role 'robot' is unknown"),
        ([user("a"), changed(user("b"), role=None)], "the role None is unknown"),
        ([user("a"), ASKED], "no results for call_0"),
        ([user("a"), ASKED, user("b"), RESULT], "comes before the results of call_0"),
        ([user("a"), ASKED, RESULT, RESULT], "no open call"),
        ([user("a"), ASKED, RESULT, ASKED, RESULT], "empty or used before"),
        ([user("a"), RESULT], "no open call"),
        ([user("a"), with_call(id="")], "empty or no text"),
        ([user("a"), with_call(id=None)], "empty or no text"),
        ([user("a"), with_call(type="custom")], "no function call"),
        ([user("a"), with_call(index=0)], "no field 'index'"),
        ([user("a"), changed(ASKED, tool_calls=["call"])], "a call is str"),
        ([user("a"), with_function(name="look up")], "'look up' is no name of a tool"),
        ([user("a"), with_function(arguments="{broken")], "not the text of a JSON object"),
        ([user("a"), with_function(arguments="[]")], "not the text of a JSON object"),
        ([user("a"), with_function(arguments={})], "not the text of a JSON object"),
        ([user("a"), changed(assistant("b"), tool_calls=[])], "no list with calls"),
        ([user("a"), assistant(None)], "neither content nor calls"),
        ([user(None)], "the content is null, not text"),
        ([user(7)], "the content is int, not text"),
        ([user([])], "has no type"),
        ([user([{"text": "hi"}])], "has no type"),
        ([user("a"), ASKED, changed(RESULT, content=None)], "the content is null, not text"),
        ([user("a"), ASKED, changed(RESULT, content=["Monday"])], "the content is list, not text"),
        ([user("a"), ASKED, changed(RESULT, tool_call_id=None)], "a result without tool_call_id"),
        ([changed(user("a"), tokens=3)], "a user message has no field 'tokens'"),
    ],
)
async def test_what_some_provider_would_refuse_is_refused(messages, problem):
    """The error is a bad request that no retry will heal, and it says what is wrong where."""
    model = ScriptedModel([say("hello")])
    with pytest.raises(ModelError, match=problem) as caught:
        [_ async for _ in StrictProvider(model).respond(messages, [], {})]
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("bad_request", 400, False)
    assert model.requests == []


@pytest.mark.parametrize(
    "messages",
    [
        SOUND,
        [user("Hi")],
        [user([{"type": "text", "text": "Hi"}])],
        [system("a"), system("b"), user("Hi"), user("again")],
        [user("a"), ASKED, changed(RESULT, content="")],
        [user("a"), with_call(note="edited"), RESULT],
        [user("a"), assistant(""), user("b")],
    ],
)
async def test_what_every_provider_takes_goes_through(messages):
    """The wrapped model gets the request as it is, and its events come out as they are."""
    model = ScriptedModel([say("hello there")])
    provider = StrictProvider(model)
    events = [event async for event in provider.respond(messages, [TOOL], {"temperature": 0})]
    assert [type(event) for event in events][-1] is ModelResponse
    assert events[-1].content == "hello there"
    [request] = model.requests
    assert (list(request.messages), list(request.tools), request.settings) == (messages, [TOOL], {"temperature": 0})


async def test_a_failure_of_the_wrapped_model_stays_what_it_is():
    """A rate limit behind the strict provider is still a rate limit."""
    with pytest.raises(ModelError) as caught:
        [_ async for _ in StrictProvider(ScriptedModel([fail(429)])).respond([user("Hi")], [], {})]
    assert caught.value.code == "rate_limit"


def test_it_is_a_model_with_the_id_of_the_one_inside():
    """It can stand wherever a ChatModel can; positions are counted under the inner id."""
    provider = StrictProvider(ScriptedModel([], id="inner"))
    assert isinstance(provider, ChatModel)
    assert provider.id == "inner"
    assert "inner" in repr(provider)


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([TOOL, TOOL], "the tool 'look' is offered twice"),
        ([{**TOOL, "name": "look up"}], "no name of a tool"),
        ([{**TOOL, "name": ""}], "no name of a tool"),
        ([{**TOOL, "schema": {"type": "string"}}], "describes no object"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(tools, problem):
    """Names are unique and plain, schemas describe objects."""
    assert any(problem in each for each in request_problems([user("Hi")], tools))


async def test_a_note_on_a_stored_call_does_not_leave_the_process():
    """After an edit the history keeps a note for people; the request body does not hold it."""

    @tool(requires_approval=True)
    async def pay(amount: float) -> str:
        """Pay."""
        return "paid"

    agent = Agent("clerk", model=ScriptedModel([call("pay", amount=30), say("done")]), tools=[pay])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "edit", arguments={"amount": 20}, by="human:ana")
        result = await run.result()
    assert any("note" in each for message in result.trace.messages for each in message.get("tool_calls", ()))
    sent = chat_request("m", result.trace.messages, [], {})["messages"]
    assert [each for message in sent for each in message.get("tool_calls", ()) if "note" in each] == []
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"amount":20.0}'
