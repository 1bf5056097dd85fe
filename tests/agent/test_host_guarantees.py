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
from driving import Strict, decided, park, play, reopened
from peers.guarantees import LABEL, ended_by_composition, forgotten, unclosed

from lictor import ALLOW, Agent, Governance, Runtime, Verdict, faults, interceptor, tool
from lictor.errors import RunAborted, SimulatedCrash
from lictor.models import call, say


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
    assert caller.cancelled()
    assert unclosed(watch.seen) == []
    assert watch.order[-1] == "agent_shutdown"


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
    async def stamp() -> str: ...

    watch = Watch()
    agent = Agent("clerk", model=Strict([call("stamp"), say("done")]), tools=[stamp], interceptors=[watch])
    played = await play(agent)
    assert played.status == "completed"
    assert unclosed(watch.seen) == []


@pytest.mark.parametrize(("verb", "options"), [("skip", {}), ("respond", {"value": "paid"}), ("retry", {})])
async def test_allowed_call_is_closed_when_its_process_died(verb: str, options: Mapping[str, Any]) -> None:
    """A `once` call whose driver died is asked about; whatever a person says, it is closed once."""
    watch = Watch()

    @tool
    async def pay() -> str:
        return "paid"

    agent = Agent("clerk", model=Strict([call("pay"), say("done")]), tools=[pay], interceptors=[watch])
    faults.arm("effect.after", die)
    async with Runtime() as old:
        run = await old.start(agent, "go")
        with pytest.raises(SimulatedCrash):
            await run.result()
    async with reopened(old, agent) as runtime:
        run = await runtime.run(run.id)
        [request] = (await run.result()).requests
        assert request.kind == "unknown_effect"
        result = await decided(runtime, run, (request.id, verb, options))
    assert result.status == "completed"
    assert unclosed(watch.seen) == []


def die() -> None:
    raise SimulatedCrash("effect.after")


# ---- 12: result labels are stored with their data and shown again (§5.4) -----------------------


class Labeller:
    """Labels what comes out of `post_tool_call`, and keeps the source labels that it is shown."""

    def __init__(self, decision: str = "allow") -> None:
        self.answer = {"decision": decision, "result_labels": [LABEL]}
        if decision == "deny":
            self.answer["reason"] = "secret"
        self.seen: list[tuple[str, list[str]]] = []
        self.spaces: list[Mapping[str, Any]] = []

    def intercept(self, context: Any) -> Any:
        """Keep, then label at `post_tool_call`."""
        spaces = {name: space for name, space in context["extensions"].items() if name != "lictor"}
        self.spaces.append(spaces)
        shown = [label for space in spaces.values() for label in space["source_labels"]]
        self.seen.append((context["interception_point"], shown))
        return self.answer if context["interception_point"] == "post_tool_call" else ALLOW


@tool
async def customer() -> str:
    """Look a customer up."""
    return "Ana"


def labelled_agent(labeller: Labeller, *more: Any, **options: Any) -> Agent:
    """An agent that looks a customer up, again in every run of its conversation."""
    script = [call("customer"), say("done"), say("done again")]
    interceptors = {"Label-Maker": labeller}
    return Agent("clerk", model=Strict(script), tools=[customer, *more], interceptors=interceptors, **options)


async def test_result_labels_are_stored_and_shown_again() -> None:
    """A label of a tool result is in the log with its call, and in every later context, not before."""
    labeller = Labeller()
    played = await play(labelled_agent(labeller))
    stored = [item.entry.payload for item in played.store.root_entries("r") if item.entry.kind == "labels"]
    assert stored == [{"source": "call_0", "interceptor": "agent:clerk/Label-Maker", "labels": [LABEL]}]
    assert forgotten(labeller.seen, str(stored)) == []
    before = labeller.seen[: [point for point, _ in labeller.seen].index("post_tool_call") + 1]
    assert [labels for _, labels in before if labels] == []


async def test_result_labels_come_back_under_their_interceptors_name() -> None:
    """The namespace is that of the interceptor that gave the label (§4.6, §5.4)."""
    labeller = Labeller()
    await play(labelled_agent(labeller))
    assert labeller.spaces[-1] == {"label_maker": {"source_labels": [LABEL]}}


async def test_result_labels_of_what_was_denied_are_dropped() -> None:
    """A denied result proceeds nowhere, so its labels are neither stored nor shown (§5.4)."""
    labeller = Labeller("deny")
    played = await play(labelled_agent(labeller))
    assert played.status == "completed"
    assert LABEL not in played.text
    assert [labels for _, labels in labeller.seen if labels] == []


async def test_result_labels_survive_the_process() -> None:
    """A run that parked after the labelled call and goes on in a new Runtime still shows the label."""
    labeller = Labeller()

    @tool(requires_approval=True)
    async def refund() -> str:
        return "refunded"

    script = [call("customer"), call("refund"), say("done")]
    agent = labelled_agent(labeller, refund).with_(model=Strict(script))
    async with Runtime() as old:
        run, parked = await park(old, agent)
        [request] = parked.requests
    labeller.seen.clear()
    async with reopened(old, agent) as runtime:
        result = await decided(runtime, await runtime.run(run.id), (request.id, "approve", {}))
    assert result.status == "completed"
    assert [point for point, labels in labeller.seen if labels == []] == []


async def test_result_labels_stay_with_the_conversation() -> None:
    """The next run of a conversation reads the labelled result, so it is shown the label too."""
    labeller = Labeller()
    agent = labelled_agent(labeller)
    async with Runtime() as runtime:
        await park(runtime, agent, conversation="c")
        labeller.seen.clear()
        _, result = await park(runtime, agent, conversation="c")
    assert result.answer == "done again"
    asked = [labels for point, labels in labeller.seen if point == "pre_model_call"]
    assert asked == [[LABEL]]


# ---- 13: a composed deny is a decision, not a failure of enforcement (§7.5) --------------------


def capped(amount: int) -> Any:
    """A policy that sets the amount of every payment."""

    @interceptor(points=["pre_tool_call"], name=f"cap-{amount}")
    def cap(context: Any) -> Verdict:
        return Verdict.transform("$target.amount", amount)

    return cap


@interceptor(name="allows")
def allows(context: Any) -> Verdict:
    return ALLOW


@pytest.mark.parametrize("posture", ["terminate", "continue"])
@pytest.mark.parametrize(
    ("composition", "policies", "reason"),
    [
        ("parallel/strictest", [capped(1), capped(2)], "host_error:transform_conflict"),
        ("parallel/unanimous", [allows, capped(1)], "host_error:composition_disagreement"),
    ],
)
async def test_composed_deny_of_a_call_does_not_end_the_run(
    composition: str, policies: list[Any], reason: str, posture: str
) -> None:
    """Policies that do not agree deny the call; the model is told and the run goes on in either posture."""
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    model = Strict([call("pay", amount=5), say("done")])
    rules = Governance(composition=composition, posture=posture)
    agent = Agent("clerk", model=model, tools=[pay], interceptors=policies, governance=rules)
    played = await play(agent)
    facts = {"ended": played.status, "models": len(model.requests), "tools": len(ran)}
    assert ended_by_composition(facts) == []
    told = json.loads(played.result_of())
    assert (told["error"], told["reason"]) == ("denied", reason)
    assert reason in [record["verdict"].get("reason") for record in played.records]


async def test_failure_of_enforcement_does_end_the_run() -> None:
    """The contrast: a policy that breaks is a failure, and under `terminate` the run ends blocked."""
    watch = Watch({("pre_tool_call", "customer"): broken})
    played = await play(Agent("clerk", model=Strict([call("customer")]), tools=[customer], interceptors=[watch]))
    assert (played.status, played.reason) == ("blocked", "host_error:interceptor_failed")
