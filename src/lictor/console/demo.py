"""`lictor demo`: a clerk who looks orders up and pays money back, governed at every step.

Read it as an example. It has what most uses have: tools, two policies, an agent, a Runtime that asks
a person, and a loop that shows what happens. The run is in a store, so that it can be decided and
driven to its end by any other process too. How it looks is in `lictor.console.screen`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lictor.agent import Agent, ToolContext, tool
from lictor.docket import Request
from lictor.errors import LictorError
from lictor.hooks import ALLOW, Context, Mask, Verdict, interceptor
from lictor.models import ChatModel, Entry, ModelRequest, ScriptedModel, call
from lictor.runs import Event, RunResult
from lictor.runtime import Run, Runtime

__all__ = ["PLACE", "TASK", "USER", "Answer", "Audience", "Outcome", "clerk", "run_demo"]

PLACE = "lictor.console.demo:clerk"  # from there `lictor approve` loads the clerk
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
def refund(order_id: int, amount: float, context: ToolContext) -> str:
    """Pay money back for an order, to the card it was paid with."""
    with Path(context.context["payments"]).open("a") as bank:
        bank.write(f"{context.root_run} {amount:.2f} for order {order_id}\n")
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

    def started(self, run_id: str) -> None:
        """The run has this id from now on."""
        ...

    def event(self, event: Event, detail: Mapping[str, Any]) -> None:
        """Something happened; `detail` is what the log says about the call it is about."""
        ...

    def ask(self, request: Request) -> Coroutine[Any, Any, Answer]:
        """Somebody has to decide; cancelled when it was decided elsewhere."""
        ...

    def elsewhere(self) -> None:
        """It was decided in another process, or ended there."""
        ...

    def refused(self, problem: str) -> None:
        """The decision was not taken; the question comes again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the demo came to: the result, its requests, and what was really paid."""

    result: RunResult
    requests: Sequence[Request]
    paid: Sequence[str]


async def run_demo(
    audience: Audience, url: str, payments: Path, *, model: ChatModel | None = None, park: bool = False
) -> Outcome:
    """Run the clerk over a store, to its end, or with `park` to where it waits.

    Arguments:
        url: the store. payments: the file that stands in for the bank, from the root on.
        model: stands in for the script; then no other process can load the clerk as it is.
    """
    models = {} if model is None else {clerk.name: model}
    source = PLACE if model is None else None
    async with Runtime(url, models=models, drive="own", grace=0.0) as runtime:  # Ctrl-C waits for nobody
        run = await runtime.start(clerk, TASK, user=USER, context={"payments": str(payments)}, source=source)
        audience.started(run.id)
        seen = 0
        while True:
            async for event in run.events(after=seen):
                seen = event.cursor
                audience.event(event, await _detail(runtime, event))
            result = await run.result()
            if park or result.status != "suspended":
                requests = await runtime.docket.requests(run=run.id)
                return Outcome(result=result, requests=requests, paid=_paid(payments, run.id))
            for request in result.requests:
                await _decide(runtime, run, request, audience, seen)


def _paid(payments: Path, run_id: str) -> list[str]:
    """What the bank has of this run."""
    lines = payments.read_text().splitlines() if payments.exists() else []
    return [line.removeprefix(f"{run_id} ") for line in lines if line.startswith(run_id)]


async def _decide(runtime: Runtime, run: Run, request: Request, audience: Audience, seen: int) -> None:
    """Ask until there is an answer that the docket takes, here or elsewhere; it binds to exactly what was shown."""
    while True:
        answer = await _first_answer(audience.ask(request), _elsewhere(run, request, seen))
        if answer is None:
            audience.elsewhere()
            return
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


async def _elsewhere(run: Run, request: Request, seen: int) -> None:
    """Wait until another process decides the request or ends the run."""
    async with aclosing(run.events(after=seen, follow=True)) as events:
        async for event in events:
            if event.kind == "request_decided" and event.payload["request"] == request.id:
                return


async def _first_answer(asked: Coroutine[Any, Any, Answer], elsewhere: Coroutine[Any, Any, None]) -> Answer | None:
    """What somebody answers here; None when that is no longer wanted."""
    async with asyncio.TaskGroup() as group:
        asking, waiting = group.create_task(asked), group.create_task(elsewhere)
        await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        answered = asking.done() and not asking.cancelled()
        asking.cancel()
        waiting.cancel()
    return asking.result() if answered else None


async def _detail(runtime: Runtime, event: Event) -> Mapping[str, Any]:
    """What the log holds beside an event: the calls of a response with their arguments, the call of a denial."""
    if event.kind not in ("model_finished", "verdict"):
        return {}
    steps = (await runtime.trace(event.run_id)).steps
    if event.kind == "model_finished":
        return {"calls": steps[event.seq][1].get("calls", ())}
    after = steps[event.seq + 1 : event.seq + 2]  # a denied call is answered in the same breath
    return after[0][1] if after and after[0][0] == "call_judged" else {}
