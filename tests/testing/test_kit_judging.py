"""Policies judged on their own, and the contexts they see."""

import pytest

from lictor import ALLOW, Agent, Composition, Context, Mask, User, Verdict, interceptor
from lictor.errors import DefinitionError, ValueDomainError
from lictor.hooks import POINTS, ApprovalResolution
from lictor.testing import ScriptedModel, call, context, judge, say

seen: list[Context] = []


@interceptor()
def look(context: Context) -> Verdict:
    seen.append(context)
    return ALLOW


@interceptor(points=["pre_tool_call"])
def ask(context: Context) -> Verdict:
    return Verdict.escalate("expensive", responders=["human:ana"])


@interceptor(points=["pre_tool_call"])
def never(context: Context) -> Verdict:
    return Verdict.deny("never")


@pytest.mark.parametrize(
    ("step", "point", "target"),
    [
        ({"input": "hello"}, "input", {"content": "hello", "role": "user"}),
        ({"input": "hello", "role": "external"}, "input", {"content": "hello", "role": "external"}),
        ({"output": "bye"}, "output", {"content": "bye"}),
        ({"output": None}, "output", {"content": None}),
        ({"tool_call": {"a": 1}, "tool": "add"}, "pre_tool_call", {"a": 1}),
        ({"tool_result": None}, "post_tool_call", None),
        ({"tool_result": [1], "args": {"a": 1}, "is_error": True}, "post_tool_call", [1]),
        ({"messages": "hello"}, "pre_model_call", [{"role": "user", "content": "hello"}]),
        ({"messages": [{"role": "user", "content": "x"}]}, "pre_model_call", [{"role": "user", "content": "x"}]),
        ({"response": "bye"}, "post_model_call", {"content": "bye", "finish_reason": "stop", "tool_calls": []}),
    ],
)
async def test_each_step_is_judged_at_its_point(step, point, target):
    """One keyword, one point; the policy sees the target where the contract puts it."""
    seen.clear()
    emission = await judge([look], **step)
    assert emission.proceeds
    assert emission.target == target
    assert (seen[0]["interception_point"], seen[0]["target"]) == (point, target)
    assert emission.record["interception_point"] == point


async def test_a_response_is_filled_up():
    """Calls need a name only; id, arguments and finish reason are added."""
    emission = await judge([look], response={"tool_calls": [{"name": "pay"}]})
    assert emission.target == {
        "content": None,
        "finish_reason": "tool_calls",
        "tool_calls": [{"id": "call_0", "name": "pay", "args": {}}],
    }


async def test_the_tool_and_its_arguments_are_in_the_context():
    """At both points of a tool the policy can ask which tool it is about."""
    before = context("pre_tool_call", {"amount": 3}, tool="pay")
    after = context("post_tool_call", "paid", tool="pay", args={"amount": 3}, is_error=False)
    assert before["tool_call"] == {"id": "call_0", "name": "pay", "args": {"amount": 3}}
    assert after["tool_call"] == before["tool_call"]
    assert after["tool_result"] == {"value": "paid", "is_error": False}
    assert context("pre_tool_call", tool="pay", args={"amount": 3})["target"] == {"amount": 3}


@pytest.mark.parametrize("point", POINTS)
def test_every_point_has_a_context(point):
    """With nothing but the point's name a valid context comes out."""
    made = context(point)
    assert isinstance(made, Context)
    assert made["interception_point"] == point
    assert made["extensions"]["lictor"] == {"root": "session", "parent": None, "path": ["agent"], "purpose": "agent"}


async def test_a_context_is_like_the_one_of_a_run():
    """The members a policy may look at are the same as in a real run of an agent."""
    seen.clear()
    agent = Agent("clerk", model=ScriptedModel([call("nosuch"), say("bye")]), interceptors=[look])
    await agent.run("hello", user=User("ana", {"vip": True}))
    real = {each["interception_point"]: each for each in seen}
    for point in ("agent_startup", "input", "pre_model_call", "output", "agent_shutdown"):
        made = context(point, agent="clerk", user=User("ana", {"vip": True}))
        assert made.keys() == real[point].keys()
        assert made["extensions"]["lictor"].keys() == real[point]["extensions"]["lictor"].keys()
        assert made["extensions"]["lictor"]["user"] == real[point]["extensions"]["lictor"]["user"]


async def test_user_and_extensions_reach_the_policy():
    """A user is put where a run puts it; further namespaces stand beside it."""
    made = context("input", "x", user="ana", extensions={"mine": {"a": 1}, "lictor": {"turn": 2}})
    assert made["extensions"] == {
        "mine": {"a": 1},
        "lictor": {
            "root": "session",
            "parent": None,
            "path": ["agent"],
            "purpose": "agent",
            "user": {"id": "ana"},
            "turn": 2,
        },
    }


async def test_policies_compose_as_in_a_run():
    """By default all of them judge and a plain deny wins over one that could be lifted; a profile may be given."""
    both = await judge([ask, never], tool_call={}, tool="pay")
    assert (both.verdict.reason, len(both.record["verdicts"])) == ("never", 2)
    first = await judge([ask, never], tool_call={}, composition="sequential/first_deny")
    assert (first.verdict.reason, first.verdict.liftable) == ("expensive", True)
    strict = await judge({"a": ask, "b": never}, tool_call={}, composition=Composition("parallel/strictest"))
    assert strict.record["composition"]["profile"] == "parallel/strictest"


async def test_a_resolver_decides_what_can_be_lifted():
    """With a resolver the escalation is asked and answered."""

    def yes(request):
        return ApprovalResolution("approve", request.context_identity, ALLOW)

    assert (await judge([ask], tool_call={}, resolver=yes)).proceeds
    assert not (await judge([ask], tool_call={})).proceeds


async def test_transforms_show_in_the_target():
    """What a policy masks is masked in the target that comes back."""
    emission = await judge([Mask("card")], tool_result={"card": "4111 1111 1111 1111"}, tool="lookup")
    assert emission.target == {"card": "**** 1111"}


@pytest.mark.parametrize("steps", [{}, {"input": "a", "output": "b"}], ids=["none", "two"])
async def test_exactly_one_step_is_judged(steps):
    """None or two steps are an error that lists the choices."""
    with pytest.raises(DefinitionError, match="exactly one of input=, output="):
        await judge([look], **steps)


async def test_what_is_no_policy_is_refused():
    """A single policy outside a list, and a thing that is none, are typed errors."""
    with pytest.raises(DefinitionError, match="put a single one in a list"):
        await judge(look, input="x")
    with pytest.raises(DefinitionError):
        await judge([7], input="x")


def test_an_unknown_point_and_a_value_outside_json_are_refused():
    """The errors name the points there are, and the place of the value."""
    with pytest.raises(DefinitionError, match="unknown point 'before_tool'; the points are agent_startup"):
        context("before_tool")
    with pytest.raises(ValueDomainError):
        context("output", {1, 2})
