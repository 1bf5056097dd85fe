"""A run whose stint met a failing store is nobody's for long, and nothing is kept of runs that are over."""

import asyncio
from contextlib import closing

import pytest

from lictor import Agent, Runtime, tool
from lictor.errors import ConversationBusy, StoreError
from lictor.journal import open_store
from lictor.journal.sqlite import SqliteStore
from lictor.models import ScriptedModel, call, fail, say
from lictor.runtime import stints
from lictor.testing import sweep


class Failing(SqliteStore):
    """A store that fails every intent while it is told to."""

    fails = True
    intents = 0

    async def barrier(self, root):
        """Fail, or do not."""
        self.intents += 1
        if self.fails:
            raise StoreError("the disk is full")
        await super().barrier(root)


class Work:
    """An agent with an effect."""

    def __init__(self):
        self.effects = []

        @tool(effect="idempotent")
        async def send() -> str:
            """Send a letter."""
            self.effects.append("sent")
            return "sent"

        self.agent = Agent("clerk", model=ScriptedModel([call("send"), say("Sent.")]), tools=[send])


@tool(external=True)
def ask() -> str:
    """Ask somebody."""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture
def lease(monkeypatch):
    """Leases of a fifth of a second."""
    monkeypatch.setattr(stints, "LEASE_SECONDS", 0.2)


async def until(is_so):
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - the other side is in a file
            await asyncio.sleep(0.02)  # budget: leases run in real time


async def test_another_driver_takes_a_run_whose_store_failed_under_the_first_one(lease, url):
    """The first one lives on, and its lease does not: it goes back as soon as the store can be written."""
    work = Work()
    with closing(Failing(url)) as store, closing(open_store(url)) as healthy:
        async with Runtime(store, definitions={"clerk": work.agent}) as first:
            run = await first.start(work.agent, "go")
            with pytest.raises(StoreError, match="disk is full"):
                await run.result()
            first._stints._rests[run.id] = (first.clock.now() + 3600, 3600.0)  # it leaves the run to others
            async with Runtime(healthy, definitions={"clerk": work.agent}) as second:
                await until(lambda: second.row(run.id).status == "completed")
                assert work.effects == ["sent"]
                assert (store.intents, await sweep(second)) == (1, [])
                assert (await run.result()).answer == "Sent."


async def test_a_driver_alone_tries_again_and_rests_longer_each_time(lease, url):
    """Nobody has to resume anything; while the store fails it is left alone for longer and longer."""
    work = Work()
    with closing(Failing(url)) as store:
        async with Runtime(store, definitions={"clerk": work.agent}) as runtime:
            run = await runtime.start(work.agent, "go")
            with pytest.raises(StoreError, match="disk is full"):
                await run.result()
            await until(lambda: store.intents == 3)
            assert runtime._stints._rests[run.id][1] == pytest.approx(0.8)
            assert work.effects == []
            store.fails = False
            await until(lambda: run.status == "completed")
            assert (work.effects, runtime._stints._rests, await sweep(runtime)) == (["sent"], {}, [])


@pytest.mark.parametrize("ending", ["completed", "failed", "busy", "again"])
async def test_what_was_given_for_a_run_is_kept_no_longer_than_it_may_be_driven(ending):
    """Interceptors, watchers and deps of runs that are over are let go; a run that may go on keeps its own."""
    agent = Agent("clerk", model=ScriptedModel([fail(400) if ending == "failed" else say("Hello.")]))
    gated = Agent("gated", model=ScriptedModel([call("ask")]), tools=[ask])
    async with Runtime() as runtime:
        for number in range(3):
            run = await runtime.start(agent, "go", deps=object(), key="k" if ending == "again" else str(number))
            assert (await run.result()).status == ("failed" if ending == "failed" else "completed")
            await run.result()
        if ending == "busy":
            parked = await runtime.start(gated, "go", deps=object(), conversation="c")
            await parked.result()
            with pytest.raises(ConversationBusy):
                await runtime.start(gated, "go", deps=object(), conversation="c")
            assert list(runtime._definitions.given) == [parked.id]
            await runtime.commands.cancel(parked.id, by="human:ana")
            assert (await parked.result()).status == "cancelled"
        assert runtime._definitions.given == {}
