"""What a run costs in function calls: unlike time, the same on any machine. Limits, and that shapes hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
MOST_CALLS = 495  # agent-framework 1.23 without a policy: 990
MOST_GROWTH = 1.2
MOST_FOR_STREAM = 1.5
MOST_TEAM_CALLS = 15_900  # agent-framework 1.23 with its members as tools and without a policy: 23,200
WORKLOADS = ("W0", "W1", "W2", "W4", "W7")
TEAM_WORKLOADS = ("W3-0", "W3-1", "W3", "W3-30")

pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are not part of this copy")


@cache
def calls(contender: str, workloads: tuple[str, ...] = WORKLOADS) -> dict[str, float]:
    """Function calls of a run of each workload, counted by the benchmark's own worker.

    In a process of its own: what pytest and other tests hang into this one would be counted too. The
    worker checks the shape of a run (model calls, tool calls, points, the rewritten argument) first.
    """
    asked = [{"ask": what, "workload": name} for name in workloads for what in ("check", "calls")]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "_worker.py"), contender],
        input="\n".join(map(json.dumps, asked)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=60,
        check=True,
    )
    hello, *answers = map(json.loads, done.stdout.splitlines())
    assert hello.get("name") == contender, hello
    wrong = [answer["error"] for answer in answers if "error" in answer]
    assert wrong == []
    return {name: answers[2 * place + 1]["calls"] for place, name in enumerate(workloads)}


def test_governed_run_is_cheap() -> None:
    """A run with one tool call and a policy at all eight points makes half of agent-framework's calls without one."""
    assert calls("lictor-governed")["W1"] <= MOST_CALLS


@pytest.mark.parametrize("contender", ["lictor", "lictor-governed"])
def test_steps_do_not_get_dearer(contender: str) -> None:
    """Each further tool step costs at most 1.2 times the first: nothing is done again for old messages."""
    counted = calls(contender)
    first = counted["W1"] - counted["W0"]  # what a tool call adds to a run without one: it and a model call
    marginal = (counted["W2"] - counted["W1"]) / 19
    assert marginal / first <= MOST_GROWTH


@pytest.mark.parametrize("contender", ["lictor", "lictor-governed"])
def test_streaming_is_the_same_loop(contender: str) -> None:
    """A streamed run makes at most 1.5 times the calls of the plain one."""
    counted = calls(contender)
    assert counted["W7"] / counted["W1"] <= MOST_FOR_STREAM


def test_governed_team_is_cheap() -> None:
    """Ten turns over three members, every moment and point judged, make two thirds of agent-framework's calls."""
    assert calls("team-governed", TEAM_WORKLOADS)["W3"] <= MOST_TEAM_CALLS


@pytest.mark.parametrize(("contender", "tries"), [("team", 1), ("team-governed", 1), ("team-governed-sqlite", 4)])
def test_turns_do_not_get_dearer(contender: str, tries: int) -> None:
    """A turn of a team costs at most 1.2 times the first, among the first ten and among the twenty after them."""
    found = []  # over a file the writer thread takes part of the calls, now more and now fewer: the least count is ours
    while len(found) < tries and (not found or min(found) > MOST_GROWTH):
        counted = calls.__wrapped__(contender, TEAM_WORKLOADS)
        first = counted["W3-1"] - counted["W3-0"]
        to_ten = (counted["W3"] - counted["W3-1"]) / 9
        to_thirty = (counted["W3-30"] - counted["W3"]) / 20
        found.append(max(to_ten, to_thirty) / first)
    assert min(found) <= MOST_GROWTH


def test_benchmark_checks_shapes() -> None:
    """A run that does something else than its workload says is refused, not timed."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import _workloads
    finally:
        sys.path.remove(str(BENCHMARKS))
    tally = _workloads.Tally()
    contender = _workloads.Contender(name="wrong", versions={}, workloads={})
    tally.models, tally.tools, tally.first = 2, 1, 20
    with pytest.raises(_workloads.ShapeError, match="first is 20, not 19"):
        _workloads.check_shape("W1", contender, tally, _workloads.FINAL)


def test_benchmark_of_the_journal_runs() -> None:
    """`journal.py --json` prints one object with the figures and goals of the parts that were asked for."""
    done = subprocess.run(
        [
            sys.executable,
            str(BENCHMARKS / "journal.py"),
            "--json",
            "--rounds",
            "1",
            "--only",
            "w1,long",
            "--steps",
            "100",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["figures"]) == {"w1", "long"}
    assert report["figures"]["long"]["100"]["entries"] == 811
    assert [goal["limit"] for goal in report["goals"]] == [2.5, 3.5, 2.0]


def test_benchmark_runs_without_its_peer() -> None:
    """`agent.py --json` prints one object; a peer that is not there is named with how to install it."""
    environment: dict[str, Any] = {name: value for name, value in os.environ.items() if name != "LICTOR_BENCH_PEER"}
    done = subprocess.run(
        [
            sys.executable,
            str(BENCHMARKS / "agent.py"),
            "--json",
            "--rounds",
            "1",
            "--batch-ms",
            "1",
            "--workloads",
            "W4",
        ],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["workloads"]["W4"]) == {"floor", "lictor", "lictor-governed"}
    assert set(report["missing"]) == {"agent-framework", "agent-framework-hooks"}
    assert any("requirements-agent-framework.txt" in line for line in report["install"])
    assert [goal["met"] for goal in report["goals"]] == [None] * 4


def test_benchmark_of_teams_runs_without_its_peers() -> None:
    """`team.py --json` prints one object; a peer that is not there is named with how to install it."""
    environment = {name: value for name, value in os.environ.items() if name != "LICTOR_BENCH_TEAM"}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "team.py"), "--json", "--rounds", "1", "--batch-ms", "1"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["workloads"]["W3"]) == {"team", "team-governed", "team-governed-sqlite"}
    assert set(report["missing"]) == {
        "agent-framework-tools",
        "agent-framework-groupchat",
        "autogen-selector",
        "langgraph-graph",
        "langgraph-supervisor",
    }
    assert any("requirements-team-NAME.txt" in line for line in report["install"])
    assert [goal["met"] for goal in report["goals"]] == [None, True]


def test_loop_benchmark_finds_what_it_times() -> None:
    """`loop.py --json` checks what is found in each case, and is a hundred times cheaper than plain distances."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "loop.py"), "--json", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["cases"]) == {"2 KB", "30,000 characters"}
    assert [goal for goal in report["goals"] if not goal["met"]] == []
