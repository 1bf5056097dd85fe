"""The pytest plugin, as a user's project meets it: in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
AGENT = """
from lictor import Agent, tool
from lictor.testing import call, say

@tool(requires_approval=True)
async def pay(amount: float) -> str:
    "Pay."
    return "paid"

clerk = Agent("clerk", model="openai:gpt-5-mini", tools=[pay])
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest over one file with this text; gives the exit code and what was printed."""

    def run(text, *options):
        (tmp_path / "shop.py").write_text(AGENT)
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
        plugins = ["no:cacheprovider", "no:agent_hooks_ctk", "no:lictor", "lictor.testing.plugin"]
        command = [sys.executable, "-m", "pytest", *[option for plugin in plugins for option in ("-p", plugin)]]
        done = subprocess.run(
            [*command, *options, "test_it.py"],
            cwd=tmp_path,
            check=False,
            env=os.environ | {"PYTHONPATH": str(SRC), "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def outcomes(printed):
    """The counts of pytest's last line, by word."""
    return {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error|errors|skipped)", printed)}


def test_async_tests_run_without_a_marker(run):
    """Functions and methods, with parameters and fixtures, each in a loop of its own; sync tests as ever."""
    code, printed = run("""
import asyncio, pytest
loops = []

@pytest.fixture
def seven():
    return 7

@pytest.mark.parametrize("n", [1, 2])
async def test_function(n, seven):
    loops.append(asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert seven == 7 and n in (1, 2)

class TestClass:
    async def test_method(self, seven):
        assert self.__class__ is TestClass and seven == 7

async def test_that_fails():
    assert 1 == 2

async def test_that_is_skipped():
    pytest.skip("not now")

def test_sync():
    assert len(set(map(id, loops))) == 2
""")
    assert code == 1
    assert outcomes(printed) == {"passed": 4, "failed": 1, "skipped": 1}
    assert "assert 1 == 2" in printed


def test_the_fixture_checks_what_a_test_left_behind(run):
    """A broken promise fails the test that broke it, with the promise in the report; a failing test keeps its error."""
    code, printed = run("""
from shop import call, clerk, say

async def test_breaks_a_promise(runtime):
    runtime.script(clerk=[say("done")])
    run = await runtime.start(clerk, "go")
    await run.result()
    runtime.store.log(run.id, run.id).append("run_finished", {"status": "completed"}, 0.0)

async def test_fails_itself(runtime):
    runtime.script(clerk=[say("done")])
    run = await runtime.start(clerk, "go")
    runtime.crash_at("effect.after")
    assert (await run.result()).answer == "something else"

async def test_arms_a_crash_in_vain(runtime):
    runtime.script(clerk=[say("done")])
    runtime.crash_at("effect.after")
    await runtime.run_to_park(clerk, "go")

async def test_keeps_them(runtime):
    runtime.script(clerk=[call("pay", amount=3), say("done")])
    [request] = (await runtime.run_to_park(clerk, "go")).requests
    runtime.crash_at("effect.after")
    assert (await runtime.decide(request, "approve")).requests[0].kind == "unknown_effect"
""")
    assert code == 1
    assert outcomes(printed) == {"failed": 3, "passed": 1}
    assert "it has a second outcome" in printed
    assert "something else" in printed
    assert "was armed and never reached" in printed


def test_crash_points_do_not_leak_into_the_next_test(run):
    """What one test armed is disarmed when it is over, however it ends."""
    code, printed = run("""
from shop import call, clerk, say

async def test_arms(runtime):
    runtime.crash_at("effect.before")
    raise ZeroDivisionError

async def test_runs(runtime):
    runtime.script(clerk=[call("pay", amount=3), say("done")])
    [request] = (await runtime.run_to_park(clerk, "go")).requests
    assert (await runtime.decide(request, "approve")).status == "completed"
    assert runtime.crashes == 0
""")
    assert (code, outcomes(printed)) == (1, {"failed": 1, "passed": 1})


def test_an_async_test_may_have_a_limit(run):
    """With `lictor_timeout` a test that hangs fails; the marker is registered, so `--strict-markers` takes it."""
    code, printed = run("""
import asyncio, pytest

@pytest.mark.lictor_timeout(0.05)
async def test_hangs():
    await asyncio.Event().wait()
""")
    assert (code, outcomes(printed)) == (1, {"failed": 1})
    assert "TimeoutError" in printed


def test_the_fixture_belongs_to_async_tests(run):
    """A sync test cannot await anything; it is told so."""
    code, printed = run("def test_sync(runtime):\n    pass\n")
    assert code == 1
    assert "uses the fixture 'runtime' and is no `async def` test" in printed


def test_tests_of_another_async_plugin_are_left_to_it(run):
    """A test with the marker of anyio runs under anyio, and the fixture still works there."""
    pytest.importorskip("anyio")
    code, printed = run("""
from shop import call, clerk, say

import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_under_anyio(runtime, anyio_backend):
    runtime.script(clerk=[call("pay", amount=3), say("done")])
    [request] = (await runtime.run_to_park(clerk, "go")).requests
    runtime.crash_at("effect.after")
    assert (await runtime.decide(request, "approve")).requests[0].kind == "unknown_effect"

@pytest.mark.anyio
async def test_is_checked_there_too(runtime, anyio_backend):
    runtime.crash_at("effect.after")
""")
    assert (code, outcomes(printed)) == (1, {"passed": 1, "failed": 1})
    assert "was armed and never reached" in printed


def test_marker_and_fixture_are_documented_by_pytest(run):
    """`pytest --markers` and `--fixtures` explain them."""
    assert "lictor_timeout(seconds): fail an async test" in run("", "--markers")[1]
    assert "A Runtime over a fresh store" in run("", "--fixtures")[1]
