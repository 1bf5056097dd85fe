"""How much two texts are alike: what differs in nothing but case, blanks and a few characters, and in no number.

Equality comes first, then an edit distance that gives up at a bound. Long texts are cut into passages: those that both
have are not compared at all, so that the cost grows with what differs and not with the square of the length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

__all__ = ["Text", "likeness"]

LONG: Final = 4_096  # characters; up to here the distance of whole texts costs some 0.1 ms
SAMPLE: Final = 512  # places looked at to find out where a text can be cut
PASSAGE: Final = 64  # characters wanted between two cuts
LEAST_ANCHOR: Final = 12  # shorter passages are found by accident
# A page number that counts on is progress. In Chinese and Japanese an ordinal is one; a numeral alone is any word.
_NUMERALS: Final = frozenset("第〇零一二两三四五六七八九十百千万")
_DIGITS: Final = "０-９٠-٩۰-۹०-९"  # of other scripts
_MAYBE: Final = re.compile(f"[第{_DIGITS}]")
_NUMBER: Final = re.compile(f"[{_DIGITS}]+|第[〇零一二两三四五六七八九十百千万]+")
_NO_DIGITS: Final = bytes([byte for byte in range(256) if not 48 <= byte <= 57])


class Text:
    """A text, and what is left of it without case and blanks; everything is made when it is asked for."""

    __slots__ = ("_places", "_plain", "_separator", "raw")

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self._plain: str | None = None
        self._separator: str | None = None
        self._places: Mapping[str, int] | None = None

    @property
    def plain(self) -> str:
        """In lower case, with single blanks; in long texts blanks are left, they are a few edits more."""
        if self._plain is None:
            lower = self.raw.lower()
            if len(lower) <= LONG and ("\n" in lower or "  " in lower or lower[:1] == " " or lower[-1:] == " "):
                lower = " ".join(lower.split())
            self._plain = lower
        return self._plain

    @property
    def separator(self) -> str:
        """One or two characters that stand about every 64 characters in it; empty if nothing does."""
        if self._separator is None:
            plain = self.plain
            pairs = [plain[place : place + 2] for place in range(0, len(plain) - 1, max(1, len(plain) // SAMPLE))]
            counted = Counter([*pairs, *[pair[0] for pair in pairs]])
            wanted = len(pairs) / PASSAGE
            found = [(abs(n - wanted), cut) for cut, n in counted.items() if wanted / 2 <= n <= 8 * wanted]
            found = [(off, cut) for off, cut in found if not any(c in _NUMERALS or c.isdigit() for c in cut)]
            self._separator = min(found)[1] if found else ""
        return self._separator

    @property
    def places(self) -> Mapping[str, int]:
        """Where each passage starts; -1 for one that stands there more than once."""
        if self._places is None:
            places: dict[str, int] = {}
            start = 0
            for passage in self.plain.split(self.separator):
                places[passage] = -1 if passage in places else start
                start += len(passage) + len(self.separator)
            self._places = places
        return self._places


def likeness(left: Text, right: Text, least: float) -> float:
    """Return how alike two texts are: 1 - edit distance / longer length, or 0.0 if that is below `least`.

    Texts with other digits are not alike: page 12 is not page 11 again. Of texts longer than 4,096 characters the
    distance is bounded from above, so one that is called alike is.
    """
    if left.raw == right.raw or left.plain == right.plain:
        return 1.0
    longest = max(len(left.plain), len(right.plain))
    most = int((1 - least) * longest + 1e-9)
    if abs(len(left.plain) - len(right.plain)) > most:
        return 0.0
    if longest <= LONG or not left.separator:
        found = _gap(left.plain, right.plain, most)
    else:
        found = _passages(left, right.plain, most)
    return 0.0 if found > most else 1 - found / longest


@cache
def _distance() -> Callable[..., int]:
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance


def _gap(left: str, right: str, most: int) -> int:
    """The edit distance, or more than `most` if it is more, or if other numbers stand there."""
    found = _distance()(left, right, score_cutoff=most, score_hint=max(31, len(left) // 32))
    return most + 1 if found > most or _numbers(left) != _numbers(right) else found


def _numbers(text: str) -> tuple[bytes, list[str]]:
    """The digits of a text, and the numbers in other scripts."""
    digits = text.encode("utf-8", "surrogatepass").translate(None, _NO_DIGITS)
    return digits, [] if text.isascii() or not _MAYBE.search(text) else _NUMBER.findall(text)


def _passages(left: Text, right: str, most: int) -> int:
    """The sum of the distances between the passages that stand once in `left` and, in the same order, in `right`."""
    ours, places, separator = left.plain, left.places, left.separator
    cut = len(separator)
    total = done = our_done = behind = 0  # up to `done` and `our_done` both are compared; `behind` comes next
    for passage in right.split(separator):
        start, behind = behind, behind + len(passage) + cut
        our_start = places.get(passage, -1)
        if our_start < our_done or len(passage) < LEAST_ANCHOR:
            continue
        gap, our_gap = start - done, our_start - our_done
        if abs(gap - our_gap) > most - total:
            continue  # it was moved, and is no anchor: what it skips would count as taken out
        if gap <= cut and our_gap <= cut:
            total += abs(gap - our_gap)  # there is nothing but the separator
        else:
            total += _gap(ours[our_done:our_start], right[done:start], most - total)
        if total > most:
            return total
        done, our_done = start + len(passage), our_start + len(passage)
    return total + _gap(ours[our_done:], right[done:], most - total)
