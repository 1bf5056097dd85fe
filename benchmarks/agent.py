"""What one agent run costs: a bare loop, Lictor plain and governed, agent-framework plain and with its hooks.

    python benchmarks/agent.py [--json] [--peer-python PATH] [--rounds N] [--workloads W1,W2]

Every contender is a process of its own (`_worker.py`); they take turns in every round, so that a busy
machine is as unfair to one as to the other. See benchmarks/README.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _figures import FLOOR, Cell, comparisons, figures, goals, text
from _workloads import MEANING

HERE = Path(__file__).parent
OURS = ("floor", "lictor", "lictor-governed")
PEERS = ("agent-framework", "agent-framework-hooks")
INSTALL = (
    "python3 -m venv build/peer",
    "build/peer/bin/pip install -r benchmarks/requirements-agent-framework.txt",
    "python benchmarks/agent.py --peer-python build/peer/bin/python     # or LICTOR_BENCH_PEER=build/peer/bin/python",
)
MOST_RUNS = 2000


class Failed(Exception):
    """A contender answered with an error, or not at all."""


class Process:
    """A contender in its own process; it ends when its standard input is closed."""

    def __init__(self, name: str, python: str, *, ours: bool) -> None:
        self.name = name
        environment = dict(os.environ)
        environment.pop("PYTHONPATH", None)
        if ours:
            environment["PYTHONPATH"] = str(HERE.parent / "src")
        self._process = subprocess.Popen(
            [python, str(HERE / "_worker.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.about = self._read()

    def close(self) -> None:
        """Let it end and wait for that."""
        self._process.communicate()

    def ask(self, what: str, workload: str, **more: Any) -> dict[str, Any]:
        """One request, one answer. Raises Failed."""
        if self._process.stdin is None or self._process.poll() is not None:
            raise Failed(f"{self.name} is gone")
        self._process.stdin.write(json.dumps({"ask": what, "workload": workload, **more}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise Failed(f"{self.name} {workload} {what}: {answer['error']}")
        return answer

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise Failed(f"{self.name} ended without an answer; what it said stands above")
        found: dict[str, Any] = json.loads(line)
        return found


def start(peer: str | None, running: list[Process]) -> dict[str, str]:
    """Put the contenders that can run here into `running`; why the peers among them cannot.

    Raises Failed if one of ours cannot.
    """
    missing: dict[str, str] = {}
    for name in (*OURS, *PEERS):
        python = sys.executable if name in OURS else peer
        if python is None or shutil.which(python) is None:
            missing[name] = "no --peer-python" if python is None else f"{python} is no program"
            continue
        process = Process(name, python, ours=name in OURS)
        running.append(process)
        if "missing" in process.about:
            running.pop().close()
            missing[name] = process.about["missing"]
            if name in OURS:
                raise Failed(f"{name} cannot run: {missing[name]}")
    return missing


def batch_of(process: Process, workload: str, budget_us: float) -> int:
    """How many executions last about `budget_us`; warms up on the way."""
    probe = 1 if workload == "W5" else 20
    process.ask("time", workload, runs=probe)
    took = process.ask("time", workload, runs=probe)["cpu_us"]
    return max(1, min(MOST_RUNS, int(budget_us / max(took, 1.0))))


def measure(processes: Sequence[Process], workload: str, rounds: int, budget_us: float) -> dict[str, Cell]:
    """Check every contender's shape, count its calls, then time all of them in turns."""
    for process in processes:
        process.ask("check", workload)
    row = {process.name: Cell(calls=process.ask("calls", workload)["calls"]) for process in processes}
    runs = {process.name: batch_of(process, workload, budget_us) for process in processes}
    for number in range(rounds):
        turn = number % len(processes)
        for process in [*processes[turn:], *processes[:turn]]:
            sample = process.ask("time", workload, runs=runs[process.name])
            row[process.name].cpu.append(sample["cpu_us"])
            row[process.name].wall.append(sample["wall_us"])
    return row


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument(
        "--peer-python",
        default=os.environ.get("LICTOR_BENCH_PEER"),
        metavar="PATH",
        help="Python of an environment with agent-framework (default: $LICTOR_BENCH_PEER)",
    )
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of every contender (15)")
    parser.add_argument("--batch-ms", type=float, default=30.0, metavar="MS", help="CPU time of one turn (30)")
    parser.add_argument("--workloads", default=",".join(MEANING), metavar="W1,W2", help="which ones (all)")
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 if a contender's run has not the shape it must have."""
    given = arguments()
    chosen = given.workloads.split(",")
    unknown = [workload for workload in chosen if workload not in MEANING]
    if unknown or given.rounds < 1:
        print(f"--workloads: choose from {', '.join(MEANING)}; --rounds: at least 1", file=sys.stderr)
        return 2
    processes: list[Process] = []
    try:
        missing = start(given.peer_python, processes)
        table = {w: measure(processes, w, given.rounds, given.batch_ms * 1000) for w in chosen}
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    finally:
        for process in processes:
            process.close()
    report = {
        "contenders": {process.name: process.about["versions"] for process in processes},
        "missing": missing,
        "install": INSTALL,
        "rounds": given.rounds,
        "base": FLOOR,
        "workloads": figures(table),
        "ratios": comparisons(table),
        "goals": goals(table),
    }
    print(json.dumps(report, indent=2) if given.json else text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
