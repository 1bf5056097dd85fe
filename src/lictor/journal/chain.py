"""The chain of one run's entries: each hash covers the one before it (20-durability, audit).

`hash = H(previous hash, run, seq, kind, version, digest of the payload)`; a payload may be erased
later and its digest stays. With a key, hash and digest are keyed (HMAC), so that nobody without it
can write a chain anew.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

__all__ = ["START", "VERSION", "Link", "digest_of", "link", "relink"]

START = b"\0" * 32
VERSION = 1


class Link(NamedTuple):
    """What the chain adds to an entry."""

    digest: bytes
    prev: bytes
    hash: bytes


def _hash(data: bytes, key: bytes | None) -> bytes:
    return hashlib.sha256(data).digest() if key is None else hmac.new(key, data, hashlib.sha256).digest()


def digest_of(payload: bytes, key: bytes | None = None) -> bytes:
    """The digest of a payload as it is stored."""
    return _hash(payload, key)


def link(prev: bytes, run: str, seq: int, kind: str, payload: bytes, key: bytes | None = None) -> Link:
    """The link of an entry behind the one whose hash is `prev`."""
    digest = digest_of(payload, key)
    return Link(digest, prev, relink(prev, run, seq, kind, digest, key))


def relink(prev: bytes, run: str, seq: int, kind: str, digest: bytes, key: bytes | None = None) -> bytes:
    """The hash an entry must have, from the digest of its payload alone."""
    head = f"{run}\n{seq}\n{kind}\n{VERSION}\n".encode()
    return _hash(prev + head + digest, key)
