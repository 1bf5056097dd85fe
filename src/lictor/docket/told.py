"""What the log tells of a decision, so that a forged row shows (20-durability, audit).

Each decided request has a log of its own, which nobody drives: who decides, in whichever process,
appends to it in the transaction that changes the row. The run takes the decision into its own log
when it goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from lictor.docket.grant import Grant
from lictor.docket.request import Request
from lictor.journal import read_file

__all__ = ["DECISION", "GRANT", "forged", "log_of", "told", "told_grant"]

PREFIX = "docket:"
DECISION, GRANT = "decision_taken", "standing_approval"
R = TypeVar("R")


def log_of(request_id: str) -> str:
    """The name of the log of a request."""
    return PREFIX + request_id


def told(request: Request) -> dict[str, Any]:
    """The entry about a request as it stands: everything that was decided; of texts and values the digest."""
    done = request.resolution
    return {
        "request": request.id,
        "run": request.run_id,
        "status": request.status,
        "shown": request.digest,
        "approvals": list(request.approvals),
        "verb": None if done is None else done.verb,
        "decided_by": None if done is None else str(done.decided_by),
        "via": None if done is None else done.decided_by.via,
        "at": None if done is None else float(done.at),
        "content": _digest(request),
    }


def told_grant(grant: Grant) -> dict[str, Any]:
    """The entry about a standing approval."""
    return {"grant": grant.id, "key": grant.key, "by": grant.by, "revoked": grant.revoked}


def _digest(request: Request) -> str:
    """SHA-256 of what came with a decision."""
    done = request.resolution
    given = None if done is None else [done.feedback, done.value, done.arguments]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def untrue(request: Request, entry: Mapping[str, Any]) -> Iterator[str]:
    """The fields in which a request's row differs from the last entry about it."""
    now, done = told(request), request.resolution
    for name, was in entry.items():
        if name == "shown" and request.status == "edited":
            continue  # the driver binds an edited request to its edited arguments
        if name == "content" and request.erased and done is not None:
            if (done.feedback, done.value, done.arguments) != (None, None, None):
                yield name
        elif now.get(name) != was:
            yield name


def forged(url: str, roots: Collection[str] | None = None) -> list[str]:
    """Decisions and standing approvals in a store file that its log does not tell of, one line each.

    Arguments:
        url: `sqlite:///file.db`.
        roots: only what belongs to these root runs.

    Requests that were opened before decisions had logs are held against the logs of their runs. Raises StoreError.
    """
    with read_file(url) as file:
        entries = _entries(file)
        problems: list[str] = []
        known: set[str] = set()
        for key, body in file.rows("SELECT key, body FROM request ORDER BY rowid"):
            known.add(key)
            request = _read(Request, body)
            if request is None:
                problems.append(f"request {key}: its row cannot be read")
            elif roots is None or request.root_run in roots:
                problems += _problems(file, request, entries.get(key, []))
        if roots is None:
            problems += [
                f"request {key}: a decision is told, and the row is gone" for key in entries if key not in known
            ]
            problems += _grant_problems(file, entries)
        return problems


Told = list[tuple[str, Mapping[str, Any]]]


def _entries(file: Any) -> dict[str, Told]:
    """What is told of every request, oldest first: kind and payload."""
    found: dict[str, Told] = {}
    sql = "SELECT run, kind, payload FROM event WHERE run >= ? AND run < ? ORDER BY run, seq"
    for run, kind, payload in file.rows(sql, PREFIX, PREFIX + "\x7f"):
        value: Any = None
        with contextlib.suppress(ValueError):
            value = json.loads(payload or b"null")
        found.setdefault(run.removeprefix(PREFIX), []).append((kind, value if isinstance(value, dict) else {}))
    return found


def _problems(file: Any, request: Request, entries: Told) -> list[str]:
    decisions = [payload for kind, payload in entries if kind == DECISION]
    where = f"request {request.id}"
    if decisions:
        wrong = list(untrue(request, decisions[-1]))
        return [f"{where}: its row was changed, the log tells of another {', '.join(wrong)}"] if wrong else []
    if request.status == "pending" and not request.approvals:
        return []
    if _opened_before(file, request):
        return _old_problems(file, request)
    by = "" if request.resolution is None else f" by {request.resolution.decided_by}"
    return [f"{where}: it is {request.status}{by}, and the log tells nothing of it"]


def _opened_before(file: Any, request: Request) -> bool:
    """Whether it was opened by a Lictor that kept no log of decisions."""
    sql = "SELECT version, payload FROM event WHERE run = ? AND kind = 'request_opened'"
    opened = [version for version, payload in file.rows(sql, request.run_id) if _names(payload, request.id)]
    return bool(opened) and max(opened) == 1


def _old_problems(file: Any, request: Request) -> list[str]:
    done = request.resolution
    sql = "SELECT payload FROM event WHERE run = ? AND kind = 'request_decided'"
    for (payload,) in file.rows(sql, request.run_id):
        if done is None or not _names(payload, request.id):
            continue
        entry = json.loads(payload)
        if done.decided_by.kind != "timer" and (entry["verb"], entry["decided_by"]) != (
            done.verb,
            str(done.decided_by),
        ):
            return [f"request {request.id}: its row was changed, the log tells of another decision"]
    return []


def _names(payload: bytes | None, request_id: str) -> bool:
    """Whether an entry is about this request."""
    try:
        return bool(json.loads(payload or b"{}").get("request") == request_id)
    except (ValueError, AttributeError):
        return False


def _grant_problems(file: Any, entries: Mapping[str, Told]) -> list[str]:
    latest = {payload.get("grant"): payload for told in entries.values() for kind, payload in told if kind == GRANT}
    problems = []
    for key, body in file.rows("SELECT key, body FROM standing ORDER BY rowid"):
        grant = _read(Grant, body)
        if grant is None or (told_grant(grant) != latest.get(key) and not (key not in latest and _before(file, grant))):
            problems.append(f"grant {key}: the log does not tell of it as it stands")
    return problems


def _before(file: Any, grant: Grant) -> bool:
    """Whether a standing approval is from before they were told of: its request is."""
    for (body,) in file.rows("SELECT body FROM request WHERE key = ?", grant.request):
        request = _read(Request, body)
        return request is not None and _opened_before(file, request)
    return False


def _read(kind: type[R], body: bytes) -> R | None:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(body)
    except ValidationError:
        return None
