"""Teams for the tests of the pages: scripted supervisors and members, and hooks made of one function."""

from web_agents import SCRIPT, refund

from lictor import Agent, Budget, Team, TeamInterceptor, Verdict
from lictor.runs import Usage
from lictor.testing import ScriptedModel, call, say

USED = Usage(input_tokens=100, output_tokens=20)


def hook(moment, says, name="guard"):
    """A TeamInterceptor with one method."""

    def method(self, trace, *about):
        return says(trace, *about)

    return type(name, (TeamInterceptor,), {moment: method})()


def member(name, *script, **options):
    """A member that says its script."""
    return Agent(name, model=ScriptedModel(list(script) or [say(f"{name}'s work", usage=USED)] * 5), **options)


def assign(name, instruction="do it"):
    """The decision for one member."""
    return call("assign", member=name, instruction=instruction, usage=USED)


def finish(answer="the end"):
    """The last decision."""
    return call("finish", answer=answer, usage=USED)


def shop(**options):
    """An analyst that works, an auditor that may not, a cashier whose refund waits, and a writer that is idle."""
    paid = [call("refund", order=42, amount=30.0, usage=USED), say("Paid.", usage=USED)]
    members = [member("analyst"), member("auditor"), member("cashier", *paid, tools=[refund]), member("writer")]
    both = [{"member": "analyst", "instruction": f"Find 42 {SCRIPT}"}, {"member": "auditor", "instruction": "Audit."}]
    script = [call("delegate", assignments=both, usage=USED), assign("cashier", "Pay 30 back."), finish()]
    no = hook("should_agent_continue", lambda trace, who: _may(who))
    options = {"budget": Budget(max_total_tokens=10_000)} | options
    return Team("shop", members=members, model=ScriptedModel(script), interceptors={"guard": no}, **options)


def _may(who):
    return Verdict.deny("no_audit", f"Not {SCRIPT} him.") if who.name == "auditor" else None


def asking(moment, *script, **options):
    """Ada alone, and a hook that asks a person at this moment, once for each that it is about."""
    guard = hook(moment, lambda *_: Verdict.escalate("look", "Somebody looks first."))
    model = ScriptedModel(list(script) or [assign("ada", "Look at 42."), finish(), finish(), finish()])
    return Team("room", members=[member("ada")], model=model, interceptors={"guard": guard}, **options)
