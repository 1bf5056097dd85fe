"""`lictor demo` with a real model behind a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lictor.runs import STATUSES

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "models"))
from llama import llama_server, missing  # noqa: E402 - it lies beside the tests of the models

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def base_url():
    """The server, one for all tests of this file."""
    with llama_server() as url:
        yield url


def demo(base_url, *options):
    environ = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "COLUMNS": "100"}
    command = [sys.executable, "-c", "from lictor.console.cli import main; main()", "demo"]
    return subprocess.run(
        [*command, "--model", "openai:smollm2", "--base-url", base_url, *options],
        env=environ,
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_the_demo_runs_with_a_real_model(base_url):
    """Whatever a small model says: one status, shown at the end, a record for each judgement, no traceback."""
    done = demo(base_url)
    assert "Traceback" not in done.stderr
    assert f"openai:smollm2 at {base_url}" in done.stdout
    [status] = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert status.split()[1].rstrip(";") in STATUSES
    assert done.returncode == (1 if "failed" in status else 0)
    assert "wants " in done.stdout or "called no tool" in done.stdout or "failed" in status


def test_the_demo_with_a_real_model_as_json(base_url):
    """The same as one object, with the tokens that were really used."""
    done = demo(base_url, "--json")
    shown = json.loads(done.stdout)
    assert shown["status"] in STATUSES
    assert shown["model"] == "openai:smollm2"
    assert shown["usage"]["input_tokens"] > 0
    assert shown["records"][0]["interception_point"] == "agent_startup"
    assert shown["records"][-1]["interception_point"] == "agent_shutdown"
