"""How much two texts are alike: what differs in nothing but case, blanks and a few characters, and in no number.

Equality comes first, then an edit distance that gives up at a bound. Long texts are cut into passages: those that both
have are not compared at all, so that the cost grows with what differs and not with the square of the length.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import accumulate
from typing import Final

__all__ = ["Text", "likeness"]

LONG: Final = 4_096  # characters; up to here the distance of whole texts costs some 0.1 ms
SAMPLE: Final = 2_048  # characters looked at to find out where a text can be cut
PASSAGE: Final = 40  # characters wanted between two cuts
LEAST_ANCHOR: Final = 12  # shorter passages are found by accident
# A page number that counts on is progress. In Chinese and Japanese an ordinal is one; a numeral alone is any word.
_NUMBER: Final = re.compile(r"\d+|第[〇零一二两三四五六七八九十百千万]+")
_NUMERALS: Final = frozenset("第〇零一二两三四五六七八九十百千万")


class Text:
    """A text, and what is left of it without case, width and blanks; made when it is asked for."""

    __slots__ = ("_plain", "_separator", "raw")

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self._plain: str | None = None
        self._separator: str | None = None

    @property
    def plain(self) -> str:
        """The normalised text (NFKC)."""
        if self._plain is None:
            raw = self.raw
            lower = raw.lower() if raw.isascii() else unicodedata.normalize("NFKC", raw).casefold()
            self._plain = " ".join(lower.split())
        return self._plain

    @property
    def separator(self) -> str:
        """A character that stands about every 40 characters in it; empty if there is none."""
        if self._separator is None:
            counted = Counter(self.plain[:: max(1, len(self.plain) // SAMPLE)])
            wanted = counted.total() / PASSAGE
            found = [(abs(n - wanted), c) for c, n in counted.items() if wanted / 4 <= n <= 2 * wanted]
            found = [(off, c) for off, c in found if c not in _NUMERALS and not c.isdigit()]
            self._separator = min(found)[1] if found else ""
        return self._separator


def likeness(left: Text, right: Text, least: float) -> float:
    """Return how alike two texts are: 1 - edit distance / longer length, or 0.0 if that is below `least`.

    Texts whose numbers differ are not alike: page 12 is not page 11 again. Of texts longer than 4,096 characters the
    distance is bounded from above, so one that is called alike is.
    """
    if left.raw == right.raw or left.plain == right.plain:
        return 1.0
    longest = max(len(left.plain), len(right.plain))
    most = int((1 - least) * longest + 1e-9)
    if abs(len(left.plain) - len(right.plain)) > most:
        return 0.0
    if longest <= LONG:
        found = _gap(left.plain, right.plain, most)
    else:
        found = _passages(left.plain, right.plain, most, left.separator)
    return 0.0 if found > most else 1 - found / longest


def _gap(left: str, right: str, most: int) -> int:
    """The edit distance, or more than `most` if it is more, or if other numbers stand there."""
    if left == right:
        return 0
    from rapidfuzz.distance import Levenshtein

    found = Levenshtein.distance(left, right, score_cutoff=most)
    return most + 1 if found > most or _NUMBER.findall(left) != _NUMBER.findall(right) else found


def _passages(left: str, right: str, most: int, separator: str) -> int:
    """The sum of the distances between passages that stand once in `right` and, in the same order, in `left`."""
    if not separator:
        return _gap(left, right, most)
    ours, theirs = left.split(separator), right.split(separator)
    places: dict[str, int] = {}
    for place, passage in enumerate(theirs):
        places[passage] = -1 if passage in places else place
    starts = [0, *accumulate([len(passage) + 1 for passage in ours])]
    their_starts = [0, *accumulate([len(passage) + 1 for passage in theirs])]
    total = done = their_done = 0  # characters up to `done` and `their_done` are compared
    for place, passage in enumerate(ours):
        found = places.get(passage, -1)
        if found < 0 or len(passage) < LEAST_ANCHOR:
            continue
        start, their_start = starts[place], their_starts[found]
        # A passage that was moved is no anchor: what it skips would count as taken out.
        if their_start < their_done or abs((start - done) - (their_start - their_done)) > most - total:
            continue
        total += _gap(left[done:start], right[their_done:their_start], most - total)
        if total > most:
            return total
        done, their_done = start + len(passage), their_start + len(passage)
    return total + _gap(left[done:], right[their_done:], most - total)
