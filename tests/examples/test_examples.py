"""Every example of the project runs, each in a process of its own, as a user would run it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__")


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
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_says_what_it_is_and_stays_short(example):
    """Each module has a docstring or is a test, and no example grows past a page."""
    for path in example.rglob("*.py"):
        text = path.read_text()
        assert path.name.startswith("test_") or ast.get_docstring(ast.parse(text)), path
        assert len(text.splitlines()) <= 65, path


def test_there_are_examples():
    """An empty folder would let the tests above pass."""
    assert {path.name for path in EXAMPLES} >= {"1_policy", "3_service", "7_tests"}
