"""`wrap`: code of a user's around a stretch of the run, a model call of the supervisor, or a member."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from lictor.errors import ModelError
from lictor.models import ChatModel, ModelResponse
from lictor.team.decisions import read_text
from lictor.team.interceptor import Hook, TeamInterceptor

__all__ = ["CallNext", "ModelRequestView", "SupervisorModel", "WrappedStep", "around", "wraps_of"]


@dataclass(slots=True, kw_only=True)  # budget: hooks change it, that is its purpose
class ModelRequestView:
    """The next request of the supervisor; what a hook assigns is what is judged and sent.

    Arguments:
        messages: OpenAI chat shape, instructions first.
        tools: what the model is told of its tools.
        settings: `temperature`, `max_tokens`, …
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedStep:
    """What is about to happen: `flow`, `call` or `tool`; its name, and what it is given."""

    kind: str
    name: str
    given: Any = None


CallNext: TypeAlias = Callable[[WrappedStep], Awaitable[Any]]
SEED = {"flow": ("intercept_flow",), "call": ("intercept_call", "intercept_stream"), "tool": ("intercept_tool",)}


def wraps_of(hooks: Sequence[Hook], kind: str) -> list[Any]:
    """The wraps for one kind of step, outermost first."""
    found: list[Any] = []
    for hook in hooks:
        if not getattr(hook.target, "enabled", True):
            continue
        for name in ("wrap", *SEED[kind]):
            own = getattr(hook.target, name, None)
            if callable(own) and getattr(type(hook.target), name, None) is not getattr(TeamInterceptor, name, None):
                found.append(own)
    return found


async def around(hooks: Sequence[Hook], step: WrappedStep, inner: CallNext) -> Any:
    """Do a step inside every wrap for its kind."""
    for wrap in reversed(wraps_of(hooks, step.kind)):
        inner = partial(wrap, call_next=inner)
    return await inner(step)


class SupervisorModel:
    """The supervisor's model: a text that is a decision comes out as one, inside the wraps of `call`."""

    def __init__(self, model: ChatModel, members: Sequence[str], marker: str, hooks: Sequence[Hook]) -> None:
        self.model = model
        self.id = model.id
        self._members = members
        self._marker = marker
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], settings: Mapping[str, Any]
    ) -> AsyncGenerator[Any]:
        """The response, whole; deltas of a decision are of no use to anybody."""
        if wraps_of(self._hooks, "call"):
            step = WrappedStep(kind="call", name=self.id, given=messages)
            response = await around(self._hooks, step, lambda step: self._asked(step.given, tools, settings))
            if not isinstance(response, ModelResponse):
                raise ModelError("model_failed", f"a wrap around {self.id} returned {type(response).__name__}")
        else:
            response = await self._asked(messages, tools, settings)
        yield read_text(response, self._members, self._marker)

    async def _asked(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], settings: Mapping[str, Any]
    ) -> ModelResponse:
        last: ModelResponse | None = None
        async for event in self.model.respond(messages, tools, settings):
            if isinstance(event, ModelResponse):
                last = event
        if last is None:
            raise ModelError("stream_cut", f"{self.id} ended without a response", retryable=True)
        return last
