"""What an emission may cost, in function calls: they are the same on every machine."""

import cProfile

import pytest

from lictor.hooks import ALLOW, ContextBuilder, Gate, interceptor
from lictor.values import freeze

ARGUMENTS = {"url": "https://example.org/a/b?c=d", "method": "GET", "retries": 3, "headers": {"accept": "text/html"}}


def judges(count):
    """Declared interceptors that allow."""

    def judge():
        @interceptor()
        def allow(context):
            return ALLOW

        return allow

    return [judge() for _ in range(count)]


async def calls(emit):
    """Python and C function calls of one emission; the lambda that starts it is not counted."""
    for _ in range(3):
        await emit()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(10):
        await emit()
    profile.disable()
    return (sum(entry.callcount for entry in profile.getstats()) - 1) / 10 - 1


async def small(count):
    gate = Gate(judges(count))
    build = ContextBuilder(agent_id="agent-1", session_id="session-1")
    return await calls(lambda: gate.emit(build.pre_tool_call("call-1", "http_get", ARGUMENTS)))


async def test_a_small_emission_costs_at_most_22_calls():
    """Building a tool call's context and judging it by one interceptor stays this cheap."""
    assert await small(1) <= 22


async def test_another_interceptor_costs_its_own_call():
    """Four more interceptors add four calls: no copy, no task, no check."""
    assert await small(5) - await small(1) == 4


async def test_a_long_history_costs_its_new_messages():
    """The calls of an emission do not grow with the messages that were there before."""
    costs = []
    for size in (50, 500):
        gate = Gate(judges(1))
        build = ContextBuilder(agent_id="agent-1", session_id="session-1")
        history = [freeze({"role": "user", "content": f"{number} " + "x" * 2000}) for number in range(size)]
        costs.append(await calls(lambda gate=gate, build=build, h=history: gate.emit(build.pre_model_call("m", h))))
    assert costs[1] <= costs[0] + 5


async def test_an_emission_costs_a_tenth_of_the_sdk_s():
    """Counted in calls, the reference emitter needs at least ten times as many."""
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")

    class Judge:
        def intercept(self, context):
            return sdk.ALLOW

    emitter = sdk.InterceptionEmitter().register(Judge())
    build = sdk.AgentContextBuilder(agent_id="agent-1", session_id="session-1", framework="test")
    theirs = await calls(
        lambda: emitter.emit(build.pre_tool_call(call_id="call-1", name="http_get", args=dict(ARGUMENTS)))
    )
    assert theirs >= 10 * await small(1)
