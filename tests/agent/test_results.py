"""Tool results: safe JSON, the text for the model, the closed set of errors."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import types
import uuid

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.agent.results import cut, error_result, render, safe_value
from lictor.errors import NotSerializable
from lictor.values import canonical_json, freeze

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Item(pydantic.BaseModel):
    sku: str
    price: decimal.Decimal


@dataclasses.dataclass(slots=True)
class Order:
    id: int
    items: list[Item]


@pytest.mark.parametrize("value", ["", "plain", "día 🍸", 0, 1.5, -0.0, True, None, [], {}, {"a": [1, {"b": None}]}])
def test_plain_json_stays_as_it_is(value):
    """JSON comes back equal, of the same types, without a note."""
    result, notes = safe_value(value)
    assert result == value
    assert type(result) is type(value)
    assert notes == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, "a"), [1, "a"]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (collections.deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Colour.RED, "red"),
        ({"level": Level.HIGH}, {"level": 3}),
        (decimal.Decimal("1.10"), "1.10"),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), "2026-01-02T03:04:00Z"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.timedelta(hours=1), "PT1H"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a"), "/a"),
        (Order(1, [Item(sku="x", price=decimal.Decimal("2.5"))]), {"id": 1, "items": [{"sku": "x", "price": "2.5"}]}),
        (Item(sku="x", price=decimal.Decimal(1)), {"sku": "x", "price": "1"}),
    ],
)
def test_other_types_take_their_json_form(value, expected):
    """Containers, dataclasses, models and scalars of the standard library need no conversion by hand."""
    assert safe_value(value)[0] == expected


@pytest.mark.parametrize(
    ("value", "expected", "note"),
    [
        ({"a": math.nan}, {"a": None}, "$.a: nan became null"),
        ([math.inf], [None], "$[0]: inf became null"),
        (-math.inf, None, "$: -inf became null"),
        ({"id": 2**53}, {"id": "9007199254740992"}, "$.id: an integer beyond 2^53-1 became a decimal string"),
        (b"caf\xc3\xa9", "café", "$: bytes became text (UTF-8)"),
        ({"raw": b"\xff\x00"}, {"raw": {"base64": "/wA="}}, "$.raw: bytes became base64"),
        ({1: "a"}, {"1": "a"}, "$: the key '1' was a value of type int"),
        ({None: 1}, {"null": 1}, "$: the key 'null' was a value of type NoneType"),
    ],
)
def test_what_is_lost_is_noted(value, expected, note):
    """Every change that a reader could not undo leaves a note with its place."""
    assert safe_value(value) == (expected, (note,))


def test_g15_surrogates():
    """G15: an escaped pair becomes one character, a lone surrogate U+FFFD with a note; all of it encodes."""
    assert safe_value("\ud83c\udf78") == ("🍸", ())
    assert safe_value("a\ud83d") == ("a\ufffd", ("$: lone surrogates became U+FFFD",))
    result, notes = safe_value({"text": ["x\udc00\ud83dy", "\x00\ufffe"], "\ud83d": 1})
    assert result == {"text": ["x\ufffd\ufffdy", "\x00\ufffe"], "\ufffd": 1}
    assert len(notes) == 2
    assert json.loads(canonical_json(result)) == result


def test_f13_a_value_that_cannot_be_read_back_is_an_error():
    """F13: what has no JSON form is found when the tool returns, with its place, before anything is stored."""

    class Odd:
        def __reduce__(self):
            raise RuntimeError

    with pytest.raises(NotSerializable) as caught:
        safe_value({"rows": [1, Odd()]})
    assert caught.value.path == "$.rows[1]"
    assert "Odd" in str(caught.value)


def test_f13_a_serializer_that_raises_is_an_error():
    """F13: a model whose dump fails is an error of this call, not of the run."""

    class Bad(pydantic.BaseModel):
        @pydantic.model_serializer
        def dump(self):
            raise KeyError("x")

    class Lying(dict):
        def items(self):
            raise OSError

    for value in (Bad(), Lying(a=Colour.RED)):
        with pytest.raises(NotSerializable):
            safe_value(value)


def test_cycles_and_depth_are_errors():
    """A value that contains itself, or is nested deeper than 100 levels, has no JSON form; sharing is fine."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotSerializable, match="contains itself"):
        safe_value(loop)
    deep: object = 1
    for _ in range(101):
        deep = [deep]
    with pytest.raises(NotSerializable, match="deeper than 100"):
        safe_value(deep)
    shared = (1,)
    assert safe_value([shared, shared])[0] == [[1], [1]]


@pytest.mark.parametrize(
    "value",
    [iter([1]), (x for x in "ab"), object(), int, len, {(1, 2): 3}, {1: "a", "1": "b"}, ValueError("x"), [10**5000]],
)
def test_what_has_no_json_form_is_refused(value):
    """Iterators, types, functions, tuple keys, keys that collide and endless integers are errors."""
    with pytest.raises(NotSerializable):
        safe_value(value)


def test_a_result_shares_nothing_with_the_tool():
    """A tool that goes on changing what it returned changes nothing here."""
    rows = [{"a": 1}]
    result, _ = safe_value(rows)
    rows[0]["a"] = 2
    assert result == [{"a": 1}]


def test_notes_are_few():
    """A million NaNs make twenty notes."""
    result, notes = safe_value([math.nan] * 1000)
    assert result == [None] * 1000
    assert len(notes) == 20


@given(JSON)
def test_every_json_like_value_becomes_storable(value):
    """Whatever mixes JSON, tuples, big integers, NaN and surrogates becomes frozen JSON that reads back."""
    try:
        result, _ = safe_value(value)
    except NotSerializable as error:
        assert "two keys" in str(error)  # noqa: PT017 - the only excuse: two keys that differ in surrogates
        return
    assert json.loads(render(result).encode()) == result if not isinstance(result, str) else render(result) == result
    canonical_json(freeze(result))


def test_render_keeps_strings_raw():
    """Strings are shown as they are, the empty one too; the rest is compact JSON."""
    assert render("") == ""
    assert render('say "hi"') == 'say "hi"'
    assert render({"a": [1, None, "é"]}) == '{"a":[1,null,"é"]}'
    assert render(freeze({"a": 1})) == '{"a":1}'
    assert render(None) == "null"


@given(st.text(st.characters(), max_size=400), st.integers(64, 300))
def test_cut_keeps_head_and_tail_within_the_limit(text, limit):
    """A cut text is within the limit, keeps whole characters, and says how many bytes are missing."""
    text = text.encode("utf-8", "replace").decode()
    shown = cut(text, limit)
    size = len(text.encode())
    assert len(shown.encode()) <= limit or (shown == text and size <= limit)
    if size <= limit:
        assert shown == text
        return
    head, _, rest = shown.partition("\n[cut: ")
    missing, _, tail = rest.partition(" bytes]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(missing) == size - len(head.encode()) - len(tail.encode())


def test_cut_refuses_a_limit_without_room():
    """Below 64 bytes there is no room for the marker."""
    with pytest.raises(ValueError, match="64 bytes"):
        cut("x", 10)


def test_error_results_are_a_closed_set():
    """An error result has kind, reason and message in front; other kinds are refused."""
    result = error_result("unknown_tool", "no_such_tool", "there is no 'x'", tools=["a"])
    assert list(result.items())[:3] == [
        ("error", "unknown_tool"),
        ("reason", "no_such_tool"),
        ("message", "there is no 'x'"),
    ]
    assert result["tools"] == ["a"]
    with pytest.raises(ValueError, match="tool_failed"):
        error_result("broken", "x", "y")  # type: ignore[arg-type]
