"""`lictor demo`: what it shows, what it asks, and how it ends."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lictor.console.demo import Answer, run_demo
from lictor.console.orders import clerk, team
from lictor.console.screen import printable
from lictor.console.silence import Silence
from lictor.errors import LictorError
from lictor.testing import ScriptedModel, call, invariants, say

SRC = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from lictor.console.cli import main; main()", "demo"]
CARD = "4111 1111 1111 1111"


def environ(**more):
    foreign = ("OPENAI_", "LICTOR_", "NO_COLOR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return clean | {"PYTHONPATH": str(SRC), "COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"} | more


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder as the working directory: the demo keeps its run there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lictor(*arguments):
    """Another `lictor`, in a process of its own, in the same folder; gives exit code and stdout."""
    done = subprocess.run(
        [*COMMAND[:-1], *arguments], env=environ(), check=False, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def played(audience, model=None):
    """The demo in this process, over a store in memory."""
    return run_demo(audience, "memory:", Path("payments.txt").absolute(), model=model)


def demo(*options, stdin=subprocess.DEVNULL, **more):
    """Run the demo without a terminal; gives exit code, stdout, stderr."""
    done = subprocess.run(
        [*COMMAND, *options], env=environ(**more), stdin=stdin, check=False, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


class Terminal:
    """The demo at a pseudo terminal."""

    def __init__(self, *options, **more):
        self._own, other = pty.openpty()
        command = [*COMMAND, *options]
        self.process = subprocess.Popen(
            command, env=environ(**more), stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        self.printed = ""
        self._seen = 0

    def _read(self):
        """The next piece of output, `""` at its end."""
        ready, _, _ = select.select([self._own], [], [], 30)
        assert ready, f"nothing happens any more: {self.printed}"
        try:
            return os.read(self._own, 4096).decode(errors="replace")
        except OSError:  # the other side is closed
            return ""

    def until(self, text):
        """Read until `text` comes, behind what the last `until` found."""
        while (place := self.printed.find(text, self._seen)) < 0:
            piece = self._read()
            assert piece, f"the demo ended without {text!r}: {self.printed}"
            self.printed += piece
        self._seen = place + len(text)
        return self

    def type(self, text):
        """Type a line."""
        os.write(self._own, f"{text}\n".encode())
        return self

    def end(self):
        """Everything it printed, and its exit code."""
        while piece := self._read():
            self.printed += piece
        os.close(self._own)
        return self.process.wait(30), re.sub(r"\x1b\[[0-9;]*m", "", self.printed).replace("\r\n", "\n")


# ---- without a terminal -----------------------------------------------------------------------


def test_without_a_terminal_it_answers_itself_and_says_so():
    """Every part is shown as plain text, in its order, and the exit code is 0."""
    code, printed, told = demo()
    assert (code, told) == (0, "")
    parts = [
        "scripted model (no key, no network)",
        "store      lictor.db",
        "gives      clerk: Look up orders 7 and 42.",
        "clerk wants lookup_order(order_id=7)",
        "denied     by agent:clerk/own-orders: Not this customer's order. It did not run.",
        "lookup_order(order_id=42)",
        "masked     by agent:clerk/mask-card",
        "**** 1111",
        "skipped    bookkeeper, by team:orders/permission: the books are for the staff",
        "skipped    analyst, by lictor/loop-breaker: the same 2 answers came 2 times",
        "refund(order_id=42, amount=30.0)",
        "an approval",
        "requires_approval",
        "there is no terminal to ask in, so the demo answers itself: approve",
        "decided    approve, by service:demo",
        "refund: 30.00 paid back for order 42",
        "answer     Done: 30.00 paid back for order 42.",
        "pre_tool_call  deny      not_your_order",
        "post_tool_call transform masked",
        "host_error:approval_unresolved",
        "record     98 judgements, 4 with a word",
        "budget     ███████████░░░░░░░░░ 11,200 of 20,000 tokens, 10 of 12 turns",
        "status     completed; what was really paid: 30.00 for order 42",
    ]
    places = [printed.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)
    assert "\x1b" not in printed
    assert CARD not in printed


def test_it_fits_a_small_terminal():
    """At 80 columns no line is cut or longer; the question with what led to it fits 24 rows."""
    lines = demo()[1].splitlines()
    assert max(map(len, lines)) <= 80
    [asked, answered] = [n for n, line in enumerate(lines) if "clerk wants refund" in line or "answers itself" in line]
    assert answered - asked <= 23


def test_as_json_it_prints_one_object():
    """Status, answer, the decided requests, every record, and nothing else on stdout."""
    code, printed, told = demo("--json")
    shown = json.loads(printed)
    assert (code, told) == (0, "")
    assert (shown["status"], shown["model"], shown["paid"]) == ("completed", "scripted", ["30.00 for order 42"])
    [request] = shown["requests"]
    assert (request["tool"], request["arguments"]) == ("refund", {"order_id": 42, "amount": 30.0})
    assert (request["verb"], request["status"], request["decided_by"]) == ("approve", "approved", "service:demo")
    assert len(shown["records"]) == 98
    assert (shown["route"][:2], shown["turns"]) == (["clerk", "bookkeeper"], 10)
    assert CARD not in printed


def test_yes_approves_without_asking():
    """`--yes` says that it was given."""
    assert "--yes was given, so the demo answers itself: approve" in demo("--yes")[1]


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", ">&-", "<&- >&- 2>&-", "</dev/null >/dev/null"])
def test_closed_streams_do_not_matter(closed):
    """With stdin, stdout or stderr closed it still ends with 0."""
    line = " ".join(f"'{part}'" for part in COMMAND)
    done = subprocess.run(
        ["bash", "-c", f"{line} {closed}"], env=environ(), check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error():
    """`lictor demo | head -1` prints no traceback."""
    line = " ".join(f"'{part}'" for part in COMMAND)
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1"], env=environ(), check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("Lictor demo")
    assert done.stderr == ""


def test_a_terminal_without_these_characters_gets_others():
    """An ASCII stdout loses the frames, not the run."""
    code, printed, told = demo(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, told) == (0, "")
    assert printed.isascii()
    assert "status     completed" in printed


# ---- at a terminal ----------------------------------------------------------------------------


def test_a_person_approves():
    """The question shows who, what and why; after `a` the refund runs, decided by that person."""
    code, printed = Terminal().until("then Enter").type("a").end()
    assert code == 0
    shown = ["who", "the agent clerk, for ana", "order_id = 42", "amount = 30.0", "a  approve", "r  reject", "e  edit"]
    assert [part for part in shown if part not in printed] == []
    assert re.search(r"decided    approve, by os:\w+", printed)
    assert "what was really paid: 30.00 for order 42" in printed


def test_a_person_rejects_with_a_reason():
    """After `r` and a reason nothing is paid, and the model is told why."""
    screen = Terminal().until("then Enter").type("r").until("why?").type("It was late.")
    code, printed = screen.end()
    assert code == 0
    assert "denied     by lictor/approval: It was late. It did not run." in printed
    assert "I was not allowed to pay anything back." in printed
    assert "what was really paid: nothing" in printed


def test_a_person_edits():
    """After `e` the new amount is paid; an edit that does not fit is refused and asked again."""
    screen = Terminal().until("then Enter").type("x").until("then Enter").type("e").until("name=value")
    screen.type("amount=much").until("refused").until("then Enter").type("e").until("name=value")
    screen.type("").until("no change was given").until("then Enter").type("E").until("name=value").type("amount=20")
    code, printed = screen.end()
    assert code == 0
    assert "what was really paid: 20.00 for order 42" in printed


def test_nobody_answers():
    """The end of input at the question is a rejection."""
    screen = Terminal().until("then Enter")
    os.write(screen._own, b"\x04")
    code, printed = screen.end()
    assert code == 0
    assert "Nobody answered." in printed
    assert "what was really paid: nothing" in printed


def test_ctrl_c_at_the_question_ends_it():
    """Interrupted, it says so in one line, without a traceback, with 130."""
    screen = Terminal().until("then Enter")
    os.kill(screen.process.pid, signal.SIGINT)
    code, printed = screen.end()
    assert code == 130
    assert re.search(r"lictor: interrupted; the run is kept: lictor resume \w{32}\n", printed)
    assert "Traceback" not in printed
    assert "refund: " not in printed


# ---- with a second process --------------------------------------------------------------------


def request_of(code, printed):
    """The one request in the inbox, with the command that approves it."""
    assert code == 0
    [command] = re.findall(r"> lictor (approve \w+)$", printed, re.MULTILINE)
    assert "clerk wants refund" in printed
    assert "amount = 30.0" in printed
    return command.split()


@pytest.mark.crash
def test_killed_while_it_waits_it_is_finished_elsewhere(folder):
    """kill -9 at the question, `lictor inbox`, `lictor approve ID`: paid once, and the answer is printed."""
    screen = Terminal().until("then Enter")
    screen.process.kill()
    screen.end()
    code, printed = lictor(*request_of(*lictor("inbox")))
    assert code == 0
    assert printed.startswith("approved by human:")
    assert printed.endswith(": completed\nDone: 30.00 paid back for order 42. Order 7 is not yours.\n")
    assert lictor("inbox") == (0, "nothing waits\n")
    [paid] = (folder / "lictor.payments.txt").read_text().splitlines()
    assert paid.endswith(" 30.00 for order 42")


def test_decided_elsewhere_it_goes_on(folder):
    """A decision from another terminal takes the question back, and the demo shows the end."""
    screen = Terminal().until("then Enter")
    code, printed = lictor(*request_of(*lictor("inbox")), "--as", "human:bea")
    assert code == 0
    code, printed = screen.end()
    assert code == 0
    assert "somebody decided it in another process" in printed
    assert "decided    approve, by human:bea" in printed
    assert "what was really paid: 30.00 for order 42" in printed
    assert len((folder / "lictor.payments.txt").read_text().splitlines()) == 1


def test_parked_it_leaves_the_question(folder):
    """`--park` asks nobody and prints the commands; one of them finishes the run."""
    code, printed, told = demo("--park")
    assert (code, told) == (0, "")
    assert lictor(*request_of(0, printed))[0] == 0
    code, printed, _ = demo("--park", "--json")
    shown = json.loads(printed)
    assert (shown["status"], shown["paid"], len(shown["requests"])) == ("suspended", [], 1)
    assert demo("--park", "--yes")[0] == 2


def test_the_question_says_how_to_answer_it_elsewhere():
    """The panel names the command, with the store where one was named."""
    screen = Terminal("--store", "sqlite:///shop.db", COLUMNS="120").until("then Enter")
    screen.process.kill()
    _, printed = screen.end()
    assert re.search(r"in another terminal: lictor approve \w{8} --store sqlite:///shop\.db", printed)


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["plain", "NO_COLOR"])
def test_colours_can_be_switched_off(more, coloured):
    """With NO_COLOR a terminal gets no colour codes."""
    screen = Terminal("--yes", **more)
    screen.end()
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", screen.printed)) is coloured


# ---- with a real model ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "gpt-5"], "model 'gpt-5' has no known prefix: write one of openai:NAME"),
        (["--model", "acme:x"], "model 'acme:x' has no known prefix"),
        (["--model", "openai:"], "names no model"),
        (["--base-url", "http://127.0.0.1:1/v1"], "add --model openai:NAME"),
        (["--api-key", "k"], "add --model openai:NAME"),
        (["--model", "openai:x", "--base-url", "127.0.0.1:1"], "must begin with http:// or https://"),
        (["--model", "openai:x"], "needs a key: set OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_meant_is_told_at_once(options, told):
    """Wrong options end with 2 before anything runs."""
    code, printed, error = demo(*options)
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    assert told in error


def test_a_server_that_does_not_answer_is_named():
    """Refused connections end with 1 and one line with the URL, as text and as JSON."""
    options = ["--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1"]
    code, printed, told = demo(*options)
    assert code == 1
    assert told.startswith("lictor: http://127.0.0.1:9/v1 does not answer (connect): ")
    assert told.count("\n") == 1
    assert "status     failed" in printed
    code, printed, told = demo(*options, "--json")
    assert (code, json.loads(printed)["reason"]) == (1, "model_error:connect")


async def test_ctrl_c_during_a_model_call_ends_it():
    """A request that hangs is dropped, with one line and 130."""
    asked = asyncio.Event()

    async def hang(reader, writer):
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        options = ["--model", "openai:x", "--base-url", f"http://{host}:{port}/v1"]
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *options, env=environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, told = await process.communicate()
    assert process.returncode == 130
    assert told.decode().strip() == "lictor: interrupted; nothing more was run"


# ---- the code behind it -----------------------------------------------------------------------


async def test_a_model_that_decides_nothing_comes_to_an_end():
    """A supervisor that only talks is asked again twice; the run has one status and keeps every promise."""
    outcome = await played(Silence(), ScriptedModel([say("I do not know.")] * 3))
    assert (outcome.result.status, outcome.result.reason, outcome.paid) == ("failed", "unroutable", [])
    await invariants(outcome.result)


@pytest.mark.parametrize(
    "script",
    [
        [call("assign", member="clerk", instruction="go"), call("lookup_order", order_id=7), call("nosuch")],
        [call("assign", member="clerk", instruction="go"), *[call("refund", order_id=7, amount=1.0)] * 3],
        [call("assign", member="analyst", instruction="go"), say("well")] * 9,
        [call("assign", member="nobody", instruction="go")] * 9,
        [call("finish", answer="done"), say("and")],
        [say("cut", finish="length")] * 3,
        [call("delegate", assignments=[{"member": "analyst", "instruction": "a"}]), say("FINISH: no")],
    ],
    ids=["mixed", "stubborn", "endless", "nobody", "at_once", "cut", "delegate"],
)
async def test_whatever_a_model_does_there_is_one_status(script):
    """Wrong calls, repeated ones, too many and cut answers end the run by its own rules, and can all be shown."""

    def go_on(request):
        return script[request.position] if request.position < len(script) else say("and then?")

    outcome = await played(Silence(), ScriptedModel([go_on] * 60))
    assert outcome.result.status in ("completed", "stopped", "exhausted", "failed")
    await invariants(outcome.result)


async def test_a_decision_that_is_refused_is_asked_again():
    """An edit that does not fit comes back as a problem, and the next answer counts."""

    class Hasty(Silence):
        problems: list[str] = []  # noqa: RUF012 - one test, one list

        async def ask(self, request):
            amount = {"amount": 5.0} if self.problems else {"amount": "much"}
            return Answer(verb="edit", by="human:ana", arguments={"order_id": 42, **amount})

        def refused(self, problem):
            self.problems.append(problem)

    outcome = await played(Hasty())
    assert outcome.paid == ["5.00 for order 42"]
    assert "amount" in Hasty.problems[0]


async def test_a_silent_audience_does_not_go_round_in_circles():
    """Where nobody could change the answer a refusal is an error."""
    with pytest.raises(LictorError, match="no"):
        Silence().refused("no")


async def test_the_demo_can_be_run_twice():
    """Nothing of one run is left for the next."""
    first, second = await played(Silence()), await played(Silence())
    assert first.paid == second.paid == ["30.00 for order 42"]
    assert first.result.answer == second.result.answer


def test_the_team_of_the_demo_is_one_to_look_at():
    """`lictor hooks lictor.console.orders:team` works on it; its rules are those that the demo shows."""
    code, printed = lictor("hooks", "lictor.console.orders:team")
    assert code == 0
    assert [name for name in ("loop-breaker", "permission") if name not in printed] == []
    assert (clerk.name, team.name) == ("clerk", "orders")


def test_what_a_model_says_cannot_move_the_cursor():
    """Control characters are shown as one sign, long texts are cut with their length."""
    assert printable("a\x1b[2Jb\x07\rc\nd") == "a�[2Jb��c\nd"
    assert printable("x" * 1000).endswith("… (1000 characters)")
