"""team.yaml on the command line: run, hooks and schema; where its runs are kept, and who can go on with them."""

import json
import os
import re
import sys

import pytest

from lictor.console.cli import main

SHOP = '''
from lictor import TeamInterceptor, tool
from lictor.testing import ScriptedModel, call, say

@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    return "paid"

class OnlyAna(TeamInterceptor):
    def should_agent_continue(self, trace, agent):
        return trace.user is not None and trace.user.id == "ana"

boss = ScriptedModel([call("assign", member="refunds", instruction="pay"), call("finish", answer="Done.")])
refunds = ScriptedModel([call("refund", order=42), say("Paid.")])
'''
TEAM = """
version: 1
store: sqlite:///orders.db
agents:
  refunds: {model: {use: till:refunds}, tools: [till:refund]}
team:
  name: orders
  model: {use: till:boss}
  members: [refunds]
  interceptors: {only-ana: till:OnlyAna}
"""


@pytest.fixture
def lictor(tmp_path, monkeypatch, capsys):
    """Run `lictor` in a folder with a team.yaml; gives exit code, stdout, stderr."""
    (tmp_path / "till.py").write_text(SHOP)
    (tmp_path / "team.yaml").write_text(TEAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LICTOR_STORE", raising=False)
    monkeypatch.setenv("LOGNAME", "bea")
    monkeypatch.setenv("COLUMNS", "200")
    paths = list(sys.path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lictor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.path[:] = paths
        sys.modules.pop("till", None)
        printed, told = capsys.readouterr()
        return ended.value.code or 0, printed, told

    return run


def test_a_run_of_a_file_is_decided_from_another_folder(lictor, tmp_path, monkeypatch):
    """The file's store is the default, the printed command names it, and the file is found again from anywhere."""
    code, printed, _ = lictor("run", "team.yaml", "My mug broke", "--user", "ana")
    command = re.search(r"> lictor (approve \w+) --store (sqlite:///orders.db)", printed)
    assert code == 0, printed
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, printed, told = lictor(*command[1].split(), "--store", f"sqlite:///{tmp_path}/orders.db")
    assert (code, told) == (0, "")
    assert printed.endswith("completed\nDone.\n")


@pytest.mark.parametrize("given", ["option", "variable"])
def test_the_option_and_the_variable_go_before_the_store_of_the_file(lictor, tmp_path, monkeypatch, given):
    """`--store` and LICTOR_STORE say where a run is kept, whatever the file says."""
    if given == "variable":
        monkeypatch.setenv("LICTOR_STORE", "sqlite:///mine.db")
    options = ["--store", "sqlite:///mine.db"] if given == "option" else []
    assert lictor("run", "team.yaml:orders", "My mug broke", *options)[0] == 0
    assert os.path.exists("mine.db")
    assert not os.path.exists("orders.db")


def test_whom_a_run_is_for_is_what_policies_see(lictor):
    """Without --user the permission of the team skips its member."""
    code, printed, _ = lictor("run", "team.yaml", "My mug broke")
    assert (code, printed.endswith("completed\nDone.\n")) == (0, True)


def test_hooks_of_a_file_are_printed(lictor):
    """The team without a name, with who has a word at its moments; an agent by its name."""
    _, printed, _ = lictor("hooks", "team.yaml", "--json")
    order = json.loads(printed)
    assert "team:orders/only-ana" in [each["name"] for each in order["interceptors"]]
    own = [name for name, names in order["moments"].items() if "team:orders/only-ana" in names]
    assert own == ["should_agent_continue"]
    assert re.search(
        r"^should_agent_continue +2 lictor/loop-breaker, 1 team:orders/only-ana *$",
        lictor("hooks", "team.yaml")[1],
        re.MULTILINE,
    )
    assert json.loads(lictor("hooks", "team.yaml:refunds", "--json")[1])["agent"] == "refunds"


def test_a_wrong_file_ends_with_2_and_one_line(lictor, tmp_path):
    """For every verb that takes a target."""
    (tmp_path / "team.yaml").write_text(TEAM.replace("members", "membres"))
    for arguments in (["run", "team.yaml", "x"], ["hooks", "team.yaml"]):
        code, printed, told = lictor(*arguments)
        assert (code, printed) == (2, "")
        assert told == ("lictor: team.yaml:9: team.membres: there is no key 'membres'; did you mean 'members'?\n")
    (tmp_path / "team.yaml").write_text(TEAM.replace("sqlite:///orders.db", "'memory:'"))
    code, _, told = lictor("run", "team.yaml", "x")
    assert (code, "memory: ends with this command" in told) == (2, True)


def test_a_file_that_is_gone_is_told(lictor, tmp_path):
    """Resuming says which file it was, and takes another one."""
    lictor("run", "team.yaml", "My mug broke", "--user", "ana")
    (tmp_path / "team.yaml").rename(tmp_path / "other.yaml")
    _, printed, _ = lictor("runs", "--store", "sqlite:///orders.db", "--json")
    [row] = json.loads(printed)["runs"]
    assert row["source"] == f"{tmp_path}/team.yaml"
    code, _, told = lictor("resume", row["run_id"], "--store", "sqlite:///orders.db")
    assert (code, f"{tmp_path}/team.yaml is gone" in told) == (2, True)
    code, printed, _ = lictor("resume", row["run_id"], "--store", "sqlite:///orders.db", "--definitions", "other.yaml")
    assert (code, "suspended" in printed) == (0, True)


def test_the_schema_is_printed(lictor):
    """As JSON, to be saved beside the file."""
    code, printed, _ = lictor("schema")
    assert (code, json.loads(printed)["properties"]["version"]["const"]) == (0, 1)
