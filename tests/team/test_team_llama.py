"""A team of three on a real model behind a real server: whatever a small model says, it ends once and within limits."""

import asyncio
import copy
import json
import sys
from pathlib import Path

import jsonschema
import pytest
from teamplay import holds

from lictor import Agent, Budget, Runtime, Team
from lictor.journal import MemoryStore
from lictor.models import ModelResponse, OpenAIModel
from lictor.runs import TERMINAL
from lictor.team import TeamInterceptor
from lictor.testing import StrictProvider, invariants

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from llama import llama_server, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

PATIENCE = 240  # seconds; on two idle cores it takes ten
TURNS = 4
LEAD = {"max_tokens": 80}
FORCED = {**LEAD, "tool_choice": "required"}  # the server holds the tokens inside the schemas of the tools it was sent


@pytest.fixture(scope="module")
def base_url():
    """The server, one for all tests of this file."""
    with llama_server() as url:
        yield url


class Heard:
    """The supervisor's model, with what it was sent and what it said."""

    def __init__(self, base_url):
        self.model = StrictProvider(OpenAIModel("smollm2", base_url=base_url))
        self.id = self.model.id
        self.said = []

    async def respond(self, messages, tools, settings):
        """As the model itself."""
        async for event in self.model.respond(messages, tools, settings):
            if isinstance(event, ModelResponse):
                self.said.append(({tool["name"]: tool["schema"] for tool in tools}, event))
            yield event

    def decisions(self):
        """Each whole call as (schema, name, arguments)."""
        for schemas, response in self.said:
            for call in response.calls if response.finish == "tool_calls" else ():
                yield schemas[call.name], call.name, json.loads(call.arguments)


class Brief(TeamInterceptor):
    """Offers `assign` and `finish` only, with short texts: a model of this size ends no list and no text by itself."""

    def on_prepare(self, trace, request):
        """Send other tools."""
        request.tools = [shortened(tool) for tool in request.tools if tool["name"] != "delegate"]


def shortened(tool):
    """The tool with at most forty characters for each free text."""
    tool = copy.deepcopy(tool)
    for form in tool["schema"]["properties"].values():
        if "enum" not in form:
            form["maxLength"] = 40
    return tool


async def play(base_url, task, *, settings, hooks=(), tokens=8_000):
    """One run of the team over a store to its end; its result and the supervisor's model."""
    lead, store = Heard(base_url), MemoryStore()
    members = [
        Agent(
            name,
            model=StrictProvider(OpenAIModel("smollm2", base_url=base_url)),
            instructions=f"You are the {name}. Answer in one sentence.",
            settings={"max_tokens": 24},
            max_steps=3,
        )
        for name in ("clerk", "analyst", "writer")
    ]
    team = Team(
        "room",
        members=members,
        model=lead,
        settings=settings,
        interceptors=list(hooks),
        max_turns=TURNS,
        budget=Budget(max_total_tokens=tokens),
    )
    async with asyncio.timeout(PATIENCE), Runtime(store) as runtime:
        run = await runtime.start(team, task)
        result = await run.result("end")
        await invariants(run)
    holds(store, result.run_id)
    ends = [item.entry for item in store.root_entries(result.run_id) if item.entry.kind == "run_finished"]
    assert [end.payload["status"] for end in ends if end is ends[-1]] == [result.status]
    assert result.status in TERMINAL
    assert (result.status == "completed") == (result.answer is not None)
    assert result.usage.total_tokens <= tokens
    assert result.trace.turn_count <= TURNS
    return result, lead


@pytest.mark.parametrize("task", ["Where is order 42?", "Write a greeting for Ana."])
async def test_a_team_decides_under_a_schema_and_ends_once(base_url, task):
    """Every decision fits the schema that was sent for it; each that was taken is on the record."""
    result, lead = await play(base_url, task, settings=FORCED, hooks=[Brief()])
    decisions = list(lead.decisions())
    for schema, _, arguments in decisions:
        jsonschema.validate(arguments, schema)
    taken = [record.content for record in result.trace.records if record.kind == "decision"]
    assert {name for _, name, _ in decisions} <= {"assign", "finish"}
    assert 0 < len(taken) <= len(decisions)
    assert result.usage.total_tokens > 0


async def test_a_team_ends_once_though_nothing_holds_its_model(base_url):
    """Free text, half a call, a server that cannot read what its model said: one outcome with its reason."""
    result, _ = await play(base_url, "Where is order 42?", settings=LEAD)
    assert result.status == "completed" or result.reason


async def test_a_team_stays_within_a_small_budget(base_url):
    """What the next call may cost is set aside before it: the limit is not passed, and says so."""
    result, lead = await play(base_url, "Where is order 42?", settings=LEAD | FORCED, tokens=300)
    assert (result.status, result.reason) == ("exhausted", "budget:max_total_tokens")
    assert lead.said == []
