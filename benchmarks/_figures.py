"""From samples to what is printed: medians, ratios of the same round, goals, tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from _workloads import MEANING

FLOOR = "floor"
PEER = "agent-framework"
PAIRS = (("lictor", PEER), ("lictor-governed", PEER), ("lictor-governed", "agent-framework-hooks"))
MOST_CALLS = 495
MOST_OF_PEER = 0.5
MOST_GROWTH = 1.2
MOST_FOR_STREAM = 1.5


@dataclass(slots=True, kw_only=True)
class Cell:
    """One contender on one workload: function calls, and CPU and wall microseconds of every round."""

    calls: float = 0.0
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """Its medians."""
        return {
            "cpu_us": short(median(self.cpu) if self.cpu else None),
            "wall_us": short(median(self.wall) if self.wall else None),
            "calls": round(self.calls, 1),
        }


Table = Mapping[str, Mapping[str, Cell]]  # workload -> contender -> cell


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median over the rounds of ours : theirs, each pair taken one right after the other."""
    pairs = [mine / yours for mine, yours in zip(ours, theirs, strict=True) if yours]
    return median(pairs) if pairs else None


def growth(calls: Mapping[str, float]) -> float:
    """What a further tool step costs against the first, in function calls: flat is 1.0.

    Marginal step: (W2 - W1) / 19, as W2 makes 20 tool calls and W1 one. First step: W1 - W0, as W0 is
    the same run without a tool call. Either is one model call and one tool call.
    """
    return (calls["W2"] - calls["W1"]) / 19 / (calls["W1"] - calls["W0"])


def figures(table: Table) -> dict[str, Any]:
    """Every cell as numbers, with its ratios to the floor."""
    out: dict[str, Any] = {}
    for workload, row in table.items():
        floor = row.get(FLOOR)
        out[workload] = {name: _cell(cell, floor) for name, cell in row.items()}
    return out


def _cell(cell: Cell, floor: Cell | None) -> dict[str, Any]:
    against = None if floor is None else ratio(cell.cpu, floor.cpu)
    wall = None if floor is None else ratio(cell.wall, floor.wall)
    return {**cell.told(), "cpu_to_floor": short(against), "wall_to_floor": short(wall)}


def comparisons(table: Table) -> dict[str, Any]:
    """Lictor : agent-framework for every workload, in CPU, wall time and function calls."""
    out: dict[str, Any] = {}
    for ours, theirs in PAIRS:
        rows = {
            workload: {
                "cpu": short(ratio(row[ours].cpu, row[theirs].cpu)),
                "wall": short(ratio(row[ours].wall, row[theirs].wall)),
                "calls": short(row[ours].calls / row[theirs].calls),
            }
            for workload, row in table.items()
            if ours in row and theirs in row
        }
        if rows:
            out[f"{ours} : {theirs}"] = rows
    return out


def goals(table: Table) -> list[dict[str, Any]]:
    """What the project promises of itself, with what was found; `met` is None where it was not measured."""
    calls = {workload: row["lictor-governed"].calls for workload, row in table.items() if "lictor-governed" in row}
    first = table.get("W1", {})
    against = None
    if "lictor-governed" in first and PEER in first:
        against = ratio(first["lictor-governed"].cpu, first[PEER].cpu)
    grown = growth(calls) if {"W0", "W1", "W2"} <= calls.keys() else None
    streamed = calls["W7"] / calls["W1"] if {"W1", "W7"} <= calls.keys() else None
    return [
        goal("CPU of a governed W1 : agent-framework's ungoverned W1", against, MOST_OF_PEER),
        goal("function calls of a governed W1", calls.get("W1"), MOST_CALLS),
        goal("function calls, governed: marginal step of W2 : step of W1", grown, MOST_GROWTH),
        goal("function calls, governed: W7 : W1", streamed, MOST_FOR_STREAM),
    ]


def goal(what: str, value: float | None, limit: float) -> dict[str, Any]:
    """A figure held against what the project promises."""
    return {"goal": what, "value": short(value), "limit": limit, "met": None if value is None else value <= limit}


def short(value: float | None) -> float | None:
    """Rounded for people."""
    return None if value is None else round(value, 1 if value >= 100 else 3)


def text(report: Mapping[str, Any]) -> str:
    """The report as tables for a terminal."""
    lines = [f"{'':4}  {'':24}{'CPU µs':>10}{'wall µs':>10}{'CPU : floor':>13}{'calls':>11}"]
    for workload, row in report["workloads"].items():
        lines.append(f"{workload:4}  {MEANING[workload]}")
        for name, cell in row.items():
            numbers = f"{cell['cpu_us']:>10}{cell['wall_us']:>10}{cell['cpu_to_floor'] or '-':>13}{cell['calls']:>11}"
            lines.append(f"{'':6}{name:24}{numbers}")
        lines += [f"{'':6}{name:24}not installed ({why})" for name, why in report["missing"].items()]
    for pair, rows in report["ratios"].items():
        lines += ["", f"{pair}{'CPU':>12}{'wall':>9}{'calls':>9}"]
        lines += [f"{w:{len(pair)}}{r['cpu']:>12}{r['wall']:>9}{r['calls']:>9}" for w, r in rows.items()]
    lines += ["", "goals"]
    words = {True: "met", False: "MISSED", None: "not measured"}
    for one in report["goals"]:
        value = "-" if one["value"] is None else one["value"]
        lines.append(f"  {one['goal']}: {value} (at most {one['limit']}): {words[one['met']]}")
    if report["missing"]:
        lines += ["", "To measure the peer beside it:", *(f"  {line}" for line in report["install"])]
    return "\n".join(lines)
