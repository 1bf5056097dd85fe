"""Tools: functions a model may call, with what is declared about them.

A call goes `parse_arguments` (what the model sent) → `Tool.parse` (what policies judge and an approval
binds) → `Tool.run` (the function). What was judged is what runs: `run` reads the judged arguments
again, because a policy or a person may have changed them.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, get_args, overload

import orjson

from lictor.agent.arguments import parse_arguments
from lictor.agent.schema import Binding, bind, describe, given_schema
from lictor.agent.threads import in_thread
from lictor.agent.toolcontext import ToolContext
from lictor.errors import DefinitionError
from lictor.values import digest, freeze, thaw

__all__ = [
    "Approval",
    "Effect",
    "Tool",
    "ToolContext",
    "ToolSource",
    "fingerprint",
    "foreign_tool",
    "parse_arguments",
    "tool",
    "tool_spec",
]

Effect: TypeAlias = Literal["pure", "idempotent", "once"]
Approval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]

_EFFECTS = get_args(Effect)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_dumps = orjson.dumps
_EXACT = orjson.OPT_STRICT_INTEGER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A function a model may call. Made by `tool`; `dataclasses.replace` gives a changed one.

    Calling it (`refund(order_id=1)`) calls the function, so that it is tested like one.

    Args:
        name: what the model calls; 1 to 64 of `A-Za-z0-9_-`, compared exactly.
        description: what the model reads.
        schema: JSON schema of the arguments object; immutable.
        effect: `pure` (no effect), `idempotent` (again does no harm) or `once` (the default: after a
            crash a person is asked before it runs again).
        read_only: it changes nothing outside; for policies and reviewers.
        requires_approval: whether a person decides each call; a callable decides by the arguments.
        responders: who may decide (`human:ana`, `group:finance`).
        deadline: seconds an approval, or an outside answer, is waited for.
        timeout: seconds one execution may take.
        blocking: the function blocks although `effect` is `pure`: run it in a worker thread.
        external: nothing runs; the caller gives the value.
        polling: asking again and again is its purpose; loop breakers leave it alone.
        fn: the function.
        binding: how arguments become the call of `fn`.
        is_async: `fn` is awaited in the event loop.
        agent: the agent behind the tool, if it is one.
        digest: identity of the schema, which an approval binds.

    Raises:
        DefinitionError: an option is wrong as written.
    """

    name: str
    description: str
    schema: dict[str, Any]
    fn: Callable[..., Any]
    binding: Binding
    effect: Effect = "once"
    read_only: bool = False
    requires_approval: Approval = False
    responders: tuple[str, ...] = ()
    deadline: float | None = None
    timeout: float | None = None
    blocking: bool = False
    external: bool = False
    polling: bool = False
    is_async: bool = False
    agent: Any = None
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        _check_options(self)
        object.__setattr__(self, "digest", digest(self.schema))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and write them plainly: what policies judge and an approval binds.

        Values are read as pydantic reads JSON (`"42"` is an int where one is wanted) and unknown names
        refused. Defaults are not filled in: what is shown is what was asked. An integer beyond
        2^53-1 is written as a decimal string, the one exact form every reader shares (§4.4); the
        function gets the integer.

        Raises:
            ToolArgumentsInvalid: with a line for each problem.
        """
        binding = self.binding
        if binding.dump is not None:
            return binding.shown(self.name, arguments)
        try:
            values = binding.validate(_dumps(arguments))
            _dumps(values, None, _EXACT)  # raises where a number needs another form
        except Exception:  # noqa: BLE001 - `shown` names the problem, or takes the exact way
            return binding.shown(self.name, arguments)
        return values

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Run the function with judged arguments and return what it returns.

        Async functions run in the event loop. Others run in a worker thread, except `effect="pure"`
        without `blocking`. After a cancellation or timeout a thread goes on; what it returns is
        dropped and `context.late` is told.

        Raises:
            ToolArgumentsInvalid: the arguments do not fit (a policy may have changed them).
            TimeoutError: `timeout` passed.
            Exception: whatever the function raises; its SystemExit as RuntimeError.
        """
        binding = self.binding
        try:
            values = binding.validate(_dumps(arguments))
        except Exception:  # noqa: BLE001 - `values` names the problem, or takes the exact way
            values = binding.values(self.name, arguments)
        if binding.context is not None:
            values[binding.context] = context
        try:
            if self.timeout is not None:
                async with asyncio.timeout(self.timeout) as limit:
                    return await self._call(values, context, limit)
            if self.is_async:
                return await self.fn(**values)
            return await self._call(values, context)
        except SystemExit as error:
            raise RuntimeError(f"the tool tried to end the process (exit {error.code})") from error

    async def _call(self, values: dict[str, Any], context: ToolContext, limit: asyncio.Timeout | None = None) -> object:
        if self.is_async or (self.effect == "pure" and not self.blocking):
            result = self.fn(**values)
        else:
            context.in_thread_of(asyncio.get_running_loop())
            # A timeout gives the thread up at once; a cancelled run waits for it, within bounds.
            drained = _always if limit is None else (lambda: not limit.expired())
            result = await in_thread(functools.partial(self.fn, **values), context.late, drained)
        return await result if inspect.isawaitable(result) else result


def _always() -> bool:
    return True


class ToolSource(Protocol):
    """Tools that exist only while something is open, such as an MCP server's.

    Each stint that needs it works with a shallow copy (`copy.copy`) of its own, opens it once and closes it
    at park and end, both in one task. A source may have more:

    - `async def listed()`: the tools there are now; asked before each model call while it is open.
    - `known`: names that will be there, for `agent_startup` and for checks where the agent is defined.
    - `left_out`: name -> why a tool that it has is not given; noted in the log.
    - `def declared()`: JSON for the policy fingerprint, without secrets.
    """

    @property
    def name(self) -> str: ...

    async def open(self) -> Sequence[Tool]:
        """Connect and list the tools; anything it raises means that there are none."""
        ...

    async def close(self) -> None:
        """Let everything go; also called after an `open` that failed or was cancelled."""
        ...


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    read_only: bool = False,
    requires_approval: Approval = False,
    responders: Sequence[str] = (),
    deadline: float | timedelta | None = None,
    timeout: float | timedelta | None = None,
    blocking: bool = False,
    external: bool = False,
    polling: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(  # noqa: PLR0913 - the options of the public decorator
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    read_only: bool = False,
    requires_approval: Approval = False,
    responders: Sequence[str] = (),
    deadline: float | timedelta | None = None,
    timeout: float | timedelta | None = None,
    blocking: bool = False,
    external: bool = False,
    polling: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, as `@tool` or `@tool(requires_approval=True)`.

    The schema comes from the annotations, the description from the docstring's first paragraph, the
    arguments' descriptions from the docstring (Google, NumPy, reST) or `Annotated[int, "text"]`. A
    parameter annotated `ToolContext` is given the context and not shown to the model. The options
    are those of `Tool`; nothing is guessed from names or types. `deadline` and `timeout` are seconds
    or a timedelta.

    Raises:
        DefinitionError: signature or option cannot work; the message says what to write instead.
    """
    caller = inspect.currentframe()
    caller = None if caller is None else caller.f_back
    scope = {} if caller is None else caller.f_locals  # annotations as strings may name what is local there

    def make(fn: Callable[..., Any]) -> Tool:
        label = _check_function(fn, external)
        described = describe(fn.__doc__ if inspect.isroutine(fn) else None)
        binding = bind(fn, scope, described)
        return Tool(
            name=label if name is None else name,
            description=described.summary if description is None else description,
            schema=freeze(binding.schema),
            fn=fn,
            binding=binding,
            effect=effect,
            read_only=read_only,
            requires_approval=requires_approval,
            responders=_names(label, responders),
            deadline=_seconds(label, "deadline", deadline),
            timeout=_seconds(label, "timeout", timeout),
            blocking=blocking,
            external=external,
            polling=polling,
            is_async=_is_async(fn),
        )

    return make if fn is None else make(fn)


def foreign_tool(
    name: str,
    call: Callable[[dict[str, Any], ToolContext], Any],
    *,
    schema: Mapping[str, Any],
    description: str = "",
    check: Callable[[dict[str, Any]], list[str]] | None = None,
    effect: Effect = "once",
) -> Tool:
    """Make a tool that brings its own JSON schema: an MCP server's, an agent as a tool.

    Args:
        name: what the model calls.
        call: takes the arguments object and the context; sync or async; its parameters are called
            `arguments` and `context`.
        schema: JSON schema of the arguments object, shown to the model as it is.
        description: what the model reads.
        check: gives a line for each problem of an arguments object; without it only the names and the
            types at the top are checked here, the other side does the rest.
        effect: as declared by whoever configures it; other options by `dataclasses.replace`.

    Raises:
        DefinitionError: the name cannot be used, or the schema is not that of an object.
    """
    if schema.get("type") != "object":
        raise DefinitionError(f"tool {name!r}: its schema must be of type 'object', got {schema.get('type')!r}")
    return Tool(
        name=name,
        description=description,
        schema=freeze({"properties": {}, **schema}),
        fn=call,
        binding=given_schema(schema, check),
        effect=effect,
        is_async=_is_async(call),
    )


def tool_spec(tool: Tool) -> dict[str, Any]:
    """Give what a model is told of a tool."""
    return {"name": tool.name, "description": tool.description, "schema": tool.schema}


def fingerprint(tool: Tool) -> dict[str, Any]:
    """Give the declared facts that an approval relies on; a change of one is a change of policy."""
    approval = tool.requires_approval
    if not isinstance(approval, bool):
        place: Any = approval if hasattr(approval, "__qualname__") else type(approval)
        approval_name: bool | str = f"{place.__module__}:{place.__qualname__}"
    else:
        approval_name = approval
    return {
        "name": tool.name,
        "schema": thaw(tool.schema),
        "effect": tool.effect,
        "read_only": tool.read_only,
        "requires_approval": approval_name,
        "responders": list(tool.responders),
        "deadline": tool.deadline,
        "external": tool.external,
    }


def _is_async(fn: Any) -> bool:
    return any(map(inspect.iscoroutinefunction, (fn, type(fn).__call__)))


def _check_function(fn: Any, external: bool) -> str:
    """Refuse what is not a function a model can call; return its name."""
    if isinstance(fn, Tool):
        raise DefinitionError(f"{fn.name!r} is a tool already; use dataclasses.replace to change its options")
    if isinstance(fn, (staticmethod, classmethod, type)) or not callable(fn):
        raise DefinitionError(f"@tool takes a function, got {fn!r}")
    label: str = getattr(fn, "__name__", type(fn).__name__)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DefinitionError(f"{label}: a tool returns one value; report progress with `ToolContext.emit`")
    if external and inspect.isfunction(fn) and _has_body(fn):
        raise DefinitionError(f"{label}: an external tool never runs; leave its body as `...` or drop external=True")
    return label


def _has_body(fn: Any) -> bool:
    """Whether a function does more than nothing or `raise NotImplementedError`."""
    code = fn.__code__
    if code.co_names:
        return bool(code.co_names != ("NotImplementedError",))
    reads = any(step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) for step in dis.get_instructions(code))
    return reads or any(item not in (None, fn.__doc__) for item in code.co_consts)


def _check_options(tool: Tool) -> None:
    label = f"tool {tool.name!r}"
    if not _NAME.fullmatch(str(tool.name)):
        raise DefinitionError(f"{label}: a name is 1 to 64 letters, digits, `_` or `-`; pass name=")
    if tool.effect not in _EFFECTS:
        raise DefinitionError(f"{label}: effect={tool.effect!r}; use one of {', '.join(map(repr, _EFFECTS))}")
    for option in ("read_only", "blocking", "external", "polling"):
        if not isinstance(getattr(tool, option), bool):
            raise DefinitionError(f"{label}: {option}={getattr(tool, option)!r}; use True or False")
    if not isinstance(tool.requires_approval, bool) and not callable(tool.requires_approval):
        raise DefinitionError(f"{label}: requires_approval={tool.requires_approval!r}; use True, False or a function")
    if inspect.iscoroutinefunction(tool.requires_approval):
        raise DefinitionError(f"{label}: requires_approval must answer at once; make it a plain function")
    if tool.blocking and tool.is_async:
        raise DefinitionError(f"{label}: blocking is for `def`; an `async def` tool runs in the event loop")
    if tool.external and (tool.timeout is not None or tool.blocking):
        raise DefinitionError(f"{label}: an external tool never runs; give it a deadline, no timeout or blocking")


def _names(label: str, responders: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(responders, str):
        raise DefinitionError(f"tool {label!r}: responders={responders!r}; write a list: [{responders!r}]")
    if not all(isinstance(item, str) and item for item in responders) or len(set(responders)) != len(responders):
        raise DefinitionError(f"tool {label!r}: responders={list(responders)!r}; name each once, as 'human:ana'")
    return tuple(responders)


def _seconds(label: str, option: str, value: Any) -> float | None:
    seconds: Any = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise DefinitionError(f"tool {label!r}: {option}={value!r}; use seconds above 0, or a timedelta")
    return float(seconds)
