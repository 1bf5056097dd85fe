"""Context identity: which bytes a verdict or an approval was about (§10.1, §10.2)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from operator import is_
from typing import Any, Final, NamedTuple, TypeAlias

from lictor.errors import DefinitionError, ValueDomainError
from lictor.hooks.context import Context, plain_copy, read_context
from lictor.hooks.projection import CallPieces, call_pieces, preimage

__all__ = ["JCS", "Identify", "IdentityProvider", "context_identity", "identifier", "jcs_identity", "keyed_identity"]

JCS: Final = "jcs-sha256"
_NAME: Final = re.compile(r"(?!jcs)[a-z][a-z0-9_-]*")
_KEY_ID: Final = re.compile(r"[a-z0-9_-]+")
_MANY: Final = 15  # messages from which it pays to hash pieces instead of joining them
_EMPTY: Final = sha256()  # never written to: a copy costs less than having OpenSSL look the algorithm up again
_WORTH_A_PREFIX: Final = 16_384  # bytes of messages from which resuming a hash is cheaper than redoing it

Identify: TypeAlias = Callable[[Context], str | None]


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """A host-defined identity (§10.1).

    Args:
        name: goes on every record; lowercase, must not begin with `jcs`.
        fn: pure function of the context to a string. It gets its own plain copy.

    Raises:
        DefinitionError: the name is not allowed or `fn` cannot be called.
    """

    name: str
    fn: Callable[[Any], Any]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(str(self.name)):
            raise DefinitionError(
                f"identity provider name {self.name!r}: use lowercase letters, digits, '_' and '-', "
                "beginning with a letter and not with 'jcs' (§10.1)"
            )
        if not callable(self.fn):
            raise DefinitionError(f"identity provider {self.name!r} needs a function of the context")

    def identify(self, context: Context) -> str:
        """Return the identity of `context`.

        Raises:
            ValueDomainError: the function raised or did not return a string, which fails closed (§10.1).
        """
        try:
            identity = self.fn(context if isinstance(self.fn, _Keyed) else plain_copy(context))
        except Exception as error:  # noqa: BLE001 - whatever a provider raises fails closed (§10.1)
            raise ValueDomainError("$", f"identity provider {self.name} raised {type(error).__name__}") from None
        if type(identity) is not str:
            close = getattr(identity, "close", None)
            if callable(close):
                close()  # a coroutine nobody will await
            raise ValueDomainError("$", f"identity provider {self.name} returned {type(identity).__name__}")
        return identity


class _Keyed:
    """Ours: reads the frozen context, so it needs no copy of its own."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, context: Context) -> str:
        return hmac.new(self._key, preimage(context), sha256).hexdigest()


def keyed_identity(key_id: str, key: bytes) -> IdentityProvider:
    """Return a provider named `hmac-sha256-<key_id>`.

    Its identities depend on the content, but nobody without the key can link them to it (§10.1).
    """
    if not _KEY_ID.fullmatch(str(key_id)):
        raise DefinitionError(f"key id {key_id!r}: use lowercase letters, digits, '_' and '-'")
    if type(key) is not bytes or not key:
        raise DefinitionError("keyed_identity needs the key as bytes")
    return IdentityProvider(f"hmac-sha256-{key_id}", _Keyed(key))


def context_identity(context: Mapping[str, Any], *, compat: str | None = None) -> str:
    """Return the `jcs-sha256` identity of a context (§10.2).

    Args:
        context: a `Context` or a dict with the members of §4.
        compat: see `canonical_json`.

    Raises:
        ValueDomainError: the context is invalid or outside the JSON domain.
    """
    known = context if isinstance(context, Context) else read_context(context, aliased=False)
    return jcs_identity(known) if compat is None else _compat_identity(known, compat)


def identifier(identity: str | IdentityProvider | None, compat: str | None) -> tuple[str | None, Identify]:
    """Return what a host declared: the name for records and the function for contexts (§10.1).

    Whatever the provider, the function raises `ValueDomainError` for a context outside the domain.
    """
    if compat not in (None, "agent-hooks-sdk"):
        raise DefinitionError(f"compat={compat!r}: use None or 'agent-hooks-sdk'")
    if isinstance(identity, IdentityProvider):
        return identity.name, _after_check(identity.identify)
    if identity is None:
        return None, _after_check(lambda context: None)
    if identity != JCS:
        raise DefinitionError(f"identity={identity!r}: use 'jcs-sha256', an IdentityProvider, or None")
    if compat is None:
        return JCS, jcs_identity
    return JCS, lambda context: _compat_identity(context, compat)


def _after_check(identify: Identify) -> Identify:
    def checked(context: Context) -> str | None:
        preimage(context)
        return identify(context)

    return checked


def _compat_identity(context: Context, compat: str) -> str:
    return "sha256:" + sha256(preimage(context, compat)).hexdigest()


def jcs_identity(context: Context) -> str:
    """Return the `jcs-sha256` identity of a context, kept on it."""
    known = context._jcs
    if known is not None:
        return known
    if (
        context["interception_point"] == "pre_model_call"
        and context["messages"] is context["target"]
        and context["target"][_MANY:]
    ):
        identity = _call_identity(context)
    else:
        state = _EMPTY.copy()
        state.update(preimage(context))
        identity = "sha256:" + state.hexdigest()
    context._jcs = identity
    return identity


# ---- long histories ---------------------------------------------------------------------------


class _Prefix(NamedTuple):
    """The hash of a preimage up to and including `messages`."""

    messages: list[Any]
    state: Any


def _call_identity(context: Context) -> str:
    pieces = call_pieces(context)
    if len(pieces.messages) < _WORTH_A_PREFIX:
        state = sha256(pieces.opening + pieces.messages)
    else:
        state = _resumed(context, pieces)
    state.update(pieces.middle)
    state.update(pieces.messages)
    state.update(pieces.closing)
    return "sha256:" + state.hexdigest()


def _resumed(context: Context, pieces: CallPieces) -> Any:
    """Hash opening and messages, going on from where the session's last call stood if it can.

    The messages come before everything that differs between two calls, so a history that only grew
    needs its new messages hashed once. Frozen messages that are the same objects are the same bytes.
    """
    head = context._head
    messages = context["messages"]
    known: _Prefix | None = head.prefix
    if known and len(known.messages) <= len(messages) and all(map(is_, known.messages, messages)):
        state = known.state.copy()
        for message in messages[len(known.messages) :]:
            state.update(b"," + message._canon)
    else:
        state = sha256(pieces.opening)
        state.update(pieces.messages)
    head.prefix = _Prefix(messages, state.copy())
    return state
