"""Conversations: many runs with one history, one writer at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lictor.agent import Session
from lictor.errors import ConversationBusy, DefinitionError, NotResumable
from lictor.journal import Store, Table
from lictor.runs import TERMINAL
from lictor.runtime.importing import imported
from lictor.runtime.row import RUNS, RunRow

__all__ = ["Conversation", "Conversations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The history that runs share.

    Arguments:
        id: its name, as given to `start`.
        messages: stored, OpenAI chat shape.
        owner: the run that may append.
        version: runs that appended so far.
        numbered, positions: calls numbered, and responses taken from each model.
        labels: result labels of what it holds, by interceptor (§5.4).
    """

    id: str
    messages: tuple[Mapping[str, Any], ...] = ()
    owner: str | None = None
    version: int = 0
    numbered: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


CONVERSATIONS: Table[Conversation] = Table(
    name="conversation", kind=Conversation, columns={"owner": lambda row: row.owner}
)


class Conversations:
    """The rows of conversations over a store."""

    __slots__ = ("_rows", "_runs", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows = store.table(CONVERSATIONS)
        self._runs = store.table(RUNS)

    def get(self, name: str) -> Conversation:
        """A conversation; empty when unknown."""
        return self._rows.get(name) or Conversation(id=name)

    def owner(self, name: str) -> RunRow | None:
        """The run that holds the conversation and is not over."""
        row = self._runs.get(self.get(name).owner or "")
        return None if row is None or row.status in TERMINAL else row

    def take(self, name: str, run_id: str) -> dict[str, Any]:
        """Make `run_id` the writer; what the conversation brings to it. Raises ConversationBusy."""
        with self._store.transaction():  # two processes may want it at once
            busy = self.owner(name)
            if busy is not None:
                raise ConversationBusy(
                    f"conversation {name!r} belongs to run {busy.run_id} until that ends ({busy.status})"
                )
            known = self.get(name)
            self._rows[name] = replace(known, owner=run_id)
        brings = ("messages", "numbered", "positions", "labels")
        return {name: getattr(known, name) for name in brings}

    def begin(self, name: str, messages: Sequence[Mapping[str, Any]]) -> Conversation:
        """A conversation that comes from elsewhere; see `imported`. Raises ConversationBusy, DefinitionError."""
        kept, calls = imported(messages)
        with self._store.transaction():
            known = self.get(name)
            busy = self.owner(name)
            if busy is not None:
                raise ConversationBusy(f"conversation {name!r} belongs to run {busy.run_id} until that ends")
            if known.messages or known.version:
                raise DefinitionError(f"conversation {name!r} has messages already; import into a new one")
            self._rows[name] = begun = replace(known, messages=kept, numbered=calls)
        return begun

    def take_again(self, name: str | None, run_id: str, session: Session) -> None:
        """Let the next attempt of a failed run write. Raises ConversationBusy, NotResumable when others went on."""
        if name is None:
            return
        if self.get(name).messages != session.stored:
            raise NotResumable(f"conversation {name!r} went on after run {run_id} failed; start a new run in it")
        self.take(name, run_id)

    def give_back(self, name: str | None, run_id: str, session: Session) -> None:
        """Append what a run came to, and let the next one write."""
        if name is None:
            return
        state = session.live.state
        known = self._rows.get(name)
        if known is None or known.owner != run_id:
            return
        self._rows[known.id] = replace(
            known,
            messages=session.stored,
            owner=None,
            version=known.version + 1,
            numbered=state.numbered,
            positions=state.positions,
            labels=dict(session.labels),
        )
