"""Text that is judged and released while it comes: the exception of §12.1.

The model's text is judged by growing prefixes, each an ordinary `post_model_call`, and released only
as far as a verdict covers it (the exposure bound is none). What a later verdict denies, or nobody
judged, is neither released nor stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lictor import faults
from lictor.agent.responses import Proposed, fault_of
from lictor.errors import DefinitionError, ModelError
from lictor.hooks import Emission
from lictor.models import ChatModel, ModelEvent, ModelResponse, TextDelta, ToolSpec, well_formed

if TYPE_CHECKING:
    from lictor.agent.session import Session

__all__ = ["UNSUPPORTED", "WINDOW", "Incremental", "Stream"]

UNSUPPORTED = "host_error:streaming_unsupported"
WINDOW = 128
STOPPED = ModelResponse(None, finish="stream_incomplete")


@dataclass(frozen=True, slots=True)
class Incremental:
    """How an agent streams with `stream="incremental"`, and the same with an option.

    A prefix is judged when the next piece arrives, once what is new in it is at least 1/128 of what was
    judged before: every piece of a short text, and altogether no more than about 128 times the bytes of
    a long one.

    Arguments:
        holdback: characters at the end of a judged prefix that wait for the next verdict. A rule whose
            matches are at most that long never has a part of a match released before it is denied or
            masked. 0 releases all of it.

    Raises DefinitionError for anything but a whole number from 0 on.
    """

    holdback: int = 0

    def __post_init__(self) -> None:
        given: Any = self.holdback
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise DefinitionError(f"Incremental(holdback={given!r}): give a number of characters >= 0")


class Stream:
    """The text of the model call that is under way in one run.

    How much of it was released is in the run's state, so it is known after a crash too.
    """

    __slots__ = ("_fault", "_fresh", "_holdback", "_judged", "_pieces", "_session", "_verdict")

    def __init__(self, session: Session, how: Incremental) -> None:
        self._session = session
        self._holdback = how.holdback
        self._clear()

    def mediate(self, models: Sequence[ChatModel]) -> tuple[ChatModel, ...]:
        """The same models, with their text passing through here."""
        return tuple(Mediated(model, self) for model in models)

    def begin(self) -> None:
        """A model is asked. What an earlier call released and nobody took is taken back first."""
        self._clear()
        self._take_back()

    def _clear(self) -> None:
        self._judged = ""
        self._pieces: list[str] = []
        self._fresh = 0
        self._verdict: Emission | None = None
        self._fault: Exception | None = None

    @property
    def released(self) -> str:
        """What the caller has of an answer that is not taken yet."""
        known = self._session.live.state.released
        return "" if known is None else str(known[1])

    def _take_back(self) -> None:
        known = self._session.live.state.released
        if known is not None:
            self._session.live.record("stream_reset", {"step": known[0]})

    async def take(self, piece: str) -> bool:
        """Judge what came before this piece, if it is enough; False when nothing more is wanted."""
        if self._session.live.state.cause is not None:
            raise ModelError("cancelled", "the run ended while the model answered")
        if self._fresh and self._fresh * WINDOW >= len(self._judged):
            try:
                if not await self._judge():
                    return False
            except Exception as error:  # noqa: BLE001 - not the model's fault: `ended` raises it again
                self._fault = error
                return False
        self._pieces.append(piece)
        self._fresh += len(piece)
        return True

    async def broken(self, error: Exception | None) -> bool:
        """The call failed, or ended without its response. True: it fails closed, nobody is asked again.

        A stream that dies after a part of it was released leaves content that no emission covers
        (§12.1, 3). Any other failure is one of the model call: what was released is taken back.
        """
        cut = error is None or (isinstance(error, ModelError) and error.code == "stream_cut")
        if cut and self.released:
            self._verdict = await self._refuse(well_formed(self._judged + "".join(self._pieces)))
            return True
        self._take_back()
        return False

    def ended(self) -> Emission | None:
        """The emission that ended the stream before its end; raises what went wrong on our side."""
        if self._fault is not None:
            raise self._fault
        return self._verdict

    async def finish(
        self, response: ModelResponse, content: Any, calls: tuple[Proposed, ...], finish: str
    ) -> Emission | None:
        """Release the rest of a response that was permitted as a whole, or the deny that keeps it back.

        A response that cannot be used (cut, filtered, refused) releases nothing more.
        """
        if response.refusal is not None or fault_of(content, calls, finish) is not None:
            return None
        if await self._release("" if content is None else content, 0):
            return None
        self._verdict = await self._refuse(well_formed(response.content or ""))
        return self._verdict

    async def _judge(self) -> bool:
        """Emit over the prefix so far and release what the verdict covers; False when it ends the stream."""
        text = self._judged + "".join(self._pieces)
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""  # its other half has to come first
        self._judged, self._pieces = text[: len(text) - len(half)], [half]
        self._fresh = len(half)
        prefix = well_formed(self._judged)
        session = self._session
        shown = {"content": prefix, "tool_calls": [], "finish_reason": "incremental"}
        emission = await session.points.emit(session.builder.post_model_call, session.plan.model, shown)
        if not emission.proceeds:
            self._verdict = emission
            return False
        if await self._release(emission.target["content"], self._holdback):
            return True
        self._verdict = await self._refuse(prefix)
        return False

    async def _release(self, content: Any, holdback: int) -> bool:
        """Release permitted text up to `holdback` characters; False when it does not continue what was released."""
        live, before = self._session.live, self.released
        if not isinstance(content, str):
            return not before
        if not content.startswith(before):
            return False
        piece = content[len(before) : max(len(content) - holdback, len(before))]
        if piece and live.state.cause is None:  # a run that was ended meanwhile shows nothing more
            faults.reach("release.before")
            live.record("model_delta", {"text": piece, "step": live.state.step})
            await live.store.barrier(live.root)
            faults.reach("release.after")
        return True

    async def _refuse(self, content: str) -> Emission:
        """The host's own deny: this stream cannot be mediated as §12.1 wants it."""
        session = self._session
        shown = {"content": content, "tool_calls": [], "finish_reason": "stream_incomplete"}
        return await session.points.refuse(UNSUPPORTED, session.builder.post_model_call, session.plan.model, shown)


class Mediated:
    """A model whose text goes through a Stream while it comes. Implements `ChatModel`."""

    keeps_timeout = True

    def __init__(self, model: ChatModel, stream: Stream) -> None:
        self.id = model.id
        self.prices = getattr(model, "prices", None)
        self._model = model
        self._stream = stream
        self._is_timed = bool(getattr(model, "keeps_timeout", False))

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ModelEvent]:
        """The response alone, after its text was judged; one without content when the stream was stopped."""
        stream = self._stream
        stream.begin()
        response: ModelResponse | None = None
        answer = self._model.respond(messages, tools, settings)
        try:
            async with aclosing(_waited(answer, None if self._is_timed else settings["timeout"])) as events:
                async for event in events:
                    if type(event) is ModelResponse:
                        response = event
                    elif type(event) is TextDelta and not await stream.take(event.text):
                        response = STOPPED
                        break
        except Exception as error:
            if not await stream.broken(error):
                raise
            response = STOPPED
        if response is None and await stream.broken(None):
            response = STOPPED
        if response is not None:
            yield response


async def _waited(events: AsyncIterator[ModelEvent], seconds: float | None) -> AsyncGenerator[ModelEvent]:
    """The events of a model, waited for at most `seconds` altogether; what is done with them is not counted."""
    clock = asyncio.get_running_loop().time
    try:
        while True:
            began = clock()
            async with asyncio.timeout(seconds):
                event = await anext(events, None)
            if event is None:
                return
            if seconds is not None:
                seconds = max(seconds - (clock() - began), 0.0)
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
