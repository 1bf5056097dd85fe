"""A process that drives runs: started by the tests of this folder, killed or stopped in the middle.

worker.py start URL EFFECTS     start the run (key "k") or find it, drive it to a park or its end
worker.py tell URL EFFECTS      the same, and print each event as it is told
worker.py serve URL EFFECTS     drive whatever has no driver, until the run is over

SLOW: seconds that `send` takes. FILE_LIMIT: bytes that no file may grow beyond once the store is open.
WRITE_AND_PAUSE_AT: as LICTOR_PAUSE_AT, but all that was appended is written first.
"""

import asyncio
import os
import resource
import signal
import sys

import mutations

from lictor import Agent, Runtime, faults, tool
from lictor.errors import StoreError
from lictor.models import ScriptedModel, call, say
from lictor.runtime import stints as settings

settings.LEASE_SECONDS = 0.6
mutations.apply()
DATABASE, EFFECTS = sys.argv[2:4]


def note(what):
    with open(EFFECTS, "a") as file:
        file.write(what + "\n")


@tool(effect="pure")
async def look(order: int) -> str:
    """Look an order up."""
    note("look")
    return "found"


@tool(effect="idempotent")
async def mark(order: int) -> str:
    """Mark an order."""
    note("mark")
    return "marked"


@tool
async def send(order: int) -> str:
    """Send a letter."""
    note("send")
    await asyncio.sleep(float(os.environ.get("SLOW", "0")))  # budget: other processes have to come by meanwhile
    return "sent"


@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    note("refund")
    return "paid"


TOOLS = [look, mark, send, refund]
SCRIPT = [*(call(tool.name, order=42) for tool in TOOLS), say("All done.")]
agent = Agent("clerk", model=ScriptedModel(SCRIPT), tools=TOOLS)


async def main(mode):
    async with Runtime(DATABASE, definitions={"clerk": agent}) as runtime:
        print("open", flush=True)
        if "WRITE_AND_PAUSE_AT" in os.environ:
            point, _, after = os.environ["WRITE_AND_PAUSE_AT"].partition(":")
            faults.arm(point, lambda: (runtime.store.flush(), os.kill(os.getpid(), signal.SIGSTOP)), int(after or 0))
        if "FILE_LIMIT" in os.environ:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["FILE_LIMIT"]),) * 2)
        if mode in ("start", "tell"):
            run = await runtime.start(agent, "refund 42", key="k")
        else:
            while not runtime._rows.find(start_key="k"):  # noqa: ASYNC110 - the other side is another process
                await asyncio.sleep(0.02)  # budget: the other side is a real process
            run = await runtime.run(runtime._rows.find(start_key="k")[0].run_id)
        if mode == "tell":
            async for event in run.events(follow=True):
                print(event.cursor, event.kind, event.seq, flush=True)
        result = await run.result("end")
        print(result.status, result.answer, flush=True)


try:
    asyncio.run(main(sys.argv[1]))
except StoreError as error:
    print("StoreError", error, flush=True)
