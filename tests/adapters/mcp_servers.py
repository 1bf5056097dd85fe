"""Starting the servers of these tests, and seeing whether a process is gone."""

import os
import subprocess
import sys
from pathlib import Path

from lictor import ToolContext
from lictor.adapters import MCPServer

SERVERS = Path(__file__).parent / "servers"
FOR_TESTS = 20.0  # seconds; a busy machine needs some for a start


class Ledger:
    """What the shop wrote down."""

    def __init__(self, folder):
        self.path = folder / "ledger.txt"
        self.path.touch()

    @property
    def lines(self):
        """Everything but the process ids."""
        return [line for line in self.path.read_text().splitlines() if not line.startswith("pid ")]

    @property
    def pids(self):
        """The processes that were started, in order."""
        return [int(line.split()[1]) for line in self.path.read_text().splitlines() if line.startswith("pid ")]


def shop(ledger, **options):
    """The shop on stdio."""
    command = [sys.executable, str(SERVERS / "shop.py")]
    options = {"timeout": FOR_TESTS, **options}
    return MCPServer("shop", command=command, env={"SHOP_LEDGER": str(ledger.path)}, **options)


def rude(mode, **options):
    """The server with bad manners."""
    command = [sys.executable, "-S", str(SERVERS / "rude.py"), mode]
    options = {"name": "rude", "timeout": FOR_TESTS, **options}
    return MCPServer(options.pop("name"), command=command, **options)


def shop_over_http(ledger):
    """Start the shop's HTTP server; the process and its address."""
    environment = {**os.environ, "SHOP_LEDGER": str(ledger.path)}
    command = [sys.executable, str(SERVERS / "shop.py"), "http"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as first:
        return process, first.readline().strip()


def alive(pid):
    """Whether a process runs; one that ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def use(tools, name, **arguments):
    """Call a tool as a run does, without a run."""
    tool = next(tool for tool in tools if tool.name == name)
    return await tool.run(tool.parse(arguments), ToolContext())
