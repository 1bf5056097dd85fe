"""Limits of a run as they reach the wire: tokens, seconds, money."""

from __future__ import annotations

from typing import Any

import pytest
from driving import both_ways
from overwire import BOTH, CALLS, DONE, served

from lictor import Budget
from lictor.testing import PAUSE, HttpReply
from lictor.testing.wire import chunk, sse, usage

pytestmark = pytest.mark.wire
SILENT = HttpReply(parts=[PAUSE])


@both_ways
@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, {"max_tokens": 4096}),
        ({"max_tokens": 50}, {"max_tokens": 50}),
        ({"max_completion_tokens": 50}, {"max_completion_tokens": 50}),
    ],
)
async def test_a_budget_bounds_every_request(how: str, settings: Any, sent: Any) -> None:
    """Under a budget of tokens each request says how long its answer may be, under one name only."""
    done = await served([CALLS, DONE], how, settings=settings, budget=Budget(max_total_tokens=20_000))
    assert (done.outcome, sorted(done.ran)) == (("completed", None), BOTH)
    for request in done.requests:
        assert {key: value for key, value in request.items() if key.startswith("max_")} == sent


@both_ways
async def test_a_limit_that_does_not_fit_the_budget_makes_no_request(how: str) -> None:
    """What an answer may cost is set aside before it is asked for."""
    done = await served([DONE], how, settings={"max_completion_tokens": 500}, budget=Budget(max_total_tokens=400))
    assert (done.outcome, done.requests) == (("exhausted", "budget:max_total_tokens"), [])


@both_ways
@pytest.mark.parametrize("timeout", [60, 0.05])
async def test_a_silent_provider_does_not_outlast_the_budget(how: str, timeout: float) -> None:
    """A request waits no longer than its timeout and what is left of `max_seconds`, whichever is less."""
    done = await served([SILENT] * 5, how, settings={"timeout": timeout}, budget=Budget(max_seconds=0.12))
    assert done.outcome == ("exhausted", "budget:max_seconds")
    assert set(done.codes) == {"timeout"}


@both_ways
async def test_a_broken_answer_counts_against_the_budget(how: str) -> None:
    """Tokens of an answer that broke off are spent: the next attempt does not fit any more."""
    broken = HttpReply(parts=[sse(chunk("x"), usage(5000, 900), done=False)], end="cut")
    settings = {"max_tokens": 100}
    done = await served([broken, DONE], how, settings=settings, budget=Budget(max_total_tokens=5950))
    assert (done.outcome, done.codes) == (("exhausted", "budget:max_total_tokens"), ["stream_cut"])
    assert done.played.usage.total_tokens == 5900
