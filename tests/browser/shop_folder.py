"""The folder of a shop: agents in a file, a program that starts their runs, and `lictor serve` beside it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
SCRIPT = "<script>alert('script')</script>"
IMAGE = "\"'><img src=x onerror=alert('image')>"
LINK = "javascript:alert('link')"
AGENTS = '''
import asyncio, json, sys
from pathlib import Path
from lictor import ALLOW, Agent, Runtime, Team, TeamInterceptor, Verdict, interceptor, tool
from lictor.testing import ScriptedModel, call, say

EVIL = json.loads(Path("evil.json").read_text())

@tool(requires_approval=True)
async def refund(order: int, amount: float, note: str = "") -> str:
    """Pay back."""
    with open("paid", "a") as file:
        file.write(f"{order} {amount} {note}\\n")
    return f"paid {amount}"

@tool(requires_approval=True)
async def shout(text: str, more: dict[str, str] | None = None) -> str:
    """Say it."""
    return f"said {text}"

@interceptor(points=["pre_tool_call"], version="1")
def held(context):
    return Verdict.escalate("held", f"Held: {EVIL}")

def told(request):
    """The last thing the model was told, as its answer: feedback and results come out again."""
    return say(f"I was told: {request.messages[-1]['content']}")

def clerk(name, **arguments):
    wanted = call("refund", {"order": 42, "amount": 30.0} | arguments)
    return Agent(name, model=ScriptedModel([wanted, told]), tools=[refund])

clerk_one = clerk("clerk", note="Parcel lost by the carrier.")
long = clerk("long", note="word " * 400 + "w" * 3000)
evil = Agent("evil", model=ScriptedModel([call("shout", text=EVIL, more={EVIL: EVIL}), told]), tools=[shout],
             interceptors=[held])

class Admits(TeamInterceptor):
    """A person lets each member in; whoever wants to know why is told something hostile."""

    def should_agent_continue(self, trace, agent):
        return Verdict.escalate("held", f"Held: {EVIL}")

def echo(request):
    """What the member was told, as its work."""
    return say(f"{EVIL} {request.messages[-1]['content']}")

steps = [call("assign", member="carrier", instruction=EVIL), call("finish", answer=f"The end {EVIL}")]
team = Team("team", members=[Agent("carrier", model=ScriptedModel([echo])), Agent("idler", model=ScriptedModel([]))],
            model=ScriptedModel(steps), interceptors={"door": Admits()}, max_turns=4)
NAMES = {"clerk": "clerk_one", "long": "long", "evil": "evil", "team": "team"}

async def main():
    name, task, user, talk = json.loads(sys.argv[1])
    import shop
    agent = getattr(shop, NAMES[name])
    async with Runtime("sqlite:///lictor.db") as runtime:
        source = f"{Path('shop.py').resolve()}:{NAMES[name]}"
        run = await runtime.start(agent, task, user=user, conversation=talk, source=source)
        await run.result()
        print(run.id)

if __name__ == "__main__":
    asyncio.run(main())
'''


class Shop:
    """A folder with agents, a store, and a server as a process of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.evil = f"{SCRIPT}{IMAGE} {LINK}"
        (folder / "shop.py").write_text(AGENTS)
        (folder / "evil.json").write_text(json.dumps(self.evil))
        self.process = None
        self.url = self.viewer = None

    def start(self, name="clerk", task="My order 42 never arrived.", user="customer:4711", talk=None):
        """Start a run in a process that ends when the run waits; gives its id."""
        given = json.dumps([name, task, user, talk])
        done = subprocess.run([sys.executable, "shop.py", given], check=True, capture_output=True, **self._where())
        return done.stdout.strip()

    def start_and_kill(self):
        """Start a run in a process that waits for the decision, and kill it there."""
        entry = "from lictor.console.cli import main; main()"
        command = [
            sys.executable,
            "-c",
            entry,
            "run",
            "shop.py:clerk_one",
            "My order 42 never arrived.",
            "--wait",
            "end",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._where()) as process:
            for line in process.stdout:
                if "lictor approve" in line:
                    process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL

    def kill(self):
        """Kill the server: nothing of it is left but what is in the store."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.process = None

    def serve(self):
        """Start the server; gives the address with the token."""
        entry = "from lictor.console.cli import main; main()"
        arguments = ["serve", "--port", "0", "--as", "human:ana", "--viewer", "--json"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", entry, *arguments], stdout=subprocess.PIPE, **self._where()
        )
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, "the server ended"
            text += line
        told = json.loads(text)
        self.url, self.viewer = told["url"], told["viewer"]
        self.address = re.match(r"http://[^/]+", self.url)[0]
        return self.url

    def decide(self, *arguments):
        """Decide with the command line, as another person."""
        entry = "from lictor.console.cli import main; main()"
        subprocess.run([sys.executable, "-c", entry, *arguments], check=True, capture_output=True, **self._where())

    def paid(self):
        """What the tool really did."""
        file = self.folder / "paid"
        return file.read_text().splitlines() if file.exists() else []

    def stop(self):
        """End the server as Ctrl-C does; it has to end well."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.communicate(timeout=60)
            assert self.process.returncode == 0

    def _where(self):
        return {"cwd": self.folder, "text": True, "env": os.environ | {"PYTHONPATH": str(SRC)}}
