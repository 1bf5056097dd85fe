"""A policy judged on its own: the context of a point, and what the policy says to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lictor.errors import DefinitionError
from lictor.hooks import POINTS, Composition, Context, ContextBuilder, Emission, Gate, Governance
from lictor.runs import User
from lictor.values import Clock

__all__ = ["context", "judge"]

CALL_ID = "call_0"
MODEL = "test-model"
UNSET: Any = object()  # None is something a tool may return


def context(  # noqa: PLR0913 - the members of a context are its interface
    point: str,
    value: Any = None,
    *,
    tool: str = "tool",
    args: Mapping[str, Any] | None = None,
    is_error: bool = False,
    role: str = "user",
    model: str = MODEL,
    tools: Sequence[Mapping[str, Any]] | None = None,
    agent: str = "agent",
    session: str = "session",
    sequence: int = 0,
    user: User | str | None = None,
    extensions: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
) -> Context:
    """The context an interceptor would get at `point`, for tests that call it themselves.

    Arguments:
        point: one of the eight points.
        value: what is judged there: names of tools (`agent_startup`), content (`input`, `output`),
            messages (`pre_model_call`; text is one user message), the response (`post_model_call`;
            text is a plain answer), arguments (`pre_tool_call`), the result (`post_tool_call`), the
            reason (`agent_shutdown`).
        tool, args, is_error: the call at the two points of a tool; `args` also instead of `value`.
        role: of the input. model, tools: of the model call.
        agent, session, sequence: who, in which hook session, and where in it.
        user: for `extensions.lictor.user`, where an agent's run puts it.
        extensions: further namespaces.
        clock: where the timestamp comes from.

    Raises DefinitionError for an unknown point, ValueDomainError for a value outside the contract.
    """
    if point not in BUILDERS:
        raise DefinitionError(f"unknown point {point!r}; the points are {', '.join(POINTS)}")
    builder = ContextBuilder(agent_id=agent, session_id=session, sequence=sequence, clock=clock)
    given = {"tool": tool, "args": args, "is_error": is_error, "role": role, "model": model, "tools": tools}
    return BUILDERS[point](builder, value, given, _extensions(agent, session, user, extensions))


async def judge(  # noqa: PLR0913 - one keyword for each point is the interface
    policies: Any,
    *,
    input: Any = UNSET,
    output: Any = UNSET,
    tool_call: Mapping[str, Any] = UNSET,
    tool_result: Any = UNSET,
    messages: Any = UNSET,
    response: Any = UNSET,
    tool: str | None = None,
    args: Mapping[str, Any] | None = None,
    composition: Composition | str | None = None,
    resolver: Any = None,
    **more: Any,
) -> Emission:
    """What `policies` say to one step, without agent, model or tool.

    Arguments:
        policies: as in `Agent(interceptors=)`: a list, a mapping from names, or (object, index) pairs.
        input, output: the content, for the points of these names.
        tool_call: the arguments of a call of `tool` (`pre_tool_call`).
        tool_result: what a call of `tool` with `args` returned (`post_tool_call`).
        messages, response: for `pre_model_call` and `post_model_call`; text will do.
        tool, args: the call.
        composition: how verdicts compose; by default as in a run, `sequential/run_all`.
        resolver: decides liftable denies (§9); without one they stand with their own reason.
        **more: what `context` takes: user, extensions, is_error, role, model, session, …

    Returns the Emission: `verdict`, `target` (as the policies leave it), `record`, `proceeds`.

    Raises DefinitionError unless exactly one step is given, or for policies that are none.
    """
    steps = {
        "input": input,
        "output": output,
        "pre_tool_call": tool_call,
        "post_tool_call": tool_result,
        "pre_model_call": messages,
        "post_model_call": response,
    }
    given = [(point, value) for point, value in steps.items() if value is not UNSET]
    if len(given) != 1:
        raise DefinitionError(
            f"judge() got {len(given)} steps; give exactly one of input=, output=, tool_call=, tool_result=, "
            "messages=, response="
        )
    ((point, value),) = given
    if tool is not None:
        more["tool"] = tool
    judged = context(point, value, args=args, **more)
    rules = Governance() if composition is None else Governance(composition=composition)
    gate = Gate(policies, composition=rules.composition, resolver=resolver)
    return await gate.emit(judged)


def _extensions(agent: str, session: str, user: User | str | None, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """`extensions` as in a run: what Lictor says about it, then whatever the test adds or replaces."""
    about: dict[str, Any] = {"root": session, "parent": None, "path": [agent], "purpose": "agent"}
    if user is not None:
        about["user"] = {"id": user.id, "attributes": dict(user.attributes)} if isinstance(user, User) else {"id": user}
    given = dict(more or {})
    return {**given, "lictor": {**about, **dict(given.get("lictor", {}))}}


Given = Mapping[str, Any]


def _startup(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    return builder.agent_startup(value or (), extensions=extra)


def _input(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    return builder.input(value, given["role"], extensions=extra)


def _pre_model(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    messages = [{"role": "user", "content": value}] if isinstance(value, str) else (value or [])
    return builder.pre_model_call(given["model"], messages, tools=given["tools"], extensions=extra)


def _post_model(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    whole = value if isinstance(value, Mapping) else {"content": value}
    calls = [{"id": f"call_{number}", "args": {}, **call} for number, call in enumerate(whole.get("tool_calls") or ())]
    filled = {"content": None, "finish_reason": "tool_calls" if calls else "stop", **whole, "tool_calls": calls}
    return builder.post_model_call(given["model"], filled, extensions=extra)


def _pre_tool(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    args = given["args"] if value is None else value
    return builder.pre_tool_call(CALL_ID, given["tool"], args or {}, extensions=extra)


def _post_tool(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    args, is_error = given["args"] or {}, given["is_error"]
    return builder.post_tool_call(CALL_ID, given["tool"], args, value, is_error, extensions=extra)


def _output(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    return builder.output(value, extensions=extra)


def _shutdown(builder: ContextBuilder, value: Any, given: Given, extra: Any) -> Context:
    return builder.agent_shutdown(value or "completed", extensions=extra)


BUILDERS: Mapping[str, Callable[[ContextBuilder, Any, Given, Any], Context]] = {
    "agent_startup": _startup,
    "input": _input,
    "pre_model_call": _pre_model,
    "post_model_call": _post_model,
    "pre_tool_call": _pre_tool,
    "post_tool_call": _post_tool,
    "output": _output,
    "agent_shutdown": _shutdown,
}
