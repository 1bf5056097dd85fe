"""Who decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lictor.errors import DefinitionError

__all__ = ["Actor"]

KINDS = ("human", "agent", "policy", "timer", "runtime", "os", "service")


@dataclass(frozen=True, slots=True)  # budget: Actor("human", "ana") reads better than with keywords
class Actor:
    """A party: `Actor("human", "ana", groups=("finance",))`, or the text `human:ana`.

    Arguments:
        kind: one of human, agent, policy, timer, runtime, os, service.
        id: the name within the kind.
        groups: names of groups, without `group:`; only the caller that authenticated the actor sets them.
        via: the door the decision came through (library, cli, web, …).
    """

    kind: str
    id: str
    groups: tuple[str, ...] = ()
    via: str = "library"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not self.id:
            raise DefinitionError(f"actor {self.kind}:{self.id!r}: write KIND:ID with KIND one of {', '.join(KINDS)}")

    @classmethod
    def of(cls, by: Actor | str) -> Actor:
        """An actor from its text form; raises DefinitionError on anything else."""
        if isinstance(by, Actor):
            return by
        kind, _, name = by.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def matches(self, responders: Sequence[str]) -> bool:
        """Whether one of `responders` (`human:ana`, `human:*`, `group:finance`, `*`) names this actor."""
        names = {"*", str(self), f"{self.kind}:*", *(f"group:{group}" for group in self.groups)}
        return any(responder in names for responder in responders)
