"""Retention: what terminal runs said and did is erased, that they did it stays (20-durability, audit)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lictor.agent import HELD
from lictor.docket import REQUESTS, Request
from lictor.journal import Store
from lictor.runs import TERMINAL
from lictor.runtime.conversations import CONVERSATIONS, Conversation
from lictor.runtime.row import RUNS, RunRow

if TYPE_CHECKING:
    from lictor.runtime.runtime import Runtime

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was erased, or would be.

    Arguments:
        runs: ids of root runs.
        entries: entries of their logs and of the runs below them that lost their payload.
        requests: requests whose shown and given values are gone.
        conversations: those that lost their messages.
    """

    runs: tuple[str, ...] = ()
    entries: int = 0
    requests: int = 0
    conversations: tuple[str, ...] = ()


async def prune(runtime: Runtime, *, older_than: float, dry_run: bool = False) -> Pruned:
    """Erase what runs said and did that ended more than `older_than` seconds ago.

    Gone are messages, tasks, contexts, arguments, results and what was shown and given in decisions; ids, times, kinds,
    who decided what, and the digests stay, so that the log still verifies. A conversation loses its messages when all
    its runs are erased. A run that is not terminal is never touched; an erased one cannot be resumed. What was erased
    is gone from the file too, free space and write-ahead log included.

    Raises StoreError; when the file could not be rewritten because others use it, doing the same again does that.
    """
    before = runtime.clock.now() - older_than
    store = runtime.store
    rows = store.table(RUNS)
    found = [row for row in rows.values() if _over(store, row, before)]
    entries = requests = 0
    erased: list[str] = []
    for row in found:
        if dry_run:
            entries += store.cursor(row.run_id)
            requests += len(store.table(REQUESTS).find(root_run=row.run_id))
            erased.append(row.run_id)
            continue
        with store.transaction():
            now = rows.get(row.run_id)
            if now is None or not _over(store, now, before):  # somebody resumed it since
                continue
            entries += store.erase(row.run_id)
            requests += _erase_requests(store, row.run_id)
            rows[row.run_id] = _bare(now, runtime.clock.now())
            erased.append(row.run_id)
    conversations = _conversations(store, erased, dry_run)
    if not dry_run:
        store.shred()
    return Pruned(runs=tuple(erased), entries=entries, requests=requests, conversations=conversations)


def _over(store: Store, row: RunRow, before: float) -> bool:
    """Whether a run ended long enough ago and is not erased yet."""
    if row.status not in TERMINAL or row.erased is not None or row.created > before:
        return False
    last = store.root_entries(row.run_id, store.cursor(row.run_id) - 1)
    return not last or last[-1].entry.at <= before


def _bare(row: RunRow, now: float) -> RunRow:
    return replace(row, task=None, context=None, messages=(), labels={}, erased=now)


def _erase_requests(store: Store, root: str) -> int:
    table, held = store.table(REQUESTS), store.table(HELD)
    found = table.find(root_run=root)
    for request in found:
        table[request.id] = _without_values(request)
        held.remove(request.id)
    return len(found)


def _without_values(request: Request) -> Request:
    shown = replace(request.shown, arguments=None, value=None)
    reasons = tuple([replace(reason, message=None) for reason in request.reasons])
    done = request.resolution
    if done is not None:
        done = replace(done, feedback=None, value=None, arguments=None)
    return replace(request, shown=shown, reasons=reasons, resolution=done, erased=True)


def _conversations(store: Store, erased: list[str], dry_run: bool) -> tuple[str, ...]:
    """Take the messages out of conversations all of whose runs are erased."""
    rows, table = store.table(RUNS), store.table(CONVERSATIONS)
    gone = set(erased)
    names = dict.fromkeys([row.conversation for run_id in erased if (row := rows.get(run_id)) is not None])
    found: list[str] = []
    for name in names:
        if name is None:
            continue
        with store.transaction():
            needed = [row for row in rows.find(conversation=name) if row.erased is None and row.run_id not in gone]
            known = table.get(name)
            if needed or known is None or not known.messages:
                continue
            found.append(name)
            if not dry_run:
                table[name] = _empty(known)
    return tuple(found)


def _empty(conversation: Conversation) -> Conversation:
    return replace(conversation, messages=(), owner=None, labels={})
