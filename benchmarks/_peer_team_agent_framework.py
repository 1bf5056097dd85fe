"""agent-framework: members as tools of an agent, and its GroupChat with an agent that chooses the next speaker.

Runs under the Python of the environment in which agent-framework is installed.
"""

import json
import os
import platform
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from _team_workloads import FINAL, INSTRUCTIONS, MEMBERS, MOST_TURNS, SYSTEM, TASK, TURNS, Script, check_team
from _workloads import Contender, Tally

os.environ["ENABLE_INSTRUMENTATION"] = "false"
os.environ.setdefault("OTEL_SDK_DISABLED", "true")
warnings.filterwarnings("ignore")  # orchestrations are marked experimental

from agent_framework import (  # noqa: E402 - its settings are read when it is imported
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)
from agent_framework.orchestrations import GroupChatBuilder  # noqa: E402 - the same

TASKS = [json.dumps({"task": instruction}) for instruction in INSTRUCTIONS]


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
    """Its lowest seam for a model; `say` gives a text or a content."""

    def __init__(self, say: Callable[[], Any]) -> None:
        super().__init__()
        self.say = say
        self.function_invocation_configuration["max_iterations"] = MOST_TURNS + 2

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        async def streamed() -> Any:
            said = self.say()
            content = Content.from_text(said) if isinstance(said, str) else said
            yield ChatResponseUpdate(contents=[content], role="assistant")

        async def whole() -> Any:
            return ChatResponse(messages=Message(role="assistant", contents=[self.say()]), response_id="r")

        return ResponseStream(streamed(), finalizer=ChatResponse.from_updates) if stream else whole()


def build(name: str, tally: Tally) -> Contender:
    """The contender `agent-framework-tools` or `agent-framework-groupchat`."""
    script = Script(tally)
    members = [Agent(Client(script.work), member, name=member) for member in MEMBERS]

    def call() -> Any:
        turn = script.decide()
        if turn is None:
            return FINAL
        return Content.from_function_call(f"c{turn}", MEMBERS[turn % 3], arguments=TASKS[turn])

    def choose() -> str:
        turn = script.decide()
        speaker = None if turn is None else MEMBERS[turn % 3]
        last = FINAL if turn is None else None
        return json.dumps({"terminate": turn is None, "reason": "r", "next_speaker": speaker, "final_message": last})

    tools = [member.as_tool(name=member.name, description="a member") for member in members]
    lead = Agent(Client(call), SYSTEM, name="lead", tools=tools)

    async def run(turns: int) -> str:
        script.begin(turns)
        return str((await lead.run(TASK)).text)

    async def chat(turns: int) -> str:
        script.begin(turns)
        chooser = Agent(Client(choose), SYSTEM, name="lead")  # a workflow has a state: each run has one of its own
        done = await GroupChatBuilder(participants=members, orchestrator_agent=chooser).build().run(TASK)
        return last_text(done.get_outputs())

    way = run if name == "agent-framework-tools" else chat
    versions = {"python": platform.python_version()}
    for package in ("agent-framework-core", "agent-framework-orchestrations"):
        versions[package] = version(package)
    workloads = {workload: partial(way, turns) for workload, turns in TURNS.items()}
    return Contender(name=name, versions=versions, workloads=workloads, shape=check_team)


def last_text(outputs: Any) -> str:
    """The last message of what a workflow gave."""
    last = outputs[-1]
    while isinstance(last, list):
        last = last[-1]
    messages = getattr(last, "messages", None)
    return str((messages[-1] if messages else last).text)
