"""Sessions between two uses, so that a log that nobody else touched is not folded again."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from lictor.agent import Session
from lictor.journal import Store

__all__ = ["Kept"]

MOST = 32
MOST_ENTRIES = 2_000


class _Left(NamedTuple):
    """A session, and how long its log was then."""

    session: Session
    size: int


class Kept:
    """Sessions that are handed from `start` to the first stint, or were left by the last one for who asks how it went.

    A few of the latest, and each only as long as its log is the one that it was folded from.
    """

    __slots__ = ("_handed", "_settled", "_store", "_whole")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handed: dict[str, _Left] = {}
        self._whole: set[str] = set()
        self._settled: OrderedDict[str, _Left] = OrderedDict()

    def hand_over(self, session: Session) -> None:
        """Give a session to the stint that is about to be driven; it begins as with one refolded from the log."""
        session.live.woken = True
        self._handed[session.live.run_id] = self._left(session)

    def handed(self, run_id: str) -> Session | None:
        """The session that was handed over, once."""
        session = self._fitting(run_id, self._handed.pop(run_id, None))
        if session is not None:
            self._whole.add(run_id)
        return session

    def over(self, run_id: str) -> None:
        """The stint that was handed a session has left."""
        self._whole.discard(run_id)

    def settle(self, session: Session) -> None:
        """Keep what a stint left behind that drove its run from start to end; only to be read, never to be driven.

        Where a run waited, its account may have been opened before a held step was booked: then the log tells.
        """
        left = self._left(session)
        if left.size > MOST_ENTRIES or not session.live.finished or session.live.run_id not in self._whole:
            return
        self._settled[session.live.run_id] = left
        self._settled.move_to_end(session.live.run_id)
        if len(self._settled) > MOST:
            self._settled.popitem(last=False)

    def settled(self, run_id: str) -> Session | None:
        """The session that the last stint left, if nothing happened since."""
        return self._fitting(run_id, self._settled.get(run_id))

    def _left(self, session: Session) -> _Left:
        return _Left(session, self._store.log(session.live.run_id, session.live.root).size)

    def _fitting(self, run_id: str, left: _Left | None) -> Session | None:
        if left is None:
            return None
        log = self._store.log(run_id, left.session.live.root)
        return left.session if left.session.live.holds(log) and log.size == left.size else None
