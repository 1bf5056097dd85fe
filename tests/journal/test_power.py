"""`durability="power"`: what must not be lost waits for the disk, the rest does not."""

import asyncio
from contextlib import closing

import pytest

from lictor import Agent, Runtime, tool
from lictor.errors import DefinitionError
from lictor.journal import MemoryStore, open_store
from lictor.models import ScriptedModel, call, say


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def send() -> str:
    """Send a letter."""
    return "sent"


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


class Commits:
    """The commits of a store: how sure each was, and the last statement before it that wrote something."""

    def __init__(self, store):
        self.found = []
        self._level = "NORMAL"
        self._wrote = []
        store._db.set_trace_callback(self._see)

    def _see(self, statement):
        if statement.startswith("PRAGMA synchronous"):
            self._level = statement.rpartition(" ")[2]
        elif statement.startswith(("INSERT", "UPDATE", "DELETE")):
            self._wrote.append(statement)
        elif statement == "COMMIT":
            self.found.append((self._level, "\n".join(self._wrote)))
            self._wrote = []

    def levels(self, text):
        """How sure the commits were that wrote this, as text or in a payload."""
        return [level for level, wrote in self.found if text in wrote or text.encode().hex().upper() in wrote.upper()]


def append(store):
    store.log("r", "r").append("e", {}, 1.0)


async def run_all(store):
    """A run with a pure call, one that may run once, and one that is approved, to its end."""
    script = [call("look"), call("send"), call("pay"), say("Done.")]
    agent = Agent("clerk", model=ScriptedModel(script), tools=[look, send, pay])
    async with Runtime(store, definitions={"clerk": agent}, durability=store.durability) as runtime:
        run = await runtime.start(agent, "go")
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result("end")).answer == "Done."


@pytest.mark.parametrize(("durability", "sure"), [("power", "FULL"), ("process", "NORMAL")])
def test_intents_decisions_and_outcomes_wait_for_the_disk(tmp_path, durability, sure):
    """With `power` these are committed with FULL, starting and parking are not; with `process` nothing is."""
    with closing(open_store(f"sqlite:///{tmp_path}/s.db", durability=durability)) as store:
        commits = Commits(store)
        asyncio.run(run_all(store))
        assert commits.levels("decision_taken") == [sure]
        assert commits.levels("'completed'") == [sure]
        for name in ("send", "pay"):
            intent = commits.levels(f'"tool":"{name}","arguments":{{}},"attempt"')
            assert intent == [sure] or commits.levels("'synced'")  # or the writer thread was first
        assert commits.levels("'waiting'") == ["NORMAL"]
        assert commits.levels("'run_started'") == ["NORMAL"]


def test_a_sure_block_within_another_one_is_owed(tmp_path):
    """The outer transaction was begun without it: a sure commit follows at once, and nothing after it is dearer."""
    with closing(open_store(f"sqlite:///{tmp_path}/s.db", durability="power")) as store:
        levels = []
        store._db.set_trace_callback(levels.append)
        with store.transaction():
            append(store)
            with store.transaction(sure=True):
                pass
        synced = [text for text in levels if text.startswith(("PRAGMA", "COMMIT", "INSERT OR"))]
        assert [text[:25] for text in synced] == [
            "PRAGMA synchronous = NORM", "COMMIT", "PRAGMA synchronous = FULL", "INSERT OR REPLACE INTO me",
        ]  # fmt: skip
        levels.clear()
        with store.transaction():
            append(store)
        assert "PRAGMA synchronous = FULL" not in levels


def test_a_barrier_behind_the_writer_thread_waits_for_the_disk_all_the_same(tmp_path):
    """The entries are in the file already, not yet on the disk: the barrier writes something, once."""
    with closing(open_store(f"sqlite:///{tmp_path}/s.db", durability="power")) as store:
        append(store)
        store.flush()
        statements = []
        store._db.set_trace_callback(statements.append)
        for expected in (1, 1):
            asyncio.run(store.barrier("r"))
            assert len([text for text in statements if text.startswith("INSERT OR REPLACE INTO meta")]) == expected


def test_a_store_that_keeps_less_is_refused(tmp_path):
    """Memory survives nothing, an opened store has what it was opened with, and other words are no durability."""
    url = f"sqlite:///{tmp_path}/s.db"
    with pytest.raises(DefinitionError, match="memory: survives nothing"):
        Runtime("memory:", durability="power")
    with pytest.raises(DefinitionError, match="use 'process' or 'power'"):
        Runtime(url, durability="always")
    for store in (MemoryStore(), open_store(url)):
        with pytest.raises(DefinitionError, match="open the store so"):
            Runtime(store, durability="power")
        store.close()
