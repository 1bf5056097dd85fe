"""agent-framework: plain (`agent-framework`) and with its own agent-hooks bundle (`agent-framework-hooks`).

Runs under the Python of the environment in which agent-framework is installed.
"""

import asyncio
import os
import platform
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from _workloads import ARGUMENTS_JSON, CONCURRENT, FINAL, SYSTEM, TASK, TOOL_CALLS, WORDS, Contender, Tally

os.environ["ENABLE_INSTRUMENTATION"] = "false"
os.environ.setdefault("OTEL_SDK_DISABLED", "true")
warnings.filterwarnings("ignore")  # the bundle is marked experimental

from agent_framework import (  # noqa: E402 - its settings are read when it is imported
    Agent,
    BaseChatClient,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
    ResponseStream,
    tool,
)


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc]
    """Its lowest seam for a model: asks for the tool `total` times, then answers."""

    def __init__(self, tally: Tally, total: int) -> None:
        super().__init__()
        self.tally = tally
        self.total = total
        self.function_invocation_configuration["max_iterations"] = 60

    def _decide(self, messages: Sequence[Any]) -> Any:
        last = messages[-1].contents[-1]
        done = int(last.call_id[1:]) + 1 if last.type == "function_result" else 0
        if done < self.total:
            return Content.from_function_call(f"c{done}", "add", arguments=ARGUMENTS_JSON[done])
        return None

    async def _tick(self) -> None:
        self.tally.models += 1
        if self.tally.yielding:
            await asyncio.sleep(0)

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        async def streamed() -> Any:
            await self._tick()
            asked = self._decide(messages)
            if asked is not None:
                yield ChatResponseUpdate(contents=[asked], role="assistant")
                return
            for word in WORDS:
                yield ChatResponseUpdate(contents=[Content.from_text(word)], role="assistant")

        async def whole() -> Any:
            await self._tick()
            asked = self._decide(messages)
            contents = [FINAL if asked is None else asked]
            return ChatResponse(messages=Message(role="assistant", contents=contents), response_id="r")

        if stream:
            return ResponseStream(streamed(), finalizer=ChatResponse.from_updates)
        return whole()


class ModelHook(ChatMiddleware):  # type: ignore[misc]
    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    async def process(self, context: Any, call_next: Any) -> None:
        self.tally.model_hooks += 1
        await call_next()


class ToolHook(FunctionMiddleware):  # type: ignore[misc]
    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    async def process(self, context: Any, call_next: Any) -> None:
        self.tally.tool_hooks += 1
        given = context.arguments if isinstance(context.arguments, dict) else context.arguments.model_dump()
        context.arguments = {**given, "a": given["a"] + 1}
        await call_next()


def bundle(tally: Tally, *, rewrite: bool) -> Any:
    """Its own AGENT-HOOKS-0.1 middleware with the same policy as ours, written against its SDK."""
    from agent_framework import create_agent_hooks_middleware
    from agent_hooks import ALLOW, Decision, Transform, Verdict

    class Policy:
        async def intercept(self, context: Any) -> Any:
            tally.emissions += 1
            point = context["interception_point"]
            if point == "pre_model_call":
                tally.model_hooks += 1
            elif point == "pre_tool_call":
                tally.tool_hooks += 1
                if rewrite:
                    rewritten = Transform(path="$policy_target.a", value=context["target"]["a"] + 1)
                    return Verdict(decision=Decision.TRANSFORM, transform=rewritten)
            return ALLOW

    return create_agent_hooks_middleware([Policy()])


def build(name: str, tally: Tally) -> Contender:
    """The contender `agent-framework` or `agent-framework-hooks`. Raises ImportError if it is not there."""
    governed = name == "agent-framework-hooks"

    @tool(approval_mode="never_require")
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return tally.add(a, b)

    def agent(total: int, middleware: Sequence[Any] = ()) -> Any:
        chosen = [bundle(tally, rewrite=bool(middleware))] if governed else list(middleware)
        return Agent(Client(tally, total), SYSTEM, name="bench", tools=[add], middleware=chosen or None)

    agents = {key: agent(TOOL_CALLS[key]) for key in ("W0", "W1", "W2")}
    hooked = agent(1, [ModelHook(tally), ToolHook(tally)])

    async def run(which: Any) -> str:
        return str((await which.run(TASK)).text)

    async def concurrent() -> str:
        answers = await asyncio.gather(*[run(agents["W1"]) for _ in range(CONCURRENT)])
        return answers[-1]

    async def streamed() -> str:
        text = ""
        async for update in agents["W1"].run(TASK, stream=True):
            text += update.text or ""
        return text

    workloads = {
        "W0": lambda: run(agents["W0"]),
        "W1": lambda: run(agents["W1"]),
        "W2": lambda: run(agents["W2"]),
        "W4": lambda: run(hooked),
        "W5": concurrent,
        "W7": streamed,
    }
    return Contender(name=name, versions=_versions(governed), workloads=workloads, governed=governed)


def _versions(governed: bool) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("agent-framework-core", *(["agent-hooks-sdk"] if governed else [])):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
