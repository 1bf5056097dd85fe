"""A disk that is full when a run is submitted, decided, parked or anywhere between: told, and nothing half done."""

import contextlib
import sqlite3

import pytest
from scenarios import clerk, parked
from shopfloor import Shop, effects_fit, holds

from lictor import ALLOW, Runtime, faults, interceptor
from lictor.errors import StoreError
from lictor.journal.sqlite import SqliteStore
from lictor.testing import invariants, sweep

LIMITS = range(80_000, 400_000, 40_000)


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


@contextlib.contextmanager
def full(store):
    """No page more for this store within the block, as on a full disk."""
    with store.transaction() as db:
        pass
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    try:
        yield
    finally:
        db.execute("PRAGMA max_page_count = 1073741823")


LONG = "x" * 50_000


async def test_a_disk_full_at_the_start_starts_nothing(shop):
    """No run, no entry, no conversation taken; the same start works when there is room."""
    agent = clerk(shop)
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        with full(runtime.store), pytest.raises(StoreError, match="disk is full"):
            await runtime.start(agent, LONG, key="k", conversation="c")
        assert runtime._rows.values() == []
        assert (await runtime.conversation("c")).owner is None
        with contextlib.closing(sqlite3.connect(runtime.store.path)) as db:
            assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)
        run = await runtime.start(agent, LONG, key="k", conversation="c")
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result()).status == "completed"
        assert (await sweep(runtime), shop.done()["pay"]) == ([], 1)


async def test_a_disk_full_at_a_decision_leaves_the_request_open(shop):
    """Who decides is told, the run waits on, and the same decision works when there is room."""
    agent = clerk(shop)
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        run, request = await parked(runtime, agent)
        with full(runtime.store), pytest.raises(StoreError, match="disk is full"):
            await runtime.docket.decide(request.id, "approve", feedback=LONG, by="human:ana")
        assert (await runtime.docket.get(request.id) == request, run.status) == (True, "waiting")
        assert shop.done()["pay"] == 0
        await runtime.docket.decide(request.id, "approve", feedback=LONG, by="human:ana")
        assert (await run.result()).status == "completed"
        await invariants(run)
        assert (await sweep(runtime), shop.done()["pay"]) == ([], 1)


async def test_a_disk_full_at_a_park_ends_nothing(shop):
    """Whoever waits is told; the run goes on from what is stored, asks once, and pays once."""
    agent = clerk(shop)
    async with Runtime(shop.url, definitions={"clerk": agent}) as runtime:
        with contextlib.ExitStack() as trouble:

            def fill():
                trouble.enter_context(full(runtime.store))
                log = runtime.store.log(run.id, run.id)
                log.append("note", {"text": LONG}, runtime.clock.now())

            faults.arm("park.before", fill)
            run = await runtime.start(agent, "pay")
            with pytest.raises(StoreError, match="disk is full"):
                await run.result()
        await runtime.resume(run.id)
        [request] = (await run.result()).requests
        assert len(await runtime.docket.requests(run=run.id)) == 1
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result()).status == "completed"
        await invariants(run)
        assert (await sweep(runtime), shop.done()["pay"]) == ([], 1)


class FullForAMoment(SqliteStore):
    """A store whose next transaction of a driver fails once it is told so; right after there is room again."""

    fails = False

    def transaction(self, root=None, **how):
        if root is not None and self.fails:
            self.fails = False
            raise StoreError("the disk is full")
        return super().transaction(root, **how)


async def test_a_question_that_cannot_be_written_is_no_verdict(shop):
    """It denies nothing and blocks nothing: the run stays as it is stored, and asks when there is room."""

    @interceptor(points=["pre_tool_call"], name="filler", version="1")
    def filler(context):
        store.fails = not filled
        filled.append(True)
        return ALLOW

    filled = []
    agent = clerk(shop).with_(interceptors=[filler])
    with contextlib.closing(FullForAMoment(shop.url)) as store:
        async with Runtime(store, definitions={"clerk": agent}) as runtime:
            run = await runtime.start(agent, "pay")
            with pytest.raises(StoreError, match="disk is full"):
                await run.result()
            assert (run.status, len(filled)) == ("running", 1)
            await runtime.resume(run.id)
            [request] = (await run.result()).requests
            await runtime.docket.decide(request.id, "approve", by="human:ana")
            assert (await run.result()).status == "completed"
            assert (await sweep(runtime), shop.done()["pay"]) == ([], 1)


@pytest.mark.crash
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_file_that_may_not_grow_loses_nothing(shop, limit):
    """The system refuses a write somewhere in the run: it is told, and a worker with room finishes the run."""
    first = shop.worker("start", FILE_LIMIT=str(limit))
    await shop.decide_until(first)
    told = first.communicate()[0]
    assert "StoreError" in told, told
    second = shop.worker("start")
    await shop.decide_until(second)
    assert second.communicate()[0].split("\n")[1] == "completed All done."
    effects_fit(shop, twice=("look", "mark"))
    await holds(shop)
