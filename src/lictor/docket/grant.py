"""A standing approval for the same arguments."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Grant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An approval that also covers later calls with the same arguments; listed and revocable.

    `key` binds it to conversation (or root run), tool, arguments and policy fingerprint.
    """

    id: str
    key: str
    conversation: str
    tool: str
    request: str
    by: str
    created: float
    revoked: bool = False
