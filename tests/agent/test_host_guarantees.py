"""What a host owes that agent-framework's bundle does not give: brackets, labels, composed denies.

The other half of each comparison is tests/peers/test_agent_framework.py; both put the questions of
tests/peers/guarantees.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from driving import Strict, park, play, reopened
from peers.guarantees import LABEL, ended_by_composition, forgotten, unclosed

from lictor import (
    ALLOW,
    Agent,
    Budget,
    Composition,
    Context,
    Governance,
    RunResult,
    Runtime,
    Verdict,
    interceptor,
    tool,
)
from lictor.errors import InterceptionBlocked, RunAborted
from lictor.journal import MemoryStore
from lictor.models import call, say

SIX = (
    Composition("parallel/strictest"),
    Composition("parallel/unanimous"),
)


class Watch:
    """Allows everything and keeps (point, call id); at (point, call) of `acts` it does what stands there."""

    def __init__(self, acts: Mapping[tuple[str, str], Any] = {}) -> None:
        self.acts = acts
        self.seen: list[tuple[str, str | None]] = []

    async def intercept(self, context: Any) -> Verdict:
        """Keep, act, allow."""
        asked = context.get("tool_call")
        self.seen.append((context["interception_point"], asked["id"] if asked else None))
        act = self.acts.get((context["interception_point"], asked["name"] if asked else ""))
        return ALLOW if act is None else await act()

    @property
    def order(self) -> list[str]:
        """The points, in order."""
        return [point for point, _ in self.seen]


class Pair:
    """Two tools: `quick` does `then` once `slow` runs, `slow` runs until it is cancelled."""

    def __init__(self, then: Any) -> None:
        self.running = asyncio.Event()

        @tool
        async def quick() -> str:
            await self.running.wait()
            return str(await then())

        @tool
        async def slow() -> str:
            self.running.set()
            await asyncio.Event().wait()
            return "never"

        self.tools = [quick, slow]

    def agent(self, watch: Watch, **options: Any) -> Agent:
        """An agent that asks for both at once."""
        model = Strict([[call("quick"), call("slow")], say("done")])
        return Agent("clerk", model=model, tools=self.tools, interceptors=[watch], **options)


async def text() -> str:
    return "quick"


async def broken() -> Verdict:
    raise RuntimeError("the policy broke")


async def stopped() -> Verdict:
    return Verdict.stop("enough")


# ---- 9: every allowed pre_tool_call is closed by a post_tool_call ------------------------------


@pytest.mark.parametrize(("act", "status"), [(broken, "blocked"), (stopped, "stopped")])
async def test_allowed_call_is_closed_when_a_policy_ends_the_run(act: Any, status: str) -> None:
    """A verdict on one result ends the run; the sibling that it cancels still gets its post_tool_call."""
    watch = Watch({("post_tool_call", "quick"): act})
    played = await play(Pair(text).agent(watch))
    assert played.status == status
    assert unclosed(watch.seen) == []
    assert watch.order[-1] == "agent_shutdown"


async def test_allowed_call_is_closed_when_a_sibling_aborts_the_run() -> None:
    """RunAborted from one tool cancels the other one, which is closed like any call."""

    async def abort() -> str:
        raise RunAborted("the ledger is corrupt")

    watch = Watch()
    played = await play(Pair(abort).agent(watch))
    assert (played.status, played.error) == ("failed", "the ledger is corrupt")
    assert unclosed(watch.seen) == []


@pytest.mark.parametrize("times", [1, 2])
async def test_allowed_calls_are_closed_when_the_caller_is_cancelled(times: int) -> None:
    """Cancelling the caller, also once more while results are judged, leaves no call open."""
    reached, judged = asyncio.Event(), asyncio.Event()

    async def waiting() -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    async def judging() -> Verdict:
        judged.set()
        await asyncio.sleep(0)
        return ALLOW

    watch = Watch({("post_tool_call", "quick"): judging})
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(play(Pair(waiting).agent(watch)))
        await reached.wait()
        caller.cancel()
        if times == 2:
            await judged.wait()
            caller.cancel()
    assert unclosed(watch.seen) == []


async def test_allowed_call_that_never_starts_is_closed() -> None:
    """The budget refuses the second of two allowed calls: its post_tool_call tells that it did not run."""

    @tool
    async def first() -> str:
        return "1"

    @tool
    async def second() -> str:
        return "2"

    watch = Watch()
    model = Strict([[call("first"), call("second")], say("done")])
    agent = Agent("clerk", model=model, tools=[first, second], interceptors=[watch])
    played = await play(agent, max_tool_calls=1)
    assert (played.status, played.reason) == ("exhausted", "budget:max_tool_calls")
    assert unclosed(watch.seen) == []


async def test_allowed_external_call_that_nobody_can_answer_is_closed() -> None:
    """Without a Runtime nobody can give the value of an external call: it is closed all the same."""

    @tool(external=True)
    async def stamp() -> str:
        return "never"

    watch = Watch()
    agent = Agent("clerk", model=Strict([call("stamp"), say("done")]), tools=[stamp], interceptors=[watch])
    played = await play(agent)
    assert played.status == "completed"
    assert unclosed(watch.seen) == []


@pytest.mark.parametrize(("verb", "options"), [("skip", {}), ("respond", {"value": "paid"}), ("retry", {})])
async def test_allowed_call_is_closed_when_its_process_died(verb: str, options: Mapping[str, Any]) -> None:
    """A `once` call whose driver died is asked about; whatever a person says, it is closed once."""
    watch = Watch()
    started = asyncio.Event()
    runs: list[str] = []

    @tool
    async def pay() -> str:
        runs.append("pay")
        if len(runs) == 1:
            started.set()
            await asyncio.Event().wait()
        return "paid"

    agent = Agent("clerk", model=Strict([call("pay"), say("done")]), tools=[pay], interceptors=[watch])
    old = Runtime()
    async with old:
        run = await old.start(agent, "go")
        await started.wait()
        old._live[run.id].live.crash()  # as if the process were gone: nothing is written any more
        old._engine._tasks[run.id].cancel() if hasattr(old._engine, "_tasks") else None
    watch.seen = [item for item in watch.seen if item[0] == "pre_tool_call"]
    async with reopened(old, agent) as runtime:
        result = await (await runtime.run(run.id)).result()
        [request] = result.requests
        assert request.kind == "unknown_effect"
        await runtime.docket.decide(request.id, verb, by="human:ana", **options)
        assert (await (await runtime.run(run.id)).result()).status == "completed"
    assert unclosed(watch.seen) == []


# ---- 12: result labels are stored with their data and shown again (§5.4) -----------------------


class Labeller:
    """Labels what comes out of one point, and keeps the source labels that it is shown."""

    def __init__(self, point: str = "post_tool_call", *, deny: bool = False) -> None:
        self.point = point
        self.deny = deny
        self.seen: list[tuple[str, list[str]]] = []

    def intercept(self, context: Any) -> Any:
        """Keep, label, allow or deny."""
        spaces = context.get("extensions") or {}
        self.seen.append(
            (context["interception_point"], [label for space in spaces.values() for label in space.get("source_labels", ())])
        )
        if context["interception_point"] != self.point:
            return ALLOW
        if self.deny:
            return {"decision": "deny", "reason": "secret", "result_labels": [LABEL]}
        return {"decision": "allow", "result_labels": [LABEL]}

    def shown(self) -> list[str]:
        """The points at which the label was shown."""
        return [point for point, labels in self.seen if LABEL in labels]


@tool
async def customer() -> str:
    """Look a customer up."""
    return "Ana"


def labelled_agent(labeller: Labeller, **options: Any) -> Agent:
    """An agent that looks a customer up."""
    return Agent(
        "clerk", model=Strict([call("customer"), say("done")]), tools=[customer], interceptors=[labeller], **options
    )


def stored_labels(store: Any, root: str) -> list[Mapping[str, Any]]:
    """The labels in the log, each with what it belongs to."""
    return [item.entry.payload for item in store.root_entries(root) if item.entry.kind == "labels"]


async def test_result_labels_are_stored_and_shown_again() -> None:
    """A label of a tool result is in the log with its call, and in every later context of the interceptor."""
    labeller = Labeller()
    played = await play(labelled_agent(labeller))
    assert forgotten(labeller.seen, played.text) == []
    assert labeller.shown()[0] == "pre_model_call"
    assert labeller.seen[: labeller.order_of("post_tool_call")] == []


async def test_result_labels_have_their_interceptors_namespace() -> None:
    """What one interceptor labelled comes back under its own name (§4.6), not under another's."""
    labeller = Labeller()
    spaces: list[Any] = []

    @interceptor(name="reader", points=["output"])
    def reader(context: Context) -> Verdict:
        spaces.append(context["extensions"])
        return ALLOW

    await play(labelled_agent(labeller).with_(interceptors={"Label-Maker": labeller, "reader": reader}))
    assert {name: space["source_labels"] for name, space in spaces[0].items() if name != "lictor"} == {
        "label_maker": [LABEL]
    }


async def test_labels_of_what_was_denied_are_dropped() -> None:
    """A denied result proceeds nowhere, so its labels are neither stored nor shown (§5.4)."""
    labeller = Labeller(deny=True)
    store = MemoryStore()
    await labelled_agent(labeller).run("go", store=store, run_id="r")
    assert stored_labels(store, "r") == []
    assert labeller.shown() == []
