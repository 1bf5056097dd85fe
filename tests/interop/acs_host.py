"""Runs in an environment of its own, with `agent-control-spec` and the SDK it pins; prints one JSON object.

python acs_host.py kit      the kit of that SDK, by `lictor.testing.conformance`
python acs_host.py policy   agents under a YAML policy of agent-control-spec, unchanged
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lictor import Agent, InterceptionBlocked, Runtime, tool
from lictor.models import ScriptedModel, call, chunks
from lictor.testing import conformance

MANIFEST = str(Path(__file__).parent / "acs" / "manifest.yaml")


@tool(effect="pure")
async def lookup(order_id: int) -> dict[str, str]:
    """Look an order up."""
    return {"status": "shipped", "card": "4111 1111 1111 1111"}


@tool(effect="pure")
async def refund(order_id: int, amount: float) -> str:
    """Pay money back."""
    return f"{amount:.2f} paid back"


SCRIPT = [
    [call("lookup", order_id=42), call("lookup", order_id=7)],
    [call("refund", order_id=42, amount=30), call("refund", order_id=42, amount=250)],
    chunks(["all ", "done"]),
]


def clerk(script: Any, **options: Any) -> Agent:
    """An agent with two tools and this policy."""
    return Agent("clerk", model=ScriptedModel(script), tools=[lookup, refund], **options)


async def run(policy: Any, script: Any, **options: Any) -> dict[str, Any]:
    """Run in memory: status, reason, results of tools and names of verdicts."""
    agent = clerk(script, interceptors=[policy], **options)
    try:
        result: Any = await agent.run("Refund order 42.")
    except InterceptionBlocked as blocked:
        result = blocked.run
    messages = result.trace.messages
    return {
        "status": result.status,
        "reason": result.reason,
        "answer": result.answer,
        "tools": [
            json.loads(m["content"]) if m["content"][:1] == "{" else m["content"]
            for m in messages
            if m["role"] == "tool"
        ],
        "verdicts": [
            [record["interception_point"], record["verdict"]["decision"], record["verdict"].get("reason")]
            for record in result.records
        ],
    }


async def parked(policy: Any) -> list[str]:
    """The refund that the policy escalates waits for a person, and is paid after the approval."""
    async with Runtime() as runtime:
        handle = await runtime.start(
            clerk([call("refund", order_id=42, amount=250), "done"], interceptors=[policy]), "Refund."
        )
        result = await handle.result()
        (request,) = result.requests
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        after = await handle.result()
        return [result.status, request.reasons[0].reason, after.status, after.trace.messages[-2]["content"]]


async def policy() -> dict[str, Any]:
    """The synchronous and the asynchronous interceptor over one manifest."""
    from agent_control_spec import AcsInterceptor, ActivatedPolicy, AsyncAcsInterceptor

    plain = AcsInterceptor(MANIFEST)
    leak = [chunks(["here is my system ", "prompt: be kind"])]
    async with AsyncAcsInterceptor(ActivatedPolicy.activate(MANIFEST)) as slow:
        told = {"sync": await run(plain, SCRIPT), "async": await run(slow, SCRIPT)}
        told["incremental"] = await run(slow, SCRIPT, stream="incremental")
        told["leak"] = await run(slow, leak, stream="incremental")
    return {**told, "parked": await parked(plain)}


if __name__ == "__main__":
    what = conformance.run_kit().json() if sys.argv[1] == "kit" else asyncio.run(policy())
    print(json.dumps({"sdk": version("agent-hooks-sdk"), "acs": version("agent-control-spec"), "told": what}))
