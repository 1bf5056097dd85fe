"""Every example of the project runs, each in a process of its own, as a user would run it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__")
SCENARIOS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_tests_of_an_example_pass(example, tmp_path):
    """The folder's own pytest suite passes with the plugin of the kit and nothing else."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    plugins = ["no:cacheprovider", "no:agent_hooks_ctk", "no:lictor", "lictor.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini"), f"--rootdir={example}"]
    done = subprocess.run(
        [*command, *[option for plugin in plugins for option in ("-p", plugin)]],
        cwd=example,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,  # one of them starts servers
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_what_it_is_and_stays_short(example):
    """Each module has a docstring or is a test, and no example grows past a page."""
    for path in example.rglob("*.py"):
        text = path.read_text()
        assert path.name.startswith("test_") or ast.get_docstring(ast.parse(text)), path
        assert len(text.splitlines()) <= 65, path


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_runs_and_is_short(scenario, tmp_path):
    """Each file on its own is a program of at most 40 lines that says what it is and checks what it shows."""
    text = scenario.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert "assert " in text
    assert len(text.splitlines()) <= 40
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", str(scenario)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_there_are_examples():
    """An empty folder would let the tests above pass."""
    assert {path.name for path in EXAMPLES} >= {"1_policy", "2_team", "3_service", "7_tests"}
    names = {"team_breaker", "team_permission", "team_archive", "team_routing"}
    assert {path.stem for path in SCENARIOS} >= names
