"""Finds out whether the last steps of a run repeat earlier ones; pure.

What is compared are outputs and the calls behind them. A step repeats another when it is by the same member, its text
is nearly the same (`lictor.agent.likeness`) and its calls had the same tools, arguments and results. Anything in
between that does not repeat is progress, whoever made it, and so is a changed result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Literal, NamedTuple, Protocol

from lictor.agent.likeness import Text, likeness

__all__ = ["DENIED", "LOOP", "LoopEvidence", "LoopPolicy", "LoopRecord", "detect_loop", "hits"]

DENIED = "denied"
"""In place of the digest of a result: the call was denied. It repeats that call, whatever was said about it."""


LOOP = "loop"
"""The reason of what a loop breaker says."""


class LoopRecord(NamedTuple):
    """One finished step.

    `source` is who made it, `content` its text; `tools` are its calls in order, each with the tool's name, a digest of
    the arguments and one of the result (or DENIED). `polling`: asking again and again was its purpose.
    """

    source: str
    content: str
    tools: tuple[tuple[str, str, str], ...] = ()
    polling: bool = False


class LoopPolicy(Protocol):
    """What counts as a loop; a `LoopBreaker` is one."""

    @property
    def window(self) -> int:
        """Records looked at, the newest ones."""
        ...

    @property
    def similarity(self) -> float:
        """From which likeness on (0 to 1) two texts are the same."""
        ...

    @property
    def repeats(self) -> int:
        """How many earlier near-identical occurrences are allowed."""
        ...

    @property
    def min_length(self) -> int:
        """Characters below which a text alone is no repetition: `yes` may be said twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEvidence:
    """Which records repeat.

    Arguments:
        kind: `stagnation` (one step again and again) or `cycle`.
        period: records in one round of the loop; 1 for stagnation.
        steps: indices of the records that belong to it, in order.
        count: whole rounds among them.
        score: the least likeness of texts that were taken for the same, 0 to 1.
        sources: who made the records of one round, in order.
        tool, arguments: name and digest of arguments of the last call, if the last record had one.
    """

    kind: Literal["stagnation", "cycle"]
    period: int
    steps: tuple[int, ...]
    count: int
    score: float
    sources: tuple[str, ...]
    tool: str | None = None
    arguments: str | None = None


class _Step(NamedTuple):
    place: int
    record: LoopRecord
    text: Text


_step = tuple.__new__


def detect_loop(records: Sequence[LoopRecord], policy: LoopPolicy) -> LoopEvidence | None:
    """Return what the newest of `records` repeat, or None.

    The shortest loop that fits into the window counts, as long as it stands in the records more than `repeats + 1`
    times; `steps` and `count` go back as far as the records do. Polls that were answered as before are left out, and
    no loop is made of polls.
    """
    steps = _without_vain_polls(records)
    rounds = policy.repeats + 2
    for period in range(1, policy.window // rounds + 1):
        if period * rounds > len(steps):
            return None
        if not _sameness(steps[-1], steps[-1 - period], policy):  # mostly; the first thing that `_repeated` looks at
            continue
        found = _repeated(steps, period, policy)
        if found is not None and found[0] >= period * rounds:
            return _evidence(steps, period, *found)
    return None


def hits(evidence: LoopEvidence, policy: LoopPolicy, turns: Sequence[int] | None = None) -> int:
    """Return how often the loop was there to be found by now: 1 when it is found for the first time.

    Arguments:
        evidence: what was found.
        policy: what it was found with.
        turns: for each record, which turn it belongs to; records of one turn are judged together. None: each alone.
    """
    steps, first = evidence.steps, evidence.period * (policy.repeats + 2) - 1
    if turns is None:
        return len(steps) - first
    return len({turns[step] for step in steps[first:]})


def _without_vain_polls(records: Sequence[LoopRecord]) -> list[_Step]:
    """The records without polls that told nothing new; a poll that did is progress."""
    if not [record for record in records if record.polling]:
        texts = [Text(record.content) for record in records]
        return list(map(_step, repeat(_Step), zip(count(), records, texts, strict=False)))
    kept: list[_Step] = []
    told: dict[Any, Any] = {}
    for place, record in enumerate(records):
        if record.polling:
            asked = (record.source, tuple([call[:2] for call in record.tools]))
            answer = (record.content, record.tools)
            if told.get(asked) == answer:
                continue
            told[asked] = answer
        kept.append(_Step(place, record, Text(record.content)))
    return kept


def _repeated(steps: Sequence[_Step], period: int, policy: LoopPolicy) -> tuple[int, float] | None:
    """How many of the newest steps go round with this period, and the least likeness among them; None for no loop."""
    newest = list(reversed(steps[-period:]))
    if not any(_has_weight(step, policy) for step in newest):
        return None
    length, least = period, 1.0
    for place in range(len(steps) - period - 1, -1, -1):
        phase = (len(steps) - 1 - place) % period
        older = steps[place]
        score = _sameness(newest[phase], older, policy)
        if not score:
            break
        if newest[phase].record.tools != older.record.tools:
            newest[phase] = _informed(newest[phase], older)
        length, least = length + 1, min(least, score)
    return length, least


def _has_weight(step: _Step, policy: LoopPolicy) -> bool:
    """Whether it may make a loop: it called something, or said more than a word."""
    return bool(step.record.tools) or len(step.text.plain) >= policy.min_length


def _sameness(step: _Step, older: _Step, policy: LoopPolicy) -> float:
    """How alike two steps are; 0.0 if they are not the same."""
    new, old = step.record, older.record
    if new.source != old.source or new.polling or old.polling or len(new.tools) != len(old.tools):
        return 0.0
    for (tool, arguments, result), (old_tool, old_arguments, old_result) in zip(new.tools, old.tools, strict=True):
        if tool != old_tool or arguments != old_arguments:
            return 0.0
        if result != old_result and DENIED not in (result, old_result):
            return 0.0
    score = likeness(step.text, older.text, policy.similarity)
    if score in (0.0, 1.0):
        return score
    return 0.0 if min(len(step.text.plain), len(older.text.plain)) < policy.min_length else score


def _informed(step: _Step, older: _Step) -> _Step:
    """The step with the older results where its own calls were denied: what came before must be the same as those."""
    pairs = zip(step.record.tools, older.record.tools, strict=True)
    tools = tuple([old if call[2] == DENIED else call for call, old in pairs])
    return step._replace(record=step.record._replace(tools=tools))


def _evidence(steps: Sequence[_Step], period: int, length: int, score: float) -> LoopEvidence:
    called = steps[-1].record.tools
    return LoopEvidence(
        kind="stagnation" if period == 1 else "cycle",
        period=period,
        steps=tuple([step.place for step in steps[-length:]]),
        count=length // period,
        score=round(score, 4),
        sources=tuple([step.record.source for step in steps[-period:]]),
        tool=called[-1][0] if called else None,
        arguments=called[-1][1] if called else None,
    )
