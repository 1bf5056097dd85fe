"""What can be registered at a gate, and the checks that happen when it is."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from lictor.errors import DefinitionError, ValueDomainError
from lictor.hooks.context import Context, plain_copy
from lictor.hooks.points import POINTS
from lictor.hooks.verdict import Verdict
from lictor.values import canonical_json, freeze

__all__ = ["Bound", "Interceptor", "bind", "check_name", "default_name", "interceptor"]

_MARK: Final = "__lictor_interceptor__"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

Answer: TypeAlias = Verdict | Awaitable[Verdict]
T = TypeVar("T", bound=Callable[..., Any])  # a function or a class


@runtime_checkable
class Interceptor(Protocol):
    """An object that judges contexts (§7). `intercept` may be sync or async.

    It may have `config()`, a JSON value that describes how it is set up; it becomes part of the
    policy fingerprint.
    """

    def intercept(self, context: Context, /) -> Verdict | Awaitable[Verdict]:
        """Return the verdict on `context`; `ALLOW` when there is nothing to decide."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declaration:
    points: tuple[str, ...]
    name: str | None
    version: str
    blocking: bool
    always_enforce: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One interceptor as it stands in an order: under its qualified name, with what it declared.

    `always_enforce` keeps its verdicts binding under `evaluate_only` (limits, breakers, approvals).
    `call` takes a `Context`; it makes the copy a foreign interceptor is owed (§7) and moves a
    blocking one to a worker thread.
    """

    name: str
    interceptor: Any
    points: frozenset[str]
    version: str
    config: Any
    blocking: bool
    always_enforce: bool
    call: Callable[[Context], Any]


def interceptor(
    *,
    points: Iterable[str] | None = None,
    name: str | None = None,
    version: str = "0",
    blocking: bool = False,
    always_enforce: bool = False,
) -> Callable[[T], T]:
    """Declare a function or class as an interceptor.

    A declared interceptor gets the frozen context itself, not a copy, which is what makes it cheap.

    Args:
        points: where it is asked; elsewhere it counts as having allowed. None means everywhere.
        name: its name; by default the function's or class's, in kebab case.
        version: raise it when the policy changes; part of the policy fingerprint.
        blocking: run it in a worker thread, so that it may block and the gate's timeout holds.
        always_enforce: its verdicts bind under `evaluate_only` too.

    Raises:
        DefinitionError: unknown points, a name that cannot be used, or a signature that does not
            take exactly one context.
    """
    declaration = _Declaration(
        points=_check_points(points),
        name=None if name is None else check_name(name),
        version=str(version),
        blocking=blocking,
        always_enforce=always_enforce,
    )

    def declare(target: T) -> T:
        is_class = inspect.isclass(target)
        judge: Any = getattr(target, "intercept", None) if is_class else target
        if not callable(judge):
            raise DefinitionError(f"{_describe(target)} has no method `intercept(self, context)`")
        _check_call(judge, _describe(target), method=is_class)
        setattr(target, _MARK, declaration)
        return target

    return declare


def bind(target: Any, name: str) -> Bound:
    """Return `target` bound under `name`.

    Raises:
        DefinitionError: it is not an interceptor; the message says what to do.
    """
    if isinstance(target, type):
        raise DefinitionError(f"{target.__name__} is a class; register an object: {target.__name__}(...)")
    judge = getattr(target, "intercept", target)
    if not callable(judge):
        raise DefinitionError(f"{_describe(target)} is none: give it `intercept(context)`, or register a function")
    _check_call(judge, _describe(target), method=False)
    declared: _Declaration | None = getattr(target, _MARK, None)
    blocking = declared is not None and declared.blocking
    if blocking and inspect.iscoroutinefunction(judge):
        raise DefinitionError(f"{_describe(target)} is async; blocking=True is for functions that block")
    return Bound(
        name=name,
        interceptor=target,
        points=_points(target, declared),
        version="0" if declared is None else declared.version,
        config=_config(target),
        blocking=blocking,
        always_enforce=declared is not None and declared.always_enforce,
        call=_in_thread(judge) if blocking else judge if declared is not None else _with_copy(judge),
    )


def default_name(target: Any) -> str:
    """Return the declared name of `target`, or the name of its function or class in kebab case."""
    declared: _Declaration | None = getattr(target, _MARK, None)
    if declared is not None and declared.name is not None:
        return declared.name
    own = getattr(target, "name", None)
    if declared is not None and isinstance(own, str) and _NAME.fullmatch(own):
        return own
    raw = getattr(target, "__name__", None) or type(target).__name__
    kebab = _HUMP.sub("-", raw.strip("_<>")).replace("_", "-").lower()
    return kebab if _NAME.fullmatch(kebab) else "interceptor"


def check_name(name: object) -> str:
    """Return `name`, or raise `DefinitionError` if records and logs could not carry it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(f"interceptor name {name!r}: use letters, digits, '_', '.', ':' and '-'")
    return name


def _check_points(points: Iterable[str] | None) -> tuple[str, ...]:
    if points is None:
        return POINTS
    if isinstance(points, str):
        raise DefinitionError(f"points={points!r}: pass a list, e.g. points=[{points!r}]")
    chosen = tuple(points)
    unknown = [point for point in chosen if point not in POINTS]
    if unknown or not chosen:
        raise DefinitionError(f"points={list(chosen)!r}: choose from {', '.join(POINTS)}")
    return chosen


def _points(target: Any, declared: _Declaration | None) -> frozenset[str]:
    """A declared class may leave its points to its objects: they have an attribute `points`; none of them is `()`."""
    if declared is None:
        return frozenset(POINTS)
    own = getattr(target, "points", None)
    return frozenset(declared.points if own is None else own and _check_points(own))


def _check_call(judge: Callable[..., Any], what: str, *, method: bool) -> None:
    try:
        signature = inspect.signature(judge)
    except (TypeError, ValueError):
        return  # a C function does not tell
    try:
        signature.bind(*((None, None) if method else (None,)))
    except TypeError:
        raise DefinitionError(f"{what} must take exactly one argument, the context; it takes {signature}") from None


def _config(target: Any) -> Any:
    config = getattr(target, "config", None)
    if not callable(config):
        return None
    try:
        value = freeze(config())
        canonical_json(value)
    except ValueDomainError as error:
        raise DefinitionError(f"config() of {_describe(target)} must return JSON: {error}") from None
    return value


def _describe(target: Any) -> str:
    return f"interceptor {getattr(target, '__qualname__', None) or type(target).__qualname__}"


def _with_copy(judge: Callable[..., Any]) -> Callable[[Context], Any]:
    def call(context: Context) -> Any:
        return judge(plain_copy(context))

    return call


def _in_thread(judge: Callable[..., Any]) -> Callable[[Context], Any]:
    def call(context: Context) -> Any:
        return asyncio.to_thread(judge, context)

    return call
