"""What the invariants are checked on: the log of one run, and the requests that belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lictor.docket import Request

__all__ = ["RunLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """One run as it was recorded.

    Arguments:
        run_id: the run.
        steps: (kind, payload) of every entry, oldest first.
        history: the messages of the conversation before it.
        requests: by id; None where they cannot be known (a result without its Runtime).
    """

    run_id: str
    steps: Sequence[tuple[str, Mapping[str, Any]]]
    history: Sequence[Mapping[str, Any]] = ()
    requests: Mapping[str, Request] | None = field(default=None)

    @property
    def name(self) -> str:
        """Whose run it is, for messages."""
        started = next((payload for kind, payload in self.steps if kind == "run_started"), {})
        return f"{started.get('agent', 'run')} ({self.run_id[:8]})"

    @property
    def finished(self) -> bool:
        """Whether it has its outcome."""
        last = [kind for kind, _ in self.steps if kind in ("run_finished", "resumed")]
        return last[-1:] == ["run_finished"]

    def payloads(self, *kinds: str) -> list[Mapping[str, Any]]:
        """The payloads of these kinds, oldest first."""
        return [payload for kind, payload in self.steps if kind in kinds]
