"""The chain of one run's entries: each hash covers the one before it (20-durability, audit).

`hash = H(previous hash, place, kind, version, digest of the payload)`; a payload may be erased
later and its digest stays. The place of an entry is its root, run, both numbers and its time; entries
of version 1 cover run and number only. With a key, hash and digest are keyed (HMAC), so that nobody
without it can write a chain anew.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeAlias

__all__ = ["START", "VERSION", "VERSIONS", "Place", "digest_of", "key_mark", "link", "relink"]

START = b"\0" * 32
VERSION = 2
VERSIONS = (1, 2)


Place: TypeAlias = "tuple[str, int, str, int, str, float]"
"""Where an entry stands, and when it was made: root, cursor, run, seq, kind, at."""

_sha256 = hashlib.sha256


def _hash(data: bytes, key: bytes | None) -> bytes:
    return hashlib.sha256(data).digest() if key is None else hmac.digest(key, data, "sha256")


def digest_of(payload: bytes, key: bytes | None = None) -> bytes:
    """The digest of a payload as it is stored."""
    return _hash(payload, key)


def key_mark(key: bytes | None) -> str:
    """What a store keeps to tell one key from another; the key cannot be had from it. Empty without a key."""
    return "" if key is None else hmac.digest(key, b"lictor audit key", "sha256").hex()


def link(prev: bytes, place: Place, payload: bytes, key: bytes | None = None) -> tuple[bytes, bytes]:
    """Digest and hash of an entry behind the one whose hash is `prev`; the hot path of a store."""
    root, cursor, run, seq, kind, at = place
    head = f"{root}\n{cursor}\n{run}\n{seq}\n{kind}\n{VERSION}\n{float(at)!r}\n".encode()
    if key is not None:
        digest = hmac.digest(key, payload, "sha256")
        return digest, hmac.digest(key, prev + head + digest, "sha256")
    digest = _sha256(payload).digest()
    return digest, _sha256(prev + head + digest).digest()


def relink(prev: bytes, place: Place, digest: bytes, key: bytes | None = None, version: int = VERSION) -> bytes:
    """The hash an entry must have, from the digest of its payload alone."""
    root, cursor, run, seq, kind, at = place
    if version == 1:
        head = f"{run}\n{seq}\n{kind}\n1\n"
    else:
        head = f"{root}\n{cursor}\n{run}\n{seq}\n{kind}\n{version}\n{float(at)!r}\n"
    return _hash(prev + head.encode() + digest, key)
