"""What a provider said is kept where it can be: ids of calls, and integers that only some readers of JSON hold."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Seen, both_ways, park, play

from lictor import Agent, Runtime, tool
from lictor.agent import foreign_tool
from lictor.models import Call, ModelResponse, Reply, ScriptedModel, call

BIG = 2512292042121000001
HUGE = 18446744073709551616


@tool(effect="pure")
async def look(order_id: int) -> int:
    """Look an order up."""
    return order_id


def asks(*ids: str | None) -> Reply:
    """A response with a call for each id."""
    return Reply((ModelResponse(None, tuple(Call(id, "look", '{"order_id": 1}') for id in ids), "tool_calls"),))


@both_ways
@pytest.mark.parametrize(
    ("responses", "kept"),
    [
        ([["tc-1"]], ["tc-1"]),
        ([["toolu_01A", "b"]], ["toolu_01A", "b"]),
        ([[None], ["", "x"]], ["call_0", "call_1", "x"]),
        ([["a", "a", "b"]], ["call_0", "call_1", "b"]),
        ([["a"], ["a"], ["a", "c"]], ["a", "call_1", "call_2", "c"]),
        ([["call_1"], [None]], ["call_0", "call_1"]),
        ([["ü", "a b", "x" * 65, "a\nb", "x" * 64]], ["call_0", "call_1", "call_2", "call_3", "x" * 64]),
    ],
)
async def test_ids_of_the_provider_are_kept_where_they_can_be(how: str, responses: Any, kept: list[str]) -> None:
    """A fit, single and new id stays, at the gate, in the history and in the next request; others get one of ours."""
    seen = Seen()
    model = ScriptedModel([*(asks(*ids) for ids in responses), "done"])
    played = await play(Agent("clerk", model=model, tools=[look], interceptors=[seen]), how=how)
    results = [message["tool_call_id"] for message in played.messages if message["role"] == "tool"]
    assert (played.status, results) == ("completed", kept)
    assert sorted(id or "" for point, id, _ in seen.points if point == "pre_tool_call") == sorted(kept)
    sent = [message["tool_call_id"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert sent == kept


async def test_an_id_is_not_used_again_in_a_conversation() -> None:
    """A provider that begins its ids anew with each run confuses no two calls of one conversation."""
    agent = Agent("clerk", model=ScriptedModel([asks("tc-1"), "one", asks("tc-1"), "two"]), tools=[look])
    async with Runtime() as runtime:
        for answer in ("one", "two"):
            _, result = await park(runtime, agent, "hi", conversation="c")
            assert result.answer == answer
        messages = (await runtime.conversation("c")).messages
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ["tc-1", "call_1"]


class Taken:
    """Keeps what a tool was called with."""

    def __init__(self) -> None:
        self.arguments: list[Any] = []

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.arguments.append(arguments)
        return "ok"


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "ids": {"type": "array", "items": {"type": ["integer", "null"]}},
        "filter": {"type": "object", "properties": {"order": {"type": "integer"}}},
        "text": {"type": "string"},
    },
}


@both_ways
@pytest.mark.parametrize(
    "sent",
    [
        {"id": BIG},
        {"id": -BIG, "text": "7" * 20},
        {"ids": [BIG, None, 3]},
        {"filter": {"order": HUGE}},
        {"id": 2**53 - 1},
    ],
)
async def test_a_schema_of_integers_gets_its_integers(how: str, sent: dict[str, Any]) -> None:
    """A tool with its own schema gets the exact integers it declares; policies see their digits."""
    taken, seen = Taken(), Seen()
    model = ScriptedModel([call("find", sent), "done"])
    found = foreign_tool("find", taken, schema=SCHEMA, effect="pure")
    played = await play(Agent("clerk", model=model, tools=[found], interceptors=[seen]), how=how)
    assert (played.status, taken.arguments) == ("completed", [sent])
    (shown,) = seen.at("pre_tool_call")
    assert str(BIG) in str(shown) or BIG not in sent.values()
    assert not any(isinstance(value, int) and abs(value) >= 2**53 for value in shown.values())


@both_ways
@pytest.mark.parametrize("number", [2**53, BIG, HUGE, -HUGE])
async def test_an_integer_that_would_become_text_is_refused(how: str, number: int) -> None:
    """Where a tool would get text for the integer nothing is rewritten: the response is no valid context (§4.4)."""
    ran: list[Any] = []

    @tool(effect="pure")
    async def store(value: Any) -> str:
        ran.append(value)
        return "ok"

    bare = foreign_tool("bare", lambda arguments, context: ran.append(arguments), schema={"type": "object"})
    for name in ("store", "bare"):
        model = ScriptedModel([call(name, value=number), "never"])
        played = await play(Agent("clerk", model=model, tools=[store, bare]), how=how)
        assert (played.status, played.reason, ran) == ("blocked", "host_error:context_invalid", [])
        assert str(number) not in played.text


@both_ways
async def test_an_unknown_tool_with_such_an_integer_is_an_unknown_tool(how: str) -> None:
    """A call that will not run anyway is answered as before."""
    played = await play(Agent("clerk", model=ScriptedModel([call("nope", value=BIG), "sorry"])), how=how)
    assert (played.status, played.answer) == ("completed", "sorry")
