"""Every exception of Lictor, in one place.

::

    LictorError
    ├── DefinitionError            an agent, tool, policy or option is wrong as written
    │   ├── DefinitionConflict     two different definitions under one name
    │   └── DefinitionNotFound     a stored run names a definition this process lacks
    ├── PolicyChanged              the policy differs from the one a run was started under
    ├── NotResumable               a terminal run that cannot have another attempt
    ├── NotSerializable            a value that must be stored is not JSON
    ├── ConversationBusy           another run owns the conversation
    ├── StoreError                 the store failed
    │   ├── LostLease              another driver took the run over; this one may do nothing more
    │   ├── NewerSchema            the store was written by a newer version
    │   └── OlderSchema            the store must be migrated first
    ├── ValueDomainError           a value outside the JSON domain of the contract (§4.4)
    ├── PathError                  a transform path that cannot be applied (§5.2)
    ├── VerdictInvalid             a verdict that fails validation (§5)
    ├── ModelError                 a model call failed
    ├── ToolArgumentsInvalid       arguments that do not fit a tool's schema
    ├── ToolError                  raised by a tool to say why it has no result
    ├── RunAborted                 raised by a tool or wrap to end the run as failed
    ├── InterceptionBlocked        a verdict ended the run
    ├── InvariantBroken            a test found that a run broke a promise of Lictor
    └── DecisionRefused            a decision on a request was not taken
        ├── AlreadyDecided
        ├── Expired
        ├── WrongParty
        ├── WrongKind
        ├── WrongVerb
        ├── StaleEpoch
        ├── DigestMismatch
        └── UnknownRequest

    SimulatedCrash (BaseException)  a test's crash point: nothing may catch it and go on

Messages say what is wrong, with the offending value quoted, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = [
    "AlreadyDecided",
    "ConversationBusy",
    "DecisionRefused",
    "DefinitionConflict",
    "DefinitionError",
    "DefinitionNotFound",
    "DigestMismatch",
    "Expired",
    "InterceptionBlocked",
    "InvariantBroken",
    "LictorError",
    "LostLease",
    "ModelError",
    "NewerSchema",
    "NotResumable",
    "NotSerializable",
    "OlderSchema",
    "PathError",
    "PolicyChanged",
    "RunAborted",
    "SimulatedCrash",
    "StaleEpoch",
    "StoreError",
    "ToolArgumentsInvalid",
    "ToolError",
    "UnknownRequest",
    "ValueDomainError",
    "VerdictInvalid",
    "WrongKind",
    "WrongParty",
    "WrongVerb",
]


class VerdictLike(Protocol):
    """What this room needs to know of a verdict."""

    @property
    def reason(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...


class EmissionLike(Protocol):
    """What this room needs to know of an emission (its class lives in `lictor.hooks`)."""

    @property
    def verdict(self) -> VerdictLike: ...
    @property
    def record(self) -> Mapping[str, object]: ...


class LictorError(Exception):
    """Root of everything Lictor raises on purpose."""


class DefinitionError(LictorError):
    """A definition is wrong as written; raised where it is written, never later."""


class DefinitionConflict(DefinitionError):
    """Two different definitions were registered under one name."""


class DefinitionNotFound(DefinitionError):
    """A stored run names a definition that this process does not have."""


class PolicyChanged(LictorError):
    """The policy of a run differs from the one it was started under.

    `changes` holds one line for each difference. Resume with `accept_policy_change=True`
    to go on; undecided and unconsumed approvals are then asked again.
    """

    def __init__(self, changes: Sequence[str]) -> None:
        self.changes = tuple(changes)
        super().__init__(
            "the policy changed since this run was started: "
            + "; ".join(self.changes)
            + " (pass accept_policy_change=True to go on under the new one)"
        )


class NotResumable(LictorError):
    """The run is over and may not have another attempt."""


class NotSerializable(LictorError):
    """A value that has to be stored is not JSON. `path` says where it sits."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path} cannot be stored: {problem}")


class ConversationBusy(LictorError):
    """Another run owns the conversation until it ends."""


class StoreError(LictorError):
    """The store failed; nothing half-done is visible."""


class LostLease(StoreError):
    """Another driver took the run over; this one may do nothing more."""


class NewerSchema(StoreError):
    """The store was written by a newer Lictor; upgrade this process."""


class OlderSchema(StoreError):
    """The store has an older schema; migrate it first."""


class ValueDomainError(LictorError, ValueError):
    """A value outside the JSON domain of the contract (§4.4, §10.2).

    `path` addresses the value (`$` is the root), `problem` names type or rule, never content.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class PathError(LictorError, ValueError):
    """A transform path that cannot be applied (§5.2). `reason` is the `host_error:*` to record."""

    def __init__(self, reason: str, problem: str) -> None:
        self.reason = reason
        super().__init__(problem)


class VerdictInvalid(LictorError, ValueError):
    """An interceptor or resolver returned something that is not a verdict (§5)."""


class ModelError(LictorError):
    """A model call failed.

    `code` is a short stable word (`rate_limit`, `server_error`, `connect`, `timeout`, `bad_request`,
    `auth`, `stream_cut`, …), `status` the HTTP status if there was one, `retry_after` seconds if the
    provider said so, `retryable` whether the same request may be sent again. `usage` is the
    `lictor.Usage` of the attempt as far as the provider told it before it failed, else None; the loop
    books it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        retryable: bool = False,
        usage: object = None,
    ) -> None:
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.retryable = retryable
        self.usage = usage
        super().__init__(message)


class ToolArgumentsInvalid(LictorError, ValueError):
    """Arguments that do not fit a tool's schema. `problems` are lines a model can act on."""

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.tool = tool
        self.problems = tuple(problems)
        super().__init__(f"arguments of {tool!r} are invalid: " + "; ".join(self.problems))


class ToolError(LictorError):
    """Raise it from a tool to say why there is no result: the model gets `reason` and `message` as they are.

    `kind` is `tool_failed`, `not_run` (nothing happened) or `unknown` (it may have run); `more` is JSON that
    stands beside. Any other exception is `tool_failed` with its class name as the reason.
    """

    def __init__(self, reason: str, message: str = "", *, kind: str = "tool_failed", **more: object) -> None:
        if kind not in ("tool_failed", "not_run", "unknown"):
            raise ValueError(f"kind={kind!r}: use 'tool_failed', 'not_run' or 'unknown'")
        self.reason = reason
        self.message = message
        self.kind = kind
        self.more = more
        super().__init__(message or reason)


class RunAborted(LictorError):
    """Raise it from a tool or a wrap to end the run as `failed`.

    It cancels sibling calls and is never turned into a tool result (seed 003, MiddlewareFailure).
    """

    def __init__(self, cause: BaseException | str) -> None:
        self.cause = cause
        super().__init__(cause if isinstance(cause, str) else type(cause).__name__)


class InterceptionBlocked(LictorError):
    """A verdict ended the run (seed 003).

    `result` is the Emission (`exc.result.verdict.reason`), `run` the RunResult. Neither holds what
    was denied.
    """

    def __init__(self, result: EmissionLike, run: object = None) -> None:
        self.result = result
        self.run = run
        verdict = result.verdict
        super().__init__(
            f"blocked: {verdict.reason or 'denied'}" + (f" ({verdict.message})" if verdict.message else "")
        )


class InvariantBroken(LictorError, AssertionError):
    """A check of `lictor.testing` failed; it is an AssertionError, so that a test counts it as a failure.

    `problems` are lines for people.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(what + "".join(f"\n  - {problem}" for problem in self.problems))


class DecisionRefused(LictorError):
    """A decision was not taken; nothing changed, the attempt is recorded.

    `status` is the request's status, `resolution` the decision that stands (if any),
    `http_status` what a web layer answers.
    """

    http_status = 409

    def __init__(self, message: str, *, status: str | None = None, resolution: object = None) -> None:
        self.status = status
        self.resolution = resolution
        super().__init__(message)

    def json(self) -> dict[str, object]:
        """As a JSON object, for a web layer: `error` (the type), `message`, `status`, `resolution`."""
        done = getattr(self.resolution, "json", None)
        resolution = done() if done is not None else None
        return {"error": type(self).__name__, "message": str(self), "status": self.status, "resolution": resolution}


class AlreadyDecided(DecisionRefused):
    """The request was decided before, differently."""


class Expired(DecisionRefused):
    """The deadline passed before the decision."""

    http_status = 410


class WrongParty(DecisionRefused):
    """This actor may not decide this request."""

    http_status = 403


class WrongKind(DecisionRefused):
    """The decision belongs to another kind of request."""

    http_status = 422


class WrongVerb(DecisionRefused):
    """The verb is not allowed on this request."""

    http_status = 422


class StaleEpoch(DecisionRefused):
    """The request belongs to an earlier revision."""


class DigestMismatch(DecisionRefused):
    """What was decided is not what was shown."""


class UnknownRequest(DecisionRefused):
    """There is no request with this id."""

    http_status = 404


class SimulatedCrash(BaseException):
    """A crash point that a test armed was reached; stands for SIGKILL within one process."""
