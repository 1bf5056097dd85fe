"""The Conformance Test Kit of AGENT-HOOKS-0.1 over the production loop, and what a green report could hide."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lictor.console.cli import app
from lictor.console.conformance import page
from lictor.errors import DefinitionError
from lictor.testing import conformance
from lictor.testing.harness import LictorHarness

pytest.importorskip("agent_hooks.ctk", reason="agent-hooks-sdk[ctk] is a development dependency")

ROOT = Path(__file__).parents[2]
STREAMING = {"AH-CTK-110", "AH-CTK-111", "AH-CTK-112", "AH-CTK-113"}


@pytest.fixture(scope="module")
def report():
    """The kit, run once."""
    return conformance.run_kit()


def vectors():
    """The raw vectors by id."""
    from agent_hooks.ctk import load_vectors

    return {vector["id"]: vector for vector in load_vectors()}


async def checked(harness_type, ids=None, posture="terminate", stream="incremental"):
    """Vector id -> status for a kind of harness."""
    found = {}
    for id, vector in vectors().items():
        if "host_declaration" not in vector["capabilities"] and (ids is None or id in ids):
            status, _ = await conformance.check_vector(vector, harness_type(vector, posture=posture, stream=stream))
            found[id] = status
    return found


def failed(found):
    """The ids that failed."""
    return {id for id, status in found.items() if status == "failed"}


def test_all_claimed_vectors_pass(report):
    """51 of 75 pass in both postures, buffered and incremental; the 24 about declarations are not claimed."""
    assert [each for each in report.checked if each.status == "failed"] == []
    for posture in (None, *conformance.POSTURES):
        counts = {"passed": 51, "failed": 0, "skipped": 0, "not_claimed": 24}
        assert report.counts(posture=posture) == counts
        assert report.counts(posture=posture, stream="buffered")["passed"] == 47
        assert report.counts(posture=posture, stream="incremental")["passed"] == 51
    declared = {each.id for each in report.checked if each.status == "not_claimed"}
    assert {each.part.partition("/")[0] for each in report.checked if each.id in declared} == {"declaration"}
    assert all(each.told for each in report.checked if each.status == "not_claimed")


def test_the_four_streaming_vectors_are_asserted(report):
    """The vectors about incremental mediation run, and all expect something of what was released."""
    streaming = {each.id for each in report.checked if each.part == "streaming/incremental"}
    assert streaming == STREAMING
    for id in STREAMING:
        assert "released_output" in vectors()[id]["expect"]


class Silent(LictorHarness):
    """Tells neither what was released nor what was stored."""

    async def run(self):
        record = await super().run()
        self.released = self.persisted = None
        return record


class Empty(Silent):
    """Says that nothing was released and nothing stored."""

    async def run(self):
        record = await super().run()
        self.released = self.persisted = ""
        return record


class Early(LictorHarness):
    """Releases everything the model said, as a host without a watermark would."""

    async def run(self):
        record = await super().run()
        self.released = self._vector["scenario"]["model_script"][0]["respond"]["content"]
        return record


class Hoarder(LictorHarness):
    """Stores what it was given, denied or not."""

    async def run(self):
        record = await super().run()
        self.persisted = f"{self.persisted} {self._vector['scenario']}"
        return record


class Deaf(LictorHarness):
    """Asks only somebody who allows everything."""

    def setup(self, scenario, interceptors, *options):
        super().setup(scenario, [lambda context: {"decision": "allow"}], *options)


@pytest.mark.parametrize(
    ("harness", "caught"),
    [
        (Silent, STREAMING),
        (Empty, STREAMING),
        (Early, {"AH-CTK-111", "AH-CTK-112", "AH-CTK-113"}),
        (Hoarder, {"AH-CTK-112", "AH-CTK-113"}),
    ],
)
async def test_a_harness_that_hides_something_fails(harness, caught):
    """What the kit's runner does not look at is looked at: silence, leaks and vacuous stores fail the four vectors."""
    assert failed(await checked(harness, STREAMING)) == caught


async def test_a_host_that_asks_nobody_fails():
    """A loop without the vector's interceptors fails nearly everything: the vectors do reach the policies."""
    found = await checked(Deaf)
    assert len(failed(found)) > 45


async def test_buffered_hosts_fail_the_streaming_vectors():
    """A buffered run is none of incremental mediation."""
    assert failed(await checked(LictorHarness, STREAMING, stream="buffered")) == STREAMING


class Default(LictorHarness):
    """An agent with the posture that agents have when nobody says anything."""

    def __init__(self, *options, **more):
        super().__init__(*options, **more)
        self.rule = "terminate"


@pytest.mark.parametrize("stream", conformance.STREAMS)
async def test_the_default_posture_differs_in_composed_denies_only(stream):
    """`terminate`, the default, goes on after what policies composed; two vectors are the difference."""
    ids = None if stream == "incremental" else set(vectors()) - STREAMING
    assert failed(await checked(Default, ids, stream=stream)) == {"AH-CTK-085", "AH-CTK-087"}


def test_json_and_exit_code():
    """`lictor conformance --json` prints the numbers, both postures and every vector, and exits with 0."""
    done = CliRunner().invoke(app, ["conformance", "--json"])
    told = json.loads(done.stdout)
    assert (done.exit_code, {key: told[key] for key in ("passed", "failed", "skipped", "not_claimed")}) == (
        0,
        {"passed": 51, "failed": 0, "skipped": 0, "not_claimed": 24},
    )
    assert (told["kit"]["version"], told["kit"]["vectors"]) == ("0.1.0b3", 75)
    for posture in ("terminate", "continue"):
        part = told["postures"][posture]
        assert (part["passed"], part["streams"]["buffered"]["passed"]) == (51, 47)
        assert part["parts"]["streaming/incremental"] == {"passed": 4}
        assert len({each["id"] for each in part["vectors"]}) == 75


def test_the_report_is_readable():
    """Without options there is a line for each part and one with the numbers."""
    done = CliRunner().invoke(app, ["conformance"])
    assert done.exit_code == 0
    assert re.search(r"composition/sequential_run_all +5 passed", done.stdout)
    assert "kit 0.1.0b3: 51 passed, 24 not claimed" in done.stdout


def test_a_failure_is_told_and_exits_with_1(monkeypatch, report):
    """One failed vector turns the exit code to 1 and is named with what failed."""
    first, *others = report.checked
    bad = conformance.Checked(
        id=first.id,
        title=first.title,
        part=first.part,
        posture="continue",
        stream="buffered",
        status="failed",
        told=("run_outcome",),
    )
    broken = conformance.Report(report.kit, (bad, first, *others))
    assert (broken.passed, broken.counts()["failed"], broken.counts(posture="terminate")["failed"]) == (False, 1, 0)
    monkeypatch.setattr(conformance, "run_kit", lambda: broken)
    for options in ([], ["--json"], ["--page"]):
        done = CliRunner().invoke(app, ["conformance", *options])
        assert (done.exit_code, first.id in done.stdout or options == ["--page"]) == (1, True)


def test_without_the_kit_it_says_what_to_install(monkeypatch):
    """A missing kit is a line that says what to install, and exit code 2."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "agent_hooks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agent_hooks", None)
    with pytest.raises(DefinitionError, match=r"agent-hooks-sdk\[ctk\]==0\.1\.0b3"):
        conformance.run_kit()
    done = CliRunner().invoke(app, ["conformance"])
    assert (done.exit_code, "pip install" in done.stderr) == (2, True)
    assert CliRunner().invoke(app, ["conformance", "--json", "--page"]).exit_code == 2


def test_the_kit_is_the_one_we_develop_against():
    """The kit named in messages and on the page is the one in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert conformance.KIT in project["optional-dependencies"]["dev"]


def test_the_page_is_current(report):
    """docs/conformance.md is what `lictor conformance --page` prints."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (ROOT / "docs" / "conformance.md").read_text() == page(report, version)
