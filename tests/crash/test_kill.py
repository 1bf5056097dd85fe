"""Workers killed or stopped at every named point: nothing is lost, nothing happens twice."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from driving import check

from lictor import Runtime
from lictor.testing import invariants

pytestmark = pytest.mark.crash

WORKER = Path(__file__).with_name("worker.py")
SOURCES = Path(__file__).parents[2] / "src"
TOOLS = ("look", "mark", "send", "refund")
ONCE = ("send", "refund")
# Where a worker dies, and the tools whose effect may be there twice: those that may be repeated.
POINTS = {
    "submit.before": (),
    "submit.after": (),
    "claim.before_first_step": (),
    "intent.before": ("look",),  # the result of what may be repeated is written within some milliseconds
    "intent.after": (),
    "effect.before": (),
    "effect.after": ("look",),
    "intent.before:1": ("mark",),
    "intent.after:1": (),
    "effect.before:2": (),
    "effect.after:1": ("mark",),
    "effect.after:2": (),
    "park.before": (),
    "park.after": (),
    "claim.before_first_step:1": (),
    "intent.before:2": (),
    "intent.after:2": (),
    "effect.before:3": (),
    "effect.after:3": (),
    "finish.before": (),
    "finish.after": (),
}

# The same worker again: where it differs from another one, which is told nothing.
SAME_WORKER = [point for point in POINTS if not point.startswith(("intent", "effect"))]
SAME_WORKER += ["effect.after", "effect.after:2"]


class Shop:
    """One store, one file of effects, and the processes that work on them."""

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/s.db"
        self.effects = folder / "effects"
        self.effects.touch()
        self.processes = []
        self.asked = []

    def worker(self, mode, **environment):
        process = subprocess.Popen(
            [sys.executable, str(WORKER), mode, self.url, str(self.effects)],
            env={**os.environ, "PYTHONPATH": str(SOURCES), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def done(self):
        return Counter(self.effects.read_text().split())

    async def decide(self, runtime):
        """Answer what waits, as a person would who can look whether the effect is there."""
        if not runtime._rows.find(status="waiting"):
            return  # a decision that comes before the park is taken within the stint, and some points are not reached
        for request in await runtime.docket.pending():
            verb, extra = "approve", {}
            if request.kind == "unknown_effect":
                verb, extra = ("skip", {}) if self.done()[request.tool] else ("retry", {})
            self.asked.append((request.kind, request.tool, verb))
            await runtime.docket.decide(request.id, verb, by="human:ana", **extra)

    async def decide_until(self, process):
        """Decide from a third process, which drives nothing, until a worker ended."""
        async with Runtime(self.url, drive=False) as runtime:
            async with asyncio.timeout(20):
                while process.poll() is None:
                    await self.decide(runtime)
                    await asyncio.sleep(0.02)  # budget: the other side is a real process

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


def wait_for(what, seconds=15.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)  # budget: the other side is a real process


async def die(shop, point):
    """Run a worker until it is killed at a point, deciding what it asks."""
    process = shop.worker("start", LICTOR_CRASH_AT=point)
    await shop.decide_until(process)
    assert process.returncode == -signal.SIGKILL, process.communicate()[0]


async def holds(shop):
    """What must be true of the store afterwards."""
    worker_agent = _agent()
    async with Runtime(shop.url, definitions={"clerk": worker_agent}, drive=False) as runtime:
        rows = runtime._rows.values()
        assert [row.status for row in rows] == ["completed"]
        run = await runtime.run(rows[0].run_id)
        await invariants(run)
        check(runtime.store, run.id)
        requests = await runtime.docket.requests(run=run.id)
        assert [request.status for request in requests if request.status == "pending"] == []
        return await run.result()


def _agent():
    """The agent of the worker; its program runs on import, so that it is built anew here."""
    from lictor import Agent, tool
    from lictor.models import ScriptedModel

    def named(name, **options):
        async def body(order: int) -> str:
            """Never called here."""
            raise AssertionError

        body.__name__ = name
        return tool(**options)(body)

    tools = [
        named("look", effect="pure"),
        named("mark", effect="idempotent"),
        named("send"),
        named("refund", requires_approval=True),
    ]
    return Agent("clerk", model=ScriptedModel([]), tools=tools)


def effects_fit(shop, twice):
    done = shop.done()
    assert {name: done[name] for name in ONCE} == dict.fromkeys(ONCE, 1), "an effect that must be once"
    for name in ("look", "mark"):
        assert 1 <= done[name] <= (2 if name in twice else 1), f"{name}: {done[name]}"


@pytest.mark.parametrize("point", SAME_WORKER)
async def test_a_restarted_worker_finishes_what_the_killed_one_began(shop, point):
    """The same start in a new process gives the same run, with each effect as often as it may be."""
    await die(shop, point)
    process = shop.worker("start")
    await shop.decide_until(process)
    assert process.communicate()[0].split("\n")[1] == "completed All done."
    effects_fit(shop, POINTS[point])
    assert (await holds(shop)).answer == "All done."


@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith("submit.before")])
async def test_a_worker_that_was_already_open_adopts_what_the_killed_one_began(shop, point):
    """Another process takes the run over without being told, and finishes it."""
    await die_with_peer(shop, point)
    effects_fit(shop, POINTS[point])
    assert (await holds(shop)).answer == "All done."


async def die_with_peer(shop, point):
    # The peer must be idle while the first one works: it is stopped until that one is dead.
    peer = shop.worker("serve")
    assert peer.stdout.readline() == "open\n"
    peer.send_signal(signal.SIGSTOP)
    await die(shop, point)
    peer.send_signal(signal.SIGCONT)
    await shop.decide_until(peer)
    assert peer.communicate()[0] == "completed All done.\n"


async def test_a_once_tool_killed_after_its_effect_is_asked_about_and_not_repeated(shop):
    """Somebody who looks says skip; the effect is there once, and the question was asked once."""
    await die(shop, "effect.after:2")
    process = shop.worker("start")
    await shop.decide_until(process)
    assert shop.asked.count(("unknown_effect", "send", "skip")) == 1
    assert shop.done()["send"] == 1


async def test_a_once_tool_killed_before_its_effect_is_asked_about_and_run_on_retry(shop):
    """Somebody who looks says retry; the effect is there once."""
    await die(shop, "intent.after:1")
    process = shop.worker("start")
    await shop.decide_until(process)
    assert shop.asked.count(("unknown_effect", "send", "retry")) == 1
    assert shop.done()["send"] == 1


@pytest.mark.parametrize("point", ["intent.before:1", "effect.after:2", "finish.before"])
async def test_a_worker_stopped_beyond_its_lease_writes_nothing_when_it_goes_on(shop, point):
    """The other worker takes over and finishes; the first one wakes up, tells the same end, and changed nothing."""
    peer = shop.worker("serve")
    assert peer.stdout.readline() == "open\n"
    peer.send_signal(signal.SIGSTOP)
    first = shop.worker("start", LICTOR_PAUSE_AT=point)
    async with Runtime(shop.url, drive=False) as runtime:
        async with asyncio.timeout(20):
            while not stopped(first.pid):
                await shop.decide(runtime)
                await asyncio.sleep(0.02)  # budget: the other side is a real process
        await asyncio.sleep(0.7)  # budget: the lease of a stopped process has to run out
    peer.send_signal(signal.SIGCONT)
    await shop.decide_until(peer)
    assert peer.communicate()[0] == "completed All done.\n"
    before, done = stored(shop), shop.done()
    first.send_signal(signal.SIGCONT)
    assert first.communicate(timeout=20)[0].split("\n")[1] == "completed All done."
    assert (stored(shop), shop.done()) == (before, done)
    effects_fit(shop, POINTS[point])
    assert (await holds(shop)).answer == "All done."


def stopped(pid):
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"Z")


def stored(shop):
    """The whole log and the rows, as they are in the file."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(shop.url.removeprefix("sqlite:///"))) as db:
        events = db.execute("SELECT run, seq, kind, hash FROM event ORDER BY root, cursor").fetchall()
        return events, db.execute("SELECT key, body, status FROM run").fetchall()
