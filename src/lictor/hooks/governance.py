"""Governance: how a run is governed, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lictor.errors import DefinitionError
from lictor.hooks.compose import Composition
from lictor.hooks.identity import JCS, IdentityProvider, identifier
from lictor.hooks.options import MODES, choice, composition_of, function, resolve_of, seconds

__all__ = ["Governance"]

_POSTURES: Final = ("terminate", "continue", "terminate_all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Governance:
    """The host's choices for a run (§7.1, §8, §13.1); only the outermost one counts.

    Args:
        mode: `enforce` or `evaluate_only`; the latter covers policies, limits keep enforcing.
        composition: a `Composition` or a profile's name; runs default to `sequential/run_all`.
        timeout: seconds for an awaitable or blocking interceptor; None for no limit.
        resolver_timeout: seconds for an awaitable resolver; None for no limit.
        identity: `"jcs-sha256"`, an `IdentityProvider`, or None.
        posture: what a failure of enforcement at a tool does: `terminate` the run or `continue`.
            `terminate_all` is §13.1's `terminate` to the letter: what policies composed
            (`transform_conflict`, `composition_disagreement`) ends the run too.
        redactor: makes the context a resolver is shown.
        record_sink: gets every interception record, sync or async.
        sink_required: an undelivered record blocks.
        sink_timeout: seconds for an async sink.
        resolver: callable or object with `resolve` that may lift liftable denies.

    Raises:
        DefinitionError: an option is wrong; the message names it and what to use.
    """

    mode: str = "enforce"
    composition: Composition | str = "sequential/run_all"
    timeout: float | None = 5.0
    resolver_timeout: float | None = None
    identity: str | IdentityProvider | None = JCS
    posture: str = "terminate"
    redactor: Callable[[Any], Any] | None = None
    record_sink: Callable[[Mapping[str, Any]], Any] | None = None
    sink_required: bool = False
    sink_timeout: float | None = 5.0
    resolver: Any = None

    def __post_init__(self) -> None:
        choice("mode", self.mode, MODES)
        choice("posture", self.posture, _POSTURES)
        object.__setattr__(self, "composition", composition_of(self.composition))
        identifier(self.identity, None)
        for name in ("timeout", "resolver_timeout", "sink_timeout"):
            seconds(name, getattr(self, name))
        for name in ("redactor", "record_sink"):
            function(name, getattr(self, name))
        resolve_of(self.resolver)
        if self.sink_required and self.record_sink is None:
            raise DefinitionError("sink_required=True needs a record_sink")
