"""The verbs over a stored run: what they print, what they end with, and that processes meet in the store."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lictor.console.cli import main
from lictor.console.query import find_id, short_ids
from lictor.errors import DefinitionError, UnknownRequest
from lictor.journal import open_store
from lictor.runtime import RUNS, RunRow

SRC = Path(__file__).parents[2] / "src"
ENTRY = [sys.executable, "-c", "from lictor.console.cli import main; main()"]
CLERK = '''
import asyncio
from pathlib import Path
from lictor import Agent, tool
from lictor.testing import ScriptedModel, call, fail, say

@tool(requires_approval=True)
async def refund(order: int, amount: float) -> str:
    """Pay back."""
    with Path("paid").open("a") as file:
        file.write(f"{order} {amount}\\n")
    return "paid"

@tool(requires_approval=True, responders=["human:ana"])
async def gift(to: str) -> str:
    """Give."""
    return "given"

@tool
async def wire(amount: float) -> str:
    """Pay, and take long over it."""
    with Path("paid").open("a") as file:
        file.write(f"wired {amount}\\n")
    if not Path("quick").exists():
        print("paying", flush=True)
        await asyncio.sleep(600)
    return "wired"

def agent(name, tool, *script):
    return Agent(name, model=ScriptedModel(list(script)), tools=[tool])

clerk = agent("clerk", refund, call("refund", order=42, amount=30.0), say("Paid."))
twice = agent("twice", refund, call("refund", order=1, amount=2.0), call("refund", order=1, amount=2.0), say("Both."))
donor = agent("donor", gift, call("gift", to="\\x1b[2Jbob \\x9b31m \\u202eevil"), say("Given \\x1b]0;title\\x07."))
banker = agent("banker", wire, call("wire", amount=5.0), say("Wired."))
ill = agent("ill", refund, fail(status=400))
shaky = agent("shaky", refund, *[fail(status=503, retry_after=0)] * 3, say("Better."))
'''


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A folder with agents in it, as the working directory; nobody named a store."""
    (tmp_path / "clerk.py").write_text(CLERK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LICTOR_STORE", raising=False)
    monkeypatch.setenv("LOGNAME", "bea")
    return tmp_path


@pytest.fixture
def lictor(shop, monkeypatch, capsys):
    """Run `lictor` in the shop; gives exit code, stdout, stderr. What it imported from the shop is forgotten."""
    paths = list(sys.path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lictor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.path[:] = paths
        sys.modules.pop("clerk", None)
        printed, told = capsys.readouterr()
        return ended.value.code or 0, printed, told

    return run


@pytest.fixture
def asked(lictor):
    """Run `lictor` with --json; gives the exit code and the one object it printed."""

    def run(*arguments):
        code, printed, _ = lictor(*arguments, "--json")
        return code, json.loads(printed)

    return run


@pytest.fixture
def started(shop):
    """Start `lictor` as a process of its own; whatever still runs is killed at the end."""
    running = []

    def start(*arguments):
        environ = os.environ | {"PYTHONPATH": str(SRC)}
        process = subprocess.Popen(
            [*ENTRY, *arguments], cwd=shop, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def read_until(process, pattern):
    """The first line of a process that holds the pattern."""
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found
    raise AssertionError(process.stderr.read())


def paid(shop):
    """What the tools really did."""
    return (shop / "paid").read_text().splitlines() if (shop / "paid").exists() else []


# ---- processes that meet in the store ---------------------------------------------------------


def test_a_run_is_approved_in_another_process_while_its_own_one_waits(started, lictor, shop):
    """The waiting command says what waits and how to decide; the decision elsewhere makes it finish."""
    process = started("run", "clerk.py:clerk", "refund 42", "--wait", "end")
    command = read_until(process, r"> lictor (approve \w+)$")[1]
    code, printed, _ = lictor("inbox")
    assert code == 0
    assert f"> lictor {command}" in printed
    assert "amount = 30.0" in printed
    assert lictor(*command.split(), "--as", "human:ana")[0] == 0
    printed, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "")
    assert re.search(r"run \w{32}: completed\nPaid\.\n$", printed)
    assert paid(shop) == ["42 30.0"]


@pytest.mark.crash
def test_a_run_whose_process_is_killed_while_it_waits_is_resumed(started, lictor, shop):
    """kill -9, approve without driving, resume: the effect happens once."""
    process = started("run", "clerk.py:clerk", "refund 42", "--wait", "end")
    command = read_until(process, r"> lictor (approve \w+)$")[1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, printed, _ = lictor(*command.split(), "--no-run")
    assert printed.startswith("approved by human:bea: refund of run ")
    assert paid(shop) == []
    command = re.search(r"lictor (resume \w+)$", printed)[1]
    code, printed, _ = lictor(*command.split())
    assert code == 0
    assert printed.endswith("completed\nPaid.\n")
    assert lictor(*command.split())[0] == 3
    assert paid(shop) == ["42 30.0"]


@pytest.mark.crash
@pytest.mark.parametrize(("verb", "effects"), [("skip", 1), ("retry", 2)])
def test_a_call_that_was_killed_is_asked_about(started, lictor, asked, shop, verb, effects):
    """After kill -9 inside a tool the doctor finds the lease, and resume asks whether to run it again."""
    process = started("run", "clerk.py:banker", "wire 5")
    read_until(process, "^paying$")
    assert asked("doctor")[0] == 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    code, found = asked("doctor")
    assert (code, found["runs"], len(found["stale_leases"])) == (1, {"running": 1}, 1)
    (shop / "quick").touch()
    code, result = asked("resume", found["stale_leases"][0])
    [request] = result["requests"]
    assert (code, request["kind"], len(paid(shop))) == (0, "unknown_effect", 1)
    code, view = asked(verb, request["id"])
    assert (code, view["resolution"]["verb"]) == (0, verb)
    assert (view["run"]["status"], view["run"]["answer"]) == ("completed", "Wired.")
    assert len(paid(shop)) == effects


def test_a_running_run_is_cancelled_from_another_process(started, lictor, asked):
    """Its driver carries it out and ends with 1; meanwhile nobody else may resume it."""
    process = started("run", "clerk.py:banker", "wire 5", "--json")
    read_until(process, "^paying$")
    [row] = asked("runs")[1]["runs"]
    code, _, told = lictor("resume", row["run_id"])
    assert (code, "driven by another" in told) == (3, True)
    assert asked("cancel", row["run_id"])[1]["driven"] is True
    printed, told = process.communicate(timeout=60)
    result = json.loads(printed)
    assert (process.returncode, result["status"], result["by"]) == (1, "cancelled", "human:bea")
    assert told.startswith(f"lictor: run {row['run_id']} cancelled by human:bea")


def test_ctrl_c_keeps_the_run(started, asked):
    """An interrupted command ends with 130, in one line that says how to go on."""
    process = started("run", "clerk.py:clerk", "refund 42", "--wait", "end")
    read_until(process, "> lictor approve")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    run_id = re.fullmatch(r"\nlictor: interrupted; go on with: lictor resume (\w+)\n", told)[1]
    code, result = asked("resume", run_id)
    assert (code, result["status"]) == (0, "suspended")


# ---- deciding ---------------------------------------------------------------------------------


@pytest.fixture
def request_id(asked):
    """The request of a refund that waits."""
    code, result = asked("run", "clerk.py:clerk", "refund 42")
    assert (code, result["status"]) == (0, "suspended")
    return result["requests"][0]["id"]


def test_a_parked_run_says_what_waits_and_how_to_decide(lictor):
    """It ends with 0; the commands name the store if the caller named it."""
    code, printed, told = lictor("run", "clerk.py:clerk", "refund 42", "--store", "sqlite:///my shop.db")
    assert (code, told) == (0, "")
    lines = printed.splitlines()
    assert lines[0].endswith(": suspended")
    assert lines[2:5] == ["  order = 42", "  amount = 30.0", "  why: refund needs an approval"]
    assert re.fullmatch(r"  > lictor approve \w{8} --store 'sqlite:///my shop.db'", lines[5])
    assert [line.split()[2] for line in lines[5:]] == ["approve", "reject", "edit", "respond"]


def test_a_second_decision_is_refused(lictor, request_id):
    """Another decision ends with 3 and names who decided; the same one again changes nothing."""
    assert lictor("approve", request_id, "--as", "human:ana")[0] == 0
    code, printed, told = lictor("reject", request_id, "-m", "too much")
    assert (code, printed) == (3, "")
    assert told == f"lictor: request {request_id} was already approved by human:ana\n"
    assert lictor("approve", request_id)[1].startswith("approved by human:ana")


def test_an_edit_pays_what_was_edited(lictor, asked, request_id, shop):
    """The call runs with the new arguments, and only with arguments that fit."""
    code, _, told = lictor("edit", request_id, "--arguments", '{"amount": "much"}')
    assert (code, told) == (2, "lictor: arguments of 'refund' are invalid: order: missing; amount: number expected\n")
    code, view = asked("edit", request_id, "--arguments", '{"order": 42, "amount": 10.0}')
    assert (code, view["status"], view["run"]["status"]) == (0, "edited", "completed")
    assert paid(shop) == ["42 10.0"]


def test_an_edit_names_only_what_changes(lictor, asked, request_id, shop):
    """NAME=VALUE changes what was shown; a name that the tool does not have is refused."""
    assert lictor("edit", request_id, "reason=late")[0] == 2
    code, view = asked("edit", request_id, "amount=12.5")
    assert (code, view["resolution"]["arguments"]) == (0, {"order": 42, "amount": 12.5})
    assert paid(shop) == ["42 12.5"]


def test_what_nobody_can_load_is_settled_and_told(lictor, asked, request_id, shop):
    """The decision stands with 0 when the agent's file is gone; the line says how to go on."""
    (shop / "clerk.py").rename(shop / "moved.py")
    code, printed, told = lictor("approve", request_id)
    assert (code, told) == (0, "")
    assert re.search(
        r"the run was not driven here; there is no file .*clerk\.py.*; if nobody does: lictor resume", printed
    )
    run_id = asked("runs")[1]["runs"][0]["run_id"]
    assert asked("resume", run_id, "--definitions", "moved.py:clerk")[1]["answer"] == "Paid."


def test_a_second_question_is_shown_after_the_first(lictor, asked, shop):
    """A decision drives the run to its next park; what waits then is printed with its commands."""
    _, result = asked("run", "clerk.py:twice", "refund twice")
    code, printed, _ = lictor("approve", result["requests"][0]["id"])
    assert (code, paid(shop)) == (0, ["1 2.0"])
    command = re.search(r"> lictor (approve \w+)$", printed, re.MULTILINE)[1]
    assert lictor(*command.split())[1].endswith("completed\nBoth.\n")


def test_other_runs_of_the_store_are_left_alone(asked, shop):
    """A command drives the run it is about; another one that was decided waits for its own."""
    requests = [asked("run", "clerk.py:clerk", "refund 42")[1]["requests"][0]["id"] for _ in range(2)]
    assert asked("approve", requests[0], "--no-run")[0] == 0
    assert asked("approve", requests[1])[1]["run"]["status"] == "completed"
    assert asked("run", "clerk.py:clerk", "refund 42")[1]["status"] == "suspended"
    assert paid(shop) == ["42 30.0"]


def test_a_trace_follows_a_run_that_another_process_drives(started, lictor, asked):
    """Events come as they are written elsewhere, to the end; as JSON one line each."""
    process = started("run", "clerk.py:clerk", "refund 42", "--wait", "end")
    command = read_until(process, r"> lictor (approve \w+)$")[1]
    run_id = asked("runs")[1]["runs"][0]["run_id"]
    follower = started("trace", run_id, "--follow", "--json")
    read_until(follower, '"request_opened"')
    assert lictor(*command.split())[0] == 0
    rest, told = follower.communicate(timeout=60)
    assert (follower.returncode, told) == (0, "")
    kinds = [json.loads(line)["kind"] for line in rest.splitlines()]
    assert "request_decided" in kinds
    assert kinds[-1] == "run_finished"


def test_watch_prints_each_step(lictor):
    """`run --watch` shows what happens, then what waits."""
    code, printed, _ = lictor("run", "clerk.py:clerk", "refund 42", "--watch")
    assert code == 0
    places = [printed.index(part) for part in ("run_started", "model_finished", "request_opened", ": suspended")]
    assert places == sorted(places)


def test_a_rejection_and_a_response_reach_the_model(asked, shop):
    """The model reads the reason, or the result that a person gave; nothing runs."""
    for verb, text in [("reject", "no budget"), ("respond", "paid by hand")]:
        _, result = asked("run", "clerk.py:clerk", "refund 42")
        code, view = asked(verb, result["requests"][0]["id"], "-m", text)
        assert (code, view["run"]["status"]) == (0, "completed")
        read = [message["content"] for message in asked("trace", result["run_id"])[1]["messages"]]
        assert any(text in (each or "") for each in read)
    assert paid(shop) == []


def test_an_approval_may_stand_for_the_same_arguments(asked, lictor, shop):
    """The second call of the run is not asked for; the grant is listed."""
    _, result = asked("run", "clerk.py:twice", "refund twice")
    request = result["requests"][0]["id"]
    assert lictor("approve", request, "--scope", "always")[0] == 2
    code, view = asked("approve", request, "--scope", "same_arguments", "-m", "fine")
    assert (code, view["resolution"]["feedback"], view["run"]["answer"]) == (0, "fine", "Both.")
    [grant] = asked("grants")[1]["grants"]
    assert (grant["tool"], grant["request"], grant["by"], grant["revoked"]) == ("refund", request, "human:bea", False)
    assert len(paid(shop)) == 2
    assert [each["revoked"] for each in asked("grants", "--revoke", grant["id"][:12])[1]["grants"]] == [True]
    assert lictor("grants", "--revoke", "nothing")[0] == 2


def test_only_the_party_decides(lictor, asked):
    """Another actor is refused with 3 and does not see it among its own; the responder decides."""
    _, result = asked("run", "clerk.py:donor", "give")
    request = result["requests"][0]["id"]
    assert asked("inbox", "--as", "human:bob")[1] == {"requests": []}
    assert [each["id"] for each in asked("inbox", "--as", "human:ana")[1]["requests"]] == [request]
    code, _, told = lictor("approve", request, "--as", "human:bob")
    assert code == 3
    assert "human:bob may not decide" in told
    assert lictor("approve", request, "--as", "bob")[0] == 2
    code, view = asked("approve", request, "--as", "human:ana")
    assert (code, view["resolution"]["decided_by"]) == (0, {"kind": "human", "id": "ana", "via": "cli"})


# ---- ids --------------------------------------------------------------------------------------


def test_a_beginning_is_enough(lictor, asked, request_id):
    """A unique beginning of an id does for requests and runs."""
    code, view = asked("approve", request_id[:6])
    assert (code, view["id"]) == (0, request_id)
    assert asked("trace", view["root_run"][:6])[1]["run"]["run_id"] == view["root_run"]


@pytest.mark.parametrize("verb", ["approve", "retry", "skip", "trace", "cancel", "resume"])
def test_an_unknown_id_is_told(lictor, request_id, verb):
    """One line, exit code 2."""
    what = "request" if verb in ("approve", "retry", "skip") else "run"
    told = f"lictor: there is no {what} 'nothing' in this store; lictor inbox and lictor runs show what there is\n"
    assert lictor(verb, "nothing") == (2, "", told)


def test_an_ambiguous_beginning_is_told(lictor, shop):
    """One line that shows the ids it could mean, exit code 2; a whole id is never ambiguous."""
    store = open_store("sqlite:///lictor.db")
    for run_id in ("feed1", "feed12", "feed2"):
        store.table(RUNS)[run_id] = RunRow(run_id=run_id, definition="clerk", task="refund", created=0.0)
    store.close()
    told = "lictor: 'feed' is the beginning of 3 runs (feed1, feed12, feed2); give more of it\n"
    assert lictor("trace", "feed") == (2, "", told)
    assert lictor("trace", "feed1")[0] == 0


def test_beginnings_of_ids():
    """Errors are typed; what is shown is as short as it may be."""
    ids = ["a" * 32, "a" * 9 + "b" * 23, "c" * 32]
    assert find_id("c", ids, "run") == ids[2]
    with pytest.raises(UnknownRequest):
        find_id("", ids, "run")
    with pytest.raises(DefinitionError):
        find_id("a", ids, "run")
    assert list(short_ids(ids).values()) == ["a" * 10, "a" * 9 + "b", "c" * 8]


# ---- the rest ---------------------------------------------------------------------------------


def test_every_verb_prints_one_object(asked, shop):
    """--json of each verb parses, and says what happened."""
    code, result = asked("run", "clerk.py:clerk", "refund 42", "--key", "k1")
    run_id, request = result["run_id"], result["requests"][0]
    assert (code, result["commands"][0]) == (0, f"lictor approve {request['id'][:8]}")
    assert asked("run", "clerk.py:clerk", "refund 42", "--key", "k1")[1]["run_id"] == run_id
    [row] = asked("runs")[1]["runs"]
    assert (row["status"], row["open_requests"], row["key"]) == ("waiting", 1, "k1")
    assert row["source"] == f"{(shop / 'clerk.py').resolve()}:clerk"
    assert asked("inbox")[1]["requests"] == [request]
    assert asked("approve", request["id"], "--no-run")[1]["status"] == "approved"
    assert asked("doctor")[1]["undriven"] == [run_id]
    assert asked("resume", run_id)[1]["answer"] == "Paid."
    found = asked("trace", run_id)[1]
    assert found["run"]["status"] == "completed"
    assert found["events"][-1]["kind"] == "run_finished"
    assert [each["status"] for each in found["requests"]] == ["approved"]
    code, found = asked("doctor")
    assert (code, found["schema"], found["damage"], found["undriven"]) == (0, 2, None, [])
    assert asked("grants")[1] == {"grants": []}


@pytest.mark.parametrize(("verb", "status"), [(("stop", "--reason", "enough"), "stopped"), (("cancel",), "cancelled")])
def test_a_parked_run_is_ended(asked, lictor, shop, verb, status):
    """Its requests are withdrawn, nothing is paid, and it cannot be ended twice."""
    _, result = asked("run", "clerk.py:clerk", "refund 42")
    name, *given = verb
    code, view = asked(name, result["run_id"], *given, "--no-run")
    assert (code, view["status"], view["driven"]) == (0, "cancelling", False)
    assert asked("inbox")[1] == {"requests": []}
    assert lictor("approve", result["requests"][0]["id"])[0] == 3
    code, result = asked("resume", result["run_id"])
    assert (code, result["status"], result["by"]) == (1, status, "human:bea")
    assert lictor(name, result["run_id"], *given)[0] == 3
    other = asked("run", "clerk.py:clerk", "refund 42")[1]["run_id"]
    assert lictor(name, other, *given) == (0, f"run {other}: {status}\n", "")
    assert paid(shop) == []


def test_a_failed_run_ends_with_1(lictor):
    """What failed is one line on stderr."""
    code, printed, told = lictor("run", "clerk.py:ill", "refund")
    assert code == 1
    assert re.fullmatch(r"run \w{32}: failed\n", printed)
    assert re.fullmatch(r"lictor: run \w{32} failed.*\n", told)


def test_a_failed_run_may_have_another_attempt(lictor):
    """Where that may help, the line says how; resume makes it."""
    code, _, told = lictor("run", "clerk.py:shaky", "refund")
    assert code == 1
    command = re.search(r"; try again with: lictor (resume \w{32})\n$", told)[1]
    code, printed, _ = lictor(*command.split())
    assert (code, printed.splitlines()[1]) == (0, "Better.")


def test_resume_needs_to_know_the_agent(lictor, asked, shop):
    """A file that moved is named with --definitions; another agent is not taken for it."""
    _, result = asked("run", "clerk.py:clerk", "refund 42")
    (shop / "clerk.py").rename(shop / "moved.py")
    code, _, told = lictor("resume", result["run_id"])
    assert code == 2
    assert told.endswith("clerk.py is gone; add --definitions FILE.py:NAME with the agent 'clerk'\n")
    code, _, told = lictor("resume", result["run_id"], "--definitions", "moved.py:donor")
    assert code == 2
    assert "is one of 'clerk'" in told
    assert asked("resume", result["run_id"], "--definitions", "moved.py:clerk")[1]["status"] == "suspended"


def test_a_changed_policy_is_refused_until_it_is_accepted(lictor, asked, shop):
    """Exit code 3; with --accept-policy-change it is asked anew."""
    _, result = asked("run", "clerk.py:clerk", "refund 42")
    (shop / "clerk.py").write_text(
        CLERK.replace("order: int, amount: float", "order: int, amount: float, why: str = ''")
    )
    code, _, told = lictor("resume", result["run_id"])
    assert code == 3
    assert told.endswith("; add --accept-policy-change to go on under the new one\n")
    code, again = asked("resume", result["run_id"], "--accept-policy-change")
    assert code == 0
    assert [each["id"] for each in again["requests"]] != [each["id"] for each in result["requests"]]


def test_what_a_model_writes_cannot_move_the_cursor(lictor, asked):
    """Control characters and direction marks of arguments and answers do not reach the terminal."""
    outputs = [lictor("run", "clerk.py:donor", "give")[1], lictor("inbox")[1], lictor("inbox", "--json")[1]]
    [request] = asked("inbox")[1]["requests"]
    outputs += [lictor("approve", request["id"], "--as", "human:ana")[1], lictor("trace", request["root_run"])[1]]
    assert "Given" in outputs[3]
    assert [sign for sign in "".join(outputs) if not sign.isprintable() and sign != "\n"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["runs"], 2, r"there is no store lictor\.db \(looked in .*\); name it with --store sqlite:///FILE\.db"),
        (["doctor", "--store", "sqlite:///clerk.py"], 1, r"store clerk\.py: the file is no SQLite database .*"),
        (["runs", "--store", "memory:"], 2, "memory: ends with this command; .*"),
        (["runs", "--store", "redis:"], 2, "'redis:' is no store; .*"),
        (["run", "clerk.py:nobody", "x"], 2, "there is no 'nobody' in clerk.py; it has .*"),
        (["edit", "x", "--arguments", "{"], 2, "--arguments is no JSON .*"),
        (["edit", "x", "--arguments", "[1]"], 2, "--arguments must be one JSON object .*"),
        (["edit", "x"], 2, "give the changes as NAME=VALUE, or all arguments with --arguments JSON"),
        (["edit", "x", "a=1", "--arguments", "{}"], 2, "give the changes as NAME=VALUE, or .*"),
        (["edit", "x", "amount"], 2, "'amount' is no change; write NAME=VALUE, for example amount=10"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(lictor, shop, arguments, code, told):
    """On stderr, with the exit code of its kind; looking makes no file."""
    ended, printed, line = lictor(*arguments)
    assert (ended, printed) == (code, "")
    assert re.fullmatch(f"lictor: {told}\n", line)
    assert not (shop / "lictor.db").exists()


def test_a_key_belongs_to_one_agent(lictor):
    """Another agent under a key that is taken is told so; it does not wait for a run that it cannot drive."""
    assert lictor("run", "clerk.py:clerk", "refund 42", "--key", "k")[0] == 0
    code, _, told = lictor("run", "clerk.py:donor", "give", "--key", "k")
    assert code == 2
    assert re.fullmatch(r"lictor: the key 'k' is that of run \w+ of 'clerk'; give another --key\n", told)


def test_the_environment_names_the_store(lictor, shop, monkeypatch):
    """LICTOR_STORE is used where --store is not given."""
    monkeypatch.setenv("LICTOR_STORE", "sqlite:///other.db")
    code, printed, _ = lictor("run", "clerk.py:clerk", "refund 42")
    assert (code, "--store" in printed) == (0, False)
    assert (shop / "other.db").exists()
    assert lictor("runs")[1].count("waiting") == 1
