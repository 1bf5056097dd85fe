"""How sure a model was of each token it wrote, as the API says it."""

from __future__ import annotations

import math

from lictor.models.messages import well_formed
from lictor.models.protocol import TokenLogprob
from lictor.models.untrusted import fields, items, text

__all__ = ["token_logprobs"]


def token_logprobs(given: object) -> list[TokenLogprob]:
    """The tokens in the `logprobs` of a choice; what has no token or no number is left out."""
    found = []
    for item in map(fields, items(fields(given).get("content"))):
        here, top = _pairs([item]), _pairs(items(item.get("top_logprobs")))
        found += [TokenLogprob(token, logprob, tuple(top)) for token, logprob in here]
    return found


def _pairs(listed: list[object]) -> list[tuple[str, float]]:
    pairs = []
    for item in map(fields, listed):
        logprob = item.get("logprob")
        if isinstance(logprob, int | float) and not isinstance(logprob, bool) and not math.isnan(logprob):
            pairs.append((well_formed(text(item.get("token"))), float(logprob)))
    return pairs
