"""What one emission costs: our gate and the reference SDK's emitter, in one process and in turns.

    python benchmarks/gate.py [--json] [--rounds N] [--batch-ms MS]

Building the context counts; messages of a history are built before, as a host has them. CPU time is the
thread's, without garbage collection. Exit code 1 if a goal that does not depend on the machine is missed.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from lictor.hooks import ALLOW, ContextBuilder, Gate, Verdict, interceptor
from lictor.values import freeze

try:
    import agent_hooks as sdk
except ImportError:
    sdk = None

Emit = Callable[[], Awaitable[Any]]

MOST_CALLS = 22
MOST_CALLS_OF_ANOTHER = 1
LEAST_RATIO = 10.0
LEAST_RATIO_OF_A_TRANSFORM = 10.0  # the fold and a second identity, for us as for the SDK
# Microseconds that the design asks for on an idle machine; reported, not judged.
TARGETS = {"small x1": 12.0, "20 messages x1": 150.0, "200 messages x1": 800.0}

ARGUMENTS = {"url": "https://example.org/a/b?c=d", "method": "GET", "retries": 3, "headers": {"accept": "text/html"}}
LINE = 'The quick brown fox jumps over the lazy dog; a line with "quotes" and a newline\n'
MEANING = {
    "small x1": "a tool call of 0.5 KB, one interceptor that allows",
    "small x5": "the same with five interceptors",
    "small transform": "the same with one that rewrites an argument",
    "20 messages x1": "a model call with 20 messages of 2 KB, one interceptor",
    "20 messages x5": "the same with five",
    "200 messages x1": "a model call with 200 messages of 2 KB, one interceptor",
    "200 messages x5": "the same with five",
}


@dataclass(slots=True, kw_only=True)
class Cell:
    """One implementation on one case: function calls, and CPU microseconds of every round."""

    calls: float = 0.0
    cpu: list[float] = field(default_factory=list)


def messages(count: int) -> list[dict[str, str]]:
    """A history of `count` messages of 2 KB."""
    text = (LINE * 40)[:2043]
    return [{"role": ("user", "assistant")[n % 2], "content": f"{n:05d}{text}"} for n in range(count)]


def ours(case: str) -> Emit:
    """Our builder and gate."""
    size, _, judges = case.rpartition(" ")
    verdict = Verdict.transform("$target.url", "https://example.org/x") if judges == "transform" else ALLOW

    def judge() -> Any:
        @interceptor()
        def give(context: Any) -> Verdict:
            return verdict

        return give

    gate = Gate([judge() for _ in range(5 if judges == "x5" else 1)])
    build = ContextBuilder(agent_id="agent-1", session_id="session-0001", framework="bench")
    if size == "small":
        return lambda: gate.emit(build.pre_tool_call("call-1", "http_get", ARGUMENTS))
    history = [freeze(message) for message in messages(int(size.split()[0]))]
    return lambda: gate.emit(build.pre_model_call("model", history))


def theirs(case: str) -> Emit:
    """The SDK's builder and emitter."""
    size, _, judges = case.rpartition(" ")
    verdict = sdk.ALLOW
    if judges == "transform":
        block = sdk.Transform("$target.url", "https://example.org/x")
        verdict = sdk.Verdict(decision=sdk.Decision.TRANSFORM, transform=block)

    class Judge:
        def intercept(self, context: Any) -> Any:
            return verdict

    emitter = sdk.InterceptionEmitter()
    emitter.set_max_records(1)
    for _ in range(5 if judges == "x5" else 1):
        emitter.register(Judge())
    build = sdk.AgentContextBuilder(agent_id="agent-1", session_id="session-0001", framework="bench")
    if size == "small":
        return lambda: emitter.emit(build.pre_tool_call(call_id="call-1", name="http_get", args=dict(ARGUMENTS)))
    history = messages(int(size.split()[0]))
    return lambda: emitter.emit(build.pre_model_call(model_id="model", messages=history))


async def time_batch(emit: Emit, runs: int) -> float:
    """CPU microseconds of one emission, the mean of `runs`."""
    start = time.thread_time_ns()
    for _ in range(runs):
        await emit()
    return (time.thread_time_ns() - start) / runs / 1000


async def count_calls(emit: Emit) -> float:
    """Python and C function calls of one emission; the lambda and the loop around it are not counted."""
    for _ in range(3):
        await emit()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(10):
        await emit()
    profile.disable()
    return (sum(entry.callcount for entry in profile.getstats()) - 1) / 10 - 1


async def measure(case: str, rounds: int, budget_us: float) -> dict[str, Cell]:
    """Count the calls of every implementation, then time all of them in turns."""
    contenders = {"lictor": ours(case)} | ({"agent-hooks-sdk": theirs(case)} if sdk else {})
    row = {name: Cell(calls=await count_calls(emit)) for name, emit in contenders.items()}
    runs = {name: max(1, int(budget_us / await time_batch(emit, 3))) for name, emit in contenders.items()}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, emit in contenders.items():
                row[name].cpu.append(await time_batch(emit, runs[name]))
    finally:
        gc.enable()
    return row


def report_on(table: dict[str, dict[str, Cell]]) -> dict[str, Any]:
    """Medians, ratios within a round, calls, and what the project promises of itself."""
    cases: dict[str, Any] = {}
    for case, row in table.items():
        cases[case] = {
            name: {"cpu_us": round(median(cell.cpu), 2), "best_us": round(min(cell.cpu), 2), "calls": cell.calls}
            for name, cell in row.items()
        }
        if "agent-hooks-sdk" in row:
            pairs = zip(row["agent-hooks-sdk"].cpu, row["lictor"].cpu, strict=True)
            cases[case]["ratio"] = round(median(sdks / mine for sdks, mine in pairs), 1)
    one, five = cases["small x1"]["lictor"], cases["small x5"]["lictor"]
    goals = [
        goal("function calls of a small emission", one["calls"], MOST_CALLS, most=True),
        goal(
            "function calls of another interceptor",
            (five["calls"] - one["calls"]) / 4,
            MOST_CALLS_OF_ANOTHER,
            most=True,
        ),
    ]
    goals += [
        goal(f"agent-hooks-sdk : lictor, {case}", row["ratio"], least_ratio(case), most=False)
        for case, row in cases.items()
        if "ratio" in row
    ]
    targets = [
        {"case": case, "cpu_us": cases[case]["lictor"]["cpu_us"], "target_us": target}
        for case, target in TARGETS.items()
    ]
    targets.append(
        {"case": "four more interceptors", "cpu_us": round(five["cpu_us"] - one["cpu_us"], 2), "target_us": 12.0}
    )
    return {"cases": cases, "goals": goals, "targets": targets}


def least_ratio(case: str) -> float:
    """How many times cheaper than the SDK's emitter a case has to be."""
    return LEAST_RATIO_OF_A_TRANSFORM if case.endswith("transform") else LEAST_RATIO


def goal(what: str, value: float, limit: float, *, most: bool) -> dict[str, Any]:
    """One promise, with what was found."""
    return {"goal": what, "value": value, "limit": limit, "met": value <= limit if most else value >= limit}


def text(report: dict[str, Any]) -> str:
    """The report as tables for a terminal."""
    lines = [f"{'':18}{'':18}{'CPU µs':>10}{'best':>10}{'calls':>8}{'SDK : ours':>12}"]
    for case, row in report["cases"].items():
        for name in ("lictor", "agent-hooks-sdk"):
            if name in row:
                ratio = row.get("ratio", "-") if name == "lictor" else ""
                cell = row[name]
                lines.append(
                    f"{case:18}{name:18}{cell['cpu_us']:>10}{cell['best_us']:>10}{cell['calls']:>8}{ratio:>12}"
                )
    if sdk is None:
        lines.append("agent-hooks-sdk is not installed (pip install 'agent-hooks-sdk[ctk]==0.1.0b3')")
    lines.append("")
    lines += [
        f"{'met' if g['met'] else 'MISSED':8}{g['goal']}: {g['value']} (limit {g['limit']})" for g in report["goals"]
    ]
    lines += [f"{'':8}{t['case']}: {t['cpu_us']} µs (design: {t['target_us']})" for t in report["targets"]]
    return "\n".join(lines)


async def run(rounds: int, budget_us: float) -> dict[str, Any]:
    """Measure every case."""
    return report_on({case: await measure(case, rounds, budget_us) for case in MEANING})


def main() -> int:
    """Measure and print; 1 if a judged goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, default=21, metavar="N", help="turns of every implementation (21)")
    parser.add_argument("--batch-ms", type=float, default=10.0, metavar="MS", help="CPU time of one turn (10)")
    given = parser.parse_args()
    report = asyncio.run(run(given.rounds, given.batch_ms * 1000))
    print(json.dumps(report | {"meaning": MEANING}, indent=2) if given.json else text(report))
    return 0 if all(each["met"] for each in report["goals"]) else 1


if __name__ == "__main__":
    sys.exit(main())
