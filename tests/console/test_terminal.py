"""The live view of a run: what is on the screen, and that what is typed decides exactly what was shown."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from lictor import Agent, Budget, Runtime, Team, TeamInterceptor, tool
from lictor.console import terminal
from lictor.runs import Usage
from lictor.testing import ScriptedModel, call, say

SRC = Path(__file__).parents[2] / "src"
USED = Usage(input_tokens=100, output_tokens=20)
PROGRAM = """
import asyncio
from lictor import Agent, Runtime, tool
from lictor.console import terminal
from lictor.testing import ScriptedModel, call, say

@tool(requires_approval=True, responders=RESPONDERS)
async def refund(order: int, amount: float) -> str:
    return f"{amount:.2f} paid back"

clerk = Agent("clerk", model=ScriptedModel([call("refund", order=42, amount=30.0), say("All done.")]), tools=[refund])

async def main():
    async with Runtime("sqlite:///orders.db") as runtime:
        run = await runtime.start(clerk, "Pay 30 back")
        result = await terminal.watch(run, decide=True)
    print(f"\\nended {result.status}: {result.answer}")

asyncio.run(main())
"""


@tool
async def lookup(order: int) -> str:
    """Look an order up."""
    return "left \x1b[2J on Monday"


@tool(requires_approval=True)
async def refund(order: int, amount: float) -> str:
    """Pay back."""
    return "paid"


class NoWriter(TeamInterceptor):
    """Nobody writes."""

    def should_agent_continue(self, trace, agent):
        return agent.name != "writer"


def team():
    """A supervisor who gives work to three members, one of which may not work."""
    boss = [
        call("assign", member="analyst", instruction="look", usage=USED),
        call("assign", member="writer", instruction="write", usage=USED),
        call("assign", member="cashier", instruction="pay", usage=USED),
        call("finish", answer="Done.", usage=USED),
    ]
    members = [
        Agent("analyst", model=ScriptedModel([call("lookup", order=1), say("Monday.", usage=USED)]), tools=[lookup]),
        Agent("cashier", model=ScriptedModel([call("refund", order=1, amount=5.0), say("Paid.")]), tools=[refund]),
        Agent("writer", model=ScriptedModel([])),
    ]
    return Team(
        "orders",
        members=members,
        model=ScriptedModel(boss),
        interceptors={"no-writer": NoWriter()},
        budget=Budget(max_total_tokens=100_000, max_seconds=300),
    )


def screen(width=110):
    """A terminal that keeps what is written to it."""
    return Console(force_terminal=True, file=io.StringIO(), width=width, height=50, highlight=False, color_system=None)


def last_pane(text):
    """The pane as it stood last, line by line, without its frame."""
    pane = text[text.rindex("╭") :]
    return [line.strip("│ ").rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", pane).splitlines()]


async def test_a_team_is_shown_with_bars_members_and_requests():
    """At a park the pane has each member's state, the limits, and what waits with who asks."""
    console = screen()
    async with Runtime() as runtime:
        run = await runtime.start(team(), "Where is order 1?")
        result = await terminal.watch(run, console=console)
        told = console.file.getvalue()
        lines = last_pane(told)
        assert result.status == "suspended"
        assert re.match(r"─ orders  run \w{8}  waiting  \d+ s ─+╮", lines[0].lstrip("╭"))
        assert re.search(r"turns +━+ +3 / 8 +tokens +480 / 100,000", lines[1])
        assert re.search(r"seconds +\d+ / 300$", lines[2])
        assert [re.sub(" {2,}", "  ", line) for line in lines[4:8]] == [
            "· supervisor gave work to cashier  3× 360 tokens",
            "✓ analyst  Monday.  1× 120 tokens",
            "‖ cashier  refund(order=1, amount=5.0)  1×",
            "✗ writer  by team:orders/no-writer: not_continued",
        ]
        [request] = await runtime.docket.pending()
        assert lines[-2] == f"{request.id[:8]} cashier wants refund(order=1, amount=5.0)"
        steps = re.findall(r"\d\d:\d\d:\d\d (\w+) +(\w+) +(.*?) *\n", told)
        assert steps == [
            ("supervisor", "assigns", "analyst: look"),
            ("analyst", "tool", "lookup(order=1) = left �[2J on Monday"),
            ("analyst", "done", "Monday."),
            ("writer", "skipped", "by team:orders/no-writer: not_continued"),
            ("supervisor", "assigns", "cashier: pay"),
            ("cashier", "waits", "for a decision: refund(order=1, amount=5.0)"),
        ]
        assert "\x1b[2J" not in told
        await runtime.docket.decide(request.id, "reject", feedback="no", by="human:ana")
        result = await terminal.watch(run, console=console)
    assert (result.status, result.answer) == ("completed", "Done.")
    lines = last_pane(console.file.getvalue())
    assert "completed" in lines[0]
    assert not any("wants" in line for line in lines)


async def test_a_narrow_terminal_has_one_counter_in_a_line():
    """Nothing is wider than 80 columns."""
    console = screen(width=80)
    async with Runtime() as runtime:
        await terminal.watch(await runtime.start(team(), "Where?"), console=console)
    lines = last_pane(console.file.getvalue())
    assert [line.split()[0] for line in lines[1:4]] == ["turns", "tokens", "seconds"]
    assert max(map(len, lines)) <= 80


async def test_an_agent_is_shown_too_and_why_it_ended():
    """It has one seat and steps instead of turns; an end that is no answer says its reason."""
    console = screen()
    clerk = Agent("clerk", model=ScriptedModel([call("lookup", order=1)] * 3), tools=[lookup], max_steps=2)
    async with Runtime() as runtime:
        result = await terminal.watch(await runtime.start(clerk, "Where?"), console=console)
    assert result.status == "exhausted"
    told = console.file.getvalue()
    lines = last_pane(told)
    assert re.search(r"steps +━+ +2 / 2", lines[1])
    assert "✗ clerk exhausted" in lines[3]
    assert re.search(r"clerk +ends +exhausted.*max_steps", told)


async def test_without_a_terminal_events_are_plain_lines():
    """Pipes and files get what `lictor trace` prints."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    async with Runtime() as runtime:
        result = await terminal.watch(await runtime.start(team(), "Where?"), decide=True, console=console)
    lines = console.file.getvalue().splitlines()
    assert result.status == "suspended"
    assert next(line for line in lines if "member_started" in line).endswith("orders  member_started  analyst")
    assert not re.search("[╭│]", "".join(lines))


# ---- somebody at the terminal -----------------------------------------------------------------


class Typist:
    """A program in a pseudo-terminal: what it shows, and keys for it."""

    def __init__(self, folder, responders):
        (folder / "program.py").write_text(PROGRAM.replace("RESPONDERS", repr(responders)))
        self.folder = folder
        self.shown = ""
        self._mine, other = pty.openpty()
        environ = os.environ | {"PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "100", "LOGNAME": "bea"}
        self.process = subprocess.Popen(
            [sys.executable, "program.py"], cwd=folder, env=environ, stdin=other, stdout=other, stderr=other
        )
        os.close(other)

    def until(self, pattern):
        """Read on until something is shown."""
        end = time.monotonic() + 60
        while not re.search(pattern, self.shown):
            assert time.monotonic() < end, self.shown[-800:]
            try:
                data = os.read(self._mine, 4096)
            except OSError:  # the program is gone
                data = b""
            assert data, self.shown[-800:]
            self.shown += data.decode(errors="replace")
        return self

    def type(self, text):
        """Type something."""
        self.shown = ""
        os.write(self._mine, text.encode())
        return self

    def close(self):
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        os.close(self._mine)


@pytest.fixture
def typist(tmp_path):
    """Start the program in a terminal of its own."""
    started = []

    def start(responders=()):
        started.append(Typist(tmp_path, list(responders)))
        return started[-1]

    yield start
    for each in started:
        each.close()


async def decision(folder):
    """What the docket says of the one request."""
    async with Runtime(f"sqlite:///{folder}/orders.db", drive=False) as runtime:
        [run] = runtime.store.table(terminal_runs()).values()
        [request] = await runtime.docket.requests(run=run.run_id)
        return request


def terminal_runs():
    """The table of runs."""
    from lictor.runtime import RUNS

    return RUNS


async def test_a_key_approves_what_was_shown(typist, tmp_path):
    """The question shows the exact arguments; `a` decides as the login of the terminal, and the run goes on."""
    program = typist().until(r"a, r, e, w, then Enter")
    assert "amount = " in program.shown
    program.type("x\n").until("then Enter").type("a\n").until("ended completed: All done.")
    assert "30.00 paid back" in program.shown
    request = await decision(tmp_path)
    assert (request.resolution.verb, str(request.resolution.decided_by)) == ("approve", "os:bea")


async def test_a_rejection_and_an_edit_say_more(typist, tmp_path):
    """An edit that does not fit is asked again; the reason of a rejection goes to the model."""
    program = (
        typist().until("then Enter").type("e\n").until("name=value").type("nonsense\n").until("no change was given")
    )
    program.until("then Enter").type("e\n").until("name=value").type("amount=much\n").until("not taken: ")
    program.until("then Enter").type("r\n").until("why\\?").type("not today\n").until("ended completed")
    request = await decision(tmp_path)
    assert (request.resolution.verb, request.resolution.feedback) == ("reject", "not today")


async def test_what_is_decided_elsewhere_is_not_asked_any_more(typist, tmp_path):
    """The question goes away when another process decides; so it is with what others have to decide."""
    for responders in ([], ["human:ana"]):
        folder = tmp_path / str(len(responders))
        folder.mkdir()
        program = Typist(folder, responders)
        try:
            program.until("for human:ana" if responders else "then Enter")
            request = await decision(folder)
            async with Runtime(f"sqlite:///{folder}/orders.db", drive=False) as runtime:
                await runtime.docket.decide(request.id, "approve", by="human:ana")
            program.until("ended completed: All done.")
            assert ("then Enter" in program.shown) is (not responders)
        finally:
            program.close()


def test_the_end_of_input_leaves_the_run_waiting(typist):
    """Ctrl-D answers nothing."""
    typist().until("then Enter").type("\x04").until("ended suspended: None")


def test_run_watch_shows_the_view_in_a_terminal_and_lines_in_a_pipe(tmp_path):
    """`lictor run --watch` is the same view; with --json it stays out of stdout."""
    (tmp_path / "clerk.py").write_text(
        "from lictor import Agent\nfrom lictor.testing import ScriptedModel, say\n"
        'clerk = Agent("clerk", model=ScriptedModel([say("Hello.")]))\n'
    )
    command = [sys.executable, "-c", "from lictor.console.cli import main; main()"]
    command += ["run", "clerk.py:clerk", "hi", "--watch"]
    environ = os.environ | {"PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "100"}
    piped = subprocess.run([*command, "--json"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert json.loads(piped.stdout)["answer"] == "Hello."
    assert "run_finished" in piped.stderr
    mine, other = pty.openpty()
    subprocess.run(command, cwd=tmp_path, env=environ, stdin=other, stdout=other, stderr=other, check=True, timeout=60)
    os.close(other)
    shown = ""
    while "Hello." not in shown.rpartition("completed\r\n")[2]:
        shown += os.read(mine, 65536).decode()
    os.close(mine)
    assert "╭─ clerk  run " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
