"""`lictor demo`: a clerk who looks orders up and pays money back, governed at every step.

Read it as an example. It has what most uses have: tools, two policies, an agent, a Runtime that asks
a person, and a loop that shows what happens. How it looks is in `lictor.console.screen`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lictor.agent import Agent, ToolContext, tool
from lictor.docket import Request
from lictor.errors import LictorError
from lictor.hooks import ALLOW, Context, Mask, Verdict, interceptor
from lictor.models import ChatModel, Entry, ModelRequest, ScriptedModel, call
from lictor.runs import Event, RunResult
from lictor.runtime import Runtime

__all__ = ["TASK", "USER", "Answer", "Audience", "Outcome", "clerk", "run_demo"]

USER = "ana"
TASK = "My mug (order 42) broke, I want 30.00 back. And where is order 7?"
ORDERS: Mapping[int, Mapping[str, str]] = {
    7: {"customer": "ben", "status": "on its way", "card": "5555 5555 5555 4444"},
    42: {"customer": "ana", "status": "delivered", "card": "4111 1111 1111 1111"},
}


@tool(read_only=True, effect="pure")
async def lookup_order(order_id: int) -> dict[str, str]:
    """Look up the status of an order and how it was paid."""
    order = ORDERS.get(order_id)
    return {"status": "unknown"} if order is None else {"status": order["status"], "card": order["card"]}


@tool(requires_approval=True)
async def refund(order_id: int, amount: float, context: ToolContext) -> str:
    """Pay money back for an order, to the card it was paid with."""
    context.deps.append(f"{amount:.2f} for order {order_id}")
    return f"{amount:.2f} paid back for order {order_id}"


@interceptor(points=["pre_tool_call"], version="1")
def own_orders(context: Context) -> Verdict:
    """Customers see and change their own orders only, whatever the model thinks."""
    order = ORDERS.get(context["tool_call"]["args"]["order_id"])
    if order is not None and order["customer"] != context["extensions"]["lictor"]["user"]["id"]:
        return Verdict.deny("not_your_order", "Not this customer's order.")
    return ALLOW


def closing(request: ModelRequest) -> str:
    """The last words of the script; they depend on what became of the refund."""
    result = str(request.messages[-1]["content"])
    paid = "I was not allowed to pay you back." if '"error"' in result else f"Done: {result}."
    return f"{paid} Order 7 is not yours."


SCRIPT: Sequence[Entry] = [
    call("lookup_order", order_id=7),
    call("lookup_order", order_id=42),
    call("refund", order_id=42, amount=30.0),
    closing,
]

clerk = Agent(
    "clerk",
    model=ScriptedModel(SCRIPT, id="scripted"),
    instructions="You answer customers of a shop. Look orders up with lookup_order, pay money back with refund.",
    tools=[lookup_order, refund],
    interceptors=[own_orders, Mask("card", points=["post_tool_call"])],
    max_steps=8,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody decided about a request: a verb, who, and what goes with it."""

    verb: str
    by: str
    feedback: str | None = None
    arguments: Mapping[str, Any] | None = None


class Audience(Protocol):
    """Who watches the demo and is asked."""

    def event(self, event: Event, detail: Mapping[str, Any]) -> None:
        """Something happened; `detail` is what the log says about the call it is about."""
        ...

    def ask(self, request: Request) -> Awaitable[Answer]:
        """Somebody has to decide."""
        ...

    def refused(self, problem: str) -> None:
        """The decision was not taken; the question comes again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the demo came to: the result, the requests that were decided, and what was really paid."""

    result: RunResult
    requests: Sequence[Request]
    paid: Sequence[str]


async def run_demo(audience: Audience, model: ChatModel | None = None) -> Outcome:
    """Run the clerk to its end over a store in memory; `model` stands in for the script."""
    paid: list[str] = []  # stands in for the bank
    models = {} if model is None else {clerk.name: model}
    async with Runtime("memory:", models=models, grace=0.0) as runtime:  # Ctrl-C waits for nobody
        run = await runtime.start(clerk, TASK, user=USER, deps=paid)
        seen = 0
        while True:
            async for event in run.events(after=seen):
                seen = event.cursor
                audience.event(event, await _detail(runtime, event))
            result = await run.result()
            if result.status != "suspended":
                return Outcome(result=result, requests=await runtime.docket.requests(run=run.id), paid=paid)
            for request in result.requests:
                await _decide(runtime, request, audience)


async def _decide(runtime: Runtime, request: Request, audience: Audience) -> None:
    """Ask until there is an answer that the docket takes; it binds to exactly what was shown."""
    while True:
        answer = await audience.ask(request)
        try:
            await runtime.docket.decide(
                request.id,
                answer.verb,
                by=answer.by,
                digest=request.digest,
                feedback=answer.feedback,
                arguments=answer.arguments,
            )
        except LictorError as error:  # an edit that does not fit the tool, for one
            audience.refused(str(error))
        else:
            return


async def _detail(runtime: Runtime, event: Event) -> Mapping[str, Any]:
    """What the log holds beside an event: the calls of a response with their arguments, the call of a denial."""
    if event.kind not in ("model_finished", "verdict"):
        return {}
    steps = (await runtime.trace(event.run_id)).steps
    if event.kind == "model_finished":
        return {"calls": steps[event.seq][1].get("calls", ())}
    after = steps[event.seq + 1 : event.seq + 2]  # a denied call is answered in the same breath
    return after[0][1] if after and after[0][0] == "call_judged" else {}
