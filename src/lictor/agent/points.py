"""The eight points of one agent run: build the context, run the gate, record the verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from lictor.errors import ValueDomainError
from lictor.hooks import Context, ContextBuilder, Emission, Gate
from lictor.runs import LiveRun
from lictor.values import freeze

__all__ = ["COMPOSED", "Points", "changed", "decider", "is_host_error", "namespace_of", "terminates"]

TOOL_POINTS = ("pre_tool_call", "post_tool_call")
# §7.5: these are decisions of the composition, not failures of the machinery.
COMPOSED = frozenset({"host_error:transform_conflict", "host_error:composition_disagreement"})


class Points:
    """Emits for one run. `base` is what every context carries under `extensions.lictor`."""

    __slots__ = ("_base", "_live", "_spaces", "builder", "gate")

    def __init__(
        self, gate: Gate, builder: ContextBuilder, live: LiveRun[Any], base: Mapping[str, Any], resolver: Any = None
    ) -> None:
        self.gate = gate if resolver is None else gate.resolving(resolver)
        self.builder = builder
        self._live = live
        self._base = base
        self._spaces: dict[str, Any] = {}
        builder.extensions = freeze({"lictor": dict(base)})

    def relabel(self, labels: Mapping[str, tuple[str, ...]]) -> None:
        """Resurface result labels as `extensions.<interceptor>.source_labels` (§5.4)."""
        self._spaces = {namespace_of(name): {"source_labels": list(values)} for name, values in labels.items()}
        self.builder.extensions = self._extended({})

    async def emit(
        self,
        build: Callable[..., Context],
        *fields: Any,
        resolver: Any = None,
        more: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Emission:
        """Emit the point that `build`, a method of the builder, makes from `fields` and `options`.

        `resolver` takes the place of the run's for this emission (a store that fails it is no verdict and is
        raised), `more` is added to `extensions.lictor`. A context that cannot be built is a recorded deny
        `host_error:context_invalid` (§6.3, §10.3).
        """
        interrupted: BaseException | None = None
        try:
            if more is not None:
                options["extensions"] = self._extended(more)
            context = build(*fields, **options)
        except ValueDomainError as exc:
            sequence = self.builder.take_sequence()
            emission = await self.gate.record_host_failure(build.__name__, self._live.run_id, sequence, message=exc)
        else:
            gate = self.gate if resolver is None else self.gate.resolving(resolver)
            try:
                emission = await gate.emit(context)
            except BaseException as exc:  # cancelled while a policy thought: the log has that record too (§6.3)
                if not hasattr(exc, "emission"):
                    raise
                interrupted, emission = exc, getattr(exc, "emission")  # noqa: B009 - not a declared attribute
        if resolver is not None and resolver.failure is not None:
            raise resolver.failure
        record = emission.record
        by = None if record["decided_by"] is None else decider(emission)
        live = self._live
        payload = {"record": record, "by": by}
        if record["interception_point"] in TOOL_POINTS:
            payload["call"] = fields[0]
        live.record("verdict", payload, live.clock.stamped or None)
        if interrupted is not None:
            raise interrupted
        return emission

    async def refuse(self, reason: str, build: Callable[..., Context], *fields: Any) -> Emission:
        """Record the host's own deny at a point; nobody is asked (§11, §12.1)."""
        try:
            context = build(*fields)
        except ValueDomainError as exc:
            sequence = self.builder.take_sequence()
            emission = await self.gate.record_host_failure(build.__name__, self._live.run_id, sequence, message=exc)
        else:
            emission = await self.gate.refuse(context, reason)
        self._live.record("verdict", {"record": emission.record, "by": None})
        return emission

    def _extended(self, more: Mapping[str, Any]) -> Any:
        return freeze({**self._spaces, "lictor": {**self._base, **more}})


def decider(emission: Emission) -> str | None:
    """Qualified name of the interceptor that decided, if one did."""
    record = emission.record
    index = record.get("decided_by")
    if index is None:
        return None
    verdicts = record.get("verdicts") or ()
    return next((slot.get("name") for slot in verdicts if slot["index"] == index), None)


def namespace_of(name: str) -> str:
    """The extension namespace of an interceptor (§4.6: `^[a-z][a-z0-9_]*$`) from its qualified name."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.rpartition("/")[2].lower()).strip("_")
    return plain if plain[:1].isalpha() else f"x_{plain}"


def changed(emission: Emission) -> bool:
    """Whether the target may differ from what was given: a transform, also one below a deny that was lifted (§9)."""
    return emission.verdict.decision == "transform" or emission.denies != ()


def is_host_error(reason: str | None) -> bool:
    """Whether a deny is a failure of enforcement itself, which `posture` decides about (seed 003)."""
    return reason is not None and reason.startswith("host_error:") and reason not in COMPOSED


def terminates(reason: str | None, posture: str) -> bool:
    """Whether a deny at a tool ends the run (§6.2, §13.1)."""
    if posture == "terminate_all":
        return reason is not None and reason.startswith("host_error:")
    return posture == "terminate" and is_host_error(reason)
