"""Lists of runs: root runs by what is stored beside them, and the runs below one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lictor.errors import NotResumable
from lictor.journal import Positioned, Store
from lictor.runs import Step, User
from lictor.runtime.row import RUNS, RunRow

__all__ = ["ChildRun", "children_of", "root_of", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """A run that another run started.

    Arguments:
        id, agent: the run, and the name of its agent.
        path: from the root to it; `call_id` is the call that it answers.
        status: `running` (also while it waits), or the terminal status with its `reason`.
    """

    id: str
    agent: str
    path: tuple[Step, ...]
    call_id: str | None
    status: str = "running"
    reason: str | None = None


def root_of(store: Store, run_id: str) -> str:
    """The root above a run. Raises NotResumable when there is no such run."""
    for entry in store.entries(run_id):
        if entry.kind == "run_started" and "path" in entry.payload:
            return str(entry.payload["path"][0][1])
    if store.table(RUNS).get(run_id) is None:
        raise NotResumable(f"there is no run {run_id!r} in this store")
    return run_id


def children_of(items: Iterable[Positioned], run_id: str) -> list[ChildRun]:
    """The runs directly below one, in the order in which they began, from the log of their root."""
    found: dict[str, ChildRun] = {}
    for item in items:
        kind, payload = item.entry.kind, item.entry.payload
        if kind == "run_started" and "path" in payload:
            path = tuple([Step(*step) for step in payload["path"]])
            if len(path) > 1 and path[-2].run_id == run_id:
                found[item.run_id] = ChildRun(
                    id=item.run_id, agent=payload["agent"], path=path, call_id=path[-1].call_id
                )  # fmt: skip
        elif kind == "run_finished" and item.run_id in found:
            begun = found[item.run_id]
            found[item.run_id] = ChildRun(
                id=begun.id,
                agent=begun.agent,
                path=begun.path,
                call_id=begun.call_id,
                status=payload.get("status", "running"),
                reason=payload.get("reason"),
            )
    return list(found.values())


def rows_of(
    store: Store,
    *,
    status: str | Iterable[str] | None,
    conversation: str | None,
    user: User | str | None,
    limit: int,
    after: str | None,
) -> list[RunRow]:
    """The rows of root runs, newest first; a page of at most `limit` behind the run `after`."""
    equal = {} if conversation is None else {"conversation": conversation}
    if isinstance(status, str):
        equal["status"] = status
    rows = store.table(RUNS).find(**equal)
    wanted = None if status is None or isinstance(status, str) else set(status)
    name = user.id if isinstance(user, User) else user
    found = [
        row
        for row in reversed(rows)
        if (wanted is None or row.status in wanted) and (name is None or _name(row.user) == name)
    ]
    ids = [row.run_id for row in found]
    start = ids.index(after) + 1 if after in ids else 0
    return found[start : start + limit]


def _name(user: User | str | None) -> str | None:
    return user.id if isinstance(user, User) else user
