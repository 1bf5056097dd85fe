"""`lictor demo`: the team of `lictor.console.orders` at work over a store, with a person who is asked.

The run is in the store, so that it can be decided and driven to its end by any other process too. How it
looks is in `lictor.console.screen`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lictor.console.orders import PLACE, TASK, USER, team
from lictor.docket import Request
from lictor.errors import LictorError
from lictor.models import ChatModel
from lictor.runs import Event, RunResult
from lictor.runtime import Run, Runtime

__all__ = ["Answer", "Audience", "Outcome", "run_demo"]


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
    """What the demo came to: the result, its requests, every record, members' too, and what was really paid."""

    result: RunResult
    requests: Sequence[Request]
    records: Sequence[Mapping[str, Any]]
    paid: Sequence[str]


async def run_demo(
    audience: Audience, url: str, payments: Path, *, model: ChatModel | None = None, park: bool = False
) -> Outcome:
    """Run the team over a store, to its end, or with `park` to where it waits.

    Arguments:
        url: the store. payments: the file that stands in for the bank, from the root on.
        model: stands in for the script; then no other process can load the team as it is.
    """
    models = {} if model is None else dict.fromkeys([team.name, *team.table], model)
    source = PLACE if model is None else None
    async with Runtime(url, models=models, drive="own", grace=0.0) as runtime:  # Ctrl-C waits for nobody
        run = await runtime.start(team, TASK, user=USER, context={"payments": str(payments)}, source=source)
        audience.started(run.id)
        seen = 0
        while True:
            async for event in run.events(after=seen):
                seen = event.cursor
                audience.event(event, await _detail(runtime, event))
            result = await run.result()
            if park or result.status != "suspended":
                requests = await runtime.docket.requests(run=run.id)
                entries = [item.entry for item in runtime.store.root_entries(run.id)]
                records = [entry.payload["record"] for entry in entries if entry.kind == "verdict"]
                return Outcome(result=result, requests=requests, records=records, paid=_paid(payments, run.id))
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
