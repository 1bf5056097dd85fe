"""Whom a run is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["User"]


@dataclass(frozen=True, slots=True)
class User:
    """Who a run is for, as of its start. `attributes` is JSON; look live roles up in `deps`."""

    id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
