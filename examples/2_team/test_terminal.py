import asyncio
import os
import pty
import sys

import pytest

from lictor.testing import FaultServer
from test_team import HERE, SCRIPTS, installed, paid  # noqa: F401

COMMANDS = {
    "main.py": [f"{HERE}/main.py", "My mug broke"],
    "lictor run": ["-c", "from lictor.console.cli import main; main()", "run", f"{HERE}/team.yaml", "My mug broke",
                   "--user", "ana", "--watch"],
}
ASKED = ["orders", "analyst", "analyst", "orders", "refunds", "refunds", "orders", "writer", "orders"]  # in this order


async def typed(arguments, environ, keys):
    """Run a program in a terminal, and type `keys` when it asks."""
    mine, other = pty.openpty()
    program = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environ, stdin=other, stdout=other, stderr=other)
    os.close(other)
    shown = ""
    while True:
        try:
            data = await asyncio.to_thread(os.read, mine, 4096)
        except OSError:  # the program is gone
            data = b""
        if not data:
            os.close(mine)
            return await program.wait(), shown
        shown += data.decode(errors="replace")
        if keys and "then Enter" in shown:
            os.write(mine, keys)
            keys = b""


@pytest.mark.parametrize("command", list(COMMANDS))
async def test_the_team_works_in_a_terminal(command):
    scripts = {name: iter(script) for name, script in SCRIPTS.items()}
    async with FaultServer([next(scripts[name]) for name in ASKED]) as server:
        environ = os.environ | {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "x", "COLUMNS": "110"}
        environ |= {"TERM": "xterm", "PYTHONPATH": f"{environ['PYTHONPATH']}{os.pathsep}{HERE}"}
        code, shown = await typed(COMMANDS[command], environ, b"a\n")
    assert code == 0, shown
    if command == "main.py":
        assert "completed: 30 are on their way." in shown
        assert paid() == "30.00 for order 42\n"
    else:  # it ends where the run waits, with the command that decides
        assert "lictor approve" in shown and "refund(order_id=42, amount=30.0)" in shown
        assert not paid()
