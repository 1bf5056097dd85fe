"""What finding a loop costs: `detect_loop` over ten records, beside plain Levenshtein and difflib, in one run.

    python benchmarks/loop.py [--json] [--rounds N]

The others would compare the newest record with the nine before it. They are timed on one pair of 1,000 characters, in
the same rounds, and scaled by the square of the length (difflib needs more than that). CPU time is the thread's,
without garbage collection. Exit code 1 if a goal that does not depend on the machine is missed.
"""

import argparse
import difflib
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from lictor.agent import LoopBreaker, LoopRecord, detect_loop

RECORDS = 10
PAIR = 1_000
SIZES = {"2 KB": 2_048, "30,000 characters": 30_000}
TARGETS_MS = {"2 KB": 0.6, "30,000 characters": 5.0}  # what the design asks for; reported, not judged
LEAST_RATIO = 100.0
MEANING = {
    "unlike": "ten different texts of one member: no loop",
    "pages": "the same text with a page number that counts on: no loop",
    "equal": "the same text ten times: stagnation",
    "few edits": "the same text with 20 characters changed, others each time: stagnation",
    "edits everywhere": "the same text with 1 % of its characters changed, others each time: stagnation",
    "five-cycle": "five texts, twice, with 20 characters changed: a cycle",
    "CJK, few edits": "`few edits` in Chinese: stagnation",
}
FOUND = {
    "unlike": None,
    "pages": None,
    "equal": (1, 10),
    "few edits": (1, 10),
    "edits everywhere": (1, 10),
    "five-cycle": (5, 2),
    "CJK, few edits": (1, 10),
}
LATIN = "abcdefghijklmnopqrstuvwxyz"
HAN = "".join(chr(0x4E00 + 13 * n) for n in range(300))


def prose(length: int, seed: int, letters: str = LATIN) -> str:
    """Words without an end."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(500)]
    text = ""
    while len(text) < length:
        text += chance.choice(words) + (" " if letters is LATIN else "，" if chance.random() < 0.2 else "")
    return text[:length]


def edited(text: str, edits: int, seed: int) -> str:
    """The text with `edits` characters changed."""
    chance = random.Random(seed)
    characters = list(text)
    for place in chance.sample(range(len(text)), edits):
        characters[place] = chance.choice(characters)
    return "".join(characters)


def texts(case: str, size: int) -> list[str]:
    """The contents of the ten records of a case."""
    base = prose(size, 1, HAN if case.startswith("CJK") else LATIN)
    makers: dict[str, Callable[[int], str]] = {
        "unlike": lambda n: prose(size, n),
        "pages": lambda n: f"{base[:-9]} page {100 + n}",
        "equal": lambda n: f"{base} "[:-1],  # another object each time
        "few edits": lambda n: edited(base, 20, n),
        "edits everywhere": lambda n: edited(base, size // 100, n),
        "five-cycle": lambda n: edited(prose(size, n % 5), 20, n),
        "CJK, few edits": lambda n: edited(base, 20, n),
    }
    return [makers[case](n) for n in range(RECORDS)]


def levenshtein(left: str, right: str) -> int:
    """The distance as it stands in textbooks: every character with every other, two rows."""
    before = list(range(len(right) + 1))
    for row, ours in enumerate(left, 1):
        now = [row]
        for column, theirs in enumerate(right, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (ours != theirs)))
        before = now
    return before[-1]


def similar(left: str, right: str) -> float:
    """difflib, told not to leave out what is frequent: with that heuristic prose of this length has no letters left."""
    return difflib.SequenceMatcher(None, left, right, autojunk=False).ratio()


def timed(work: Callable[[], Any], times: int) -> float:
    """CPU milliseconds of one call."""
    start = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - start) / times / 1e6


def measure(rounds: int) -> dict[str, Any]:
    """Time everything in turns; check what is found first."""
    policy = LoopBreaker()
    cases = {
        (size, case): [LoopRecord("a", text) for text in texts(case, SIZES[size])] for size in SIZES for case in MEANING
    }
    for (size, case), records in cases.items():
        found = detect_loop(records, policy)
        if (found and (found.period, found.count)) != FOUND[case]:
            raise SystemExit(f"{size}, {case}: found {found}, not {FOUND[case]}")
    pair = (prose(PAIR, 1), edited(prose(PAIR, 1), 20, 1))
    cpu: dict[Any, list[float]] = {key: [] for key in (*cases, "levenshtein", "difflib")}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for key, records in cases.items():
                cpu[key].append(timed(lambda records=records: detect_loop(records, policy), 5))  # type: ignore[misc]
            cpu["levenshtein"].append(timed(lambda: levenshtein(*pair), 1))
            cpu["difflib"].append(timed(lambda: similar(*pair), 1))
    finally:
        gc.enable()
    return report_on(cpu)


def report_on(cpu: dict[Any, list[float]]) -> dict[str, Any]:
    """Medians, ratios within a round, and what the project promises of itself."""
    rows: dict[str, dict[str, Any]] = {}
    goals, targets = [], []
    for size, length in SIZES.items():
        scale = (RECORDS - 1) * (length / PAIR) ** 2
        rows[size] = {
            name: {"cpu_ms": round(median(cpu[name]) * scale, 1), "scaled_from_characters": PAIR}
            for name in ("levenshtein", "difflib")
        }
        for case in MEANING:
            ours = cpu[size, case]
            row: dict[str, Any] = {"cpu_ms": round(median(ours), 3), "best_ms": round(min(ours), 3)}
            for name in ("levenshtein", "difflib"):
                row[f"{name} : lictor"] = round(median(p * scale / o for p, o in zip(cpu[name], ours, strict=True)))
                ratio = row[f"{name} : lictor"]
                goals.append({"goal": f"{name} : lictor, {size}, {case}", "value": ratio, "limit": LEAST_RATIO})
            rows[size][case] = row
            target = TARGETS_MS[size]
            targets.append({"case": f"{size}, {case}", "cpu_ms": row["cpu_ms"], "target_ms": target})
    for goal in goals:
        goal["met"] = goal["value"] >= goal["limit"]
    for each in targets:
        each["met"] = each["cpu_ms"] <= each["target_ms"]
    return {"cases": rows, "goals": goals, "targets": targets}


def text(report: dict[str, Any]) -> str:
    """The report as a table for a terminal."""
    lines = [f"{'':20}{'':18}{'CPU ms':>12}{'best':>10}{'Levenshtein : ours':>20}{'difflib : ours':>16}"]
    for size, row in report["cases"].items():
        for case, cell in row.items():
            figures = f"{size:20}{case:18}{cell['cpu_ms']:>12}"
            if "best_ms" in cell:
                figures += f"{cell['best_ms']:>10}{cell['levenshtein : lictor']:>20}{cell['difflib : lictor']:>16}"
            lines.append(figures if "best_ms" in cell else f"{figures}  (scaled from a pair of {PAIR} characters)")
    lines.append("")
    worst = min(report["goals"], key=lambda each: each["value"])
    met = all(each["met"] for each in report["goals"])
    lines.append(f"{'met' if met else 'MISSED':8}{worst['goal']}: {worst['value']} (limit {worst['limit']:.0f})")
    lines += [f"{'':8}{t['case']}: {t['cpu_ms']} ms (design: {t['target_ms']})" for t in report["targets"]]
    return "\n".join(lines)


def main() -> int:
    """Measure and print; 1 if a judged goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="turns (9)")
    given = parser.parse_args()
    report = measure(given.rounds)
    print(json.dumps(report | {"meaning": MEANING}, indent=2) if given.json else text(report))
    return 0 if all(each["met"] for each in report["goals"]) else 1


if __name__ == "__main__":
    sys.exit(main())
