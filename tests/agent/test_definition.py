"""What is wrong as written is refused where it is written, by a typed error that says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from driving import Strict, policy

from lictor import (
    ALLOW,
    Agent,
    Budget,
    Composition,
    DenyTools,
    Gate,
    Governance,
    Mask,
    Runtime,
    Verdict,
    interceptor,
    tool,
)
from lictor.errors import DefinitionConflict, DefinitionError, DefinitionNotFound, NotSerializable, VerdictInvalid
from lictor.hooks import Bound, arrange
from lictor.models import say
from lictor.runtime import RUNS


def agent(**options: Any) -> Agent:
    """An agent with one option that may be wrong."""
    return Agent(**{"name": "clerk", "model": Strict([say("ok")]), **options})


def f(a: int) -> str:
    """A tool."""
    return str(a)


WRONG_AGENTS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "1 to 64 letters, digits"),
    ({"name": "two words"}, "1 to 64 letters, digits"),
    ({"name": "x" * 65}, "1 to 64 letters, digits"),
    ({"name": 7}, "1 to 64 letters, digits"),
    ({"model": "gpt-5"}, "write one of openai:NAME"),
    ({"model": "antropic:claude"}, "write one of openai:NAME"),
    ({"model": "openai:"}, "names no model"),
    ({"model": 5}, "is not a model"),
    ({"model": Strict}, "is not a model"),
    ({"model": []}, "at least one model"),
    ({"model": ["openai:x", "nope"]}, "write one of openai:NAME"),
    ({"instructions": None}, "instructions must be text"),
    ({"max_steps": -1}, "whole number >= 0"),
    ({"max_steps": 1.5}, "whole number >= 0"),
    ({"max_steps": True}, "whole number >= 0"),
    ({"max_parallel_tools": 0}, "whole number >= 1"),
    ({"max_depth": "8"}, "whole number >= 0"),
    ({"max_children": -1}, "whole number >= 0"),
    ({"budget": 100}, "give a Budget"),
    ({"governance": "enforce"}, "give a Governance"),
    ({"history": object()}, "select"),
    ({"history_window": 0}, "number of messages >= 1"),
    ({"hosted_tools": "web_search"}, "give a list of names"),
    ({"stream": "chunked"}, "buffered"),
    ({"output_type": object()}, "JSON Schema"),
    ({"resolver": 5}, "resolver"),
    ({"deny_repeats": 5}, "deny_repeats"),
    ({"settings": [("temperature", 1)]}, "settings"),
    ({"settings": {"timeout": "soon"}}, "timeout"),
    ({"tools": f}, "list"),
    ({"tools": [f, f]}, "two tools are named 'f'"),
    ({"tools": [5]}, "is no tool"),
    ({"tools": ["f"]}, "is no tool"),
    ({"interceptors": DenyTools("x")}, "put a single one in a list"),
    ({"interceptors": [5]}, "intercept"),
    ({"interceptors": [Mask]}, "register an object"),
    ({"interceptors": [lambda: ALLOW]}, "exactly one argument"),
    ({"interceptors": [(DenyTools("x"), "first")]}, "index"),
    ({"interceptors": {"bad name": DenyTools("x")}}, "interceptor name"),
]


@pytest.mark.parametrize(("options", "says"), WRONG_AGENTS, ids=lambda item: str(item)[:50])
def test_a_wrong_agent_is_refused(options: dict[str, Any], says: str) -> None:
    """Each wrong option of an Agent raises DefinitionError at once, naming what to write instead."""
    with pytest.raises(DefinitionError, match=says):
        agent(**options)


def test_a_copy_is_checked_like_the_original() -> None:
    """`with_` takes what the constructor takes and refuses what it refuses."""
    made = agent(tools=[f])
    assert made.with_(max_steps=3).max_steps == 3
    with pytest.raises(DefinitionError, match="max_steps"):
        made.with_(max_steps=-1)
    with pytest.raises(DefinitionError, match="no option colour"):
        made.with_(colour="red")
    with pytest.raises(TypeError, match="with_"):
        made.max_steps = 5


WRONG_TOOLS: list[tuple[Any, dict[str, Any], str]] = [
    (lambda x: x, {}, "annotat"),
    (lambda *args: 0, {}, "args"),
    (lambda **kw: 0, {}, "kw"),
    (f, {"name": "with space"}, "letters, digits"),
    (f, {"effect": "twice"}, "'pure'"),
    (f, {"deadline": 0}, "seconds above 0"),
    (f, {"timeout": -1}, "seconds above 0"),
    (f, {"responders": "human:ana"}, "write a list"),
    (f, {"requires_approval": "yes"}, "use True, False or a function"),
    (f, {"external": True}, "never runs"),
    (5, {}, "function"),
]


@pytest.mark.parametrize(("function", "options", "says"), WRONG_TOOLS, ids=lambda item: str(item)[:30])
def test_a_wrong_tool_is_refused(function: Any, options: dict[str, Any], says: str) -> None:
    """A tool whose signature or options cannot work is refused where it is declared."""
    with pytest.raises(DefinitionError, match=says):
        tool(**options)(function)


def test_a_plain_function_in_an_agent_is_checked_too() -> None:
    """A function given without `@tool` meets the same checks when the agent is written."""

    def untyped(a, b):  # type: ignore[no-untyped-def]
        return a

    with pytest.raises(DefinitionError, match="annotat"):
        agent(tools=[untyped])


WRONG_INTERCEPTORS: list[tuple[Any, dict[str, Any], str]] = [
    (lambda: ALLOW, {}, "exactly one argument"),
    (lambda a, b: ALLOW, {}, "exactly one argument"),
    (lambda c: ALLOW, {"points": ["before_tool"]}, "choose from agent_startup"),
    (lambda c: ALLOW, {"points": "input"}, "pass a list"),
    (lambda c: ALLOW, {"points": []}, "choose from"),
    (lambda c: ALLOW, {"name": "a b"}, "interceptor name"),
]


@pytest.mark.parametrize(("function", "options", "says"), WRONG_INTERCEPTORS, ids=lambda item: str(item)[:40])
def test_a_wrong_interceptor_is_refused(function: Any, options: dict[str, Any], says: str) -> None:
    """Signature, points and names of an interceptor are checked when it is declared."""
    with pytest.raises(DefinitionError, match=says):
        interceptor(**options)(function)


def test_an_async_blocking_interceptor_is_refused() -> None:
    """`blocking=True` is for functions that block."""

    @interceptor(points=["input"], blocking=True)
    async def slow(context: Any) -> Any:
        return ALLOW

    with pytest.raises(DefinitionError, match="blocking"):
        agent(interceptors=[slow])


def test_two_interceptors_of_one_name_are_refused() -> None:
    """Names that somebody chose are unique over all scopes of a run; those that nobody chose are numbered."""
    bound = arrange([("agent:clerk", {"guard": policy("input", lambda c: ALLOW)})])[0]
    other = arrange([("agent:clerk", {"guard": policy("input", lambda c: ALLOW)})])[0]
    assert isinstance(bound, Bound)
    with pytest.raises(DefinitionError, match="two interceptors are called 'agent:clerk/guard'"):
        agent(interceptors=[bound, other])
    with pytest.raises(DefinitionError, match="two interceptors are called"):
        Gate([bound, other])
    assert Gate([Mask("card"), Mask("card")]).order() == ["mask-card", "mask-card-2"]


async def test_a_name_taken_by_another_scope_is_refused_when_the_run_is_put_together() -> None:
    """Per-run interceptors are checked against the agent's before anything runs."""
    bound = arrange([("agent:clerk", {"guard": policy("input", lambda c: ALLOW)})])[0]
    model = Strict([say("ok")])
    clerk = agent(model=model, interceptors={"guard": policy("output", lambda c: ALLOW)})
    with pytest.raises(DefinitionError, match="two interceptors are called"):
        await clerk.run("go", interceptors=[bound])
    assert model.requests == []


WRONG_GOVERNANCE: list[tuple[dict[str, Any], str]] = [
    ({"mode": "observe"}, "'enforce'"),
    ({"posture": "ignore"}, "'terminate'"),
    ({"composition": "parallel/any"}, "use one of sequential/first_deny"),
    ({"composition": 5}, "Composition"),
    ({"timeout": 0}, "seconds above 0"),
    ({"resolver_timeout": -1}, "seconds above 0"),
    ({"identity": "md5"}, "identity"),
    ({"redactor": 5}, "redactor"),
    ({"record_sink": 5}, "record_sink"),
    ({"sink_required": True}, "record_sink"),
    ({"resolver": 5}, "resolver"),
]


@pytest.mark.parametrize(("options", "says"), WRONG_GOVERNANCE, ids=lambda item: str(item)[:40])
def test_a_wrong_governance_is_refused(options: dict[str, Any], says: str) -> None:
    """Every option of Governance is checked when it is written."""
    with pytest.raises(DefinitionError, match=says):
        Governance(**options)


def test_a_knob_that_a_profile_never_looks_at_is_refused() -> None:
    """A Composition with a knob of another profile is a definition error."""
    with pytest.raises(DefinitionError, match="does not consult"):
        Composition("sequential/run_all", on_approval="resume")


async def test_governance_is_set_once() -> None:
    """The outermost governance counts; one further in is refused where the two meet."""
    inner = agent(name="inner", governance=Governance())
    with pytest.raises(DefinitionError, match="outermost"):
        agent(tools=[inner])
    with pytest.raises(DefinitionError, match="outermost"):
        inner.as_tool()
    async with Runtime(governance=Governance()) as runtime:
        with pytest.raises(DefinitionError, match="only the outermost"):
            await runtime.start(inner, "go")
    with pytest.raises(DefinitionError, match="only the outermost"):
        Runtime(governance=Governance(), definitions={"inner": inner})


WRONG_BUDGETS: list[dict[str, Any]] = [
    {"max_tool_calls": -1},
    {"max_total_tokens": "many"},
    {"max_cost_usd": True},
    {"max_seconds": float("nan")},
]


@pytest.mark.parametrize("options", WRONG_BUDGETS, ids=str)
def test_a_wrong_budget_is_refused(options: dict[str, Any]) -> None:
    """Limits are numbers of at least 0."""
    with pytest.raises(DefinitionError, match="number >= 0"):
        Budget(**options)


WRONG_RUNS: list[tuple[dict[str, Any], str]] = [
    ({"max_stpes": 3}, "no such option or limit"),
    ({"max_steps": -1}, "max_steps"),
    ({"max_steps": "3"}, "max_steps"),
    ({"max_tool_calls": -1}, "number >= 0"),
    ({"history": "all"}, "use 'run'"),
    ({"interceptors": [5]}, "intercept"),
    ({"resolver": 5}, "resolver"),
]


@pytest.mark.parametrize(("options", "says"), WRONG_RUNS, ids=lambda item: str(item)[:40])
async def test_a_wrong_option_of_a_run_is_refused(options: dict[str, Any], says: str) -> None:
    """Options of one run are checked before the first point is emitted or the first model asked."""
    model = Strict([say("ok")])
    clerk = agent(model=model)
    with pytest.raises(DefinitionError, match=says):
        await clerk.run("go", **options)
    with pytest.raises(DefinitionError, match=says):
        async for _ in clerk.stream("go", **options):
            pass
    if "resolver" not in options:
        async with Runtime() as runtime:
            with pytest.raises(DefinitionError, match=says):
                await runtime.start(clerk, "go", **options)
            assert runtime.store.table(RUNS).values() == []
    assert model.requests == []


async def test_what_cannot_be_stored_is_refused_at_start() -> None:
    """`start` names the path of a value in task, context or user that JSON cannot hold; nothing is left behind."""
    clerk = agent()
    async with Runtime() as runtime:
        cases: list[tuple[Any, dict[str, Any], str]] = [
            ({"a": {1, 2}}, {}, r"task\.a"),
            ("go", {"context": {"db": [object()]}}, r"context\.db\[0\]"),
            ("go", {"context": {"x": float("inf")}}, r"context\.x"),
        ]
        for task, options, says in cases:
            with pytest.raises(NotSerializable, match=says):
                await runtime.start(clerk, task, conversation="c", **options)
        assert runtime.store.table(RUNS).values() == []
        run = await runtime.start(clerk, "go", conversation="c")
        assert (await run.result()).status == "completed"


async def test_names_of_definitions_are_unique_in_a_runtime() -> None:
    """A second, different agent under one name is a conflict; what is no agent is an error; a missing one is named."""
    first = agent()
    async with Runtime() as runtime:
        await runtime.start(first, "go")
        with pytest.raises(DefinitionConflict):
            await runtime.start(agent(), "go")
        with pytest.raises(DefinitionError, match="is no Agent"):
            await runtime.start(f, "go")  # type: ignore[arg-type]
        run = await runtime.start(first, "go")
        await run.result()
    async with Runtime(runtime.store) as other:
        with pytest.raises(DefinitionNotFound, match="'clerk'"):
            await other.resume(run.id)


def test_a_wrong_runtime_is_refused() -> None:
    """Store, engine and definitions are checked when the Runtime is made."""
    with pytest.raises(DefinitionError, match="memory:"):
        Runtime("redis://x")
    with pytest.raises(DefinitionError, match="local"):
        Runtime(engine="celery")
    with pytest.raises(DefinitionError, match="is no Agent"):
        Runtime(definitions={"x": 5})  # type: ignore[dict-item]


def test_a_wrong_verdict_is_refused() -> None:
    """Members of a verdict that do not fit together are refused when it is made."""
    with pytest.raises(VerdictInvalid):
        Verdict("allow", approval={})
    with pytest.raises(VerdictInvalid):
        Verdict("deny", "host_error:mine")
    with pytest.raises(VerdictInvalid, match="'run' or 'member'"):
        Verdict.stop("x", scope="team")
    with pytest.raises(VerdictInvalid):
        Verdict.escalate("x", responders=[5])  # type: ignore[list-item]


def test_an_agent_says_what_it_is() -> None:
    """Its repr names it and its tools, never instructions or keys."""
    text = repr(agent(tools=[f], instructions="secret rules"))
    assert text == "Agent('clerk', tools=['f'])"
