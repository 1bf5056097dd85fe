"""The definition of an agent: immutable, checked when it is written."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lictor.agent.breaker import LoopBreaker
from lictor.agent.children import agent_tool
from lictor.agent.history import History
from lictor.agent.incremental import Incremental
from lictor.agent.repeats import DenyRepeats
from lictor.agent.running import run_agent, stream_agent
from lictor.agent.sources import Attached, attach, is_source
from lictor.agent.tools import Tool, tool
from lictor.errors import DefinitionError
from lictor.hooks import Governance, arrange
from lictor.models import ChatModel, resolve_model
from lictor.runs import Budget, Event, RunResult, check_watchers

if TYPE_CHECKING:
    from lictor.agent.plan import Plan
    from lictor.agent.structured import OutputType

__all__ = ["Agent"]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
LIMITS = ("max_steps", "max_parallel_tools", "max_depth", "max_children")
FIELDS = (
    "name",
    "model",
    "instructions",
    "tools",
    "interceptors",
    "watchers",
    "description",
    "output_type",
    "max_steps",
    "max_parallel_tools",
    "max_depth",
    "max_children",
    "budget",
    "settings",
    "stream_mode",
    "history",
    "history_window",
    "hosted_tools",
    "governance",
    "resolver",
    "deny_repeats",
    "loop_breaker",
)


class Agent:
    """A model with instructions, tools and the policies that hold for it.

    Arguments:
        name: letters, digits, `_` and `-`, at most 64.
        model: an id such as `openai:gpt-5-mini`, a ChatModel, or a list of them (fallbacks, in order).
        instructions: the system message; empty for none.
        tools: `@tool` functions, plain functions (declared with the defaults of `tool`), agents, tool
            sources (an MCP server) or single tools of one (`server["lookup"]`).
        interceptors: policies of this agent: a list, a mapping name -> object, or (object, index) pairs.
        description: what it is good for, for those who may use it as a tool.
        output_type: a type for the answer (anything pydantic can describe).
        max_steps: model calls in one run; finishing on the last one is `completed`, 0 makes no call.
        max_parallel_tools: tools of one response that run at the same time.
        max_depth, max_children: nesting of agents, and child runs below one root.
        budget: limits for a run of this agent and everything below it.
        stream: `buffered` releases an answer after `output`; `incremental` (or an Incremental) releases text
            while it comes, each piece after a verdict of `post_model_call`; `output` cannot call it back.
        settings: go to the model (`temperature`, `max_tokens`, …); `timeout` is seconds for one call (120).
        watchers: objects with `observe(event)`, or functions; told what happens, detached when they fail.
        history, history_window: which part of the transcript a request shows.
        hosted_tools: tools that the provider may run on its side; they cannot be blocked.
        governance: how verdicts compose; only the outermost counts, one further in is an error.
        resolver: decides liftable denies in place (§9); without one they park in a Runtime's docket.
        deny_repeats: `DenyRepeats()` or None.
        loop_breaker: `LoopBreaker()` or None; not added where `interceptors` have one.

    Raises DefinitionError, at once, for whatever is wrong as written.
    """

    __slots__ = (*FIELDS, "_output", "_tools", "kept_plan", "models", "sources")

    def __init__(  # noqa: PLR0913 - the constructor is the definition
        self,
        name: str,
        *,
        model: str | ChatModel | Sequence[str | ChatModel],
        instructions: str = "",
        tools: Sequence[Any] = (),
        interceptors: Any = (),
        watchers: Sequence[Any] = (),
        description: str = "",
        output_type: Any = None,
        max_steps: int = 20,
        max_parallel_tools: int = 8,
        max_depth: int = 8,
        max_children: int = 64,
        budget: Budget | None = None,
        settings: Mapping[str, Any] | None = None,
        stream: str | Incremental = "buffered",
        history: History | None = None,
        history_window: int | None = None,
        hosted_tools: Sequence[str] = (),
        governance: Governance | None = None,
        resolver: Any = None,
        deny_repeats: DenyRepeats | None = DenyRepeats(),  # noqa: B008 - it holds no state
        loop_breaker: LoopBreaker | None = LoopBreaker(),  # noqa: B008 - nor does it
    ) -> None:
        values = dict(locals())
        values["stream_mode"] = values.pop("stream")
        for field in FIELDS:
            object.__setattr__(self, field, values[field])
        object.__setattr__(self, "settings", _settings(name, settings))
        _check_name(name)
        _check_numbers(name, values)
        _check_options(name, self)
        object.__setattr__(self, "models", _models(name, model))
        object.__setattr__(self, "_tools", _tools(name, tools))
        object.__setattr__(self, "sources", attach(name, tools, self._tools))
        object.__setattr__(self, "_output", None)
        object.__setattr__(self, "kept_plan", None)
        object.__setattr__(self, "watchers", check_watchers(watchers))
        arrange([(f"agent:{name}", interceptors)])
        self.output()

    if TYPE_CHECKING:
        name: str
        instructions: str
        tools: Sequence[Any]
        interceptors: Any
        watchers: Sequence[Any]
        description: str
        output_type: Any
        max_steps: int
        max_parallel_tools: int
        max_depth: int
        max_children: int
        budget: Budget | None
        settings: dict[str, Any]
        stream_mode: str | Incremental
        history: History | None
        history_window: int | None
        hosted_tools: Sequence[str]
        governance: Governance | None
        resolver: Any
        deny_repeats: DenyRepeats | None
        loop_breaker: LoopBreaker | None
        models: tuple[ChatModel, ...]
        sources: tuple[Attached, ...]
        _tools: Mapping[str, Tool]
        _output: OutputType | None
        kept_plan: Plan | None

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"an Agent does not change; use with_({name}=…) for a changed copy")

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={list(self._tools)})"

    @property
    def tool_table(self) -> Mapping[str, Tool]:
        """Its own tools by name, in the order given; those of sources are known when they are open."""
        return self._tools

    def output(self) -> OutputType | None:
        """The checker of the answer's type, made on first use."""
        if self.output_type is not None and self._output is None:
            from lictor.agent.structured import OutputType

            object.__setattr__(self, "_output", OutputType(self.output_type))
        return self._output

    def with_(self, **changes: Any) -> Agent:
        """A copy with other options; takes what the constructor takes."""
        options = {("stream" if field == "stream_mode" else field): getattr(self, field) for field in FIELDS}
        unknown = set(changes) - set(options)
        if unknown:
            raise DefinitionError(f"Agent has no option {', '.join(sorted(unknown))}")
        return Agent(**{**options, **changes})

    def as_tool(self, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool with one argument, `task`: a child run under the same policies and budget."""
        return agent_tool(self, name, description)

    async def run(self, task: Any, **options: Any) -> RunResult:
        """Run to the end, in memory (see `lictor.agent.running` for the options).

        Raises InterceptionBlocked for a run that ended `blocked`; every other outcome is returned.
        """
        return await run_agent(self, task, **options)

    def stream(self, task: Any, **options: Any) -> AsyncIterator[Event]:
        """The events of such a run. It ends with `run_finished`; leaving it early cancels the run."""
        return stream_agent(self, task, **options)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise DefinitionError(f"Agent name {name!r}: use 1 to 64 letters, digits, '_' and '-'")


def _check_numbers(name: str, values: Mapping[str, Any]) -> None:
    for field in LIMITS:
        value, least = values[field], 1 if field == "max_parallel_tools" else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise DefinitionError(f"Agent {name!r}: {field}={value!r}; give a whole number >= {least}")
    window = values["history_window"]
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise DefinitionError(f"Agent {name!r}: history_window={window!r}; give a number of messages >= 1, or None")


def _check_options(name: str, agent: Agent) -> None:
    if not isinstance(agent.instructions, str):
        raise DefinitionError(f"Agent {name!r}: instructions must be text, not {type(agent.instructions).__name__}")
    if agent.stream_mode not in ("buffered", "incremental") and not isinstance(agent.stream_mode, Incremental):
        raise DefinitionError(
            f"Agent {name!r}: stream={agent.stream_mode!r}; use 'buffered', 'incremental', or Incremental(holdback=…)"
        )
    if agent.budget is not None and not isinstance(agent.budget, Budget):
        raise DefinitionError(f"Agent {name!r}: budget={agent.budget!r}; give a Budget(...)")
    if agent.governance is not None and not isinstance(agent.governance, Governance):
        raise DefinitionError(f"Agent {name!r}: governance={agent.governance!r}; give a Governance(...)")
    if agent.history is not None and not callable(getattr(agent.history, "select", None)):
        raise DefinitionError(f"Agent {name!r}: history={agent.history!r} has no select(messages, budget)")
    if isinstance(agent.hosted_tools, str):
        raise DefinitionError(f"Agent {name!r}: hosted_tools={agent.hosted_tools!r}; give a list of names")
    if agent.resolver is not None and not callable(getattr(agent.resolver, "resolve", agent.resolver)):
        raise DefinitionError(f"Agent {name!r}: resolver={agent.resolver!r}; give a function or an object with resolve")
    if agent.deny_repeats is not None and not isinstance(agent.deny_repeats, DenyRepeats):
        raise DefinitionError(f"Agent {name!r}: deny_repeats={agent.deny_repeats!r}; give a DenyRepeats(...) or None")
    if agent.loop_breaker is not None and not isinstance(agent.loop_breaker, LoopBreaker):
        raise DefinitionError(f"Agent {name!r}: loop_breaker={agent.loop_breaker!r}; give a LoopBreaker(...) or None")


def _settings(name: str, settings: Any) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, Mapping):
        raise DefinitionError(f"Agent {name!r}: settings={settings!r}; give a mapping such as {{'temperature': 0}}")
    timeout = (settings or {}).get("timeout", 1)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise DefinitionError(f"Agent {name!r}: settings['timeout']={timeout!r}; give seconds above 0")
    return dict(settings or {})


def _models(name: str, model: Any) -> tuple[ChatModel, ...]:
    given = list(model) if isinstance(model, list | tuple) else [model]
    if not given:
        raise DefinitionError(f"Agent {name!r}: model=[]; give at least one model")
    return tuple(resolve_model(item) for item in given)


def _tools(name: str, tools: Sequence[Any]) -> dict[str, Tool]:
    table: dict[str, Tool] = {}
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise DefinitionError(f"Agent {name!r}: tools={tools!r}; give a list, also of a single one")
    for item in tools:
        if is_source(item):
            continue
        made = _tool(name, item)
        if made.name in table:
            raise DefinitionError(f"Agent {name!r}: two tools are named {made.name!r}; rename one with tool(name=…)")
        table[made.name] = made
    return table


def _tool(name: str, item: Any) -> Tool:
    if isinstance(item, Tool):
        return item
    if isinstance(item, Agent):
        return item.as_tool()
    if callable(item) and not isinstance(item, type):
        return tool(item)
    raise DefinitionError(f"Agent {name!r}: {item!r} is no tool; give a function, a @tool, an Agent or a tool source")
