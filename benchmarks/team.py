"""What a team run costs: a supervisor, ten turns over three members; Lictor in memory and on SQLite, and others.

    python benchmarks/team.py [--json] [--peer NAME=PYTHON]... [--rounds N] [--workloads W3,W3-30]

Peers are `agent-framework`, `autogen` and `langgraph`, each in an environment of its own. Every contender is a process
of its own and they take turns in every round, as in `agent.py`. See benchmarks/README.md.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from _figures import Cell, Table, goal, ratio, short
from _team_workloads import FIRST, LAST, MEANING, MIDDLE, TURNS
from agent import Failed, Process, measure

OURS = ("team", "team-governed", "team-governed-sqlite")
GOVERNED, DURABLE = OURS[1:]
PEERS = {
    "agent-framework": ("agent-framework-tools", "agent-framework-groupchat"),
    "autogen": ("autogen-selector",),
    "langgraph": ("langgraph-graph", "langgraph-supervisor"),
}
INSTALL = (
    "python3 -m venv build/NAME      # agent-framework, autogen, langgraph",
    "build/NAME/bin/pip install -r benchmarks/requirements-team-NAME.txt",
    "python benchmarks/team.py --peer NAME=build/NAME/bin/python     # or LICTOR_BENCH_TEAM=NAME=PYTHON,NAME=PYTHON",
)
LEAST_FASTER = 3.0
MOST_GROWTH = 1.2


def start(peers: Mapping[str, str], running: list[Process]) -> dict[str, str]:
    """Put the contenders that can run here into `running`; why the others cannot.

    Raises Failed if one of ours cannot.
    """
    missing: dict[str, str] = {}
    for name in OURS:
        running.append(Process(name, sys.executable, ours=True))
        if "missing" in running[-1].about:
            raise Failed(f"{name} cannot run: {running[-1].about['missing']}")
    for peer, names in PEERS.items():
        python = peers.get(peer)
        for name in names:
            if python is None or shutil.which(python) is None:
                missing[name] = f"no --peer {peer}=PYTHON" if python is None else f"{python} is no program"
                continue
            process = Process(name, python, ours=False)
            if "missing" in process.about:
                process.close()
                missing[name] = process.about["missing"]
            else:
                running.append(process)
    return missing


def ratios(table: Table) -> dict[str, Any]:
    """How many times as fast ours are as each peer, in CPU and wall time and in function calls."""
    out: dict[str, Any] = {}
    for workload, row in table.items():
        for name in (name for names in PEERS.values() for name in names if name in row):
            for ours in OURS:
                out.setdefault(workload, {}).setdefault(name, {})[ours] = {
                    "cpu": short(ratio(row[name].cpu, row[ours].cpu)),
                    "wall": short(ratio(row[name].wall, row[ours].wall)),
                    "calls": short(row[name].calls / row[ours].calls),
                }
    return out


def per_turn(table: Table) -> dict[str, Any]:
    """Function calls of the first turn, of one of the turns 2 to 10, and of one of the turns 11 to 30."""
    out: dict[str, Any] = {}
    if not MEANING.keys() <= table.keys():
        return out
    for name in table[MIDDLE]:
        calls = {workload: row[name].calls for workload, row in table.items() if name in row}
        if "W3-0" not in calls:
            continue
        first = calls[FIRST] - calls["W3-0"]
        middle = (calls[MIDDLE] - calls[FIRST]) / (TURNS[MIDDLE] - TURNS[FIRST])
        late = (calls[LAST] - calls[MIDDLE]) / (TURNS[LAST] - TURNS[MIDDLE])
        out[name] = {"first": round(first, 1), "to_10": round(middle, 1), "to_30": round(late, 1)}
        out[name]["growth"] = short(max(middle, late) / first)
    return out


def goals(table: Table, turns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the project promises of its teams, with what was found; `met` is None where it was not measured."""
    row = table.get(MIDDLE, {})
    against = [found for name, cell in row.items() if name not in OURS and (found := _faster(row, cell)) is not None]
    worst = 1 / min(against) if against else None
    grown = turns.get(GOVERNED, {}).get("growth")
    return [
        goal("CPU of a governed W3 : the fastest peer's", worst, 1 / LEAST_FASTER),
        goal("function calls, governed: a later turn : the first", grown, MOST_GROWTH),
    ]


def _faster(row: Mapping[str, Cell], peer: Cell) -> float | None:
    return ratio(peer.cpu, row[GOVERNED].cpu) if GOVERNED in row else None


def text(report: Mapping[str, Any]) -> str:
    """The report as tables for a terminal."""
    lines = [f"{'':28}{'CPU µs':>11}{'wall µs':>11}{'calls':>11}{'governed is so many times as fast':>36}"]
    for workload, row in report["workloads"].items():
        lines.append(f"{workload}  {MEANING[workload]}")
        for name, cell in row.items():
            beside = report["ratios"].get(workload, {}).get(name, {}).get(GOVERNED, {}).get("cpu", "")
            lines.append(f"  {name:26}{cell['cpu_us']:>11}{cell['wall_us']:>11}{cell['calls']:>11}{beside:>36}")
    lines += [f"  {name:26}skipped: {why}" for name, why in report["missing"].items()]
    lines += ["", f"{'function calls per turn':28}{'first':>11}{'2-10':>11}{'11-30':>11}{'growth':>11}"]
    for name, of in report["turns"].items():
        lines.append(f"  {name:26}{of['first']:>11}{of['to_10']:>11}{of['to_30']:>11}{of['growth']:>11}")
    lines += ["", "goals"]
    words = {True: "met", False: "MISSED", None: "not measured"}
    for one in report["goals"]:
        value = "-" if one["value"] is None else one["value"]
        lines.append(f"  {one['goal']}: {value} (at most {short(one['limit'])}): {words[one['met']]}")
    if report["missing"]:
        lines += ["", "To measure a peer beside it:", *(f"  {line}" for line in report["install"])]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    known = os.environ.get("LICTOR_BENCH_TEAM", "")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument(
        "--peer",
        action="append",
        default=[one for one in known.split(",") if one],
        metavar="NAME=PYTHON",
        help=f"Python of an environment with a peer: {', '.join(PEERS)} (default: $LICTOR_BENCH_TEAM)",
    )
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of every contender (15)")
    parser.add_argument("--batch-ms", type=float, default=60.0, metavar="MS", help="CPU time of one turn (60)")
    parser.add_argument("--workloads", default=",".join(MEANING), metavar="W3,W3-30", help="which ones (all)")
    return parser.parse_args()


def taken(processes: Sequence[Process], workload: str, given: argparse.Namespace) -> dict[str, Cell]:
    """Measure whoever has this workload."""
    able = [process for process in processes if workload in process.about["workloads"]]
    return measure(able, workload, given.rounds, given.batch_ms * 1000)


def main() -> int:
    """Measure and print; 1 if a contender's run has not the shape it must have."""
    given = arguments()
    chosen = given.workloads.split(",")
    peers = dict(one.partition("=")[::2] for one in given.peer)
    if not MEANING.keys() >= set(chosen) or not PEERS.keys() >= peers.keys() or given.rounds < 1:
        print(f"--workloads: {', '.join(MEANING)}; --peer: {', '.join(PEERS)}; --rounds: at least 1", file=sys.stderr)
        return 2
    processes: list[Process] = []
    try:
        missing = start(peers, processes)
        table = {workload: taken(processes, workload, given) for workload in chosen}
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    finally:
        for process in processes:
            process.close()
    turns = per_turn(table)
    report = {
        "contenders": {process.name: process.about["versions"] for process in processes},
        "missing": missing,
        "install": INSTALL,
        "rounds": given.rounds,
        "workloads": {workload: {name: cell.told() for name, cell in row.items()} for workload, row in table.items()},
        "ratios": ratios(table),
        "turns": turns,
        "goals": goals(table, turns),
    }
    print(json.dumps(report, indent=2) if given.json else text(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
