"""What agent-framework's own agent-hooks bundle leaves open, seen by running it.

Ours stands in tests/agent/test_host_guarantees.py; both answer the questions of guarantees.py. These
tests need a Python with agent-framework and agent-hooks-sdk, named by LICTOR_BENCH_PEER (see
docs/benchmarks.md). If one fails, the installed version closed the gap: say so here and in the docs.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from peers.guarantees import ended_by_composition, forgotten, unclosed

PEER = os.environ.get("LICTOR_BENCH_PEER", "")
PACKAGES = "agent_framework, agent_hooks"
SCRIPT = Path(__file__).parent / "agent_framework_facts.py"
LOOKED_AT = "1.23.0"

pytestmark = pytest.mark.slow


def peer(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the peer's Python, away from our own import path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([PEER, *arguments], check=False, capture_output=True, text=True, env=environment, timeout=120)


@cache
def facts() -> dict[str, Any]:
    """What was observed, once for all tests; skips with the reason where the peer is not installed."""
    if not PEER:
        pytest.skip("LICTOR_BENCH_PEER names no Python with agent-framework")
    if not Path(PEER).exists():
        pytest.skip(f"LICTOR_BENCH_PEER={PEER} does not exist")
    found = peer("-c", f"import {PACKAGES}")
    if found.returncode:
        pytest.skip(f"{PEER} cannot import {PACKAGES}: {found.stderr.strip().rpartition(chr(10))[2]}")
    told = peer(str(SCRIPT))
    assert told.returncode == 0, told.stderr
    observed: dict[str, Any] = json.loads(told.stdout)
    return observed


def closed_in() -> str:
    """What a failing test tells: the version that was looked at, and the one that is installed."""
    return f"open in agent-framework {LOOKED_AT}, closed in {facts()['version']}"


def test_theirs_leaves_an_allowed_call_open() -> None:
    """A sibling cancelled by a failing policy was allowed at pre_tool_call and gets no post_tool_call."""
    seen = facts()["sibling_cancelled"]
    assert seen["ended"] == "host_error:interceptor_failed"
    assert unclosed(seen["seen"]) == ["c1"], closed_in()


def test_theirs_forgets_result_labels() -> None:
    """A label given to a tool result is stored nowhere, and shown at no later point (§5.4)."""
    seen = facts()["labels"]
    assert "Ana" in seen["stored"], "the result itself is stored"
    assert forgotten(seen["seen"], seen["stored"]) == [
        "stored",
        "pre_model_call",
        "post_model_call",
        "output",
    ], closed_in()


@pytest.mark.parametrize("kind", ["transform_conflict", "composition_disagreement"])
def test_theirs_takes_a_composed_deny_for_a_failure(kind: str) -> None:
    """Policies that do not agree about one call end the run, as if enforcement itself had failed (§7.5)."""
    seen = facts()[kind]
    assert seen["reason"] == f"host_error:{kind}"
    assert ended_by_composition(seen) == ["ended is 'InterceptionBlocked'", "models is 1"], closed_in()
