"""What a caller sees of a run while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lictor.journal import Positioned, Store
from lictor.runs.outcome import Step

__all__ = ["Ending", "Event", "events_of", "follow"]

CHUNK = 48
HIDDEN = frozenset({"session_opened", "input", "call_judged", "cause", "output", "feedback"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, as `events()` and `stream()` give it.

    `cursor` is the place in the log of the root run (pass the last one as `after=` to go on),
    `path` leads from the root to the run, `at` is UTC. Nothing is in a payload before its verdict.
    """

    cursor: int
    run_id: str
    path: tuple[Step, ...]
    seq: int
    at: datetime
    kind: str
    payload: Mapping[str, Any]

    def json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "cursor": self.cursor,
            "run_id": self.run_id,
            "path": [step._asdict() for step in self.path],
            "seq": self.seq,
            "at": self.at.isoformat().replace("+00:00", "Z"),
            "kind": self.kind,
            "payload": dict(self.payload),
        }


def events_of(item: Positioned, path: tuple[Step, ...]) -> Iterator[Event]:
    """The events that an entry is to a caller: none, one, or the text of an answer in pieces."""
    entry = item.entry

    def event(kind: str, payload: Mapping[str, Any]) -> Event:
        at = datetime.fromtimestamp(entry.at, UTC)
        return Event(
            cursor=item.cursor, run_id=item.run_id, path=path, seq=entry.seq, at=at, kind=kind, payload=payload
        )

    if entry.kind == "output":
        text = entry.payload["text"]
        for start in range(0, len(text), CHUNK):
            yield event("model_delta", {"text": text[start : start + CHUNK]})
        return
    if entry.kind in HIDDEN:
        return
    view = VIEWS.get(entry.kind)
    yield event(entry.kind, entry.payload if view is None else view(entry.payload))


class Ending:
    """The end of what is followed: set once, tells every follower."""

    __slots__ = ("_followers", "reached")

    def __init__(self) -> None:
        self.reached = False
        self._followers: list[asyncio.Event] = []

    def set(self) -> None:
        """Nothing more will come."""
        self.reached = True
        for news in self._followers:
            news.set()

    def tell(self, news: asyncio.Event) -> None:
        """Set `news` when the end is reached."""
        self._followers.append(news)


async def follow(store: Store, root: str, after: int, ending: Ending) -> AsyncIterator[Event]:
    """The events below `root` behind `after`, as they come, until `ending` is reached and all are given."""
    paths: dict[str, tuple[Step, ...]] = {}
    news = asyncio.Event()
    ending.tell(news)
    undo = store.watch(root, news.set)
    cursor = 0
    try:
        while True:
            ended = ending.reached
            news.clear()
            items = store.root_entries(root, cursor)
            cursor = items[-1].cursor if items else cursor
            for event in _events(items, paths, after):
                yield event
            if ended:
                return
            if not ending.reached:
                await news.wait()
    finally:
        undo()


def _events(items: Sequence[Positioned], paths: dict[str, tuple[Step, ...]], after: int) -> Iterator[Event]:
    """The events of some entries; learns the paths of runs as they start."""
    for item in items:
        if item.entry.kind == "run_started":
            paths[item.run_id] = tuple([Step(*step) for step in item.entry.payload["path"]])
        if item.cursor > after:
            yield from events_of(item, paths.get(item.run_id, ()))


def _verdict(payload: Mapping[str, Any]) -> dict[str, Any]:
    record = payload["record"]
    verdict = record["verdict"]
    return {
        "point": record["interception_point"],
        "decision": verdict["decision"],
        "reason": verdict.get("reason"),
        "by": payload["by"],
        "record": record,
    }


def _model_finished(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "usage": payload.get("usage"),
        "finish": payload.get("finish"),
        "model": payload.get("model"),
        "calls": [{"id": call["id"], "tool": call["name"]} for call in payload.get("calls", ())],
    }


VIEWS: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "verdict": _verdict,
    "model_finished": _model_finished,
}
