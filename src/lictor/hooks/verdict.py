"""Verdicts: what an interceptor answers (§5), and the denies a host makes itself (§11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NoReturn, overload

import orjson

from lictor.errors import ValueDomainError, VerdictInvalid
from lictor.hooks.members import HOST, array, check_reason, check_text, closed, frozen_object, instances
from lictor.values import FrozenDict, canonical_json, freeze

__all__ = ["ALLOW", "Decision", "Evidence", "Transform", "Verdict", "Warning", "host_error", "read_verdict"]

_EVIDENCE_BYTES: Final = 10_240  # §5.3, canonical JSON
_NO_POINTERS: Final[FrozenDict] = freeze({})
_set = object.__setattr__  # verdicts refuse the ordinary way


class Decision(StrEnum):
    """The three decisions (§5.1). A warning is an allow, an escalation a deny with `approval`."""

    ALLOW = "allow"
    DENY = "deny"
    TRANSFORM = "transform"

    @property
    def permits(self) -> bool:
        """Whether the action may proceed."""
        return self is not Decision.DENY


@dataclass(frozen=True, slots=True)
class Transform:
    """Replace the location `path`, rooted at `$target`, by `value`; a missing value means null (§5.2)."""

    path: str
    value: Any = None

    def __post_init__(self) -> None:
        if type(self.path) is not str:
            check_text("transform.path", self.path, optional=False)
        # Frozen here, so that nothing the policy does later changes it. What cannot be frozen is
        # kept, and refused as `context_invalid` when it is to be put into a context (§10.2).
        try:
            _set(self, "value", freeze(self.value))
        except ValueDomainError:
            return


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pointer to something an auditor can verify offline; Lictor never follows it (§5.3)."""

    artefact: str | None = None
    verification_pointers: Mapping[str, str] = field(default_factory=lambda: _NO_POINTERS)

    def __post_init__(self) -> None:
        check_text("evidence.artefact", self.artefact)
        pointers = self.verification_pointers
        if not isinstance(pointers, dict) or not all(
            isinstance(text, str) for item in pointers.items() for text in item
        ):
            raise VerdictInvalid("evidence.verification_pointers must map strings to strings")
        _set(self, "verification_pointers", freeze(dict(pointers)))

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form; absent members are left out."""
        wire: dict[str, Any] = {}
        if self.artefact is not None:
            wire["artefact"] = self.artefact
        if self.verification_pointers:
            wire["verification_pointers"] = dict(self.verification_pointers)
        return wire


@dataclass(frozen=True, slots=True)
class Warning:
    """A recorded concern that changes nothing (§5.1)."""

    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        check_reason("warnings[].reason", self.reason)
        check_text("warnings[].message", self.message)

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form; absent members are left out."""
        return {key: text for key, text in (("reason", self.reason), ("message", self.message)) if text is not None}


class _TransformMember:
    """`Verdict.transform(...)` makes a verdict; `verdict.transform` is its transform block."""

    @overload
    def __get__(self, instance: None, owner: type[Verdict]) -> Callable[..., Verdict]: ...
    @overload
    def __get__(self, instance: Verdict, owner: type[Verdict]) -> Transform | None: ...
    def __get__(self, instance: Verdict | None, owner: type[Verdict]) -> Any:
        return _make_transform if instance is None else instance._transform


class Verdict:
    """An interceptor's answer (§5). Immutable; equal by value.

    Use the constructors named after what they do (`allow`, `deny`, `warn`, `escalate`, `transform`,
    `replace`, `stop`, `retry`), or this one with the members of the wire form.

    Args:
        decision: `Decision` or its wire name.
        reason: machine-readable identifier; must not start with `host_error:`.
        message: text for people. At a tool point the model sees it, so keep content out of it.
        warnings: recorded concerns, allowed on every decision.
        approval: present only on a deny, marks it as liftable (§9).
        transform: present exactly on a transform.
        evidence: pointer to a proof, at most 10,240 canonical bytes.
        result_labels: labels stored with the data that this point lets through (§5.4).

    Raises:
        VerdictInvalid: the members do not fit together (§5).
    """

    __slots__ = (
        "_checked",
        "_transform",
        "approval",
        "control",
        "decision",
        "evidence",
        "message",
        "reason",
        "result_labels",
        "scope",
        "status",
        "warnings",
    )

    decision: Decision
    reason: str | None
    message: str | None
    warnings: tuple[Warning, ...]
    approval: FrozenDict | None
    _transform: Transform | None
    evidence: Evidence | None
    result_labels: tuple[str, ...]
    _checked: bool  # a gate has read it and found nothing wrong
    # Ours, never on the wire: "stop" or "retry" on a plain deny; for a stop, what it ends and how.
    control: str | None
    scope: str | None
    status: str | None

    transform = _TransformMember()

    def __init__(  # noqa: PLR0913 - the members of the wire form, as the SDK's constructor takes them
        self,
        decision: Decision | str,
        reason: str | None = None,
        message: str | None = None,
        warnings: Iterable[Warning] = (),
        approval: Mapping[str, Any] | None = None,
        transform: Transform | None = None,
        evidence: Evidence | None = None,
        result_labels: Iterable[str] = (),
    ) -> None:
        if reason is not None:
            check_reason("reason", reason)
        if message is not None:
            check_text("message", message)
        _set(self, "decision", decision if type(decision) is Decision else _decision(decision))
        _set(self, "reason", reason)
        _set(self, "message", message)
        _set(self, "warnings", instances("warnings", warnings, Warning) if warnings else ())
        _set(self, "approval", None if approval is None else frozen_object("approval", approval))
        _set(self, "_transform", transform)
        _set(self, "evidence", evidence)
        _set(self, "result_labels", instances("result_labels", result_labels, str) if result_labels else ())
        _set(self, "control", None)
        _set(self, "scope", None)
        _set(self, "status", None)
        _set(self, "_checked", False)
        self._check_together()

    def _check_together(self) -> None:
        if self.approval is not None and self.decision is not Decision.DENY:
            raise VerdictInvalid("approval is allowed on a deny only; use Verdict.escalate(reason)")
        if self._transform is not None and not isinstance(self._transform, Transform):
            raise VerdictInvalid("transform must be a Transform(path, value)")
        if (self._transform is not None) is not (self.decision is Decision.TRANSFORM):
            raise VerdictInvalid("a transform block belongs to decision 'transform' and to no other")
        if self.evidence is not None and not isinstance(self.evidence, Evidence):
            raise VerdictInvalid("evidence must be an Evidence(artefact, verification_pointers)")

    # -- constructors ---------------------------------------------------------------------------

    @classmethod
    def allow(cls) -> Verdict:
        """Let the action proceed. The same object as `ALLOW`."""
        return ALLOW

    @classmethod
    def deny(cls, reason: str | None = None, message: str | None = "") -> Verdict:
        """Block the action; nobody can lift it."""
        return cls(Decision.DENY, reason, message or None)

    @classmethod
    def warn(cls, reason: str | None = None, message: str | None = None) -> Verdict:
        """Let the action proceed and record a concern."""
        return cls(Decision.ALLOW, warnings=(Warning(reason, message),))

    @classmethod
    def escalate(
        cls,
        reason: str | None = None,
        message: str | None = "",
        *,
        responders: Sequence[str] = (),
        deadline: float | timedelta | None = None,
        verbs: Sequence[str] | None = None,
    ) -> Verdict:
        """Block the action unless somebody approves it (§5.1, §9).

        Args:
            reason: machine-readable identifier.
            message: text for people.
            responders: who may decide, e.g. `["human:ana", "group:finance"]`; empty means anybody.
            deadline: seconds (or a timedelta) until the request expires.
            verbs: what a responder may do, e.g. `["approve", "reject"]`; None leaves it to the host.
        """
        approval: dict[str, Any] = {}
        if responders:
            approval["responders"] = list(instances("responders", responders, str))
        if deadline is not None:
            approval["deadline"] = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
        if verbs is not None:
            approval["verbs"] = list(instances("verbs", verbs, str))
        return cls(Decision.DENY, reason, message or None, approval=approval)

    @classmethod
    def replace(cls, value: Any, reason: str | None = None) -> Verdict:
        """Let the action proceed with `value` as its whole target."""
        return cls(Decision.TRANSFORM, reason, transform=Transform("$target", value))

    @classmethod
    def stop(
        cls,
        reason: str | None = None,
        message: str | None = "",
        *,
        scope: str = "run",
        status: str = "stopped",
        evidence: Evidence | None = None,
    ) -> Verdict:
        """Block the action and end the run (`scope="run"`) or the team member (`"member"`).

        On the wire and in the record it is a plain deny; ending the run is the host's right (§6.2).
        `status` is the status the run ends with.
        """
        if scope not in ("run", "member"):
            raise VerdictInvalid(f"scope {scope!r} is unknown; use 'run' or 'member'")
        denied = cls(Decision.DENY, reason, message or None, evidence=evidence)
        return _made(denied, control="stop", scope=scope, status=status)

    @classmethod
    def retry(cls, reason: str | None = None, message: str | None = "") -> Verdict:
        """Refuse an `output` and send the agent back to improve it; a plain deny on the wire."""
        return _made(cls.deny(reason, message), control="retry")

    # -- reading --------------------------------------------------------------------------------

    @property
    def liftable(self) -> bool:
        """Whether an approval can turn this deny into a permit (§5.1)."""
        return self.approval is not None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form (§5) as a plain dict; absent members are left out."""
        wire: dict[str, Any] = {"decision": self.decision.value}
        for member in ("reason", "message"):
            if getattr(self, member) is not None:
                wire[member] = getattr(self, member)
        if self.warnings:
            wire["warnings"] = [warning.to_wire() for warning in self.warnings]
        if self.approval is not None:
            wire["approval"] = dict(self.approval)
        if self._transform is not None:
            wire["transform"] = {"path": self._transform.path, "value": self._transform.value}
        if self.evidence is not None:
            wire["evidence"] = self.evidence.to_wire()
        if self.result_labels:
            wire["result_labels"] = list(self.result_labels)
        return wire

    @classmethod
    def from_wire(cls, wire: object) -> Verdict:
        """Read the wire form, refusing everything §5 and its schema refuse.

        Raises:
            VerdictInvalid: it is not a verdict. The message names members and types, never content.
        """
        members = closed("a verdict", wire, _MEMBERS)
        transform = members.get("transform")
        evidence = members.get("evidence")
        verdict = cls(
            _decision(members.get("decision")),
            members.get("reason"),
            members.get("message"),
            [Warning(**closed("warnings[]", each, _WARNING)) for each in array("warnings", members)],
            members.get("approval"),
            None if transform is None else _read_transform(transform),
            None if evidence is None else Evidence(**closed("evidence", evidence, _EVIDENCE)),
            array("result_labels", members),
        )
        return read_verdict(verdict)

    # -- value semantics ------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a verdict is immutable; make a new one instead of setting {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a verdict is immutable; make a new one instead of deleting {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Verdict):
            return NotImplemented
        return all(getattr(self, member) == getattr(other, member) for member in _STATE)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = self.to_wire()
        if self._transform is not None:
            shown["transform"] = {"path": self._transform.path}  # the value is payload
        if self.control is not None:
            shown["control"] = self.control
        return f"Verdict({shown})"

    def __copy__(self) -> Verdict:
        return self

    def __deepcopy__(self, memo: object) -> Verdict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (tuple(getattr(self, member) for member in _STATE),)


_MEMBERS: Final = ("decision", "reason", "message", "warnings", "approval", "transform", "evidence", "result_labels")
_WARNING: Final = ("reason", "message")
_EVIDENCE: Final = ("artefact", "verification_pointers")
_STATE: Final = tuple(slot for slot in Verdict.__slots__ if slot != "_checked")


def _made(verdict: Verdict, **members: Any) -> Verdict:
    """Return a verdict like this one with other members, unchecked."""
    return _restore(tuple(members.get(member, getattr(verdict, member)) for member in _STATE))


def _restore(state: tuple[Any, ...]) -> Verdict:
    verdict = object.__new__(Verdict)
    for member, value in zip(_STATE, state, strict=True):
        _set(verdict, member, value)
    _set(verdict, "_checked", False)
    return verdict


def _make_transform(path: str, value: Any = None, reason: str | None = None) -> Verdict:
    """Let the action proceed with the location `path` (rooted at `$target`) replaced by `value`."""
    return Verdict(Decision.TRANSFORM, reason, transform=Transform(path, value))


def host_error(reason: str, message: str | None = None, *, liftable: bool = False) -> Verdict:
    """Return the deny a host substitutes (§11); `message` holds type names, never content."""
    made = _made(_LIFTABLE if liftable else _PLAIN, reason=reason, message=message)
    _set(made, "_checked", True)
    return made


def is_host_error(verdict: Verdict) -> bool:
    """Tell whether the host made this verdict itself."""
    return verdict.reason is not None and verdict.reason.startswith(HOST)


def with_unions(verdict: Verdict, warnings: tuple[Warning, ...], labels: tuple[str, ...]) -> Verdict:
    """Return `verdict` as the combined one, carrying the unions of its emission (§7.3)."""
    if verdict.warnings == warnings and verdict.result_labels == labels:
        return verdict
    return _made(verdict, warnings=warnings, result_labels=labels)


def read_verdict(value: object) -> Verdict:
    """Return what an interceptor or resolver gave as a valid verdict (§5).

    Takes our verdicts, wire dicts and objects with `to_wire()` (the SDK's verdicts).

    Raises:
        VerdictInvalid: it is none of these, or breaks a rule of §5, §5.3 or §4.4.
    """
    if not isinstance(value, Verdict):
        if isinstance(value, dict):
            return Verdict.from_wire(value)
        to_wire = getattr(value, "to_wire", None)
        if callable(to_wire) and not isinstance(value, type):
            return Verdict.from_wire(to_wire())
        raise VerdictInvalid(f"{type(value).__name__} is not a verdict; return ALLOW or a Verdict")
    if not value._checked:
        _check_domain(value)
        _set(value, "_checked", True)
    return value


def _check_domain(verdict: Verdict) -> None:
    """Check what can only be seen in bytes: the JSON domain, lone surrogates, the size of evidence."""
    try:
        orjson.dumps([verdict.reason, verdict.message, verdict.result_labels])
        if verdict.warnings:
            orjson.dumps([warning.to_wire() for warning in verdict.warnings])
        size = 0 if verdict.evidence is None else len(canonical_json(verdict.evidence.to_wire()))
    except ValueDomainError as error:
        raise VerdictInvalid(f"a member is outside the JSON domain: {error.problem}") from None
    except orjson.JSONEncodeError:
        raise VerdictInvalid("a text holds a lone surrogate") from None
    if size > _EVIDENCE_BYTES:
        raise VerdictInvalid(f"evidence has {size} canonical bytes; {_EVIDENCE_BYTES} are allowed (§5.3)")


def _decision(value: object) -> Decision:
    if isinstance(value, str):
        with suppress(ValueError):
            return Decision(value)
    raise VerdictInvalid("decision must be one of allow, deny, transform (§5.1)")


def _read_transform(wire: object) -> Transform:
    members = closed("transform", wire, ("path", "value"))
    if "path" not in members:
        raise VerdictInvalid("transform.path is missing")
    return Transform(members["path"], members.get("value"))


ALLOW: Final = Verdict(Decision.ALLOW)
_PLAIN: Final = Verdict(Decision.DENY)
_LIFTABLE: Final = Verdict(Decision.DENY, approval={})
