"""The command line: exit codes, stdout, stderr."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_reference import PAGE, reference

from lictor.console.cli import main
from lictor.hooks import POINTS

SRC = Path(__file__).parents[2] / "src"
CLERK = '''
from lictor import ALLOW, Agent, interceptor, tool

@interceptor(points=["pre_tool_call"], version="7")
def careful(context):
    return ALLOW

@tool(requires_approval=True)
async def pay(amount: float) -> str:
    """Pay."""
    return "paid"

clerk = Agent("clerk", model="openai:gpt-5-mini", tools=[pay], interceptors=[careful])
plain = Agent("plain", model="openai:gpt-5-mini")
number = 7
'''


@pytest.fixture
def lictor(tmp_path, monkeypatch, capsys):
    """Run `lictor` in a folder with a shop in it; gives exit code, stdout, stderr. Imports are undone."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "clerk.py").write_text(CLERK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    known, paths = set(sys.modules), list(sys.path)

    def forget():
        sys.path[:] = paths
        for name in [name for name in sys.modules if name not in known and "lictor" not in name]:
            if getattr(sys.modules[name], "__file__", None) is None or str(tmp_path) in sys.modules[name].__file__:
                del sys.modules[name]

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lictor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        forget()
        printed, told = capsys.readouterr()
        return ended.value.code or 0, printed, told

    return run


def test_help_and_version_need_nothing(lictor):
    """Both end with 0; without arguments the help is shown and the code says that a verb is missing."""
    assert lictor("--version") == (0, f"lictor {importlib.metadata.version('lictor')}\n", "")
    code, printed, _ = lictor("--help")
    assert code == 0
    assert "demo" in printed
    assert "hooks" in printed
    assert lictor()[0] == 2


def test_the_root_does_not_import_the_command_line():
    """`import lictor`, and its console door, bring in neither typer nor rich."""
    code = "import sys, lictor, lictor.console; print([m for m in ('typer', 'rich') if m in sys.modules])"
    environ = os.environ | {"PYTHONPATH": str(SRC)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environ, text=True).strip() == "[]"


def test_help_does_not_import_rich_or_openai():
    """The heavy libraries of a verb wait until it runs."""
    code = "import sys, lictor.console.cli; print([m for m in ('rich', 'openai', 'pydantic') if m in sys.modules])"
    environ = os.environ | {"PYTHONPATH": str(SRC)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environ, text=True).strip() == "[]"


def test_the_page_about_the_command_line_is_current():
    """docs/cli.md is what tests/console/cli_reference.py writes today."""
    assert PAGE.read_text() == reference()


@pytest.mark.parametrize("arguments", [["--bogus"], ["dmo"], ["demo", "--bogus"], ["hooks"], ["demo", "extra"]])
def test_wrong_usage_ends_with_2(lictor, arguments):
    """Unknown verbs and options and missing arguments are told on stderr, with where to find help."""
    code, printed, told = lictor(*arguments)
    assert (code, printed) == (2, "")
    assert "--help" in told


def test_a_process_ends_with_the_same_code(tmp_path):
    """The entry point of the installed script hands the exit code on."""
    code = "from lictor.console.cli import main; main()"
    environ = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", code, "hooks", "nofile.py:x"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"lictor: there is no file nofile\.py \(looked in .*\)\n", done.stderr)
    scripts = importlib.metadata.entry_points(group="console_scripts", name="lictor")
    assert [script.value for script in scripts] == ["lictor.console.cli:main"]


# ---- hooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["shop/clerk.py:clerk", "shop.clerk:clerk", "./shop/clerk.py:clerk"])
def test_hooks_prints_the_resolved_order(lictor, target):
    """Qualified names, versions, fingerprints, and the order at each point, from a file or a module."""
    code, printed, told = lictor("hooks", target)
    assert (code, told) == (0, "")
    for word in ("agent clerk: sequential/run_all, enforce", "policy sha256:", "agent:clerk/careful", "clerk:careful"):
        assert word in printed
    judged = printed.rpartition("\npre_tool_call")[2].partition("\npost_tool_call")[0]
    order = "1 lictor/deny-repeats, 2 lictor/loop-breaker, 3 agent:clerk/careful, 4 lictor/approval"
    assert " ".join(judged.split()) == order
    points = [line.split()[0] for line in printed.splitlines() if line.startswith(POINTS)]
    assert points == list(POINTS)


def test_hooks_as_json(lictor):
    """One object with the declared data of every interceptor and the order by point."""
    code, printed, _ = lictor("hooks", "shop/clerk.py:clerk", "--json")
    order = json.loads(printed)
    assert code == 0
    assert set(order) == {"agent", "mode", "composition", "policy", "interceptors", "order"}
    assert order["order"]["pre_tool_call"] == [
        "lictor/deny-repeats",
        "lictor/loop-breaker",
        "agent:clerk/careful",
        "lictor/approval",
    ]
    [careful] = [each for each in order["interceptors"] if each["name"] == "agent:clerk/careful"]
    assert (careful["version"], careful["points"]) == ("7", ["pre_tool_call"])
    assert careful["fingerprint"].startswith("sha256:")


def test_hooks_of_an_agent_without_policies_shows_who_allows(lictor):
    """The built-in pass of a run without policies is visible."""
    assert "lictor/allow-all" in lictor("hooks", "shop/clerk.py:plain")[1]


def test_a_changed_policy_has_another_fingerprint(lictor, tmp_path):
    """A new version of an interceptor changes its own fingerprint and that of the policy."""
    before = json.loads(lictor("hooks", "shop/clerk.py:clerk", "--json")[1])
    (tmp_path / "shop" / "clerk.py").write_text(CLERK.replace('version="7"', 'version="8"'))
    after = json.loads(lictor("hooks", "shop/clerk.py:clerk", "--json")[1])
    changed = [
        one["name"]
        for one, other in zip(before["interceptors"], after["interceptors"], strict=True)
        if one["fingerprint"] != other["fingerprint"]
    ]
    assert changed == ["agent:clerk/careful"]
    assert before["policy"] != after["policy"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nofile.py:x", "there is no file nofile.py"),
        ("shop/clerk.py", "write shop/clerk.py:NAME; it has clerk, plain"),
        ("shop/clerk.py:nope", "there is no 'nope' in shop/clerk.py; it has clerk, plain"),
        ("shop/clerk.py:pay", "pay in shop/clerk.py is a Tool, neither an Agent nor a Team; it has clerk, plain"),
        ("shop/clerk.py:number", "is a int, neither an Agent nor a Team"),
        ("shop.clerk:number", "is a int, neither an Agent nor a Team"),
        ("nomodule:x", "there is no module 'nomodule'"),
        ("shop/clerk:x", "there is no module 'shop/clerk'"),
        ("shop.nope:x", "there is no module 'shop.nope'"),
        ("json:loads", "loads in json is a function, neither an Agent nor a Team; json holds no Agent or Team"),
        ("", "write file.py:NAME or module:NAME"),
        (".:x", "write file.py:NAME or module:NAME"),
        ("broken.py:x", "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        ("unread.py:x", "cannot be read: "),
        ("leaves.py:x", "leaves.py cannot be imported: SystemExit: 3"),
        ("needs.py:x", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("needs:x", "needs cannot be imported: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("wrong.py:x", "wrong.py cannot be imported: DefinitionError: model 'gpt' has no known prefix"),
    ],
)
def test_a_target_that_cannot_be_used_is_told_in_one_line(lictor, tmp_path, target, told):
    """Whatever is wrong with a target: exit code 2, nothing on stdout, one line that says what to do."""
    (tmp_path / "broken.py").write_text("x = 1 / 0\n")
    (tmp_path / "unread.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "needs.py").write_text("import nosuchmodule\n")
    (tmp_path / "wrong.py").write_text("from lictor import Agent\nx = Agent('x', model='gpt')\n")
    code, printed, error = lictor("hooks", target)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert error.startswith("lictor: ")
    assert told in error
