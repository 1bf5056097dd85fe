"""A store that fails says what to do, leaves nothing half written, and lets a run be continued later."""

import asyncio
import contextlib
import os
import sqlite3
import time
from contextlib import closing

import pytest
from driving import check

from lictor import Agent, Runtime, tool
from lictor.errors import NewerSchema, OlderSchema, StoreError
from lictor.journal import open_store, sqlite_file
from lictor.journal.sqlite import SqliteStore
from lictor.models import ScriptedModel, call, say
from lictor.runtime import RUNS, SIGNALS, RunRow, Signal

NOBODY = 65534


def root_row(run_id="r", **fields):
    return RunRow(run_id=run_id, definition="agent", task="go", created=1.0, **fields)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


@pytest.fixture
def impatient(monkeypatch):
    """Writers that do not wait long for another one."""
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)


@contextlib.contextmanager
def full(store):
    """No page more for this store within the block, as on a full disk."""
    with store.transaction() as db:
        pass
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        db.execute("PRAGMA max_page_count = 1073741823")


@contextlib.contextmanager
def locked(path):
    """Another process is in the middle of a write within the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def fill(store):
    """Append more than the pages in use can take."""
    log = store.log("r", "r")
    for number in range(20):
        log.append("big", {"text": "x" * 5_000, "number": number}, 1.0)


def test_a_full_disk_is_told_and_nothing_is_half_written(url):
    """Entries and the row of the block stay out together; what was queued is written when there is room."""
    with closing(open_store(url)) as store, closing(open_store(url)) as other:
        with full(store):
            fill(store)
            with pytest.raises(StoreError, match="the disk is full; nothing was written"):
                store.table(RUNS)["r"] = root_row()
            with pytest.raises(StoreError, match="disk is full"):
                asyncio.run(store.barrier("r"))
            assert list(other.entries("r")) == []
            assert "r" not in other.table(RUNS)
        asyncio.run(store.barrier("r"))
        assert [entry.payload["number"] for entry in other.entries("r")] == list(range(20))


def test_a_locked_file_is_told_and_the_write_can_be_tried_again(impatient, url, path):
    """A writer that waited in vain says who is in the way; nothing of it is lost."""
    with closing(open_store(url)) as store:
        with locked(path):
            store.log("r", "r").append("a", {}, 1.0)
            with pytest.raises(StoreError, match="another process holds it; try again"):
                asyncio.run(store.barrier("r"))
            with pytest.raises(StoreError, match="another process holds it; try again"):
                store.table(RUNS)["r"] = root_row()
        asyncio.run(store.barrier("r"))
    with closing(open_store(url)) as store:
        assert [entry.kind for entry in store.entries("r")] == ["a"]
        assert "r" not in store.table(RUNS)


def test_a_file_that_may_only_be_read_is_refused(tmp_path, url, path):
    """Writing to a file of somebody else says so, and the file stays as it is."""
    with closing(open_store(url)) as store:
        store.table(RUNS)["r"] = root_row()
    path.chmod(0o444)
    before = path.read_bytes()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)  # nothing is read-only for root
    try:
        with pytest.raises(StoreError, match=r"cannot be (written|opened)"), closing(open_store(url)) as store:
            store.table(RUNS).remove("r")
    finally:
        os.seteuid(user)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_and_left_alone(url, path):
    """An older program does not touch what a newer one wrote, and says which schema it found."""
    open_store(url).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(NewerSchema, match=r"schema 99.*upgrade Lictor"):
        open_store(url)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)


def test_an_older_schema_is_refused_where_nothing_may_be_migrated(url, monkeypatch):
    """`migrate=False` says what to run instead."""
    open_store(url).close()
    monkeypatch.setattr(sqlite_file, "SCHEMA", sqlite_file.SCHEMA + 1)
    with pytest.raises(OlderSchema, match="lictor migrate"):
        open_store(url, migrate=False)


def test_a_database_of_another_program_is_left_alone(url, path):
    """A file with tables of the same name that are not ours is refused, and nothing is added to it."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE event (whatever)")
        db.commit()
    with pytest.raises(StoreError, match="belongs to another program"):
        open_store(url)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("event",)]


def test_a_file_that_is_no_database_is_refused_and_left_alone(url, path):
    """Text is no store, and it is still there afterwards."""
    path.write_text("my notes\n" * 500)
    with pytest.raises(StoreError, match="no SQLite database"):
        open_store(url)
    assert path.read_text() == "my notes\n" * 500


def test_a_damaged_file_is_told(url, path):
    """Pages that were overwritten are found when they are read, by whichever read it is."""
    with closing(open_store(url)) as store:
        store.table(RUNS)["r"] = root_row()
        fill(store)
        (root,) = store.read("SELECT rootpage FROM sqlite_master WHERE name = 'meta'")[0]
        (kept,) = store.read("PRAGMA page_size")[0]
    data = path.read_bytes()
    assert root == 2, "the page that opening reads is the first one behind the schema"
    path.write_bytes(data[: 2 * kept] + b"\x55" * (len(data) - 2 * kept))
    with closing(open_store(url)) as store:
        for read in (
            lambda: store.entries("r"),
            lambda: store.root_entries("r"),
            lambda: store.table(RUNS).values(),
            lambda: store.table(RUNS).get("r"),
            lambda: store.woken("me", 1.0),
            lambda: store.holder("r", 0.0),
        ):
            with pytest.raises(StoreError, match="the file is damaged; restore a backup"):
                read()


def test_a_folder_that_is_not_there_is_told(tmp_path):
    """The text asks for the folder."""
    with pytest.raises(StoreError, match="does the folder exist"):
        open_store(f"sqlite:///{tmp_path}/none/s.db")


def test_a_closed_store_says_so(url):
    """Reading after closing is an error of ours, with the file in it."""
    store = open_store(url)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.root_entries("r")


# ---- a Runtime that meets one


class Disturbed:
    """An agent whose first tool calls `disturb` in the middle of a run, and whose second one has an effect."""

    def __init__(self):
        self.effects = []
        self.disturb = lambda: None

        @tool(effect="pure")
        async def break_it(text: str) -> str:
            """Disturb the store."""
            self.disturb()
            return text

        @tool
        async def send() -> str:
            """Send a letter."""
            self.effects.append("sent")
            return "sent"

        script = [call("break_it", text="x" * 300_000), call("send"), say("Sent.")]
        self.agent = Agent("clerk", model=ScriptedModel(script), tools=[break_it, send])


@pytest.mark.parametrize("fault", ["full", "locked"])
async def test_a_run_that_meets_a_failing_store_tells_it_and_is_continued_later(impatient, url, path, fault):
    """Who waits gets the error, nothing hangs, no effect without its intent; a later Runtime finishes the run."""
    work = Disturbed()
    with contextlib.ExitStack() as trouble:
        async with asyncio.timeout(20):
            async with Runtime(url, definitions={"clerk": work.agent}) as runtime:
                work.disturb = lambda: trouble.enter_context(full(runtime.store) if fault == "full" else locked(path))
                run = await runtime.start(work.agent, "go")
                with pytest.raises(StoreError, match="disk is full" if fault == "full" else "another process holds it"):
                    await run.result()
                assert work.effects == []
                trouble.close()
    work.disturb = lambda: None
    async with asyncio.timeout(20):
        async with Runtime(url, definitions={"clerk": work.agent}) as runtime:
            result = await (await runtime.run(run.id)).result()
            assert (result.status, result.answer, work.effects) == ("completed", "Sent.", ["sent"])
            check(runtime.store, run.id)


async def test_a_failing_store_does_not_end_the_runtime(impatient, url, path):
    """After the trouble the same Runtime starts and finishes other runs."""
    work = Disturbed()
    with contextlib.ExitStack() as trouble:
        async with asyncio.timeout(20), Runtime(url, definitions={"clerk": work.agent}) as runtime:
            work.disturb = lambda: trouble.enter_context(locked(path))
            run = await runtime.start(work.agent, "go")
            with pytest.raises(StoreError):
                await run.result()
            trouble.close()
            other = Agent("other", model=ScriptedModel([say("Hello.")]))
            assert (await (await runtime.start(other, "hi")).result()).answer == "Hello."


class FullForAMoment(SqliteStore):
    """A store whose first barrier fails; the disk has room again right after."""

    failed = False

    async def barrier(self, root):
        """Fail once."""
        if not self.failed:
            self.failed = True
            raise StoreError("the disk is full")
        await super().barrier(root)


async def test_a_fault_that_is_over_before_the_stint_settles_ends_no_run(url):
    """The run is left as it is stored, not recorded as failed; `resume` in the same Runtime finishes it."""
    work = Disturbed()
    with closing(FullForAMoment(url)) as store:
        async with asyncio.timeout(20), Runtime(store, definitions={"clerk": work.agent}) as runtime:
            run = await runtime.start(work.agent, "go")
            with pytest.raises(StoreError, match="disk is full"):
                await run.result()
            assert (run.status, work.effects) == ("running", [])
            result = await (await runtime.resume(run.id)).result()
            for request in result.requests:  # the intent was written all the same: a person is asked, as after a crash
                assert (request.kind, work.effects) == ("unknown_effect", [])
                await runtime.docket.decide(request.id, "retry", by="human:ana")
                result = await run.result()
            assert (result.status, result.answer, work.effects) == ("completed", "Sent.", ["sent"])
            assert "cause" not in [entry.kind for entry in store.entries(run.id)]
            check(store, run.id)


async def test_a_wake_up_that_comes_after_the_end_leaves_nothing_behind(url):
    """A stop that another process asks for in the very moment a run ends is dropped by whoever looks next."""
    agent = Agent("clerk", model=ScriptedModel([say("Hello.")]))
    async with Runtime(url) as runtime:
        run = await runtime.start(agent, "go")
        await run.result()
    with closing(open_store(url)) as store:
        store.table(SIGNALS)["s"] = Signal(id="s", root_run=run.id, cause={"status": "cancelled"})
        store.wake(run.id)
        assert store.woken("nobody", time.time()) == [run.id]
        async with Runtime(url, definitions={"clerk": agent}) as runtime:
            assert (await (await runtime.run(run.id)).result()).status == "completed"
        assert (store.woken("nobody", time.time()), store.table(SIGNALS).values()) == ([], [])
