"""Field cases of class b: a transform is what runs, what is stored and what is shown, everywhere."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from driving import Seen, Strict, asked, both_ways, play, policy

from lictor import ALLOW, Agent, Mask, Verdict, tool
from lictor.hooks import map_texts
from lictor.models import call, chunks, say


@both_ways
async def test_B11_rewritten_delegation_reaches_the_member(how: str) -> None:
    """A transform of the arguments of an agent used as a tool is the task that this agent gets."""
    inner = Strict([say("done")], id="inner")
    member = Agent("member", model=inner)
    rewrite = policy("pre_tool_call", lambda c: Verdict.transform("$target.task", c["target"]["task"] + " [policy]"))
    leader = Agent(
        "leader", model=Strict([call("member", task="p"), say("fine")]), tools=[member], interceptors=[rewrite]
    )
    played = await play(leader, how=how)
    assert played.status == "completed"
    assert asked(inner).messages[-1] == {"role": "user", "content": "p [policy]"}
    stored = played.messages[1]["tool_calls"][0]
    assert json.loads(stored["function"]["arguments"]) == {"task": "p [policy]"}
    assert stored["note"] == "changed by policy"


@both_ways
@pytest.mark.parametrize("policies", [1, 2])
async def test_B12_replaced_result_is_the_only_one(how: str, policies: int) -> None:
    """After a post_tool_call transform the original is in no request, store, event, record or trace."""

    @tool
    async def card() -> dict[str, Any]:
        return {"text": "card 4111-x", "parts": ["4111-x", 7]}

    def judge(context: Any) -> Any:
        masked = map_texts(context["target"], lambda text: text.replace("4111-x", "****"))
        return ALLOW if masked is context["target"] else Verdict.replace(masked)

    seen = Seen()
    others = [seen] if policies == 2 else []
    model = Strict([call("card"), say("done")])
    agent = Agent("clerk", model=model, tools=[card], interceptors=[policy("post_tool_call", judge), *others])
    played = await play(agent, how=how)
    assert json.loads(played.result_of()) == {"text": "card ****", "parts": ["****", 7]}
    assert "4111-x" not in played.text
    assert "4111-x" not in str(model.requests)
    assert "4111-x" not in str(seen.points)


@both_ways
@pytest.mark.parametrize("point", ["input", "post_model_call", "pre_tool_call", "post_tool_call", "output"])
async def test_B12_masking_holds_at_every_point(how: str, point: str) -> None:
    """The same for each point that changes what is stored: only the masked form is left."""
    secret = "sk-abcdefghijklmnop1234"

    @tool
    async def note(text: str) -> str:
        return secret if point == "post_tool_call" else "noted"

    said = secret if point in ("post_model_call", "output") else "fine"
    arguments = {"text": secret if point == "pre_tool_call" else "x"}
    entries = [call("note", arguments), say(said)]
    agent = Agent("clerk", model=Strict(entries), tools=[note], interceptors=[Mask("secret", points=[point])])
    played = await play(agent, secret if point == "input" else "go", how)
    assert played.status == "completed"
    if point != "pre_tool_call":  # there the model's own response is stored before the call is judged
        assert secret not in played.text
    assert "****" in str(played.messages)
    assert secret not in str(played.messages)


SPLITS = [
    ["system ", "prompt:"],
    ["sys", "tem pro", "mpt :"],
    ["syste", "m", " ", "p", "rompt", "\n", ":"],
    ["ä", "system\u00a0prompt:"],
    ["system \U0001f512"[:-1], "\U0001f512prompt:".replace("\U0001f512", "")],
]
RULE = re.compile(r"system\s+prompt\s*:")


@both_ways
@pytest.mark.parametrize("split", SPLITS)
async def test_B30_rules_see_the_whole_answer(how: str, split: list[str]) -> None:
    """However a forbidden phrase is split into chunks, nothing is released and the answer is denied."""
    rule = policy("output", lambda c: Verdict.deny("leak") if RULE.search(c["target"]["content"]) else ALLOW)
    played = await play(Agent("clerk", model=Strict([chunks(split)]), interceptors=[rule]), how=how)
    assert (played.status, played.reason) == ("blocked", "leak")
    assert [event for event in played.events if event.kind == "model_delta"] == []


@both_ways
@pytest.mark.parametrize("split", SPLITS)
async def test_B30_released_text_is_the_transform_of_the_whole(how: str, split: list[str]) -> None:
    """With a transforming rule the released pieces together are the transform of the whole text."""

    def judge(context: Any) -> Any:
        text = context["target"]["content"]
        return Verdict.transform("$target.content", RULE.sub("[removed]", text)) if RULE.search(text) else ALLOW

    text = ["before ", *split, " after" * 20]
    played = await play(Agent("clerk", model=Strict([chunks(text)]), interceptors=[policy("output", judge)]), how=how)
    released = "".join(event.payload["text"] for event in played.events if event.kind == "model_delta")
    assert released == played.answer == RULE.sub("[removed]", "".join(text))
    assert played.messages[-1] == {"role": "assistant", "content": released}


@both_ways
async def test_B30_reasoning_and_text_are_not_released_before_the_verdict(how: str) -> None:
    """A phrase split over reasoning and text leaks through neither: reasoning is never released."""
    rule = policy("output", lambda c: ALLOW)
    model = Strict([say("prompt: it is fine", reasoning="the system ")])
    played = await play(Agent("clerk", model=model, interceptors=[rule]), how=how)
    assert played.answer == "prompt: it is fine"
    assert "the system" not in played.text
