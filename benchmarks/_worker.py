"""One contender in a process of its own, driven line by line: a JSON request in, a JSON answer out.

    python _worker.py CONTENDER

Requests: `{"ask": "check", "workload": W}`, `{"ask": "calls", "workload": W}`,
`{"ask": "time", "workload": W, "runs": N}`. The first line out says who it is, or what is missing.
"""

import asyncio
import cProfile
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from _workloads import Contender, Tally, check_shape

MODULES = {
    "floor": "_floor",
    "lictor": "_lictor",
    "lictor-governed": "_lictor",
    "agent-framework": "_peer_agent_framework",
    "agent-framework-hooks": "_peer_agent_framework",
    "team": "_team_lictor",
    "team-governed": "_team_lictor",
    "team-governed-sqlite": "_team_lictor",
    "agent-framework-tools": "_peer_team_agent_framework",
    "agent-framework-groupchat": "_peer_team_agent_framework",
    "autogen-selector": "_peer_team_autogen",
    "langgraph-graph": "_peer_team_langgraph",
    "langgraph-supervisor": "_peer_team_langgraph",
}
WARM = {"W5": 1}  # executions before anything is counted, 3 unless named
PROFILED = {"W5": 1}  # executions that are counted, 5 unless named


class Worker:
    """Answers requests about one contender."""

    def __init__(self, contender: Contender, tally: Tally) -> None:
        self.contender = contender
        self.tally = tally

    async def check(self, workload: str) -> dict[str, Any]:
        """Run once and compare with the shape of the workload. Raises ShapeError."""
        self.tally.reset()
        answer = await self.contender.workloads[workload]()
        (self.contender.shape or check_shape)(workload, self.contender, self.tally, answer)
        return {"checked": workload}

    async def calls(self, workload: str) -> dict[str, Any]:
        """Function calls of one execution, Python and C, as cProfile counts them."""
        run = self.contender.workloads[workload]
        for _ in range(WARM.get(workload, 3)):
            await run()
        executions = PROFILED.get(workload, 5)
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(executions):
            await run()
        profile.disable()
        counted = sum(entry.callcount for entry in profile.getstats()) - 1  # without that of `disable`
        return {"calls": counted / executions}

    async def time(self, workload: str, runs: int) -> dict[str, Any]:
        """Microseconds of CPU and of wall time for one execution, as the mean of a batch without GC."""
        run = self.contender.workloads[workload]
        gc.collect()
        gc.disable()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(runs):
            await run()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        gc.enable()
        return {"cpu_us": cpu / runs * 1e6, "wall_us": wall / runs * 1e6}

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what one line asks for; a failure is an answer too."""
        workload = request["workload"]
        self.tally.yielding = workload == "W5"
        try:
            if request["ask"] == "check":
                return await self.check(workload)
            if request["ask"] == "calls":
                return await self.calls(workload)
            return await self.time(workload, request["runs"])
        except Exception as exc:  # noqa: BLE001 - a contender is foreign code; its failure is what we report
            return {"error": f"{type(exc).__name__}: {exc}"}


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a contender prints must not end up among the answers

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    name = sys.argv[1]
    tally = Tally()
    try:
        contender = importlib.import_module(MODULES[name]).build(name, tally)
    except ImportError as exc:
        say({"missing": f"{type(exc).__name__}: {exc}"})
        return
    say({"name": name, "versions": contender.versions, "workloads": list(contender.workloads)})
    asyncio.run(serve(Worker(contender, tally), say))


async def serve(worker: Worker, say: Callable[[dict[str, Any]], None]) -> None:
    """One line after the other; the loop stands still in between, as nothing is to be done."""
    async with worker.contender.opened():
        for line in sys.stdin:
            say(await worker.answer(json.loads(line)))


if __name__ == "__main__":
    main()
