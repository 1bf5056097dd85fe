"""What tokens cost, where the user says so."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Price"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of one model in US dollars per million tokens.

    Lictor ships no price list: it would be wrong within weeks. Without a Price the cost is 0.0.

    Arguments:
        input: for input tokens.
        output: for output tokens.
        cached: for input tokens that the provider had cached; None charges them as input.
    """

    input: float
    output: float
    cached: float | None = None

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """US dollars for one request; `cached_tokens` are part of `input_tokens`."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(input_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * cached + output_tokens * self.output) / 1_000_000
