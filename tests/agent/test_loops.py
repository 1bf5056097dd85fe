"""What counts as a loop: a table of verdict and evidence, and what holds for any records."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.agent import DENIED, LoopBreaker, LoopEvidence, LoopRecord, detect_loop
from lictor.agent.likeness import Text, likeness
from lictor.agent.loops import hits
from lictor.errors import DefinitionError

REPORT = (
    "I searched the archive for the invoice of the customer and could not find anything that matches; the index seems "
    "to be complete, so there is most likely no such invoice in it, and another place should be searched."
)
PARAPHRASE = (
    "There is probably no invoice like that. The archive's index looks complete, and a search for the customer's "
    "invoice came back empty. I would look somewhere else now."
)
CHINESE = (
    "我已经在档案中查找了该客户的发票，但没有找到任何匹配的内容。"
    "索引看起来是完整的，因此很可能没有这样的发票，应该到其他地方去查找。"
)


def prose(length: int, seed: int = 1, *, letters: str = "abcdefghijklmnopqrstuvwxyz") -> str:
    """Words without an end, the same for the same seed."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(400)]
    text = ""
    while len(text) < length:
        text += chance.choice(words) + " "
    return text[:length]


def edited(text: str, edits: int, seed: int = 1, put: str = "#") -> str:
    """The text with `edits` characters changed, all over the place."""
    chance = random.Random(seed)
    characters = list(text)
    for place in chance.sample(range(len(text)), edits):
        characters[place] = put
    return "".join(characters)


def by(sources: str, *contents: str) -> list[LoopRecord]:
    """Records of members with one letter each, whose contents come round."""
    return [LoopRecord(source, contents[place % len(contents)]) for place, source in enumerate(sources)]


def calls(*steps: str, polling: bool = False) -> list[LoopRecord]:
    """Records of calls, given as "tool arguments result"."""
    return [LoopRecord("a", "", (tuple(step.split()),), polling) for step in steps]  # type: ignore[arg-type]


class Row(NamedTuple):
    """What the records are, and what is found: (kind, period, steps, count, least score, most) or None."""

    records: list[LoopRecord]
    found: tuple[str, int, tuple[int, ...], int, float, float] | None
    policy: Mapping[str, Any] = MappingProxyType({})


LONG = prose(30_000)
LONG_CHINESE = prose(30_000, letters=CHINESE.replace("，", "").replace("。", ""))
STATUS = calls("look a r", "poll j 10%", "look a r")
TABLE = {
    "nothing": Row([], None),
    "one record": Row(by("A", REPORT), None),
    "stagnation": Row(by("AA", REPORT), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "stagnation, three": Row(by("AAA", REPORT), ("stagnation", 1, (0, 1, 2), 3, 1, 1)),
    "stagnation behind progress": Row(
        [*by("B", "something else"), *by("AA", REPORT)], ("stagnation", 1, (1, 2), 2, 1, 1)
    ),
    "progress behind stagnation": Row([*by("AA", REPORT), *by("B", "something else")], None),
    "two members say the same once": Row(by("AB", REPORT), None),
    "A-B-A": Row(by("ABA", REPORT, PARAPHRASE), None),
    "A-B-A-B": Row(by("ABAB", REPORT, PARAPHRASE), ("cycle", 2, (0, 1, 2, 3), 2, 1, 1)),
    "A-B-A-B with the same words": Row(by("ABAB", REPORT), ("cycle", 2, (0, 1, 2, 3), 2, 1, 1)),
    "one member says two things in turn": Row(by("AAAA", REPORT, PARAPHRASE), ("cycle", 2, (0, 1, 2, 3), 2, 1, 1)),
    "three-cycle": Row(by("ABCABC", REPORT), ("cycle", 3, tuple(range(6)), 2, 1, 1)),
    "four-cycle": Row(by("ABCDABCD", REPORT), ("cycle", 4, tuple(range(8)), 2, 1, 1)),
    "five-cycle, half the window": Row(by("ABCDEABCDE", REPORT), ("cycle", 5, tuple(range(10)), 2, 1, 1)),
    "six-cycle, more than that": Row(by("ABCDEFABCDEF", REPORT), None),
    "six-cycle in a larger window": Row(
        by("ABCDEFABCDEF", REPORT), ("cycle", 6, tuple(range(12)), 2, 1, 1), {"window": 12}
    ),
    "one repeat is allowed": Row(by("AA", REPORT), None, {"repeats": 1}),
    "and a second one is not": Row(by("AAA", REPORT), ("stagnation", 1, (0, 1, 2), 3, 1, 1), {"repeats": 1}),
    "a cycle once more is allowed": Row(by("ABAB", REPORT), None, {"repeats": 1}),
    "case and blanks": Row(
        by("AA", REPORT, f"  {REPORT.upper()}\n".replace(" ", "  ")),
        ("stagnation", 1, (0, 1), 2, 1, 1),
    ),
    "light paraphrase": Row(
        by("AA", REPORT, REPORT.replace("seems to", "seemed to")), ("stagnation", 1, (0, 1), 2, 0.95, 0.999)
    ),
    "free paraphrase is not seen": Row(by("AA", REPORT, PARAPHRASE), None),
    "page counters": Row(by("AAA", *[f"{REPORT} This was page {n}." for n in (11, 12, 13)]), None),
    "the same page": Row(by("AA", f"{REPORT} Page 11."), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "interleaved progress": Row([*by("A", REPORT), *by("B", "page 1 is done"), *by("A", REPORT)], None),
    "interleaved progress, twice": Row(
        [r for n in (1, 2, 3) for r in (LoopRecord("A", REPORT), LoopRecord("B", f"chapter {n} is written"))], None
    ),
    "words": Row(by("AAAA", "yes"), None),
    "words in a cycle of more": Row(by("ABAB", REPORT, "yes"), ("cycle", 2, (0, 1, 2, 3), 2, 1, 1)),
    "no word in a cycle is another": Row(by("ABABAB", REPORT, "yes", REPORT, "yep"), None),
    "CJK": Row(by("AA", CHINESE), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "CJK, one character": Row(
        by("AA", CHINESE, CHINESE.replace("没有找到", "没能找到")), ("stagnation", 1, (0, 1), 2, 0.95, 0.999)
    ),
    "CJK page counters": Row(by("AA", f"{CHINESE}这是第十一页。", f"{CHINESE}这是第十二页。"), None),
    "full-width page counters": Row(by("AA", f"{CHINESE}１１", f"{CHINESE}１２"), None),
    "30,000 characters": Row(by("AA", LONG), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "30,000, a few edits": Row(by("AA", LONG, edited(LONG, 20)), ("stagnation", 1, (0, 1), 2, 0.999, 0.9999)),
    "30,000, edits everywhere": Row(by("AA", LONG, edited(LONG, 600)), ("stagnation", 1, (0, 1), 2, 0.975, 0.985)),
    "30,000, too many edits": Row(by("AA", LONG, edited(LONG, 2_400)), None),
    "30,000, another text": Row(by("AA", LONG, prose(30_000, 2)), None),
    "30,000, one page further": Row(by("AA", f"{LONG} page 11", f"{LONG} page 12"), None),
    "30,000, one number inside": Row(by("AA", edited(LONG, 1, put="1"), edited(LONG, 1, put="2")), None),
    "30,000, a paragraph less": Row(
        by("AA", LONG, LONG[:9_000] + LONG[9_900:]), ("stagnation", 1, (0, 1), 2, 0.965, 0.975)
    ),
    "30,000, a sentence moved": Row(
        by("AA", LONG, LONG[:9_000] + LONG[9_200:20_000] + LONG[9_000:9_200] + LONG[20_000:]),
        ("stagnation", 1, (0, 1), 2, 0.95, 0.99),
    ),
    "30,000 of one letter": Row(by("AA", "a" * 30_000, "a" * 29_000), ("stagnation", 1, (0, 1), 2, 0.96, 0.97)),
    "30,000 CJK": Row(by("AA", LONG_CHINESE, edited(LONG_CHINESE, 300)), ("stagnation", 1, (0, 1), 2, 0.98, 0.995)),
    "calls": Row(calls("look a r", "look a r"), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "calls with other arguments": Row(calls("look a r", "look b r"), None),
    "calls with other results": Row(calls("look a r", "look a s"), None),
    "calls in a cycle": Row(calls(*["look a r", "take b s"] * 2), ("cycle", 2, (0, 1, 2, 3), 2, 1, 1)),
    "a cycle in which one result changes": Row(calls("look a r", "take b s", "look a r", "take b t"), None),
    "denied calls": Row(calls(f"pay a {DENIED}", f"pay a {DENIED}"), ("stagnation", 1, (0, 1), 2, 1, 1)),
    "a call that was denied next": Row(
        calls("look a r", "look a r", f"look a {DENIED}"), ("stagnation", 1, (0, 1, 2), 3, 1, 1)
    ),
    "a denial does not hide a changed result": Row(
        calls("look a q", "look a r", f"look a {DENIED}"), ("stagnation", 1, (1, 2), 2, 1, 1)
    ),
    "the same words, but another call behind them": Row(
        [LoopRecord("A", REPORT, (("look", d, "r"),)) for d in "ab"], None
    ),
    "delegation in a circle": Row(
        [LoopRecord(s, "", (("transfer_to", to, "ok"),)) for s, to in ("AB", "BC", "CA") * 2],
        ("cycle", 3, tuple(range(6)), 2, 1, 1),
    ),
    "pollers": Row(calls(*["poll j 10%"] * 6, polling=True), None),
    "pollers in turn": Row(calls(*["poll j 1", "poll k 1"] * 4, polling=True), None),
    "pollers whose answers go back and forth": Row(calls(*["poll j 1", "poll j 2"] * 3, polling=True), None),
    "a poll that tells something new is progress": Row(
        [*calls("look a r"), *calls("poll j 10%", polling=True), *calls("look a r")], None
    ),
    "a poll that does not is none": Row(
        [
            *calls("poll j 10%", polling=True),
            *[r for _ in "123" for r in (*calls("look a r"), *calls("poll j 10%", polling=True))],
        ],
        ("stagnation", 1, (1, 3, 5), 3, 1, 1),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    """Verdict and evidence of each row."""
    row = TABLE[name]
    found = detect_loop(row.records, LoopBreaker(**row.policy))
    if row.found is None:
        assert found is None
        return
    assert found is not None
    kind, period, steps, count, least, most = row.found
    assert (found.kind, found.period, found.steps, found.count) == (kind, period, steps, count)
    assert least <= found.score <= most
    assert found.sources == tuple(row.records[step].source for step in steps[-period:])
    called = row.records[found.steps[-1]].tools
    assert (found.tool, found.arguments) == (called[-1][:2] if called else (None, None))


def test_hits_count_up() -> None:
    """A loop that goes on is found once more with each record, or with each turn when several are judged at once."""
    policy = LoopBreaker()

    def counted(sources: str, turns: Sequence[int] | None = None) -> int:
        found = detect_loop(by(sources, REPORT), policy)
        assert found is not None
        return hits(found, policy, turns)

    assert [counted("A" * n) for n in (2, 3, 4, 12)] == [1, 2, 3, 11]
    assert [counted("ABABAB"[:n]) for n in (4, 5, 6)] == [1, 2, 3]
    assert [counted("AB" * n, [turn for turn in range(n) for _ in "AB"]) for n in (2, 3, 4)] == [1, 2, 3]
    assert counted("AAA", [0, 0, 0]) == 1


@pytest.mark.parametrize(("left", "right"), [("a" * 40, "b" * 40), ("page 1", "page 2"), ("x", ""), (LONG, LONG[::-1])])
def test_what_is_not_alike_is_zero(left: str, right: str) -> None:
    """Below the bound there is no figure; the order of the two does not matter."""
    assert likeness(Text(left), Text(right), 0.95) == likeness(Text(right), Text(left), 0.95) == 0


def test_the_likeness_of_long_texts_is_never_more_than_theirs() -> None:
    """What is measured between shared passages is a bound: it differs little from the distance of whole texts."""
    from rapidfuzz.distance import Levenshtein

    for seed in range(20):
        text = prose(6_000, seed)
        other = edited(text, 10 * seed, seed, put="ß")
        exact = Levenshtein.normalized_similarity(Text(text).plain, Text(other).plain)
        found = likeness(Text(text), Text(other), 0.9)
        assert exact - 0.01 <= found <= exact + 1e-9


# ---- for any records -----------------------------------------------------------------------------------

names = st.sampled_from("ABCD")
texts = st.text(alphabet="abc12 页", min_size=0, max_size=30)
fates = st.tuples(st.sampled_from(["look", "take"]), st.sampled_from("xy"), st.sampled_from(["r", "s", DENIED]))
records = st.lists(
    st.builds(LoopRecord, names, texts, st.lists(fates, max_size=2).map(tuple), st.booleans()), max_size=16
)
policies = st.builds(
    LoopBreaker,
    window=st.integers(4, 14),
    similarity=st.floats(0.5, 1),
    repeats=st.integers(0, 2),
    min_length=st.integers(0, 12),
)
UNRELATED = LoopRecord("A", "zzzz wholly unrelated progress zzzz", (("write", "w", "done"),))


@given(records, policies)
def test_unrelated_progress_removes_a_hit(given_records: list[LoopRecord], policy: LoopBreaker) -> None:
    """Whatever went round: after something new nothing is found."""
    assert detect_loop([*given_records, UNRELATED], policy) is None


@given(records, policies, st.permutations("ABCD"))
def test_names_do_not_matter(given_records: list[LoopRecord], policy: LoopBreaker, order: list[str]) -> None:
    """Other names for the members change the names in the evidence and nothing else."""
    renamed = dict(zip("ABCD", order, strict=True))

    def shape(found: LoopEvidence | None) -> Any:
        return found and (found.kind, found.period, found.steps, found.count, found.score, found.tool, found.arguments)

    before = detect_loop(given_records, policy)
    after = detect_loop([record._replace(source=renamed[record.source]) for record in given_records], policy)
    assert shape(before) == shape(after)
    if before is not None and after is not None:
        assert tuple(renamed[source] for source in before.sources) == after.sources


@given(st.lists(st.tuples(names, texts, st.integers(0, 3)), max_size=16), policies)
def test_strict_progress_never_hits(steps: list[tuple[str, str, int]], policy: LoopBreaker) -> None:
    """A number that counts on, a result that is new each time: no loop, however alike the rest is."""
    pages = [LoopRecord(source, f"{text} page {place}") for place, (source, text, _) in enumerate(steps)]
    assert detect_loop(pages, policy) is None
    results = [LoopRecord(s, t, (("look", str(kind), f"r{n}"),)) for n, (s, t, kind) in enumerate(steps)]
    assert detect_loop(results, policy) is None


@given(records, policies, st.data())
def test_exact_repetition_beyond_repeats_hits(
    before: list[LoopRecord], policy: LoopBreaker, data: st.DataObject
) -> None:
    """Any round that fits into the window often enough is found, at its period or a shorter one."""
    rounds = policy.repeats + 2
    length = data.draw(st.integers(1, policy.window // rounds))
    said = st.text(alphabet="abc12 页", min_size=12, max_size=30).filter(lambda text: len(Text(text).plain) >= 12)
    made = st.builds(LoopRecord, names, said, st.just(()), st.just(False))
    cycle = data.draw(st.lists(made, min_size=length, max_size=length))
    found = detect_loop([*before, *cycle * rounds], policy)
    assert found is not None
    assert found.period <= length
    assert found.count >= rounds
    assert found.steps[-1] == len(before) + length * rounds - 1
    assert list(found.steps) == sorted(set(found.steps))
    assert hits(found, policy) >= 1


@given(records, policies)
def test_evidence_is_true(given_records: list[LoopRecord], policy: LoopBreaker) -> None:
    """What is named repeats: same sources and calls at each place of a round, and no polls among them."""
    found = detect_loop(given_records, policy)
    if found is None:
        return
    named = [given_records[step] for step in found.steps]
    assert len(named) >= found.period * (policy.repeats + 2)
    for older, newer in zip(named, named[found.period :], strict=False):
        assert older.source == newer.source
        assert [call[:2] for call in older.tools] == [call[:2] for call in newer.tools]
        assert not older.polling
        assert not newer.polling


# ---- options -------------------------------------------------------------------------------------------

WRONG = [
    {"window": 1},
    {"window": 61},
    {"window": True},
    {"window": "10"},
    {"similarity": 0.4},
    {"similarity": 1.1},
    {"similarity": True},
    {"similarity": "high"},
    {"repeats": -1},
    {"repeats": 9},
    {"min_length": -1},
    {"min_length": 2.5},
    {"on_hit": ()},
    {"on_hit": "stop"},
    {"on_hit": ("shout",)},
    {"window": 60, "on_hit": ("warn",) * 6},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_wrong_options_are_told_at_once(options: dict[str, Any]) -> None:
    """Each is a DefinitionError that names the option."""
    with pytest.raises(DefinitionError, match="on_hit" if "on_hit" in options else next(iter(options))):
        LoopBreaker(**options)
