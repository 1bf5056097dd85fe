"""What a run consumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["NO_USAGE", "Usage"]


@dataclass(frozen=True, slots=True)  # budget: summed on the hot path, by position
class Usage:
    """Tokens, provider requests, retries, tool calls and cost in US dollars; sums with `+`.

    `cached_tokens` are part of `input_tokens`. `cost_usd` is 0.0 where no price is known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    retries: int = 0
    tool_calls: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.requests + other.requests,
            self.retries + other.retries,
            self.tool_calls + other.tool_calls,
            self.cost_usd + other.cost_usd,
        )

    def json(self) -> dict[str, Any]:
        """The numbers under the names of the API, `total_tokens` included."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "requests": self.requests,
            "retries": self.retries,
            "tool_calls": self.tool_calls,
            "cost_usd": self.cost_usd,
        }

    @classmethod
    def of(cls, payload: Mapping[str, Any] | None) -> Usage:
        """Back from a stored payload; missing numbers are zero."""
        if not payload:
            return NO_USAGE
        return cls(
            payload.get("input_tokens", 0),
            payload.get("output_tokens", 0),
            payload.get("cached_tokens", 0),
            payload.get("requests", 0),
            payload.get("retries", 0),
            payload.get("tool_calls", 0),
            payload.get("cost_usd", 0.0),
        )


NO_USAGE = Usage()
