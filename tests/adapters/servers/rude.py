"""An MCP server of the older protocol without any package, and with bad manners: `rude.py MODE`.

silent      reads, and never answers anything
exits       writes to stderr and ends before it answers
stubborn    ends neither when its input ends nor at SIGTERM, and has a child like that
untidy      lists pages, doubles, names and schemas that cannot be used; writes lines that are no JSON
plain       the rest: tools that answer what no tool should answer
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
OBJECT = {"type": "object", "properties": {}}
WIDE = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}}}
TOOLS = {
    "plain": [
        "refused",
        "nonsense",
        "nothing",
        "hang",
        "grow",
        "asks",
        "linked",
        "mixed",
        "failed",
        "die",
        "pid",
        "mute",
        "huge",
    ],
    "untidy": ["wide", "twice", "twice", "so.fa", "deep"],
    "stubborn": ["pid"],
}
grown: list[str] = []
muted: list[bool] = []


def deep(levels: int) -> dict[str, Any]:
    """A schema that is nested as deep as this."""
    form: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        form = {"type": "object", "properties": {"in": form}}
    return form


def schema(name: str) -> Any:
    """The input schema of a tool."""
    return {"wide": WIDE, "deep": deep(60)}.get(name, OBJECT)


def send(**message: Any) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def listed(cursor: str | None) -> dict[str, Any]:
    """One page of tools, two on each."""
    names = [*TOOLS[MODE], *grown]
    start = int(cursor or 0)
    page: dict[str, Any] = {"tools": [{"name": n, "inputSchema": schema(n)} for n in names[start : start + 2]]}
    if start + 2 < len(names):
        page["nextCursor"] = str(start + 2)
    return page


def content(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A result of a tool."""
    return {"content": list(parts), **more}


def text(said: str) -> dict[str, Any]:
    """A part of a result."""
    return {"type": "text", "text": said}


def image() -> dict[str, Any]:
    """A picture of three bytes."""
    return {"type": "image", "mimeType": "image/png", "data": "AAEC"}


LINKED = [
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain", "size": 3},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "mimeType": "text/plain", "text": "b"}},
    {"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC"}},
    {"type": "audio", "mimeType": "audio/wav", "data": "AAEC"},
]
RESULTS = {
    "nonsense": {"content": 7},
    "nothing": content(),
    "linked": content(*LINKED),
    "mixed": content(text("3 lamps"), image(), structuredContent={"lamps": 3}),
    "failed": content(text("no lamps"), image(), structuredContent={"lamps": 0}, isError=True),
    "pid": content(text(str(os.getpid()))),
    "twice": content(text("once")),
    "wide": content(text("wide")),
    "grow": content(text("grown")),
    "mute": content(text(str(os.getpid()))),
    "huge": content(text("x" * 5000)),
}


def called(number: Any, name: str) -> None:
    """Answer a call, or not: `hang` has no answer."""
    if name == "refused":
        send(id=number, error={"code": -32602, "message": "not with me"})
    elif name == "die":
        os._exit(3)
    elif name == "asks":
        send(id="q", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
        answer = json.loads(sys.stdin.readline())
        send(id=number, result=content(text(str(answer["error"]["code"]))))
    elif name == "grow":
        grown.append("grown")
        send(method="notifications/tools/list_changed")
    elif name == "mute":
        muted.append(True)
    elif name == "twice":
        print("this line is no JSON \x00 at all", flush=True)
    if name in RESULTS:
        send(id=number, result=RESULTS[name])


def answered(message: dict[str, Any]) -> None:
    """Answer a message as a server of the protocol 2025-06-18."""
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        can = {"tools": {"listChanged": True}}
        about = {"name": "rude", "version": "1"}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": about})
    elif method == "tools/list":
        if not muted:
            send(id=number, result=listed(params.get("cursor")))
    elif method == "tools/call":
        called(number, params["name"])
    elif number is not None:
        send(id=number, error={"code": -32601, "message": f"no method {method}"})


if MODE == "exits":
    print(f"cannot open the shop: no key in {os.environ.get('SHOP_KEY')}", file=sys.stderr)
    sys.exit(1)
if MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # in this process group
    TOOLS["stubborn"].append(f"child_{child.pid}")
print("hello, I am rude", flush=True)
for line in sys.stdin:
    if MODE != "silent":
        answered(json.loads(line))
while MODE == "stubborn":
    time.sleep(600)
