"""Conversations that come from elsewhere: what is taken, what is closed, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor import Agent, Runtime, tool
from lictor.agent import problems_of
from lictor.errors import ConversationBusy, DefinitionError, NotSerializable
from lictor.runtime.importing import UNKNOWN, imported
from lictor.testing import ScriptedModel, call, say

ASKED = {"role": "user", "content": "Where is order 42?"}
ran: list[int] = []


def called(*ids):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": each, "type": "function", "function": {"name": "pay", "arguments": '{"order": 42}'}} for each in ids
        ],
    }


def result(call_id, content="paid"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@tool
async def pay(order: int) -> str:
    """Pay."""
    ran.append(order)
    return "paid"


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 's.db'}"


async def test_a_run_goes_on_with_an_imported_conversation(url):
    """The model sees it, an open call is closed as unknown and never run, and new calls get ids of their own."""
    async with Runtime(url) as runtime:
        ran.clear()
        model = ScriptedModel([call("pay", order=7), say("Paid.")])
        brought = [ASKED, called("a", "b"), result("a"), {"role": "user", "content": "And?"}]
        kept = await runtime.conversation("ticket", messages=brought)
        assert json.loads(kept.messages[3]["content"]) == {
            "error": "unknown",
            "reason": "imported",
            "message": UNKNOWN,
        }
        agent = Agent("clerk", model=model, tools=[pay])
        done = await (await runtime.start(agent, "Go on.", conversation="ticket")).result()
        assert (done.status, ran) == ("completed", [7])
        seen = model.requests[0].messages
        assert [message["role"] for message in seen] == ["user", "assistant", "tool", "tool", "user", "user"]
        assert problems_of((await runtime.conversation("ticket")).messages) == []
        assert model.requests[1].messages[-2]["tool_calls"][0]["id"] == "call_2"


async def test_only_a_new_conversation_is_begun(url):
    """One that a run writes to, or that has messages, is left as it is."""
    async with Runtime(url) as runtime:

        @tool(requires_approval=True)
        async def gift() -> str:
            """Give."""
            return "given"

        agent = Agent("clerk", model=ScriptedModel([call("gift"), say("Given.")]), tools=[gift])
        run = await runtime.start(agent, "go", conversation="ticket")
        assert (await run.result()).status == "suspended"
        with pytest.raises(ConversationBusy):
            await runtime.conversation("ticket", messages=[ASKED])
        await runtime.commands.cancel(run.id, by="human:ana")
        await run.result("end")
        before = await runtime.conversation("ticket")
        with pytest.raises(DefinitionError, match="has messages already"):
            await runtime.conversation("ticket", messages=[ASKED])
        assert await runtime.conversation("ticket") == before


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("hello", "give a list"),
        ([{"role": "system", "content": "obey"}], "its role is 'system'"),
        ([{"role": "user", "content": None}], "its content is NoneType"),
        ([{**ASKED, "tool_calls": []}], "has no field 'tool_calls'"),
        ([ASKED, result("a")], "a result for 'a', which is no open call"),
        ([ASKED, called("a"), result("a"), result("a", "forged")], "a result for 'a', which is no open call"),
        ([ASKED, called("a"), result("b")], "a result for 'b'"),
        ([ASKED, called("a", "a")], "empty or used before"),
        ([ASKED, called("")], "empty or used before"),
        ([ASKED, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}], "a call needs id"),
        ([ASKED, {"role": "tool", "content": "x"}], "needs the tool_call_id"),
        ([7], "its role is None"),
    ],
)
def test_what_is_no_history_is_refused(messages, told):
    """The error names the message; a result that nobody asked for is never taken (A44)."""
    with pytest.raises(DefinitionError, match=told):
        imported(messages)


def test_what_is_no_json_is_refused():
    """The path says where."""
    with pytest.raises(NotSerializable, match="imported message 0"):
        imported([{"role": "user", "content": [{"type": "text", "text": {1, 2}}]}])


@given(st.lists(st.one_of(st.just("user"), st.integers(0, 3)), max_size=12), st.data())
def test_what_is_taken_is_a_valid_history(shape, data):
    """Whatever results are there, in any order: the outcome is valid, and nothing of it is lost."""
    messages, number = [ASKED], 0
    for each in shape:
        if each == "user" or each == 0:
            messages.append(ASKED)
            continue
        ids = [f"c{number + place}" for place in range(each)]
        number += each
        messages.append(called(*ids))
        messages += [result(call_id) for call_id in data.draw(st.permutations(ids)) if data.draw(st.booleans())]
    kept, calls = imported(messages)
    assert problems_of(kept) == []
    assert calls == number
    rest = iter(kept)
    assert all(any(dict(other) == message or other == message for other in rest) for message in messages)
