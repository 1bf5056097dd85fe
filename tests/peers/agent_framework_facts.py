"""What agent-framework does with its agent-hooks bundle; run by the Python it is installed for.

Prints one JSON object: its version, and for every question of guarantees.py what was observed.
"""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

os.environ["ENABLE_INSTRUMENTATION"] = "false"
warnings.filterwarnings("ignore")  # the bundle is marked experimental

from agent_framework import (  # noqa: E402 - its settings are read when it is imported
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    create_agent_hooks_middleware,
    tool,
)
from agent_hooks import (  # noqa: E402
    ALLOW,
    CompositionConfig,
    Decision,
    InterceptionBlocked,
    Transform,
    Verdict,
)


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Asks for the given calls at once, then answers."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names
        self.asked = 0

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        async def respond() -> Any:
            self.asked += 1
            calls = [Content.from_function_call(f"c{n}", name, arguments="{}") for n, name in enumerate(self.names)]
            contents = calls if self.asked == 1 else ["Done."]
            return ChatResponse(messages=Message(role="assistant", contents=contents), response_id="r")

        return respond()


def call_of(context: Any) -> str | None:
    call = context.get("tool_call")
    return call["id"] if call else None


async def sibling_cancelled() -> Any:
    """A policy breaks on the result of one call while the other one, allowed, still runs."""
    seen: list[Any] = []
    running = asyncio.Event()

    class Policy:
        async def intercept(self, context: Any) -> Any:
            seen.append([context["interception_point"], call_of(context)])
            if seen[-1] == ["post_tool_call", "c0"]:
                raise RuntimeError("the policy broke")
            return ALLOW

    @tool(approval_mode="never_require")
    async def quick() -> str:
        """Return once the slow one runs."""
        await running.wait()
        return "quick"

    @tool(approval_mode="never_require")
    async def slow() -> str:
        """Run until it is cancelled."""
        running.set()
        await asyncio.Event().wait()
        return "never"

    bundle = create_agent_hooks_middleware([Policy()])
    agent = Agent(Client(["quick", "slow"]), name="clerk", tools=[quick, slow], middleware=[bundle])
    try:
        await agent.run("go")
    except InterceptionBlocked as exc:
        return {"seen": seen, "ended": exc.result.verdict.reason}
    return {"seen": seen, "ended": "completed"}


async def labels() -> Any:
    """A policy labels a tool result; does anybody see the label later, and is it stored?"""
    seen: list[Any] = []

    class Policy:
        async def intercept(self, context: Any) -> Any:
            spaces = context.get("extensions") or {}
            found = [label for space in spaces.values() for label in space.get("source_labels", [])]
            seen.append([context["interception_point"], found])
            if context["interception_point"] == "post_tool_call":
                return Verdict(decision=Decision.ALLOW, result_labels=["pii"])
            return ALLOW

    @tool(approval_mode="never_require")
    async def customer() -> str:
        """Look a customer up."""
        return "Ana"

    bundle = create_agent_hooks_middleware([Policy()])
    agent = Agent(Client(["customer"]), name="clerk", tools=[customer], middleware=[bundle])
    session = agent.create_session()
    result = await agent.run("go", session=session)
    stored = json.dumps([session.to_dict(), result.to_dict()], default=str)
    return {"seen": seen, "stored": stored}


async def composed(composition: Any, answers: Sequence[Any]) -> Any:
    """Policies that do not agree about one tool call: the composition denies it."""
    ran: list[str] = []
    reasons: list[Any] = []

    class Policy:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        async def intercept(self, context: Any) -> Any:
            return self.answer if context["interception_point"] == "pre_tool_call" else ALLOW

    @tool(approval_mode="never_require")
    async def pay(amount: int = 0) -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    bundle = create_agent_hooks_middleware(
        [Policy(answer) for answer in answers],
        composition=composition,
        record_sink=lambda record: reasons.append(record.verdict.reason),
    )
    client = Client(["pay"])
    agent = Agent(client, name="clerk", tools=[pay], middleware=[bundle])
    ended = "completed"
    try:
        await agent.run("go")
    except InterceptionBlocked:
        ended = "InterceptionBlocked"
    reason = next((reason for reason in reasons if reason), None)
    return {"reason": reason, "ended": ended, "models": client.asked, "tools": len(ran)}


async def main() -> dict[str, Any]:
    """Every fact."""

    def cap(amount: int) -> Any:
        return Verdict(decision=Decision.TRANSFORM, transform=Transform(path="$target.amount", value=amount))

    return {
        "version": version("agent-framework-core"),
        "sibling_cancelled": await sibling_cancelled(),
        "labels": await labels(),
        "transform_conflict": await composed(CompositionConfig.strictest(), [cap(1), cap(2)]),
        "composition_disagreement": await composed(CompositionConfig.unanimous(), [ALLOW, cap(1)]),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main())))
    sys.exit(0)
