"""The fixture `runtime` over a file: crashes lose what was not written, and the file is opened anew."""

import sqlite3
from contextlib import closing

import pytest

from lictor import Agent, tool
from lictor.errors import DefinitionError
from lictor.runtime import Runtime
from lictor.testing import DrivenRuntime, call, fail, say

POINTS = ["submit.before", "submit.after", "claim.before_first_step", "intent.before", "intent.after", "effect.before"]
POINTS += ["effect.after", "finish.before", "finish.after"]


@pytest.fixture
def lictor_store(tmp_path):
    return f"sqlite:///{tmp_path}/kit.db"


def clerk(effects):
    @tool
    async def send() -> str:
        """Send a letter."""
        effects.append("sent")
        return "sent"

    return Agent("clerk", model="openai:gpt-5-mini", tools=[send])


@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_at_every_point_over_a_file(runtime, point):
    """The reopened runtime goes on from the file; a lost effect is asked about, never repeated."""
    effects = []
    runtime.script(clerk=[call("send"), say("done")])
    runtime.crash_at(point)
    result = await runtime.run_to_park(clerk(effects), "go")
    for request in result.requests:
        assert (request.kind, point) in [
            ("unknown_effect", after) for after in POINTS[4:8]
        ]  # also with its result unwritten
        result = await runtime.decide(request, "skip" if effects else "retry")
    assert (result.status, effects, runtime.crashes) == ("completed", ["sent"], 1)


async def test_time_jumps_over_a_file_as_over_memory(runtime):
    """Retries wait in virtual time; the heartbeat of a driver is no work that the clock waits for."""
    before = runtime.clock.now()
    runtime.script(clerk=[fail(429, retry_after=60), fail(500), say("done")])
    assert (await runtime.run_to_park(clerk([]), "go")).answer == "done"
    assert runtime.clock.now() - before >= 60


async def test_another_runtime_over_the_file_sees_the_run(runtime, lictor_store):
    """It is a real file, which any process may read while the test goes on."""
    runtime.script(clerk=[say("done")])
    run = await runtime.start(clerk([]), "go")
    await run.result()
    async with Runtime(lictor_store, drive=False) as other:
        assert (await other.run(run.id)).status == "completed"
    with closing(sqlite3.connect(lictor_store.removeprefix("sqlite:///"))) as db:
        assert db.execute("SELECT count(*) FROM event WHERE run = ?", (run.id,)).fetchone()[0] > 0


async def test_no_other_kind_of_store_is_opened():
    """A URL that names none is refused when the runtime is made."""
    with pytest.raises(DefinitionError, match="use memory: or sqlite"):
        DrivenRuntime("postgres://x")
