"""`import lictor` is cheap, and what is heavy waits until it is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
HEAVY = ["httpx", "httpx2", "openai", "pydantic", "rapidfuzz", "rich", "typer"]
# The goal is 150 ms where the floor costs 55 ms (CPython 3.11, one core of a small server): 2.7 floors.
FLOOR = "asyncio, json, sqlite3"
RATIO = 2.7
TIMER = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


@pytest.fixture
def python(tmp_path):
    """Run code in a fresh interpreter that keeps its bytecode, as installed packages do."""
    caching = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environ = os.environ | {"PYTHONPATH": str(SRC)} | caching

    def run(code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout

    return run


def test_importing_lictor_costs_little_more_than_the_floor(python):
    """The best of several imports, in processor time, stays within the ratio to the standard library's floor."""
    python(f"import lictor, {FLOOR}")
    pairs = [(float(python(TIMER.format("lictor"))), float(python(TIMER.format(FLOOR)))) for _ in range(7)]
    lictor, floor = (min(times) for times in zip(*pairs, strict=True))
    assert lictor / floor <= RATIO


def test_heavy_libraries_are_imported_when_they_are_used(python):
    """Importing the root brings in none of the libraries of the edges."""
    loaded = python(f"import sys, lictor; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded.strip() == "[]"
