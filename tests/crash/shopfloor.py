"""What the tests of this folder share: a store, a file of effects, real processes, and what must hold afterwards."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from driving import check

from lictor import Agent, Runtime, tool
from lictor.models import ScriptedModel
from lictor.testing import invariants, sweep

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
ONCE = ("send", "refund")


class Shop:
    """One store, one file of effects, and the processes that work on them.

    `mutation` takes a guard out of every worker that is started from then on (mutations.py).
    """

    def __init__(self, folder):
        self.url = f"sqlite:///{folder}/s.db"
        self.effects = folder / "effects"
        self.effects.touch()
        self.processes = []
        self.asked = []
        self.mutation = ""

    def start(self, *command, **environment):
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**os.environ, "PYTHONPATH": f"{SOURCES}", "MUTATION": self.mutation, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def worker(self, mode, **environment):
        """A process that drives runs (worker.py)."""
        return self.start(HERE / "worker.py", mode, self.url, self.effects, **environment)

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

    def stored(self):
        """The whole log and the rows, as they are in the file."""
        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as db:
            events = db.execute("SELECT run, seq, kind, hash FROM event ORDER BY root, cursor").fetchall()
            return events, db.execute("SELECT key, body, status FROM run").fetchall()

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


class Racer:
    """A process that decides, lets time pass, or cancels, all at one instant (racer.py)."""

    def __init__(self, shop, **environment):
        self._process = shop.start(HERE / "racer.py", shop.url, **environment)
        assert self._process.stdout.readline() == "open\n"

    def go(self, at, *actions):
        """Have it do these things at `at`; `outcomes` waits for them."""
        self._process.stdin.write(json.dumps({"at": at, "actions": actions}) + "\n")
        self._process.stdin.flush()

    async def outcomes(self):
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line.startswith("["), line + self._process.stdout.read()
        return json.loads(line)

    async def stands(self):
        """Wait until it was stopped at the point it was armed with."""
        await asyncio.to_thread(wait_for, lambda: stopped(self._process.pid))

    def goes_on(self):
        self._process.send_signal(signal.SIGCONT)

    async def ends(self):
        """Wait for its end; the exit code."""
        return await asyncio.to_thread(self._process.wait)


async def race(*pairs):
    """Send each racer its actions for one instant; all outcomes in one list."""
    at = time.time() + 0.05
    for racer, actions in pairs:
        racer.go(at, *actions)
    found = [await racer.outcomes() for racer, _ in pairs]
    return [outcome for outcomes in found for outcome in outcomes]


def wait_for(what, seconds=15.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)  # budget: the other side is a real process


def stopped(pid):
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"Z")


def agent_like_the_workers():
    """The agent of the worker, for who only reads; its program runs on import, so that it is built anew here."""

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


async def holds(shop):
    """What must be true of the store afterwards; the result of its one run."""
    async with Runtime(shop.url, definitions={"clerk": agent_like_the_workers()}, drive=False) as runtime:
        problems = await sweep(runtime)
        assert problems == [], problems
        rows = runtime._rows.values()
        assert [row.status for row in rows] == ["completed"]
        run = await runtime.run(rows[0].run_id)
        await invariants(run)
        check(runtime.store, run.id)
        requests = await runtime.docket.requests(run=run.id)
        assert [request.status for request in requests if request.status == "pending"] == []
        return await run.result()


def effects_fit(shop, twice=()):
    """Each effect is there once; those of `twice` may be there twice."""
    done = shop.done()
    assert {name: done[name] for name in ONCE} == dict.fromkeys(ONCE, 1), "an effect that must be once"
    for name in ("look", "mark"):
        assert 1 <= done[name] <= (2 if name in twice else 1), f"{name}: {done[name]}"
