"""Many processes want something of one run at one instant: one wins, the others are told, nothing happens twice."""

import asyncio
import contextlib
import itertools
import signal

import pytest
from scenarios import clerk, die, late_decider, parked, slow_tool
from shopfloor import Racer, Shop, effects_fit, holds, race

from lictor import Agent, Runtime, Verdict, interceptor
from lictor.errors import AlreadyDecided, Expired
from lictor.models import ScriptedModel, say
from lictor.testing import invariants, pause_at, sweep
from lictor.values import Clock

pytestmark = pytest.mark.crash

DECIDERS = 50


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


async def in_order(runtime, run):
    assert await sweep(runtime) == []
    await invariants(run)


async def decided_by_fifty(shop, alike):
    """Race fifty deciders from five processes for one request; checked for all that must hold."""
    agent = clerk(shop)
    async with asyncio.timeout(60), Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        racers = [Racer(shop) for _ in range(5)]
        for number in range(4):
            run, request = await parked(runtime, agent)
            before = shop.done()["pay"]
            outcomes = await race(*[(racer, deciders(request, place, alike)) for place, racer in enumerate(racers)])
            settled = await runtime.docket.get(request.id)
            took = [outcome for outcome in outcomes if outcome["error"] is None]
            lost = [outcome for outcome in outcomes if outcome["error"] is not None]
            assert len(outcomes) == DECIDERS
            assert len(took) == (DECIDERS if alike else 1), f"round {number}: {len(took)} deciders were told yes"
            assert str(settled.resolution.decided_by) in [outcome["by"] for outcome in took]
            assert {outcome["error"] for outcome in lost} <= {"AlreadyDecided"}
            refused = await runtime.docket.refusals(run=run.id)
            assert sorted(each["by"] for each in refused) == sorted(each["by"] for each in lost)
            assert (await run.result("end")).status == "completed"
            assert shop.done()["pay"] - before == (settled.resolution.verb == "approve")
            await in_order(runtime, run)


def deciders(request, place, alike):
    """Ten decisions; `alike` they are all one decision, else each is another one."""
    for number in range(10):
        verb = "approve" if alike or number % 2 else "reject"
        feedback = None if alike else f"{place}/{number}"
        yield {
            "do": "decide",
            "request": request.id,
            "verb": verb,
            "by": f"human:{place}-{number}",
            "feedback": feedback,
        }


@pytest.mark.parametrize("alike", [False, True], ids=["different", "the same"])
async def test_fifty_racing_deciders_settle_a_request_once(shop, alike):
    """One decision stands; the same one is a no-op, another one is refused and recorded, the effect is there once."""
    await decided_by_fifty(shop, alike)


async def test_a_decider_that_stood_still_in_the_middle_changes_nothing(shop):
    """What it looked at is not there any more: it is refused, and recorded."""
    await late_decider(shop)


async def test_two_parties_that_approve_at_once_have_both_approved(shop):
    """The one that looked before the other one wrote looks again: no part of an approval is lost."""

    @interceptor(points=["pre_tool_call"], name="both", version="1")
    def both(context):
        return Verdict.escalate("second_party", responders=["human:bob"])

    agent = clerk(shop, responders=["human:ana"]).with_(interceptors=[both])
    async with asyncio.timeout(60), Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
        slow = Racer(shop, LICTOR_PAUSE_AT="settle.before")
        decision = {"do": "decide", "request": request.id, "verb": "approve"}
        slow.go(0, decision | {"by": "human:ana"})
        await slow.stands()
        [first] = await race((Racer(shop), [decision | {"by": "human:bob"}]))
        assert (first["error"], first["status"]) == (None, "pending")
        slow.goes_on()
        [second] = await slow.outcomes()
        assert (second["error"], second["status"]) == (None, "approved")
        assert (await run.result("end")).status == "completed"
        assert shop.done()["pay"] == 1
        await in_order(runtime, run)


async def test_one_key_in_one_conversation_is_one_run(shop):
    """Two processes start the same thing: one run, which owns the conversation and leaves its history there."""
    agent = Agent("clerk", model=ScriptedModel([say("Hello.")] * 2))

    async def start():
        async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
            run = await runtime.start(agent, "hi", key="k", conversation="c")
            return run.id, (await run.result("end")).answer

    with pause_at("submit.before") as pause:
        first = asyncio.create_task(asyncio.to_thread(asyncio.run, start()))
        await pause.reached()
        second = await start()
        pause.release()
    assert await first == second
    async with Runtime(shop.url, drive=False) as runtime:
        conversation = await runtime.conversation("c")
        assert (conversation.owner, conversation.version, len(conversation.messages)) == (None, 1, 2)
        assert len(await runtime.runs()) == 1
        assert await sweep(runtime) == []


@pytest.mark.parametrize("point", ["settle.before", "settle.after"])
async def test_a_decider_that_is_killed_has_decided_or_has_not(shop, point):
    """Before the write the request is as it was; after it the run goes on, and the same decision is a no-op."""
    agent = clerk(shop)
    async with asyncio.timeout(60), Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
        racer = Racer(shop, LICTOR_CRASH_AT=point)
        racer.go(0, {"do": "decide", "request": request.id, "verb": "approve", "by": "human:ana"})
        assert await racer.ends() == -signal.SIGKILL
        standing = await runtime.docket.get(request.id)
        assert (standing.status == "pending") is (point == "settle.before")
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result("end")).status == "completed"
        assert shop.done()["pay"] == 1
        await in_order(runtime, run)


# ---- decide, expire, cancel


class Later(Clock):
    """A clock that is an hour fast."""

    def now(self):
        return super().now() + 3600


FIRST = {"decide": ("approved", "completed", 1), "expire": ("expired", "completed", 0)}
FIRST["cancel"] = ("cancelled", "cancelled", 0)


@pytest.mark.parametrize("driven", [False, True], ids=["nobody drives", "driven in between"])
@pytest.mark.parametrize("order", list(itertools.permutations(FIRST)), ids="-".join)
async def test_whatever_comes_first_decides(shop, order, driven):
    """In every order the first one holds, the others change nothing, and a late decision is a typed error."""
    agent = clerk(shop, deadline=600)
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
    for step in order:
        async with Runtime(shop.url, drive=False, clock=Later() if step == "expire" else Clock()) as other:
            if step == "decide" and order[0] != "decide":
                with pytest.raises(Expired if order[0] == "expire" else AlreadyDecided):
                    await other.docket.decide(request.id, "approve", by="human:ana")
            elif step == "decide":
                await other.docket.decide(request.id, "approve", by="human:ana")
            elif step == "expire":
                assert bool(other.docket.expire_due()) is (order[0] == "expire")
            else:
                await other.commands.cancel(run.id, by="human:eve")
        if driven:
            async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
                await (await runtime.run(run.id)).result("end")
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run = await runtime.run(run.id)
        result = await run.result("end")
        status, outcome, effects = FIRST[order[0]]
        if not driven:  # the cancel came in time, whatever was decided before it
            outcome, effects = "cancelled", 0
        assert ((await runtime.docket.get(request.id)).status, result.status) == (status, outcome)
        assert shop.done()["pay"] == effects
        refused = await runtime.docket.refusals(run=run.id)
        assert [each["error"] for each in refused] == ([] if order[0] == "decide" else [refusal(order[0])])
        assert await sweep(runtime) == []


def refusal(first):
    return "Expired" if first == "expire" else "AlreadyDecided"


async def test_decide_expire_and_cancel_at_one_instant(shop):
    """Whoever wins, the request is settled once, the effect fits what stands, and the run ends as its log says."""
    agent = clerk(shop, deadline=600)
    won = set()
    async with asyncio.timeout(60), Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        racers = [Racer(shop) for _ in range(4)]
        for number in range(12):
            run, request = await parked(runtime, agent)
            before = shop.done()["pay"]
            decision = {"do": "decide", "request": request.id}
            actions = [
                decision | {"verb": "approve", "by": "human:ana"},
                decision | {"verb": "reject", "by": "human:bob"},
                {"do": "expire"},
                {"do": "cancel", "run": run.id},
            ]
            order = actions[number % 4 :] + actions[: number % 4]
            outcomes = await race(*[(racer, [action]) for racer, action in zip(racers, order, strict=True)])
            result = await run.result("end")
            settled = await runtime.docket.get(request.id)
            took = [each["by"] for each in outcomes if each["do"] == "decide" and each["error"] is None]
            expired = [each for each in outcomes if request.id in each.get("gone", ())]
            stands = [] if settled.resolution is None else [str(settled.resolution.decided_by)]
            assert took + ["timer:deadline"] * len(expired) == stands, outcomes
            assert result.status in ("completed", "cancelled")
            paid = shop.done()["pay"] - before
            assert paid <= (settled.status == "approved")
            assert result.status == "cancelled" or paid == (settled.status == "approved")
            refused = await runtime.docket.refusals(run=run.id)
            assert sorted(each["by"] for each in refused) == sorted(
                each["by"] for each in outcomes if each["do"] == "decide" and each["error"] is not None
            )
            await in_order(runtime, run)
            won.add(settled.status)
    assert len(won) > 1, "one of them always wins: this is no race"


# ---- decisions that are none

BAD = [
    ({"by": "human:eve"}, "WrongParty"),
    ({"by": "agent:clerk"}, "WrongParty"),
    ({"by": "ana"}, "DefinitionError"),
    ({"digest": "0" * 64}, "DigestMismatch"),
    ({"digest": "of the first request"}, "DigestMismatch"),
    ({"verb": "retry"}, "WrongVerb"),
    ({"verb": "pay"}, "WrongVerb"),
    ({"kind": "plan"}, "WrongKind"),
    ({"epoch": 7}, "StaleEpoch"),
    ({"verb": "edit", "arguments": {"amount": "much"}}, "ToolArgumentsInvalid"),
    ({"verb": "edit", "arguments": {}}, "ToolArgumentsInvalid"),
    ({"request": "nobody"}, "UnknownRequest"),
]
UNRECORDED = ("DefinitionError", "UnknownRequest")  # nobody tried, or nothing was there to try it on


async def test_foreign_forged_and_mismatched_decisions_change_nothing(shop):
    """From another process each is a typed error and is recorded; request, run and effects stay as they are."""
    agent = clerk(shop, responders=["human:ana"])
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        _, other = await parked(runtime, agent)
        run, request = await parked(runtime, agent)
    before = shop.stored()
    good = {"do": "decide", "request": request.id, "verb": "approve", "by": "human:ana"}
    racer = Racer(shop)
    tried = [{**good, **bad} for bad, _ in BAD]
    tried[4]["digest"] = other.digest
    outcomes = await race((racer, tried))
    assert [each["error"] for each in outcomes] == [error for _, error in BAD]
    async with Runtime(shop.url, drive=False) as runtime:
        assert await runtime.docket.get(request.id) == request
        refused = await runtime.docket.refusals(run=run.id)
        assert [each["error"] for each in refused] == [error for _, error in BAD if error not in UNRECORDED]
    events, rows = shop.stored()
    assert rows == before[1]
    assert set(before[0]) < set(events)
    assert {kind for _, _, kind, _ in set(events) - set(before[0])} == {"decision_refused"}
    assert shop.done() == {}
    [late] = await race((racer, [good | {"do": "decide late"}]))
    assert late["error"] is None  # it has no deadline
    [again, second] = await race((racer, [good, good | {"verb": "reject"}]))
    assert (again["error"], second["error"]) == (None, "AlreadyDecided")
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        assert (await (await runtime.run(run.id)).result("end")).status == "completed"
        assert shop.done()["pay"] == 1
        assert await sweep(runtime) == []


async def test_a_decision_after_the_deadline_is_refused_though_no_timer_ran(shop):
    """The deadline itself decides: the decision comes too late, is recorded, and the run goes on without the effect."""
    agent = clerk(shop, deadline=600)
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
    late = {"do": "decide late", "request": request.id, "verb": "approve", "by": "human:ana"}
    [outcome] = await race((Racer(shop), [late]))
    assert outcome["error"] == "Expired"
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run = await runtime.run(run.id)
        assert (await run.result("end")).status == "completed"
        assert [each["error"] for each in await runtime.docket.refusals(run=run.id)] == ["Expired"]
        assert shop.done()["pay"] == 0
        assert await sweep(runtime) == []


# ---- adopters


@pytest.mark.parametrize("point", ["claim.before_first_step", "effect.after:1", "effect.after:2", "park.before"])
async def test_two_adopters_at_once_drive_a_run_once(shop, point):
    """Both see the orphan at the same instant; one takes it, and what may be there once is."""
    peers = [shop.worker("serve") for _ in range(2)]
    for peer in peers:
        assert peer.stdout.readline() == "open\n"
        peer.send_signal(signal.SIGSTOP)
    await die(shop, point)
    for peer in peers:
        peer.send_signal(signal.SIGCONT)
    for peer in peers:
        await shop.decide_until(peer)
        assert peer.communicate()[0] == "completed All done.\n"
    effects_fit(shop, twice=("mark",) if point == "effect.after:1" else ())
    assert shop.asked.count(("unknown_effect", "send", "skip")) == (point == "effect.after:2")
    await holds(shop)


@pytest.mark.parametrize("point", ["adopt.before", "adopt.after"])
async def test_an_adopter_that_is_killed_half_way_is_replaced(shop, point):
    """The third one finishes what the first two left; nothing is there twice, and nobody is asked twice."""
    await die(shop, "effect.after:2")
    await die(shop, point)
    process = shop.worker("start")
    await shop.decide_until(process)
    assert process.communicate()[0].split("\n")[1] == "completed All done."
    effects_fit(shop)
    assert shop.asked.count(("unknown_effect", "send", "skip")) == 1
    await holds(shop)


async def test_a_run_whose_driver_lives_is_left_to_it(shop):
    """However long a tool takes, nobody else touches the run, repeats an effect, or asks about it."""
    await slow_tool(shop)
