"""Agents for the tests of the pages. What a tool really did stands in `DONE`."""

from lictor import ALLOW, Agent, Verdict, interceptor, tool
from lictor.testing import ScriptedModel, call, say

DONE: list[object] = []
SCRIPT = "<script>alert('x')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
HIDDEN = "safe\u202eexe.fdp\x1b[2J\u200b\x00\r\n\ttail"


@tool(requires_approval=True)
async def refund(order: int, amount: float, note: str = "", tags: list[str] | None = None) -> str:
    """Pay back."""
    DONE.append({"order": order, "amount": amount, "note": note, "tags": tags})
    return f"paid {amount}"


@tool(requires_approval=True)
async def shout(text: str, more: dict[str, list[str]] | None = None) -> str:
    """Say it."""
    DONE.append(text)
    return f"said {text} {SCRIPT}"


@tool
async def wire(amount: float) -> str:
    """Pay."""
    DONE.append(amount)
    return "wired"


@interceptor(points=["pre_tool_call"], version="1")
def for_finance(context):
    """Above 100, finance is asked too."""
    if context["target"].get("amount", 0) > 100:
        return Verdict.escalate("large", "Above 100.", responders=["group:finance"], deadline=3600)
    return ALLOW


@interceptor(points=["pre_tool_call"], version="1")
def for_bob(context):
    """Only bob knows."""
    return Verdict.escalate("bob_only", "Bob has to look.", responders=["human:bob"])


@interceptor(points=["output"], version="1")
def answers(context):
    """Answers are read before they go out."""
    return Verdict.escalate("read_first", "Somebody reads it first.")


def agent(name, tools, script, *interceptors):
    return Agent(name, model=ScriptedModel(script), tools=tools, interceptors=list(interceptors))


def clerk(*interceptors, amount=30.0, note="Lost", name="clerk", **more):
    script = [call("refund", {"order": 42, "amount": amount, "note": note, **more}), say("I paid it back.")]
    return agent(name, [refund], script, *interceptors)


def caller(text, name="caller", **more):
    return agent(name, [shout], [call("shout", text=text, **more), say(f"Done {SCRIPT}")])


def banker():
    return agent("banker", [wire], [call("wire", amount=5.0), say("Wired.")])


def writer():
    return agent("writer", [], [say(f"Dear {SCRIPT}")], answers)
