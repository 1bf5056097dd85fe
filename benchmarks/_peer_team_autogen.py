"""autogen: SelectorGroupChat, whose model names the next speaker.

Runs under the Python of the environment in which autogen is installed. It has no closing decision: a run is over after
a number of messages, its answer is the last member's, and it makes one model call less than the others.
"""

import logging
import platform
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from _team_workloads import MEMBERS, PARTS, TASK, TURNS, Script, expect
from _workloads import Contender, Tally

warnings.filterwarnings("ignore")
for _name in ("autogen_core", "autogen_agentchat", "autogen_core.events"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

from autogen_agentchat.agents import AssistantAgent  # noqa: E402 - its warnings come with the import
from autogen_agentchat.conditions import MaxMessageTermination  # noqa: E402
from autogen_agentchat.teams import SelectorGroupChat  # noqa: E402
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage  # noqa: E402

USAGE = RequestUsage(0, 0)
INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,
)


class Client(ChatCompletionClient):  # type: ignore[misc]
    """Its lowest seam for a model."""

    component_type = "model"

    def __init__(self, say: Callable[[], str]) -> None:
        self.say = say

    async def create(self, messages: Sequence[Any], **more: Any) -> Any:
        return CreateResult(finish_reason="stop", content=self.say(), usage=USAGE, cached=False)

    async def create_stream(self, messages: Sequence[Any], **more: Any) -> AsyncIterator[Any]:
        yield await self.create(messages)

    async def close(self) -> None:
        pass

    def actual_usage(self) -> Any:
        return USAGE

    def total_usage(self) -> Any:
        return USAGE

    def count_tokens(self, *of: Any, **more: Any) -> int:
        return 0

    def remaining_tokens(self, *of: Any, **more: Any) -> int:
        return 100_000

    @property
    def capabilities(self) -> Any:
        return INFO

    @property
    def model_info(self) -> Any:
        return INFO


def shape(workload: str, contender: Contender, tally: Tally, answer: str) -> None:
    """A choice and a member's work in each turn; the last one is the answer."""
    turns = TURNS[workload]
    expect(contender, workload, (tally.models, tally.tools, answer), (2 * turns, turns, PARTS[turns - 1]))


def build(name: str, tally: Tally) -> Contender:
    """The contender `autogen-selector`; it cannot answer without a member, so it has no `W3-0`."""
    script = Script(tally)

    def choose() -> str:
        turn = script.decide()
        return MEMBERS[(turn or 0) % 3]

    members = [
        AssistantAgent(member, Client(script.work), system_message=member, description=member) for member in MEMBERS
    ]
    teams = {
        turns: SelectorGroupChat(
            members,
            Client(choose),
            termination_condition=MaxMessageTermination(turns + 1),
            allow_repeated_speaker=True,
        )
        for turns in TURNS.values()
        if turns
    }

    async def run(turns: int) -> str:
        script.begin(turns)
        done = await teams[turns].run(task=TASK)
        await teams[turns].reset()
        return str(done.messages[-1].content)

    versions = {"python": platform.python_version()}
    for package in ("autogen-agentchat", "autogen-core"):
        versions[package] = version(package)
    workloads = {workload: partial(run, turns) for workload, turns in TURNS.items() if turns}
    return Contender(name=name, versions=versions, workloads=workloads, shape=shape)
