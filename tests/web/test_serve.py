"""`lictor serve` as a process: what it prints, that it drives by itself, how it ends, and what it refuses."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from page_forms import forms

from lictor.console import serving
from lictor.console.cli import main
from lictor.console.web import Keys
from lictor.docket import Actor

SRC = Path(__file__).parents[2] / "src"
ENTRY = [sys.executable, "-c", "from lictor.console.cli import main; main()"]
CLERK = '''
from lictor import Agent, tool
from lictor.testing import ScriptedModel, call, say

@tool(requires_approval=True)
async def refund(order: int, amount: float) -> str:
    """Pay back."""
    return "paid"

clerk = Agent("clerk", model=ScriptedModel([call("refund", order=42, amount=30.0), say("Paid.")]), tools=[refund])
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an agent and a run of it that waits."""
    (tmp_path / "clerk.py").write_text(CLERK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LICTOR_STORE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    subprocess.run([*ENTRY, "run", "clerk.py:clerk", "refund 42"], check=True, capture_output=True)
    return tmp_path


@pytest.fixture
def serve(folder):
    """Start `lictor serve`; gives the process. What still runs at the end is killed."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [*ENTRY, "serve", "--port", "0", *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def refused(monkeypatch, capsys, *arguments):
    """Run `lictor serve` here, where it ends at once; gives exit code and the line on stderr."""
    monkeypatch.setattr(sys, "argv", ["lictor", "serve", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err


def read_json(process):
    """The one object that it prints first."""
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(process.stderr.read())


def test_a_decision_in_the_page_is_driven_to_the_end_by_the_server(serve):
    """The agent comes from the file that the run was started from; Ctrl-C ends the server with 0 and no noise."""
    process = serve("--json", "--as", "human:ana", "--viewer")
    told = read_json(process)
    assert (told["actor"], told["viewer"] != told["url"]) == ("human:ana", True)
    with httpx.Client(base_url=told["url"].partition("/?")[0], follow_redirects=True) as client:
        [form] = [form for form in forms(client.get(told["url"]).text) if form["verb"] == "approve"]
        origin = {"origin": str(client.base_url).rstrip("/")}
        page = client.post(form.pop("action"), data=form, headers=origin)
        with client.stream("GET", "/live", params={"of": f"run:{page.url.path[6:]}", "have": ""}) as stream:
            lines = stream.iter_lines()
            while client.get(f"{page.url.path}.json").json()["run"]["status"] != "completed":
                next(line for line in lines if line.startswith("event: changed"))
        outcome = client.get(f"{page.url.path}.json").json()
    assert outcome["outcome"]["answer"] == "Paid."
    assert outcome["requests"][0]["resolution"]["decided_by"] == {"kind": "human", "id": "ana", "via": "web"}
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed, errors) == (0, "", "")


def test_a_run_that_another_process_drives_stays_there(serve, folder):
    """A decision in the page is carried out by the process that waits for it; the server leaves the run alone."""
    command = [*ENTRY, "run", "clerk.py:clerk", "refund 43", "--wait", "end", "--json"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        asked = next(line for line in waiting.stderr if "lictor approve" in line).split()[3]
        told = read_json(serve("--json"))
        with httpx.Client(base_url=told["url"].partition("/?")[0], follow_redirects=True) as client:
            client.get(told["url"])
            [form] = [each for each in forms(client.get(f"/requests/{asked}").text) if each["verb"] == "approve"]
            origin = {"origin": str(client.base_url).rstrip("/")}
            assert client.post(form.pop("action"), data=form, headers=origin).status_code == 200
        printed, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, json.loads(printed)["answer"]) == (0, "Paid.")


def test_it_ends_while_a_page_still_listens(serve):
    """An open event stream does not hold the server; the token is printed once, in the address, and never logged."""
    process = serve("--as", "human:ana")
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[0] == "serving sqlite:///lictor.db; whoever opens this decides as human:ana:\n"
    address = lines[1].strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", address)
    with httpx.Client(follow_redirects=True) as client:
        client.get(address)
        with client.stream("GET", address.partition("?")[0] + "live?of=inbox") as stream:
            assert next(stream.iter_lines()) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert address.partition("token=")[2] not in printed
    assert printed.endswith("stopped; runs that were under way go on with the next driver\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--store", "sqlite:///none.db"], 2, "there is no store none.db"),
        (["--as", "ana"], 2, "write KIND:ID"),
        (["--port", "70000"], 1, "cannot listen on 127.0.0.1:70000"),
        (["--host", "0.0.0.0"], 2, "is every address of this machine"),
        (["--host", "no.such.host.invalid"], 2, "no.such.host.invalid is no address"),
    ],
)
def test_wrong_usage_is_one_line(folder, monkeypatch, capsys, arguments, code, told):
    """A missing store, an actor without a kind, a port that cannot be, a name instead of an address."""
    found, line = refused(monkeypatch, capsys, *arguments)
    assert (found, line.count("\n"), told in line) == (code, 1, True), line


def test_a_taken_port_is_said(folder, monkeypatch, capsys):
    """The line names the port and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, line = refused(monkeypatch, capsys, "--port", port)
    assert (code, f"cannot listen on 127.0.0.1:{port}" in line, "--port" in line) == (1, True, True)


@pytest.mark.parametrize("missing", ["starlette", "jinja2", "uvicorn"])
def test_a_missing_extra_says_what_to_install(folder, monkeypatch, capsys, missing):
    """One line, not a traceback."""
    for name in list(sys.modules):
        if name.partition(".")[0] == missing or name.startswith("lictor.console.web"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    code, line = refused(monkeypatch, capsys)
    assert (code, line) == (2, f"lictor: lictor serve needs {missing}: pip install 'lictor[web]'\n")


@pytest.mark.parametrize(
    ("host", "warned"), [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("192.0.2.1", True)]
)
def test_an_address_that_others_reach_is_warned_about(capsys, host, warned):
    """Without encryption whoever reads the traffic can decide; that is said before anything is served."""
    serving._announce("sqlite:///x.db", host, 8321, Keys(Actor("human", "ana")), as_json=True)
    printed, errors = capsys.readouterr()
    assert ("can be reached from other machines, without encryption" in errors) is warned
    assert json.loads(printed)["viewer"] is None


def test_the_actor_of_the_pages_is_fixed_at_the_start(monkeypatch):
    """`--as` and `--group` make the actor, the door is the web; without them it is the login."""
    given = serving._web_actor("human:ana", ["finance", "legal"])
    assert given == Actor("human", "ana", ("finance", "legal"), "web")
    monkeypatch.setenv("LOGNAME", "bea")
    assert serving._web_actor(None, ()) == Actor("human", "bea", (), "web")


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"127.0.0.1:1", "localhost:1"}),
        ("::1", {"[::1]:1", "127.0.0.1:1", "localhost:1"}),
        ("192.0.2.1", {"192.0.2.1:1"}),
    ],
)
def test_only_names_of_this_server_are_served(host, names):
    """What a Host header may say follows from the address it listens on."""
    assert set(serving._names(host, 1)) == names
