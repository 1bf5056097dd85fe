"""What a caller sees of a run while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lictor.journal import Entry, Positioned, Store
from lictor.runs.outcome import Step
from lictor.values import thaw

__all__ = ["Ending", "Event", "Telling", "follow", "follow_driven"]

HIDDEN = frozenset(
    {
        "admitted", "answered", "call_judged", "cause", "child_parked", "extras", "feedback", "input", "member_ended",
        "member_parked", "node_ended", "output", "session_opened", "settled", "team_opened",
    }
)  # fmt: skip
"""Entries that are bookkeeping: others tell what came of them."""
TOLD_AS: Mapping[str, str] = {"chosen": "decision", "moment": "verdict", "record": "skipped"}
"""Kinds of events whose entries have another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, as `events()` and `stream()` give it.

    `cursor` is the place in the log of the root run (pass the last one as `after=` to go on),
    `path` leads from the root to the run, `at` is seconds since the epoch. Nothing is in a payload
    before its verdict.
    """

    cursor: int
    run_id: str
    path: tuple[Step, ...]
    seq: int
    at: float
    kind: str
    payload: Mapping[str, Any]

    def json(self) -> dict[str, Any]:
        """As a JSON object; `at` becomes RFC 3339."""
        return {
            "cursor": self.cursor,
            "run_id": self.run_id,
            "path": [step._asdict() for step in self.path],
            "seq": self.seq,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": self.kind,
            "payload": {name: thaw(value) for name, value in self.payload.items()},
        }


class Telling:
    """Turns the log of a root into events, at most one for an entry: whoever goes on from a cursor misses nothing.

    It has to be given every entry, from the first on, since some are told by what an earlier one said.
    """

    __slots__ = ("_deciding", "_paths")

    def __init__(self) -> None:
        self._paths: dict[str, tuple[Step, ...]] = {}
        self._deciding: dict[str, _Deciding] = {}

    def event(self, item: Positioned) -> Event | None:
        """What an entry is to a caller; None when it is bookkeeping."""
        cursor, run_id, (seq, kind, payload, at) = item
        if kind == "run_started" and "path" in payload:
            self._paths[run_id] = tuple([Step(*step) for step in payload["path"]])
            if "team" in payload:
                self._deciding[run_id] = _Deciding()
        decided = self._deciding[run_id].take(kind, payload) if run_id in self._deciding else None
        path = self._paths[run_id] if run_id in self._paths else ()
        if decided is not None:
            kind, payload = "decision", decided
        elif kind == "output" and "erased" not in payload and payload["text"]:
            kind, payload = "model_delta", {"text": payload["text"]}
        elif kind in HIDDEN:
            return None
        elif kind in VIEWS and "erased" not in payload:
            payload = VIEWS[kind](payload)
        if kind in TOLD_AS:
            kind = TOLD_AS[kind]
        return Event(cursor=cursor, run_id=run_id, path=path, seq=seq, at=at, kind=kind, payload=payload)


class _Deciding:
    """Who works next in one run with members: calls of its model that were allowed, or choices made without a model."""

    __slots__ = ("_admitted", "_calls", "_turn")

    def __init__(self) -> None:
        self._admitted = 0
        self._turn = 0
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def take(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """The decision that an entry is, if it is one. The answer of `finish` is not in it: its verdict comes later."""
        if "erased" in payload:
            return None
        if kind == "admitted":
            self._admitted = payload["turn"]
        elif kind == "model_finished":
            self._calls = {call["id"]: (call["name"], call.get("args") or {}) for call in payload.get("calls", ())}
        elif kind == "chosen":
            self._turn += len(payload["members"])
            work = [{"member": name, "instruction": payload["instruction"]} for name in payload["members"]]
            return self._decision("handoff" if payload["handoff"] else "route", work)
        elif kind == "call_judged" and payload["decision"] == "allow" and payload["call"] in self._calls:
            name, args = self._calls.pop(payload["call"])
            args = payload.get("args") or args
            self._turn = self._admitted + 1  # several calls of one response are one turn
            given = args.get("assignments") or ([args] if "member" in args else [])
            work = [{"member": each["member"], "instruction": each["instruction"]} for each in given]
            told = self._decision(name, work) | {"call": payload["call"]}
            return told | ({"reason": args["reason"]} if "reason" in args else {})
        return None

    def _decision(self, kind: str, work: list[dict[str, Any]]) -> dict[str, Any]:
        alone = work[0] if len(work) == 1 else {"member": None, "instruction": None}
        return {"kind": kind, "turn": self._turn, **alone, "assignments": work}


class Ending:
    """The end of what is followed: set once, tells every follower."""

    __slots__ = ("_followers", "reached")

    def __init__(self) -> None:
        self.reached = False
        self._followers: list[asyncio.Event] = []

    def set(self) -> None:
        """Nothing more will come."""
        self.reached = True
        self.stir()

    def stir(self) -> None:
        """Something may have come, from another process too: every follower looks."""
        for news in self._followers:
            news.set()

    def tell(self, news: asyncio.Event) -> None:
        """Set `news` when the end is reached, or something may have come."""
        self._followers.append(news)


class _Reader:
    """Reads the log of a root from a cursor on, as events."""

    __slots__ = ("_after", "_cursor", "_fresh", "_loop", "_root", "_store", "_telling", "_undo", "news")

    def __init__(self, store: Store, root: str, after: int) -> None:
        self._store = store
        self._root = root
        self._after = after
        self._cursor = 0
        self._fresh = False
        self._telling = Telling()
        self.news = asyncio.Event()
        self._undo = [store.watch(root, self._tell)]
        if store.durable:  # another process may drive the run
            self._loop = asyncio.get_running_loop()
            self._undo.append(store.on_change(self._tell_from_outside))

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Read no more."""
        for undo in self._undo:
            undo()

    def _tell_from_outside(self) -> None:
        """Called by the store's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is gone, and so is whoever reads
            self._loop.call_soon_threadsafe(self.news.set)

    def _tell(self, entry: Entry) -> None:
        if not self._fresh:
            self._fresh = True
            self.news.set()

    def read(self) -> list[Event]:
        """What is new, in order."""
        self._fresh = False
        self.news.clear()
        found: list[Event] = []
        for item in self._store.root_entries(self._root, self._cursor):
            self._cursor = item.cursor
            event = self._telling.event(item)
            if event is not None and item.cursor > self._after:
                found += [event]  # every event comes by here: no call
        return found


async def follow(store: Store, root: str, after: int, ending: Ending) -> AsyncGenerator[Event]:
    """The events below `root` behind `after`, as they come, until `ending` is reached and all are given."""
    reader = _Reader(store, root, after)
    ending.tell(reader.news)
    try:
        while True:
            ended = ending.reached
            for event in reader.read():
                yield event
            if ended:
                return
            if not ending.reached:
                await reader.news.wait()
    finally:
        reader.undo()


async def follow_driven(store: Store, root: str, drive: Callable[[], Awaitable[None]]) -> AsyncGenerator[Event]:
    """The events below `root` while `drive` runs, and what is left of them after it.

    A slow reader never holds the run. Leaving early cancels it; what it raises is raised here.
    """
    ending = Ending()
    reader = _Reader(store, root, 0)
    ending.tell(reader.news)

    failure: BaseException | None = None

    async def driven() -> None:
        nonlocal failure
        try:
            await drive()
        except BaseException as exc:  # noqa: BLE001 - raised again, as it is, when everything was given
            failure = exc
        ending.set()

    left = False
    with reader:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(driven())
            try:
                while not ending.reached:
                    await reader.news.wait()
                    for event in reader.read():
                        yield event
            except GeneratorExit:  # closed by its reader, which a task group would make an error of
                left = True
                task.cancel()
        if left:
            return
        for event in reader.read():
            yield event
        if failure is not None:
            raise failure


def _verdict(payload: Mapping[str, Any]) -> dict[str, Any]:
    record = payload["record"]
    verdict = record["verdict"]
    return {
        "point": record["interception_point"],
        "decision": verdict["decision"],
        "reason": verdict["reason"] if "reason" in verdict else None,
        "by": payload["by"],
        "call": payload["call"] if "call" in payload else None,
        "record": record,
    }


def _model_finished(payload: Mapping[str, Any]) -> dict[str, Any]:
    calls = payload["calls"] if "calls" in payload else ()
    return {
        "usage": payload["usage"],
        "finish": payload["finish"],
        "model": payload["model"],
        "calls": [{"id": call["id"], "tool": call["name"]} for call in calls],
    }


def _moment(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict at a moment of a team: `verdicts` are what each one said, `member` whose work it is about."""
    return {
        "point": payload["moment"],
        "decision": payload["decision"],
        "reason": payload["reason"],
        "by": payload["by"],
        "call": None,
        "member": payload.get("member"),
        "verdicts": payload["verdicts"],
    }


def _record(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Nobody works any more: who was refused, why, and by whom."""
    ends = payload.get("ends") or {}
    return {"member": payload["source"], "reason": ends.get("reason"), "by": ends.get("by"), "record": payload}


VIEWS: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "verdict": _verdict,
    "moment": _moment,
    "record": _record,
    "model_finished": _model_finished,
}
