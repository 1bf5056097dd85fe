"""The seam between what a run decides (pure) and what is done about it (shells)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from lictor.journal import Entry

if TYPE_CHECKING:
    from lictor.runs.live import LiveRun

__all__ = ["DONE", "PARKED", "Command", "Driven", "Machine", "Performer"]

DONE = True
PARKED = False

S = TypeVar("S")


class Command(NamedTuple):
    """Something that is due. `key` names it within the run: a command that is in flight under the
    same key is not started again, one that is no longer due is cancelled."""

    key: str
    kind: str
    args: Any = None


class Machine(Protocol[S]):
    """Pure: no await, no clock, no I/O. A run's state is the fold of its entries.

    `advance` returns the new state and *everything* that is due in it, so that a driver which
    refolds a log knows what to do without remembering anything.
    """

    kinds: ClassVar[frozenset[str]]
    """The kinds of entries that change the state; others are only for readers."""

    def begin(self) -> S: ...

    def advance(self, state: S, event: Entry) -> tuple[S, Sequence[Command]]: ...

    def finished(self, state: S) -> bool: ...

    def waiting(self, state: S) -> Mapping[str, str]:
        """What is parked on a request: command key -> request id."""
        ...


Performer = Callable[[Any, Command], Awaitable[bool]]


class Driven(Protocol):
    """A run with what carries out its commands; what comes of them is recorded in `live`.

    `steps` has a coroutine function for each kind of command. It is called with this object and the
    command, and gives DONE when the command is no longer due, PARKED when it waits for somebody.
    The live run does not know this object: without a cycle its memory is free when it ends.
    """

    @property
    def live(self) -> LiveRun[Any]: ...

    @property
    def steps(self) -> Mapping[str, Performer]: ...

    async def collect(self) -> bool:
        """Record decisions that were made meanwhile; True if there were any."""
        ...
