"""Where a Runtime finds the agents of runs that it did not start, and which runs it drives."""

import pytest

from lictor import Agent, Runtime, tool
from lictor.errors import DefinitionError, DefinitionNotFound
from lictor.hooks import Governance
from lictor.runtime import definition_of
from lictor.runtime.wiring import wiring_of
from lictor.testing import ScriptedModel, call, say

SHOP = '''
from lictor import Agent, tool
from lictor.testing import ScriptedModel, call, say

@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    return "paid"

clerk = Agent("clerk", model=ScriptedModel([call("refund", order=1), say("{said}")]), tools=[refund])
'''


@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    return "paid"


def clerk_of(said="From here."):
    return Agent("clerk", model=ScriptedModel([call("refund", order=1), say(said)]), tools=[refund])


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
def place(tmp_path):
    """Write a shop that says something; gives where its clerk is."""

    def write(name, said):
        (tmp_path / f"{name}.py").write_text(SHOP.replace("{said}", said))
        return f"{tmp_path / name}.py:clerk"

    return write


async def parked(url, source):
    """Start the clerk of a place and leave it when it waits; gives the run and its request."""
    async with Runtime(url, drive="own") as runtime:
        run = await runtime.start(definition_of(source), "refund 1", source=source)
        result = await run.result()
        assert result.status == "suspended"
        return run.id, result.requests[0].id


async def test_a_run_is_loaded_from_where_it_was_started(url, place):
    """Two agents of one name and two places: each run goes on with its own."""
    first, second = place("north", "From the north."), place("south", "From the south.")
    runs = [await parked(url, source) for source in (first, second)]
    async with Runtime(url, load=definition_of) as runtime:
        answers = []
        for run_id, request in runs:
            await runtime.docket.decide(request, "approve", by="human:ana")
            answers.append((await (await runtime.run(run_id)).result("end")).answer)
    assert answers == ["From the north.", "From the south."]


async def test_what_cannot_be_loaded_waits(url, place, tmp_path):
    """The run stays as it is, resume says why; when the file is back, resume goes on with it."""
    source = place("east", "Back.")
    run_id, request = await parked(url, source)
    hidden = (tmp_path / "east.py").rename(tmp_path / "hidden")
    async with Runtime(url, load=definition_of) as runtime:
        await runtime.docket.decide(request, "approve", by="human:ana")
        with pytest.raises(DefinitionNotFound, match="there is no file"):
            await runtime.resume(run_id)
        assert runtime.row(run_id).status == "waiting"
        hidden.rename(tmp_path / "east.py")
        assert (await (await runtime.resume(run_id)).result("end")).answer == "Back."


async def test_without_load_no_code_of_the_store_is_run(url, place):
    """A Runtime that was not told to load drives only what it knows."""
    run_id, _ = await parked(url, place("west", "Never."))
    async with Runtime(url) as runtime:
        with pytest.raises(DefinitionNotFound, match="definitions"):
            await runtime.resume(run_id)


async def test_a_definition_may_be_a_reference(url, place):
    """`definitions` takes an import path, checked when the Runtime is made; it goes before the place of the start."""
    run_id, request = await parked(url, place("old", "Old."))
    async with Runtime(url, definitions={"clerk": place("new", "New.")}) as runtime:
        await runtime.docket.decide(request, "approve", by="human:ana")
        assert (await (await runtime.run(run_id)).result("end")).answer == "New."
    with pytest.raises(DefinitionError, match="there is no file"):
        Runtime(url, definitions={"clerk": "nowhere.py:clerk"})


async def test_a_place_that_holds_another_agent_is_told(url, place, tmp_path):
    """Neither a renamed agent nor one with a governance of its own is driven for it."""
    source = place("moved", "Never.")
    run_id, _ = await parked(url, source)
    renamed = Agent("other", model=ScriptedModel([say("Never.")]))
    async with Runtime(url, load=lambda _: renamed) as runtime:
        with pytest.raises(DefinitionNotFound, match="is 'other'"):
            await runtime.resume(run_id)
    governed = clerk_of().with_(governance=Governance(timeout=1.0))
    async with Runtime(url, governance=Governance(), load=lambda _: governed) as runtime:
        with pytest.raises(DefinitionNotFound, match="only the outermost"):
            await runtime.resume(run_id)


async def test_own_drives_only_what_was_started_or_resumed_here(url):
    """A decision about another run is written and left to others; a resume makes the run one's own."""
    agent = clerk_of()
    async with Runtime(url) as runtime:
        runs = [await runtime.start(agent, "refund 1") for _ in range(2)]
        requests = [(await run.result()).requests[0].id for run in runs]
    async with Runtime(url, definitions={"clerk": agent}, drive="own") as runtime:
        for request in requests:
            await runtime.docket.decide(request, "approve", by="human:ana")
        assert (await (await runtime.resume(runs[0].id)).result("end")).status == "completed"
        assert runtime.row(runs[1].id).status == "waiting"
        assert runtime.store.woken("", runtime.clock.now()) == [runs[1].id]
    async with Runtime(url, definitions={"clerk": agent}) as runtime:
        assert (await (await runtime.run(runs[1].id)).result("end")).status == "completed"


async def test_the_same_key_takes_a_run_up(url):
    """A start with a known key drives that run on, also where only own runs are driven."""
    agent = clerk_of()
    async with Runtime(url) as runtime:
        run = await runtime.start(agent, "refund 1", key="k")
        request = (await run.result()).requests[0].id
    async with Runtime(url, drive=False) as runtime:
        await runtime.docket.decide(request, "approve", by="human:ana")
    async with Runtime(url, drive="own") as runtime:
        again = await runtime.start(agent, "refund 1", key="k")
        assert again.id == run.id
        assert (await again.result("end")).answer == "From here."


async def test_a_decided_run_counts_as_parked_only_when_a_driver_had_its_turn(url):
    """`result()` after a decision elsewhere waits for what the decision brings, not for the park before it."""
    agent = clerk_of()
    async with Runtime(url) as runtime:
        run = await runtime.start(agent, "refund 1")
        request = (await run.result()).requests[0].id
        async with Runtime(url, drive=False) as elsewhere:
            await elsewhere.docket.decide(request, "approve", by="human:ana")
        assert (await run.result()).status == "completed"


async def test_a_run_says_what_another_process_may_not_find(url, place, tmp_path):
    """Closures are named, in the handle and in the event; what a module holds is not, nor anything in memory."""

    @tool
    async def local() -> str:
        """Do something."""
        return "done"

    agent = Agent("closed", model=ScriptedModel([say("Done.")] * 2), tools=[local, refund])
    async with Runtime(url) as runtime:
        run = await runtime.start(agent, "go")
        [lost] = run.resumable_here_only
        assert lost.endswith(".<locals>.local")
        first = await anext(run.events())
        assert list(first.payload["resumable_here_only"]) == [lost]
        source = place("named", "Paid.")
        assert (await runtime.start(definition_of(source), "go")).resumable_here_only == ()
    async with Runtime() as runtime:
        assert (await runtime.start(agent, "go")).resumable_here_only == ()


async def test_another_wiring_is_recorded_and_the_run_goes_on(url):
    """Other instructions, models or limits are told in the log, once; the same ones are not."""
    async with Runtime(url) as runtime:
        run = await runtime.start(clerk_of(), "refund 1")
        request = (await run.result()).requests[0].id
    other = clerk_of("Elsewhere.").with_(instructions="Be brief.")
    async with Runtime(url, definitions={"clerk": other}) as runtime:
        await runtime.docket.decide(request, "approve", by="human:ana")
        assert (await (await runtime.run(run.id)).result("end")).answer == "Elsewhere."
        [told] = [payload for kind, payload in (await runtime.trace(run.id)).steps if kind == "wiring_changed"]
        assert told["from"] != told["to"]
    assert len({wiring_of(each) for each in (clerk_of(), other, other.with_(max_steps=3), clerk_of("x"))}) == 3
