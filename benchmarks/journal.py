"""What durability costs: runs over SQLite beside runs in memory, wake-ups, waiting runs, long runs.

    python benchmarks/journal.py [--json] [--rounds N] [--waiting N] [--steps N] [--only PART,PART]

Durability is `process`: what is written survives a killed process (WAL, synchronous=NORMAL). All figures are
of one run on one machine; ratios compare turns that were taken one right after the other. See benchmarks/README.md.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from _lictor import Model
from _workloads import ARGUMENTS_JSON, FINAL, MOST_CALLS, SYSTEM, TASK, Tally

from lictor import Agent, Runtime, tool
from lictor.journal import open_store
from lictor.models import Call, ModelResponse

HERE = Path(__file__).parent
PARTS = ("w1", "events", "wake", "waiting", "long")
MOST_OF_MEMORY = {"pure": 2.5, "once": 3.5}
LEAST_EVENTS = 5_000
MOST_WAKE_MS = 50.0
MOST_START_UP = 2.0
MOST_STORED = 2.0
Run = Callable[[], Awaitable[None]]


def agent(effect: str = "pure", *, calls: int = 1, approval: bool = False, name: str = "bench") -> Agent:
    """The agent of W1 (or of a longer run), with a tool of this effect."""
    tally = Tally()

    @tool(effect=effect, requires_approval=approval)
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return tally.add(a, b)

    return Agent(
        name, model=Model(tally, calls), instructions=SYSTEM, tools=[add], max_steps=calls + 1, history_window=8
    )


class Figures:
    """What was found, with the goals."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.goals: list[dict[str, Any]] = []

    def goal(self, what: str, value: float, limit: float, *, at_least: bool = False) -> None:
        """Hold a figure against what the project promises."""
        met = value >= limit if at_least else value <= limit
        self.goals.append({"goal": what, "value": short(value), "limit": limit, "at_least": at_least, "met": met})


def resident() -> float:
    """Kilobytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def short(value: float) -> float:
    return round(value, 1 if abs(value) >= 100 else 3)


# ---- W1 ---------------------------------------------------------------------------------------


async def batch(run: Run, count: int) -> tuple[float, float]:
    """CPU (all threads) and wall microseconds of one run, as the mean of a batch without GC."""
    gc.collect()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    gc.enable()
    return cpu / count * 1e6, wall / count * 1e6


def over(runtime: Runtime, which: Agent) -> Run:
    """One run in a Runtime, to its end."""

    async def run() -> None:
        result = await (await runtime.start(which, TASK)).result()
        assert result.answer == FINAL, result

    return run


async def w1(figures: Figures, folder: Path, rounds: int) -> None:
    """One tool call, two model calls: in memory, and over SQLite with a tool that may be repeated or not."""
    plain = agent()

    async def alone() -> None:
        assert (await plain.run(TASK)).answer == FINAL

    async with (
        Runtime("memory:") as memory,
        Runtime(f"sqlite:///{folder}/pure.db") as pure,
        Runtime(f"sqlite:///{folder}/once.db") as once,
    ):
        ways = {
            "agent.run": alone,
            "memory": over(memory, agent("pure")),
            "memory once": over(memory, agent("once", name="other")),
            "pure": over(pure, agent("pure")),
            "once": over(once, agent("once")),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for run in ways.values():
            await batch(run, 10)
        for number in range(rounds):
            names = [*list(ways)[number % len(ways) :], *list(ways)[: number % len(ways)]]
            for name in names:
                taken[name].append(await batch(ways[name], 20))
    figures.found["w1"] = {
        name: {"cpu_us": short(median(cpu for cpu, _ in of)), "wall_us": short(median(wall for _, wall in of))}
        for name, of in taken.items()
    }
    for name, beside in (("pure", "memory"), ("once", "memory once"), ("pure", "agent.run"), ("once", "agent.run")):
        ratios = [
            (ours[0] / theirs[0], ours[1] / theirs[1]) for ours, theirs in zip(taken[name], taken[beside], strict=True)
        ]
        cpu, wall = median(cpu for cpu, _ in ratios), median(wall for _, wall in ratios)
        figures.found["w1"][f"{name} : {beside}"] = {"cpu": short(cpu), "wall": short(wall)}
        if beside.startswith("memory"):
            figures.goal(f"CPU of W1 over SQLite with a {name} tool : in memory", cpu, MOST_OF_MEMORY[name])


# ---- events a second --------------------------------------------------------------------------


async def events(figures: Figures, folder: Path) -> None:
    """Eight runs at once in one process, each of 200 steps."""
    path, which = folder / "events.db", agent("pure", calls=200)
    async with Runtime(f"sqlite:///{path}") as runtime:
        began = time.perf_counter()
        runs = [await runtime.start(which, TASK) for _ in range(8)]
        for run in runs:
            assert (await run.result()).answer == FINAL
        seconds = time.perf_counter() - began
    with closing(open_store(f"sqlite:///{path}")) as store:
        counted = sum(len(store.entries(run.id)) for run in runs)
    size = path.stat().st_size
    figures.found["events"] = {
        "events": counted,
        "a_second": short(counted / seconds),
        "bytes_a_step": short(size / 8 / 201),
        "bytes_an_event": short(size / counted),
    }
    figures.goal("events a second from 8 runs", counted / seconds, LEAST_EVENTS, at_least=True)


# ---- a decision of another process -------------------------------------------------------------

PEER = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[2])
from lictor import Runtime
async def main():
    async with Runtime(sys.argv[1], drive=False) as runtime:
        print("open", flush=True)
        for line in sys.stdin:
            await runtime.docket.decide(line.strip(), "approve", by="human:ana")
            print(time.time(), flush=True)
asyncio.run(main())
"""


async def wake(figures: Figures, folder: Path) -> None:
    """From the commit of a decision in another process to the start of the tool here."""
    url = f"sqlite:///{folder}/wake.db"
    started: list[float] = []

    @tool(requires_approval=True)
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        started.append(time.time())
        return str(a + b)

    which = Agent("bench", model=Model(Tally(), 1), tools=[add])
    took: list[float] = []
    async with Runtime(url) as runtime:
        peer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PEER, url, str(HERE.parent / "src"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert peer.stdin is not None
        assert peer.stdout is not None
        await peer.stdout.readline()
        for number in range(40):
            run = await runtime.start(which, TASK)
            [request] = (await run.result()).requests
            await asyncio.sleep(0.003 * (number % 7))  # not in step with whoever looks at the file
            peer.stdin.write(request.id.encode() + b"\n")
            decided = float(await peer.stdout.readline())
            assert (await run.result("end")).answer == FINAL
            took.append((started[-1] - decided) * 1000)
        peer.stdin.close()
        await peer.wait()
    figures.found["wake"] = {"decisions": len(took), "median_ms": short(median(took)), "longest_ms": short(max(took))}
    figures.goal("a decision in another process wakes the run, median ms", median(took), MOST_WAKE_MS)


# ---- waiting runs ------------------------------------------------------------------------------


async def fill(url: str, count: int, which: Agent) -> None:
    """Put `count` waiting runs into a store."""
    async with Runtime(url) as runtime:
        for start in range(0, count, 50):
            runs = [await runtime.start(which, TASK) for _ in range(min(50, count - start))]
            for run in runs:
                assert (await run.result()).status == "suspended"


STARTER = """
import asyncio, gc, json, sys, time
sys.path.insert(0, sys.argv[2]); sys.path.insert(0, sys.argv[3])
from lictor import Runtime
from journal import agent, resident
async def main():
    which = agent("once", approval=True)
    async with Runtime("memory:", definitions={"bench": which}): pass
    async with Runtime(sys.argv[1] + ".none", definitions={"bench": which}): pass
    gc.collect()
    before = resident()
    began = time.perf_counter()
    runtime = Runtime(sys.argv[1], definitions={"bench": which})
    async with runtime:
        took = time.perf_counter() - began
        await asyncio.sleep(0.3)
        tasks = len(asyncio.all_tasks())
        cpu = time.process_time()
        await asyncio.sleep(2)
        cpu = time.process_time() - cpu
        print(json.dumps({"ms": took * 1000, "tasks": tasks, "kilobytes": resident() - before, "idle_cpu": cpu / 2}))
asyncio.run(main())
"""


def start_up(url: str) -> dict[str, float]:
    """A new process that opens a Runtime over a store: time, tasks, memory it took, CPU while idle."""
    done = subprocess.run(
        [sys.executable, "-c", STARTER, url, str(HERE.parent / "src"), str(HERE)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def waiting(figures: Figures, folder: Path, many: int) -> None:
    """A store with many runs that wait, beside one with a hundred."""
    which = agent("once", approval=True)
    few_url, many_url = f"sqlite:///{folder}/few.db", f"sqlite:///{folder}/many.db"
    await fill(few_url, 100, which)
    began = time.perf_counter()
    await fill(many_url, many, which)
    parked = time.perf_counter() - began
    few, lots = [], []
    for _ in range(5):
        few.append(start_up(few_url))
        lots.append(start_up(many_url))
    figures.found["waiting"] = {
        "runs": many,
        "parked_a_second": short(many / parked),
        **{
            f"{what}_{name}": short(median(each[what] for each in of))
            for name, of in (("100", few), ("many", lots))
            for what in ("ms", "tasks", "kilobytes", "idle_cpu")
        },
    }
    ratio = median(b["ms"] / a["ms"] for a, b in zip(few, lots, strict=True))
    figures.goal(f"start-up with {many} waiting runs : with 100", ratio, MOST_START_UP)
    more = median(each["tasks"] for each in lots) - median(each["tasks"] for each in few)
    figures.goal(f"tasks more with {many} waiting runs than with 100", more, 0)


# ---- a long run --------------------------------------------------------------------------------


async def long(figures: Figures, folder: Path, steps: int) -> None:
    """A run of many steps that waits for a decision: what it stores, and what it takes to go on with it."""
    found = {}
    for count in (steps // 10, steps):
        url = f"sqlite:///{folder}/long{count}.db"
        found[count] = await _long(url, count)
    figures.found["long"] = {str(count): each for count, each in found.items()}
    figures.goal(f"stored bytes : history, {steps} steps", found[steps]["stored_to_history"], MOST_STORED)
    resume = found[steps]["resume_ms"] / found[steps // 10]["resume_ms"]
    figures.found["long"]["resume_ratio"] = short(resume)


def asking(steps: int) -> tuple[Agent, list[float]]:
    """An agent that makes `steps` free calls, then one that somebody approves; when that tool started."""
    tally, started = Tally(), list[float]()

    @tool(effect="pure")
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return tally.add(a, b)

    @tool(requires_approval=True)
    async def last(a: int, b: int) -> str:
        """Add two numbers, at the end."""
        started.append(time.perf_counter())
        return tally.add(a, b)

    class Asking(Model):
        """Asks for `last` in the end."""

        async def respond(
            self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
        ) -> Any:
            await asyncio.sleep(0)  # a model takes time, and gives way
            done = settings["position"]
            if done == steps + 1:
                yield ModelResponse(FINAL)
            else:
                name = "last" if done == steps else "add"
                yield ModelResponse(None, (Call(f"c{done}", name, ARGUMENTS_JSON[done % MOST_CALLS]),), "tool_calls")

    model = Asking(tally, steps + 1)
    made = Agent("bench", model=model, instructions=SYSTEM, tools=[add, last], max_steps=steps + 2, history_window=8)
    return made, started


async def _long(url: str, steps: int) -> dict[str, Any]:
    which, _ = asking(steps)
    began = time.perf_counter()
    async with Runtime(url, definitions={"bench": which}) as runtime:
        run = await runtime.start(which, TASK)
        result = await run.result()
        assert result.status == "suspended", result.status
        [request] = result.requests
    ran = time.perf_counter() - began
    with closing(open_store(url)) as store:
        read: Any = store.read
        [(logged,)] = read("SELECT sum(length(payload)) FROM event WHERE run = ?", (run.id,))
        [(kept,)] = read("SELECT coalesce(sum(length(body)), 0) FROM snapshot WHERE run = ?", (run.id,))
        [(entries,)] = read("SELECT count(*) FROM event WHERE run = ?", (run.id,))
    which, started = asking(steps)
    gc.collect()
    began = time.perf_counter()
    async with Runtime(url, definitions={"bench": which}) as runtime:
        opened = time.perf_counter()
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await (await runtime.run(run.id)).result("end")).answer == FINAL
        resumed = started[0] - opened
    return {
        "steps": steps,
        "entries": entries,
        "step_us": short(ran / steps * 1e6),
        "open_ms": short((opened - began) * 1000),
        "resume_ms": short(resumed * 1000),
        "log_bytes": logged,
        "snapshot_bytes": kept,
        "bytes_a_step": short(logged / steps),
        "stored_to_history": short((logged + kept) / logged),
    }


# ---- printing ----------------------------------------------------------------------------------


def text(report: Mapping[str, Any]) -> str:
    """The report for a terminal."""
    lines = []
    for part, found in report["figures"].items():
        lines += [part, *[f"  {name}: {json.dumps(value)}" for name, value in found.items()]]
    lines.append("goals")
    for goal in report["goals"]:
        how = "at least" if goal["at_least"] else "at most"
        lines.append(f"  {goal['goal']}: {goal['value']} ({how} {goal['limit']}): {'met' if goal['met'] else 'MISSED'}")
    return "\n".join(lines)


async def measured(given: argparse.Namespace, parts: Sequence[str]) -> dict[str, Any]:
    """All parts, one after the other."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="lictor-bench-") as name:
        folder = Path(name)
        if "w1" in parts:
            await w1(figures, folder, given.rounds)
        if "events" in parts:
            await events(figures, folder)
        if "wake" in parts:
            await wake(figures, folder)
        if "waiting" in parts:
            await waiting(figures, folder, given.waiting)
        if "long" in parts:
            await long(figures, folder, given.steps)
    return {"durability": "process", "figures": figures.found, "goals": figures.goals}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of every way to run W1 (15)")
    parser.add_argument("--waiting", type=int, default=10_000, metavar="N", help="runs that wait (10,000)")
    parser.add_argument("--steps", type=int, default=5_000, metavar="N", help="steps of the long run (5,000)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,PART", help=f"of {', '.join(PARTS)}")
    given = parser.parse_args()
    parts = given.only.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"--only: choose from {', '.join(PARTS)}")
    report = asyncio.run(measured(given, parts))
    print(json.dumps(report, indent=2) if given.json else text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
