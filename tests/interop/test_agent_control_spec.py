"""A YAML policy of `agent-control-spec`, and the kit of the SDK that it pins, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = (
    "agent-control-spec==0.4.0b1",
    "agent-hooks-sdk[ctk]==0.1.0b2",
    "orjson>=3.10,<4",
    "pydantic>=2.11,<3",
    "docstring_parser>=0.17,<1",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with these packages; Lictor itself comes from the source tree."""
    place = tmp_path_factory.mktemp("acs")
    venv.create(place, with_pip=True)
    found = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [str(found), "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDED]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return found


def told(python: Path, what: str) -> dict[str, Any]:
    """What `acs_host.py` printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    host = Path(__file__).parent / "acs_host.py"
    command = [str(python), str(host), what]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["sdk"], answer["acs"]) == ("0.1.0b2", "0.4.0b1")
    return answer["told"]


def test_the_kit_before_passes_too(python: Path) -> None:
    """The kit of SDK 0.1.0b2: 51 vectors pass in both postures, the 22 about declarations are not claimed."""
    report = told(python, "kit")
    counts = {"passed": 51, "failed": 0, "skipped": 0, "not_claimed": 22}
    assert {key: report[key] for key in counts} == counts
    for posture in ("terminate", "continue"):
        assert {key: report["postures"][posture][key] for key in counts} == counts
    assert report["kit"]["version"] == "0.1.0b2"


def test_a_yaml_policy_governs_a_run(python: Path) -> None:
    """Its interceptors, sync and async, deny, escalate and mask through an agent, buffered and incremental."""
    report = told(python, "policy")
    for how in ("sync", "async", "incremental"):
        run = report[how]
        assert (run["status"], run["answer"]) == ("completed", "all done")
        found, denied, paid, asked = run["tools"]
        assert found == {"status": "shipped", "card": "**** 1111"}
        assert (denied["error"], denied["reason"]) == ("denied", "not_your_order")
        assert (paid, asked["reason"]) == ("30.00 paid back", "large_refund")
        assert not any(str(reason).startswith(("runtime_error", "host_error")) for _, _, reason in run["verdicts"])
        points = {point for point, _, _ in run["verdicts"]}
        assert len(points) == 8
    assert (report["leak"]["status"], report["leak"]["reason"]) == ("blocked", "prompt_leak")
    assert report["parked"] == ["suspended", "large_refund", "completed", "250.00 paid back"]
