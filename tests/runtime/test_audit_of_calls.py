"""The audit view: who let a call pass, as what, and what became of it; and the lists of runs and of runs below one."""

import json

import pytest

from lictor import Agent, Runtime, User, Verdict, interceptor, tool
from lictor.errors import NotResumable, SimulatedCrash
from lictor.models import ScriptedModel, call, fail, say
from lictor.testing import crash_at
from lictor.values import digest


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@tool
async def look(order: int) -> str:
    """Look."""
    return "found"


def clerk(*entries, tools=(pay, look), **options):
    return Agent("clerk", model=ScriptedModel([*entries, say("done")]), tools=tools, **options)


def words(entry):
    return entry.outcome, entry.decided_by, entry.reason


async def settled(runtime, agent, verb, **options):
    run = await runtime.start(agent, "go")
    [request] = (await run.result()).requests
    await runtime.docket.decide(request.id, verb, by="human:ana", **options)
    await run.result()
    return run, request


async def test_an_edit_shows_three_digests(store):
    """Proposed is what the model wrote; approved and executed are what the person made of it."""
    async with Runtime(store) as runtime:
        run, request = await settled(runtime, clerk(call("pay", amount=5)), "edit", arguments={"amount": 4})
        [entry] = await runtime.audit(run.id)
    assert words(entry) == ("done", "human:ana", None)
    assert (entry.proposed, entry.approved, entry.executed) == (
        digest({"amount": 5}),
        digest({"amount": 4}),
        digest({"amount": 4}),
    )
    assert (entry.requests, entry.starts) == ((request.id,), 1)


async def test_a_transform_shows_who_changed_the_arguments(store):
    """The interceptor is named, and what ran is what it made of them."""

    @interceptor(points=["pre_tool_call"], name="cap", version="1")
    def cap(context):
        return Verdict.transform("$target.order", 1)

    async with Runtime(store) as runtime:
        run = await runtime.start(clerk(call("look", order=7), interceptors=[cap]), "go")
        await run.result()
        [entry] = await runtime.audit(run.id)
    assert words(entry) == ("done", "agent:clerk/cap", None)
    assert (entry.proposed, entry.approved, entry.executed) == (
        digest({"order": 7}),
        digest({"order": 1}),
        digest({"order": 1}),
    )


async def test_calls_that_never_ran_say_why(store):
    """Unknown tools, wrong arguments, a stop that comes first: each has its word, and no digest of what ran."""

    @interceptor(points=["pre_tool_call"], name="halt", version="1")
    def halt(context):
        return Verdict.stop("enough") if context["tool_call"]["args"].get("order") == 3 else Verdict.allow()

    batch = [call("nothing", x=1), call("look", order="no"), call("look", order=3), call("pay", amount=1)]
    async with Runtime(store) as runtime:
        run = await runtime.start(clerk(batch, interceptors=[halt]), "go")
        assert (await run.result()).status == "stopped"
        entries = await runtime.audit(run.id)
    assert [entry.outcome for entry in entries] == ["unknown_tool", "invalid_arguments", "denied", "not_run"]
    assert [(entry.reason, entry.decided_by) for entry in entries[2:]] == [
        ("enough", "agent:clerk/halt"),
        ("enough", None),
    ]
    assert [entry.executed for entry in entries] == [None] * 4
    assert all(entry.ended_at is not None for entry in entries)


@pytest.mark.parametrize("verb", ["respond", "reject"])
async def test_an_answer_in_place_of_a_run_is_the_persons(store, verb):
    """A result that a person gave, and a rejection, carry the person's name and nothing that they said."""
    options = {"text": "canary"} if verb == "respond" else {"feedback": "canary"}
    async with Runtime(store) as runtime:
        run, _ = await settled(runtime, clerk(call("pay", amount=5)), verb, **options)
        [entry] = await runtime.audit(run.id)
    assert words(entry) == (("done", "human:ana", None) if verb == "respond" else ("denied", "human:ana", "rejected"))
    assert (entry.executed, "canary" in json.dumps(entry.json())) == (None, False)


async def test_while_a_run_goes_on_its_calls_say_how_far_they_are(store):
    """A call that waits is `waiting`; once the run is cancelled it is `cancelled`, by whoever cancelled."""
    async with Runtime(store) as runtime:
        run = await runtime.start(clerk([call("pay", amount=5), call("look", order=1)]), "go")
        await run.result()
        assert [entry.outcome for entry in await runtime.audit(run.id)] == ["waiting", "done"]
        await runtime.commands.cancel(run.id, by="human:eve")
        await run.result()
        assert [entry.outcome for entry in await runtime.audit(run.id)] == ["cancelled", "done"]


async def test_a_lost_effect_is_unknown_until_somebody_decides(tmp_path):
    """After a crash the entry counts the starts, and names who said that it be run again."""
    agent = clerk(call("look", order=1))
    url = f"sqlite:///{tmp_path}/s.db"
    with crash_at("effect.after"):
        async with Runtime(url) as runtime:
            run = await runtime.start(agent, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
    async with Runtime(url, definitions={"clerk": agent}) as runtime:
        run = await runtime.run(run.id)
        [request] = (await run.result()).requests
        [entry] = await runtime.audit(run.id)
        assert (entry.outcome, entry.starts, entry.requests) == ("waiting", 1, (request.id,))
        await runtime.docket.decide(request.id, "retry", by="human:ana")
        await run.result()
        [entry] = await runtime.audit(run.id)
        assert (words(entry), entry.starts) == (("done", "human:ana", None), 2)


async def test_long_integers_have_a_digest(store):
    """An integer that JavaScript cannot hold is digested as its decimal text."""
    async with Runtime(store) as runtime:
        run = await runtime.start(clerk(call("look", order=2**60)), "go")
        await run.result()
        [entry] = await runtime.audit(run.id)
    assert entry.proposed == entry.executed == digest({"order": str(2**60)})


# ---- runs below a run


async def test_children_and_their_calls_are_found_from_any_run(store):
    """Direct children with path, call and outcome; the audit of a nested run is its part of the whole."""
    inner = Agent("inner", model=ScriptedModel([call("look", order=1), say("in")], id="i"), tools=[look])
    broken = Agent("broken", model=ScriptedModel([fail(400)], id="b"))
    middle = Agent("middle", model=ScriptedModel([call("inner", task="t"), say("mid")], id="m"), tools=[inner])
    outer = clerk(call("middle", task="t"), call("broken", task="t"), tools=[middle, broken])
    async with Runtime(store) as runtime:
        run = await runtime.start(outer, "go")
        await run.result()
        first, second = await runtime.children(run.id)
        assert [(each.agent, each.status, each.call_id) for each in (first, second)] == [
            ("middle", "completed", "call_0"),
            ("broken", "failed", "call_1"),
        ]
        [below] = await runtime.children(first.id)
        assert (below.agent, [step.name for step in below.path]) == ("inner", ["clerk", "middle", "inner"])
        assert await runtime.children(below.id) == []
        assert [entry.tool for entry in await runtime.audit(run.id)] == ["middle", "inner", "look", "broken"]
        assert [entry.tool for entry in await runtime.audit(first.id)] == ["inner", "look"]
        for question in (runtime.children, runtime.audit):
            with pytest.raises(NotResumable, match="there is no run 'nothing'"):
                await question("nothing")


# ---- root runs


async def test_runs_are_listed_newest_first_by_page_and_by_what_they_are(store):
    """Status, conversation and user select; `after` goes on behind a run."""
    async with Runtime(store) as runtime:
        agent = clerk(call("pay", amount=1))
        done = Agent("done", model=ScriptedModel([say("done")] * 9, id="d"))
        ids = []
        for number in range(6):
            user = User("ana", {"team": 1}) if number % 2 else "bob"
            target = agent if number == 3 else done
            run = await runtime.start(target, "go", user=user, conversation=f"c{number // 4}")
            await run.result()
            ids.append(run.id)
            if number == 3:
                await runtime.commands.cancel(run.id, by="human:ana")
                await run.result()

        async def listed(**options):
            return [ids.index(run.id) for run in await runtime.runs(**options)]

        assert await listed() == [5, 4, 3, 2, 1, 0]
        assert await listed(limit=2) == [5, 4]
        assert await listed(limit=2, after=ids[4]) == [3, 2]
        assert await listed(status="cancelled") == [3]
        assert await listed(status=["completed", "cancelled"], limit=3) == [5, 4, 3]
        assert await listed(user="ana") == await listed(user=User("ana")) == [5, 3, 1]
        assert await listed(conversation="c1") == [5, 4]
        assert await listed(conversation="c0", user="bob", status="completed") == [2, 0]
        assert await listed(status="running") == []
