"""Ids, frozen JSON, canonical bytes, digests and the clock."""

import asyncio
import copy
import enum
import json
import math
import pickle
import random
import re
import struct
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import ValueDomainError
from lictor.values import (
    MAX_DEPTH,
    MAX_SAFE_INTEGER,
    Clock,
    FrozenDict,
    FrozenList,
    canonical_json,
    digest,
    ecmascript_number,
    freeze,
    new_id,
    thaw,
)

SAFE = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), SAFE, FLOATS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)


class Colour(str, enum.Enum):  # noqa: UP042 - its str() is `Colour.RED`, unlike a StrEnum's
    RED = "red"


class Number(enum.IntEnum):
    TWO = 2


class Ratio(float):
    """A float that says something else than it is."""

    def __float__(self):
        return 9.0


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


# ---- freezing -----------------------------------------------------------------------------------


@given(JSON)
def test_freezing_keeps_the_value(value):
    """A frozen value equals the value, and thawing gives it back in plain types."""
    frozen = freeze(value)
    assert frozen == value
    assert thaw(frozen) == value
    assert type(thaw(frozen)) is type(value)
    assert json.dumps(frozen) == json.dumps(value)


def test_freezing_copies_once():
    """What is frozen is returned as it is, and later changes of the source are not seen."""
    source = {"a": [1, {"b": 2}]}
    frozen = freeze(source)
    source["a"][1]["b"] = 3
    assert frozen == {"a": [1, {"b": 2}]}
    assert freeze(frozen) is frozen
    assert freeze({"outer": frozen})["outer"] is frozen
    assert freeze([frozen["a"]])[0] is frozen["a"]


WRITES = [
    lambda value: value["d"].__setitem__("a", 1),
    lambda value: value["d"].__delitem__("a"),
    lambda value: value["d"].clear(),
    lambda value: value["d"].pop("a"),
    lambda value: value["d"].popitem(),
    lambda value: value["d"].setdefault("b", 1),
    lambda value: value["d"].update(b=1),
    lambda value: value["d"].__ior__({"b": 1}),
    lambda value: value["l"].__setitem__(0, 1),
    lambda value: value["l"].__delitem__(0),
    lambda value: value["l"].append(1),
    lambda value: value["l"].extend([1]),
    lambda value: value["l"].insert(0, 1),
    lambda value: value["l"].pop(),
    lambda value: value["l"].remove(1),
    lambda value: value["l"].clear(),
    lambda value: value["l"].sort(),
    lambda value: value["l"].reverse(),
    lambda value: value["l"].__iadd__([1]),
    lambda value: value["l"].__imul__(2),
]


@pytest.mark.parametrize("write", WRITES)
def test_frozen_values_refuse_writes(write):
    """Every way to write to a frozen dict or list raises TypeError and changes nothing."""
    frozen = freeze({"d": {"a": 1}, "l": [1, 2]})
    with pytest.raises(TypeError, match="frozen"):
        write(frozen)
    assert frozen == {"d": {"a": 1}, "l": [1, 2]}


@pytest.mark.parametrize(
    "clone",
    [copy.copy, copy.deepcopy, lambda value: value | {}, dict, lambda value: value.copy(), thaw],
    ids=["copy", "deepcopy", "|", "dict", ".copy", "thaw"],
)
def test_copies_of_frozen_values_are_plain(clone):
    """A copy is a plain mutable dict; a deep one is plain all the way down."""
    frozen = freeze({"a": [1, {"b": 2}]})
    copied = clone(frozen)
    assert type(copied) is dict
    assert copied == frozen
    copied["new"] = 1
    if clone in (copy.deepcopy, thaw):
        copied["a"].append(copied["a"][1].setdefault("c", 3))
    assert frozen == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_gives_plain_values(protocol):
    """A pickle of a frozen value holds plain dicts and lists."""
    loaded = pickle.loads(pickle.dumps(freeze({"a": [1, {"b": 2}]}), protocol))
    assert loaded == {"a": [1, {"b": 2}]}
    assert [type(loaded), type(loaded["a"]), type(loaded["a"][1])] == [dict, list, dict]
    assert type(copy.copy(freeze([1]))) is list
    assert type(copy.deepcopy(freeze([[1]]))[0]) is list


def test_subclasses_become_plain_types():
    """Enum members, ordered dicts and other subclasses of JSON types are taken for what they hold."""
    frozen = freeze(OrderedDict({Colour.RED: Colour.RED, "n": [Number.TWO, Ratio(0.5)], "m": Ratio(1.5)}))
    assert frozen == {"red": "red", "n": [2, 0.5], "m": 1.5}
    assert [type(key) for key in frozen] == [str, str, str]
    assert [type(frozen["red"]), *map(type, frozen["n"]), type(frozen["m"])] == [str, int, float, float]


OUTSIDE = {
    "set": ({"a": {1}}, "$.a", "set is not a JSON type"),
    "bytes": ([b"x"], "$[0]", "bytes is not a JSON type"),
    "tuple": ({"a": [(1,)]}, "$.a[0]", "tuple is not a JSON type"),
    "object": (object(), "$", "object is not a JSON type"),
    "key": ({"a": {1: 2}}, "$.a", "a key of type int; JSON keys are strings"),
    "nan": ({"a": math.nan}, "$.a", "NaN or an infinity is not JSON"),
    "infinity": ([-math.inf], "$[0]", "NaN or an infinity is not JSON"),
    "big": ({"a": 2**53}, "$.a", "an integer beyond 2^53-1; pass 64-bit ids as strings"),
    "small": ([-(2**53)], "$[0]", "an integer beyond 2^53-1; pass 64-bit ids as strings"),
    "by hand": ({"a": FrozenDict(b=1)}, "$.a", "a FrozenDict made by hand; use freeze(...)"),
    "list by hand": (FrozenList([1]), "$", "a FrozenList made by hand; use freeze(...)"),
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_values_outside_the_domain_are_refused_by_path(kind):
    """The error says where the value sits and what is wrong with it, without its content."""
    value, path, problem = OUTSIDE[kind]
    with pytest.raises(ValueDomainError) as caught:
        freeze(value)
    assert (caught.value.path, caught.value.problem) == (path, problem)


def test_depth_is_limited():
    """128 levels are taken, 129 are not, also when the inner ones were frozen before."""
    freeze(nested(MAX_DEPTH))
    freeze({"a": freeze(nested(MAX_DEPTH - 1))})
    freeze([freeze(nested(MAX_DEPTH - 1))])
    for value in (nested(MAX_DEPTH + 1), {"a": freeze(nested(MAX_DEPTH))}, [freeze(nested(MAX_DEPTH))]):
        with pytest.raises(ValueDomainError, match="nested deeper than 128 levels"):
            freeze(value)


def test_endless_input_is_no_recursion_error():
    """100,000 levels and cycles are refused like any other value outside the domain."""
    cyclic = {"a": []}
    cyclic["a"].append(cyclic)
    for value in (nested(100_000), cyclic):
        with pytest.raises(ValueDomainError):
            freeze(value)


# ---- canonical bytes ----------------------------------------------------------------------------

RFC_8785_NUMBERS = {
    0x0000000000000000: "0",
    0x8000000000000000: "0",
    0x0000000000000001: "5e-324",
    0x8000000000000001: "-5e-324",
    0x7FEFFFFFFFFFFFFF: "1.7976931348623157e+308",
    0xFFEFFFFFFFFFFFFF: "-1.7976931348623157e+308",
    0x4340000000000000: "9007199254740992",
    0xC340000000000000: "-9007199254740992",
    0x4430000000000000: "295147905179352830000",
    0x44B52D02C7E14AF5: "9.999999999999997e+22",
    0x44B52D02C7E14AF6: "1e+23",
    0x44B52D02C7E14AF7: "1.0000000000000001e+23",
    0x444B1AE4D6E2EF4E: "999999999999999700000",
    0x444B1AE4D6E2EF4F: "999999999999999900000",
    0x444B1AE4D6E2EF50: "1e+21",
    0x3EB0C6F7A0B5ED8C: "9.999999999999997e-7",
    0x3EB0C6F7A0B5ED8D: "0.000001",
    0x41B3DE4355555553: "333333333.3333332",
    0x41B3DE4355555554: "333333333.33333325",
    0x41B3DE4355555555: "333333333.3333333",
    0x41B3DE4355555556: "333333333.3333334",
    0x41B3DE4355555557: "333333333.33333343",
    0xBECBF647612F3696: "-0.0000033333333333333333",
    0x43143FF3C1CB0959: "1424953923781206.2",
}


@pytest.mark.parametrize("bits", RFC_8785_NUMBERS)
def test_numbers_of_rfc_8785(bits):
    """The sample doubles of RFC 8785, appendix B, are written as it says."""
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    assert ecmascript_number(value) == RFC_8785_NUMBERS[bits]
    assert canonical_json([value]) == f"[{RFC_8785_NUMBERS[bits]}]".encode()


@given(JSON)
def test_bytes_are_those_of_another_implementation(value):
    """Canonical bytes are the `rfc8785` package's, whatever the value holds."""
    rfc8785 = pytest.importorskip("rfc8785", reason="a development dependency")
    assert canonical_json(value) == rfc8785.dumps(value)
    assert canonical_json(freeze([value])) == b"[" + rfc8785.dumps(value) + b"]"


def doubles(count, seed):
    """Random doubles: any bits, and the kinds programs use."""
    source = random.Random(seed)
    kinds = [
        lambda: struct.unpack("<d", source.getrandbits(64).to_bytes(8, "little"))[0],
        source.random,
        lambda: source.uniform(-1e22, 1e22),
        lambda: source.random() * 10 ** source.randint(-12, 24),
        lambda: float(source.randint(-(2**60), 2**60)),
        lambda: round(source.uniform(-1e6, 1e6), source.randint(0, 9)),
        lambda: source.randint(1, 999) / source.randint(1, 999),
    ]
    for number in range(count):
        value = kinds[number % len(kinds)]()
        if math.isfinite(value):
            yield value


def check_doubles(count, seed):
    rfc8785 = pytest.importorskip("rfc8785", reason="a development dependency")
    assert [value for value in doubles(count, seed) if ecmascript_number(value).encode() != rfc8785.dumps(value)] == []


def test_doubles_are_written_like_another_implementation():
    """Thousands of random doubles are written as `rfc8785` writes them."""
    check_doubles(5_000, seed=1)


@pytest.mark.slow
def test_250_000_doubles_are_written_like_another_implementation():
    """A quarter of a million random doubles are written as `rfc8785` writes them."""
    check_doubles(250_000, seed=2)


def check_compat(count, seed):
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")
    wrong = []
    different = 0
    for value in doubles(count, seed):
        ours = canonical_json(value, compat="agent-hooks-sdk").decode()
        different += ours != ecmascript_number(value)
        if ours != sdk.canonical_json(value):
            wrong.append(value)
    assert wrong == []
    assert different > count // 50


def test_compat_writes_floats_as_the_sdk_does():
    """`compat="agent-hooks-sdk"` reproduces the SDK's bytes, which are not RFC 8785's."""
    check_compat(3_000, seed=3)


@pytest.mark.slow
def test_compat_writes_100_000_floats_as_the_sdk_does():
    """The same with many more doubles."""
    check_compat(100_000, seed=4)


def test_compat_is_a_closed_set():
    """Another name for a compatibility mode is an error."""
    with pytest.raises(ValueError, match="agent-hooks-sdk"):
        canonical_json(1.5, compat="other")
    assert canonical_json({"b": 1, "a": "é"}, compat="agent-hooks-sdk") == '{"a":"é","b":1}'.encode()


def test_keys_sort_by_utf16_unit():
    """An astral key sorts before U+E000, unlike in code point order (RFC 8785 §3.2.3)."""
    value = {"\ue000": 1, "\U00010000": 2, "z": 3, "": 4}
    assert list(json.loads(canonical_json(value))) == ["", "z", "\U00010000", "\ue000"]


@pytest.mark.parametrize("value", ["\ud800", {"\udc00": 1}, ["\ud800"], {"a": 1.5, "b": "\udfff"}])
@pytest.mark.parametrize("compat", [None, "agent-hooks-sdk"])
def test_lone_surrogates_have_no_bytes(value, compat):
    """A lone surrogate, in a text or a key, is outside the domain."""
    with pytest.raises(ValueDomainError, match="surrogate"):
        canonical_json(value, compat=compat)


def test_bytes_are_made_once():
    """Asking a frozen value for its bytes again gives the same object."""
    for value in ({"a": 1}, {"a": 1.5}, {"é": [1]}, [1, "x"]):
        frozen = freeze(value)
        assert canonical_json(frozen) is canonical_json(frozen)


def test_digests_name_their_hash():
    """A digest is `sha256:` and 64 hex digits over the canonical bytes, whatever the key order."""
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(None) == "sha256:74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"


# ---- ids and time -------------------------------------------------------------------------------


def test_ids_are_random_and_prefixed():
    """An id is 32 lowercase hex digits, with a prefix and an underscore if asked for."""
    assert re.fullmatch("[0-9a-f]{32}", new_id())
    assert re.fullmatch("run_[0-9a-f]{32}", new_id("run"))
    assert len({new_id() for _ in range(1000)}) == 1000


class Fixed(Clock):
    """A clock that stands where it is put."""

    def __init__(self, now):
        super().__init__()
        self.at = now

    def now(self):
        return self.at


def test_timestamps_are_rfc_3339():
    """A timestamp is UTC with milliseconds, also right after the second changed."""
    clock = Fixed(1781877791.123)
    stamps = []
    for at in (1781877791.123, 1781877791.999, 1781877792.0, 1781877791.5, 0.0):
        clock.at = at
        stamps.append(clock.timestamp())
    assert stamps == [
        "2026-06-19T14:03:11.123Z",
        "2026-06-19T14:03:11.999Z",
        "2026-06-19T14:03:12.000Z",
        "2026-06-19T14:03:11.500Z",
        "1970-01-01T00:00:00.000Z",
    ]


async def test_the_system_clock_goes_on():
    """The monotonic clock does not go back, and sleeping yields to other tasks."""
    clock = Clock()
    before = clock.monotonic()
    other = asyncio.ensure_future(asyncio.sleep(0, "ran"))
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert await other == "ran"
