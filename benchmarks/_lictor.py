"""Lictor: plain (`lictor`) and with an interceptor at all eight points (`lictor-governed`)."""

import asyncio
import platform
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from _workloads import ARGUMENTS_JSON, CONCURRENT, FINAL, SYSTEM, TASK, TOOL_CALLS, WORDS, Contender, Tally

from lictor import ALLOW, Agent, Context, Verdict, interceptor, tool
from lictor.models import Call, ModelEvent, ModelResponse, TextDelta

ANSWER = ModelResponse(FINAL)
PIECES = (*(TextDelta(word) for word in WORDS), ANSWER)


class Model:
    """Asks for the tool `total` times, then answers; in words if `pieces` are wanted.

    It says that it bounds its own time, as the models that ship do, so the loop sets no timer.
    """

    id = "bench"
    keeps_timeout = True

    def __init__(self, tally: Tally, total: int, *, pieces: bool = False) -> None:
        self.tally = tally
        self.total = total
        self.last = PIECES if pieces else (ANSWER,)

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> AsyncIterator[ModelEvent]:
        self.tally.models += 1
        if self.tally.yielding:
            await asyncio.sleep(0)
        done = settings["position"]
        if done < self.total:
            yield ModelResponse(None, (Call(f"c{done}", "add", ARGUMENTS_JSON[done]),), "tool_calls")
            return
        for event in self.last:
            yield event


def policy(tally: Tally, *, rewrite: bool) -> Any:
    """Asked at all eight points: allows everywhere; with `rewrite` (W4) it changes the tool's argument."""

    @interceptor(name="bench")
    def judge(context: Context) -> Verdict:
        tally.emissions += 1
        point = context["interception_point"]
        if point == "pre_model_call":
            tally.model_hooks += 1
        elif point == "pre_tool_call":
            tally.tool_hooks += 1
            if rewrite:
                return Verdict.transform("$policy_target.a", context["target"]["a"] + 1)
        return ALLOW

    return judge


def two_point_policy(tally: Tally) -> Any:
    """W4 without the other points: asked before a model call and before a tool call only."""

    @interceptor(name="bench", points=["pre_model_call", "pre_tool_call"])
    def judge(context: Context) -> Verdict:
        if context["interception_point"] == "pre_model_call":
            tally.model_hooks += 1
            return ALLOW
        tally.tool_hooks += 1
        return Verdict.transform("$policy_target.a", context["target"]["a"] + 1)

    return judge


def build(name: str, tally: Tally) -> Contender:
    """The contender `lictor` or `lictor-governed`."""
    governed = name == "lictor-governed"

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return tally.add(a, b)

    def agent(total: int, *, policies: Sequence[Any] = (), pieces: bool = False) -> Agent:
        chosen = policies or ([policy(tally, rewrite=False)] if governed else [])
        model = Model(tally, total, pieces=pieces)
        return Agent("bench", model=model, instructions=SYSTEM, tools=[add], interceptors=chosen, max_steps=60)

    agents = {key: agent(TOOL_CALLS[key]) for key in ("W0", "W1", "W2")}
    hooked = agent(1, policies=[policy(tally, rewrite=True) if governed else two_point_policy(tally)])
    streaming = agent(1, pieces=True)

    async def run(which: Agent) -> str:
        return str((await which.run(TASK)).answer)

    async def concurrent() -> str:
        answers = await asyncio.gather(*[run(agents["W1"]) for _ in range(CONCURRENT)])
        return answers[-1]

    async def streamed() -> str:
        text = ""
        async for event in streaming.stream(TASK):
            if event.kind == "model_delta":
                text += event.payload["text"]
        return text

    workloads = {
        "W0": lambda: run(agents["W0"]),
        "W1": lambda: run(agents["W1"]),
        "W2": lambda: run(agents["W2"]),
        "W4": lambda: run(hooked),
        "W5": concurrent,
        "W7": streamed,
    }
    versions = {"python": platform.python_version()}
    return Contender(name=name, versions=versions, workloads=workloads, governed=governed)
