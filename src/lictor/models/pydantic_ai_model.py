"""Every provider that pydantic-ai knows, behind our protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lictor.errors import DefinitionError, ModelError
from lictor.models.chat_request import OURS, timeout_of
from lictor.models.clients import Clients
from lictor.models.failures import model_error
from lictor.models.patience import Patience
from lictor.models.pricing import Price
from lictor.models.protocol import ModelEvent, TextDelta, ToolSpec
from lictor.models.pydantic_ai_answer import GivenAnswer
from lictor.models.pydantic_ai_request import message_history, model_settings, request_parameters

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["PydanticAIModel"]

INSTALL = "pydantic-ai is not installed: pip install 'lictor[pydantic-ai]', and what the provider needs"


class PydanticAIModel:
    """A model of pydantic-ai; streamed where it can stream, never retried inside.

    Implements `ChatModel`. The library is imported, and a model that is named is made, at the first
    request. A named model has an HTTP client of its own in each event loop; it is closed by `aclose`, or
    when the loop shuts down.

    Arguments:
        model: a model of that library, or its name for one (`anthropic:claude-sonnet-5`).
        prices: for `usage.cost_usd`; without, it is what the provider itself reports, else 0.0.

    Raises DefinitionError: neither a model nor a name with a provider in front.
    """

    keeps_timeout = True
    """It bounds its own waiting by `settings["timeout"]`, so that the loop need not."""

    def __init__(self, model: Model[Any] | str, *, prices: Price | None = None) -> None:
        named = model if isinstance(model, str) else None
        if named is None and not hasattr(model, "request_stream"):
            raise DefinitionError(f"PydanticAIModel({model!r}): give a model of pydantic-ai, or its name for one")
        if named is not None and named != "test" and not all(part.strip() for part in named.partition(":")):
            raise DefinitionError(f"pydantic-ai names its models PROVIDER:NAME, and not {named!r}")
        self.name = named
        self.id = f"pydantic-ai:{named or getattr(model, 'model_id', type(model).__name__)}"
        self.prices = prices
        self._model = model
        self._clients: Clients[_Lent] = Clients()

    def __repr__(self) -> str:
        return f"PydanticAIModel({self._model!r})"

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ModelEvent]:
        """Stream one answer (see `ChatModel.respond`).

        `timeout` and `response_format` are ours and `stop` is passed on as `stop_sequences`; every other
        setting goes on as it is, under the names of pydantic-ai's ModelSettings.

        Raises ModelError: every failure of request, connection or answer, with the codes of OpenAIModel.
        """
        taken = [key for key in OURS if key in settings]
        if taken:
            raise ModelError("bad_request", f"settings may not contain {taken[0]!r}")
        patience = Patience(timeout_of(settings))
        lent = await self._clients.get(self._lend)
        await lent.open()
        asked = {
            "model": lent.model,
            "messages": message_history(messages),
            "model_settings": model_settings(settings, lent.model),
            "model_request_parameters": request_parameters(tools, settings, lent.model),
        }
        answer = GivenAnswer(self.prices)
        try:
            async with aclosing(_events(asked, patience, answer)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            error.usage = error.usage or answer.usage  # a broken answer costs too
            raise

    async def aclose(self) -> None:
        """Close what is open in the running event loop; the next request opens it again."""
        await self._clients.aclose()

    def _lend(self) -> _Lent:
        try:
            from pydantic_ai.exceptions import UserError
            from pydantic_ai.models import infer_model
        except ImportError as error:
            raise ModelError("bad_request", INSTALL) from error
        try:
            return _Lent(infer_model(self._model))
        except (UserError, ImportError, ValueError) as error:  # an unknown name, no package for it, or no key
            code = "auth" if "API_KEY" in str(error) else "bad_request"
            raise ModelError(code, f"{self.id}: {error}") from error


class _Lent:
    """A model for one event loop: entered once, so that leaving it closes what it opened."""

    def __init__(self, model: Model[Any]) -> None:
        self.model = model
        self._is_open = False

    async def open(self) -> None:
        if not self._is_open:
            self._is_open = True
            await self.model.__aenter__()

    async def close(self) -> None:
        if self._is_open:
            await self.model.__aexit__(None, None, None)


async def _events(asked: Mapping[str, Any], patience: Patience, answer: GivenAnswer) -> AsyncGenerator[ModelEvent]:
    """The deltas and the response; every failure is a ModelError."""
    from pydantic_ai.direct import model_request, model_request_stream

    has_begun = False
    try:
        if getattr(asked["model"], "stream_function", asked) is None:  # a FunctionModel that cannot stream
            response = answer.whole(await patience.wait(model_request(**asked)))
            if response.content:
                yield TextDelta(response.content)
            yield response
            return
        async with patience.entered(model_request_stream(**asked)) as stream:
            has_begun = True
            answer.watch(stream)
            events = aiter(stream)
            while (given := await patience.wait(anext(events, None))) is not None:
                for event in answer.feed(given):
                    yield event
        for event in answer.end():
            yield event
    except Exception as error:  # what the table does not know is raised on
        known = model_error(error, streaming=has_begun, secret=_secret(asked["model"]))
        if known is None:
            raise
        raise known from error


def _secret(model: Model[Any]) -> str | None:
    """The API key, where the provider's client shows it; some gateways echo it."""
    key = getattr(getattr(getattr(model, "provider", None), "client", None), "api_key", None)
    return key if isinstance(key, str) else None
