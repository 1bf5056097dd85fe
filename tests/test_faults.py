"""Crash points: unknown names are refused, an armed point acts once, a real process dies where it should."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lictor import faults
from lictor.errors import DefinitionError

SRC = Path(__file__).parent.parent / "src"
CHILD = "from lictor.faults import reach\nfor _ in range(3):\n    reach('effect.after')\n    print('alive', flush=True)"


@pytest.fixture(autouse=True)
def _disarmed():
    yield
    faults.disarm()


def child(**environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD],
        env=os.environ | {"PYTHONPATH": str(SRC)} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_point_nobody_armed_does_nothing():
    """Reaching a point is a no-op until a test arms it."""
    assert faults.reach("effect.after") is None


def test_an_armed_point_acts_once():
    """The action runs at the first arrival and the point is disarmed before it runs."""
    seen = []
    faults.arm("effect.after", lambda: (seen.append("hit"), faults.reach("effect.after")))
    faults.reach("effect.after")
    faults.reach("effect.after")
    assert seen == ["hit"]


def test_after_lets_passes_by():
    """With after=2 the third arrival acts."""
    arrivals = []
    faults.arm("step.between", lambda: arrivals.append("acted"), after=2)
    for arrival in range(4):
        arrivals.append(arrival)
        faults.reach("step.between")
    assert arrivals == [0, 1, 2, "acted", 3]


def test_an_action_may_raise():
    """What the action raises travels out of `reach`."""
    faults.arm("append.before", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        faults.reach("append.before")


def test_points_are_independent():
    """Arming one point leaves the others alone."""
    faults.arm("park.before", lambda: 1 / 0)
    assert faults.reach("park.after") is None


def test_undo_takes_back_only_its_own_arming():
    """The undo of an arming that was replaced changes nothing; its own is removed."""
    seen = []
    undo_first = faults.arm("park.before", lambda: seen.append("first"))
    undo_second = faults.arm("park.before", lambda: seen.append("second"))
    undo_first()
    faults.reach("park.before")
    undo_second()
    faults.reach("park.before")
    assert seen == ["second"]


def test_disarm_needs_nothing_armed():
    """Disarming is repeatable, for one point and for all."""
    faults.arm("park.before", lambda: 1 / 0)
    faults.disarm("park.before")
    faults.disarm("park.before")
    faults.disarm()
    assert faults.reach("park.before") is None


def test_an_unknown_point_is_refused_with_the_known_ones():
    """A misspelt point fails when it is armed and the message lists the names."""
    with pytest.raises(DefinitionError, match=r"'effect\.aftre'.*effect\.after"):
        faults.arm("effect.aftre", lambda: None)


def test_a_negative_after_is_refused():
    """Letting a negative number of passes by means nothing."""
    with pytest.raises(DefinitionError, match="after=-1"):
        faults.arm("effect.after", lambda: None, after=-1)


def test_the_points_cannot_be_changed():
    """The set of points is closed."""
    with pytest.raises(TypeError):
        faults.POINTS["mine"] = "x"


@pytest.mark.parametrize(("wanted", "lines"), [("effect.after", 0), ("effect.after:2", 2)])
def test_the_environment_kills_a_real_process(wanted, lines):
    """LICTOR_CRASH_AT ends a child with SIGKILL exactly where it says."""
    done = child(LICTOR_CRASH_AT=wanted)
    assert (done.returncode, done.stdout.count("alive")) == (-signal.SIGKILL, lines)


def test_the_environment_stops_a_real_process():
    """LICTOR_PAUSE_AT stops a child at the point; continued, it goes on to its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=os.environ | {"PYTHONPATH": str(SRC), "LICTOR_PAUSE_AT": "effect.after:1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=60)
    assert (os.WIFSTOPPED(status), output.count("alive"), process.returncode) == (True, 3, 0)


@pytest.mark.parametrize("wanted", ["nowhere", "effect.after:x", "effect.after:-1"])
def test_a_wrong_environment_fails_loudly(wanted):
    """A crash point that cannot be understood stops the process at import and says why."""
    done = child(LICTOR_CRASH_AT=wanted)
    assert done.returncode == 1
    assert "DefinitionError" in done.stderr


def test_every_point_named_in_the_source_exists():
    """`reach` does not check names at run time; this does."""
    named = {
        node.args[0].value
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) == "reach"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert named - faults.POINTS.keys() == set()
