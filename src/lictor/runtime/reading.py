"""What a Runtime tells of the runs of its store; it reads, and drives nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from lictor.agent import AgentTrace, trace_of
from lictor.docket import Docket
from lictor.errors import NotResumable
from lictor.journal import Rows, Store
from lictor.runs import User
from lictor.runtime.auditing import CallAudit, audit_calls
from lictor.runtime.conversations import Conversation, Conversations
from lictor.runtime.definitions import Definition, Definitions, limits_of
from lictor.runtime.handle import Run
from lictor.runtime.listing import ChildRun, children_of, root_of, rows_of
from lictor.runtime.row import RunRow
from lictor.team import TeamTrace, team_trace_of

if TYPE_CHECKING:
    from lictor.runtime.runtime import Runtime

__all__ = ["Reading"]


class Reading:
    """The reading half of a Runtime."""

    store: Store
    docket: Docket
    _rows: Rows[RunRow]
    _definitions: Definitions
    _conversations: Conversations

    def row(self, run_id: str) -> RunRow:
        """What is stored of a root run; raises NotResumable when there is none with this id."""
        row = self._rows.get(run_id)
        if row is None:
            raise NotResumable(f"there is no run {run_id!r} in this store")
        return row

    def definition(self, run_id: str) -> Definition | None:
        """The agent or team of a root run, if it is known here."""
        row = self.row(run_id)
        return self._definitions.find(row) if self._definitions.knows(row) else None

    def limits(self, run_id: str) -> Mapping[str, Any]:
        """The limits of a root run: set fields of Budget, `max_steps`, `max_turns`, `max_handoffs`."""
        return limits_of(self.definition(run_id), self.row(run_id).limits)

    async def trace(self, run_id: str) -> AgentTrace | TeamTrace:
        """The transcript and steps of a run (root or nested), in any status; of a team its records too."""
        row = self._rows.get(run_id)
        entries = self.store.entries(run_id)
        if entries and "team" in entries[0].payload:
            return team_trace_of(run_id, entries, row.messages if row else ())
        found = trace_of(run_id, entries, row.messages if row else ())
        return found if row is None or row.erased is None else replace(found, status=row.status)

    async def audit(self, run_id: str) -> list[CallAudit]:
        """Every tool call of a run and of those below it: who let it pass, as what, and what became of it.

        Payload-free: digests, ids, names, reasons and times. Raises NotResumable when there is no such run.
        """
        root = root_of(self.store, run_id)
        found = audit_calls(self.store.root_entries(root), await self.docket.requests(run=root))
        return [each for each in found if run_id in (root, *[step.run_id for step in each.path])]

    async def children(self, run_id: str) -> list[ChildRun]:
        """The runs directly below a run (root or nested), oldest first; raises NotResumable when there is none."""
        return children_of(self.store.root_entries(root_of(self.store, run_id)), run_id)

    async def runs(
        self,
        *,
        status: str | Iterable[str] | None = None,
        conversation: str | None = None,
        user: User | str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> list[Run]:
        """Root runs, newest first.

        Arguments:
            status, conversation, user: only those; `status` may be several.
            limit, after: a page of at most `limit` behind the run with id `after`.
        """
        rows = rows_of(self.store, status=status, conversation=conversation, user=user, limit=limit, after=after)
        return [Run(cast("Runtime", self), row.run_id) for row in rows]

    async def conversation(self, name: str, messages: Sequence[Mapping[str, Any]] | None = None) -> Conversation:
        """A conversation as stored; empty when unknown.

        Arguments:
            messages: begin it with these (OpenAI chat shape, without instructions), from another system for
                example. A call without a result is closed, never run.

        Raises DefinitionError for messages that are no valid history, or when the conversation has some already;
        NotSerializable for what is no JSON; ConversationBusy while a run writes to it.
        """
        return self._conversations.get(name) if messages is None else self._conversations.begin(name, messages)
