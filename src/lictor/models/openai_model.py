"""Any endpoint that speaks OpenAI's chat completions, through the `openai` client."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lictor.errors import DefinitionError, ModelError
from lictor.models.answer import Answer
from lictor.models.chat_request import chat_request, limited_as, timeout_of
from lictor.models.clients import Clients
from lictor.models.failures import model_error
from lictor.models.patience import Patience, let_go
from lictor.models.pricing import Price
from lictor.models.protocol import ModelEvent, ToolSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

__all__ = ["OpenAIModel", "Price"]

END = object()


class OpenAIModel:
    """A model behind an OpenAI compatible endpoint; always streamed, never retried inside.

    Implements `ChatModel`. The `openai` package is imported and the environment read at the first
    request. There is one HTTP client for each event loop; it is closed by `aclose`, or when the loop shuts
    down its asynchronous generators, as `asyncio.run` does.

    Arguments:
        name: the provider's name of the model (`gpt-5-mini`).
        base_url: the endpoint; by default OPENAI_BASE_URL, then OpenAI's own.
        api_key: by default OPENAI_API_KEY; an endpoint that was named may need none.
        prices: for `usage.cost_usd`, which is 0.0 without.

    Raises DefinitionError: `name` is empty.
    """

    def __init__(
        self, name: str, *, base_url: str | None = None, api_key: str | None = None, prices: Price | None = None
    ) -> None:
        if not name.strip():
            raise DefinitionError("an OpenAIModel needs the name of a model")
        self.id = f"openai:{name}"
        self.name = name
        self._base_url = base_url
        self._api_key = api_key
        self.prices = prices
        self._clients: Clients[AsyncOpenAI] = Clients()

    keeps_timeout = True
    """It bounds its own waiting by `settings["timeout"]`, so that the loop need not."""

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ModelEvent]:
        """Stream one answer (see `ChatModel.respond`).

        `timeout` is how long the call may wait for the provider altogether; what the reader of the
        stream takes for itself does not count.

        Raises ModelError: every failure of request, connection or answer; docs/models.md lists the codes.
        """
        body = limited_as(chat_request(self.name, messages, tools, settings), self._address())
        patience = Patience(timeout_of(settings))
        answer = Answer(self.prices)
        try:
            async with aclosing(self._chunks(body, patience)) as chunks:
                async for chunk in chunks:
                    for event in answer.feed(chunk):
                        yield event
            for event in answer.end():
                yield event
        except ModelError as error:
            error.usage = error.usage or answer.usage  # a broken answer costs too
            raise

    async def aclose(self) -> None:
        """Close the client of the running event loop; the next request opens another."""
        await self._clients.aclose()

    async def _chunks(self, body: dict[str, Any], patience: Patience) -> AsyncGenerator[object]:
        """The chunks of the answer as parsed JSON; every failure is a ModelError."""
        stream: AsyncStream[object] | None = None
        try:
            client = await self._clients.get(self._new_client)
            stream = await patience.wait(_open(client, body, patience.left))
            kind = stream.response.headers.get("content-type", "")
            if kind.startswith("application/json"):
                yield json.loads(await patience.wait(stream.response.aread()))  # an endpoint that does not stream
                return
            chunk = await patience.wait(anext(stream, END))
            if chunk is END and not kind.startswith("text/event-stream"):  # a proxy's page, most likely
                raise ModelError(
                    "bad_response", f"the answer is {kind or 'untyped'}, no stream of events", retryable=True
                )
            while chunk is not END:
                yield chunk
                chunk = await patience.wait(anext(stream, END))
        except Exception as error:  # what the table does not know is raised on
            known = model_error(error, streaming=stream is not None, secret=self._secret())
            if known is None:
                raise
            raise known from error
        finally:
            if stream is not None:
                await let_go(stream.close())

    def _new_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        base_url = self._address()
        key = self._secret() or ("none" if base_url else None)
        if key is None:
            raise ModelError("auth", f"{self.id} has no API key: set OPENAI_API_KEY, or give api_key or base_url")
        return AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0)

    def _address(self) -> str | None:
        return self._base_url or os.environ.get("OPENAI_BASE_URL")

    def _secret(self) -> str | None:
        return self._api_key or os.environ.get("OPENAI_API_KEY")


async def _open(client: AsyncOpenAI, body: dict[str, Any], timeout: float | None) -> AsyncStream[object]:
    from openai import AsyncStream

    # `post` with `object` gives the chunks as plain JSON: what a gateway sends need not fit the API's types.
    return await client.post(
        "/chat/completions",
        body=body,
        cast_to=object,
        stream=True,
        stream_cls=AsyncStream[object],
        # `events` leaves error objects in the stream: the client would drop the usage that may stand next to them.
        options={"timeout": timeout, "follow_redirects": False, "stream_mode": "events"},
    )
