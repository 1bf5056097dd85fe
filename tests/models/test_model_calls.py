"""Tool calls from the pieces of a stream: what gateways do to them, and what must never come of it."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import ModelError
from lictor.models import Call
from lictor.models.calls import MOST_CALLS, CallAssembly
from lictor.testing.wire import piece


def assemble(*pieces):
    """The calls of these pieces as (id, name, arguments)."""
    assembly = CallAssembly()
    for each in pieces:
        assembly.add(each)
    return [(call.id, call.name, call.arguments) for call in assembly.calls()]


def refused(*pieces):
    """The code with which these pieces are refused."""
    with pytest.raises(ModelError) as caught:
        assemble(*pieces)
    assert caught.value.retryable
    return caught.value.code


ONE, TWO = ("a", "read", '{"p":1}'), ("b", "read", '{"p":2}')


def test_a_call_in_pieces_is_put_together():
    """Text of the same index is joined, white space included."""
    pieces = [piece(0, "a", "read", ""), *(piece(0, arguments=text) for text in ('{"p":"x', " ", " ", 'y"}'))]
    assert assemble(*pieces) == [("a", "read", '{"p":"x  y"}')]


def test_calls_may_alternate_by_index():
    """Two calls whose pieces take turns stay apart."""
    heads = piece(0, "a", "read", ""), piece(1, "b", "read", "")
    tails = piece(1, arguments='{"p":'), piece(0, arguments='{"p":1}'), piece(1, arguments="2}")
    assert assemble(*heads, *tails) == [ONE, TWO]


def test_g01_two_heads_at_one_index_are_two_calls():
    """G01: a second id at the same index begins another call."""
    assert assemble(piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", '{"p":2}')) == [ONE, TWO]


def test_g01_a_second_head_may_be_continued():
    """G01: after a whole call, pieces without an id belong to the newer one."""
    pieces = piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", ""), piece(0, arguments='{"p":2}')
    assert assemble(*pieces) == [ONE, TWO]


def test_g01_pieces_with_ids_find_their_call_again():
    """G01: two open calls at one index are told apart where the pieces carry ids."""
    heads = piece(0, "a", "read", ""), piece(0, "b", "read", "")
    assert assemble(*heads, piece(0, "b", arguments='{"p":2}'), piece(0, "a", arguments='{"p":1}')) == [ONE, TWO]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(0, "a", "read", '{"p":1}'), piece(0, "b", "read", ""), piece(1, arguments='{"p":2}')],
        [piece(0, "a", "read", ""), piece(0, "b", "read", ""), piece(0, arguments='{"p":1}')],
        [piece(0, "a", "read", '{"p":1}'), piece(0, arguments='{"p":2}')],
        [piece(0, "a", "read", '{"p":1}'), piece(0, "b", arguments='{"p":2}')],
        [piece(0, "a", "read", '{"p":'), piece(0, "a", "write", "1}")],
        [piece(0, "a", "read", '{"p":1}'), piece(0, "a", "read", '{"p":2}'), piece(0, "a", arguments=" ")],
        [piece(0, "a", "read", '{"p":1}'), piece(0, "a", arguments='{"p":2}')],
        [piece(0, name="read", arguments=""), piece(0, name="read", arguments='{"p":1}')],
        [piece(0, name="read", arguments=""), piece(0, "a", "read", '{"p":1}')],
        [piece(0, "a", arguments='{"p":1}'), piece(0, name="read", arguments="")],
        [piece(None, "a", "read", ""), piece(None, "b", "read", ""), piece(None, arguments="{}")],
        [piece(0, arguments='{"p":1}')],
    ],
    ids=[
        "tail at another index", "tail after two open heads", "no head for the second", "new id without a name",
        "one id, two names", "one id for two calls, then a third piece", "one id, no name", "one name twice",
        "late id with the name again", "late name after whole arguments", "no index at all", "no head at all",
    ],
)  # fmt: skip
def test_g01_ambiguous_pieces_are_refused(pieces):
    """G01: where two readings are possible the response is refused and may be asked for again."""
    assert refused(*pieces) == "ambiguous_calls"


def test_one_id_for_two_whole_calls_is_two_calls():
    """A duplicate id at one index begins another call once the first has all it can have."""
    pieces = piece(0, "a", "read", '{"p":1}'), piece(0, "a", "read", '{"p":2}')
    assert assemble(*pieces) == [ONE, ("a", "read", '{"p":2}')]


@pytest.mark.parametrize("again", ['{"p":1}', '{ "p" : 1 }'])
def test_g07_a_call_that_is_said_again_is_one_call(again):
    """G07: a gateway that ends its stream with the whole call once more, or twice, has made one call."""
    cut = piece(0, "a", "read", '{"p"'), piece(0, arguments=":1}")
    echo = piece(0, "a", "read", again)
    assert assemble(*cut, echo, echo) == [ONE]
    assert assemble(*cut, piece(0, "a", None, again)) == [ONE]


@pytest.mark.parametrize("other", ['{"p":true}', '{"p":1.0}', '{"p":"1"}'])
def test_g07_almost_the_same_call_is_another(other):
    """G07: an echo is the same to the last type."""
    assert assemble(piece(0, "a", "read", '{"p":1}'), piece(0, "a", "read", other)) == [ONE, ("a", "read", other)]


@pytest.mark.parametrize("id", ["", None])
def test_g07_missing_ids_keep_calls_apart(id):
    """G07: calls without ids are told apart by index or, at one index, by their heads; ids stay as given."""
    pieces = [{"index": index, "id": id, "function": {"name": "read", "arguments": "{}"}} for index in (0, 1, 1)]
    assert assemble(*pieces) == [(id, "read", "{}")] * 3


def test_g07_duplicate_ids_are_passed_on():
    """G07: one id at two indexes is a hint, not an identity."""
    assert assemble(piece(0, "a", "read", "{}"), piece(1, "a", "read", "{}")) == [("a", "read", "{}")] * 2


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(0, "a", "read", '{"p":'), piece(0, "a", "read", "1}"), piece(0, "a", "read", "")],
        [piece(0, name="read"), piece(0, "a", arguments='{"p":1}')],
        [piece(0, "a"), piece(0, name="read", arguments='{"p":1}')],
        [piece(0, "a", "read", '{"p":1}'), {"index": 0, "id": "", "function": {"name": "", "arguments": ""}}],
        [piece(0, "a", "read", {"p": 1}).copy()],
    ],
    ids=["head in every piece", "id after the name", "name after the id", "empty last piece", "object"],
)
def test_harmless_habits_are_understood(pieces):
    """Gateways that repeat the head, split it, or send the arguments as an object are read correctly."""
    ((id, name, arguments),) = assemble(*pieces)
    assert (id, name, json.loads(arguments)) == ("a", "read", {"p": 1})


def test_g11_cut_arguments_stay_as_they_came():
    """G11: nothing is closed, completed or repaired."""
    assert assemble(piece(0, "a", "say", '{"text":"abc')) == [("a", "say", '{"text":"abc')]


def test_g15_half_characters_in_arguments_are_joined_or_replaced():
    """G15: a surrogate pair split over two pieces is one character, a lone half is U+FFFD."""
    pieces = piece(0, "a", "say", '{"t":"\ud83c'), piece(0, arguments='\udf78"}')
    assert assemble(*pieces) == [("a", "say", '{"t":"\U0001f378"}')]
    assert assemble(piece(0, "a", "say", '{"t":"\ud83c"}')) == [("a", "say", '{"t":"\ufffd"}')]


def test_g17_numbers_are_not_reformatted():
    """G17: integers beyond 2^53 and unusual spellings reach the loop as the provider wrote them."""
    text = '{"id":2512292042121000001,"x":1e400,"y":0.10,"z":-0}'
    assert assemble(piece(0, "a", "q", text)) == [("a", "q", text)]


@pytest.mark.parametrize("junk", [None, "call", 7, ["a"]])
def test_a_call_that_is_no_object_is_refused(junk):
    """What is no object may hide a call, so the response is refused."""
    assert refused(junk) == "bad_response"


def test_an_index_that_is_no_number_counts_as_none():
    """Strange indexes do not break the assembly."""
    assert assemble(piece(["x"], "a", "read", "{}"), piece("y", "b", "read", "{}")) == [
        ("a", "read", "{}"),
        ("b", "read", "{}"),
    ]


@pytest.mark.parametrize("parts", [['{"p": "a\\', '"}', '"}'], ['{"p": "', "}", '\\\\"}'], ['{"p": [{', "}", "]}"]])
def test_what_is_whole_is_known_wherever_it_is_cut(parts):
    """Escapes, brackets in texts and nesting that are cut in two: the head begins another call only at the end."""
    for cut in range(1, len(parts) + 1):
        pieces = [piece(0, "a", "read", parts[0]), *(piece(0, arguments=text) for text in parts[1:cut])]
        found = assemble(*pieces, piece(0, "a", "read", "{}"))
        assert len(found) == (2 if cut == len(parts) else 1)


@pytest.mark.parametrize("text", ["{}", '{"p": "', "}", "{", " ", '"'])
def test_pieces_take_linear_time(text):
    """A hundred thousand pieces that each could be the last, or the next beginning, take no longer than others."""
    assembly = CallAssembly()
    assembly.add(piece(0, "a", "read", '{"q": "'))
    with contextlib.suppress(ModelError):
        for _ in range(100_000):
            assembly.add(piece(0, "a", arguments=text))


@pytest.mark.parametrize("index", [0, None, "n"])
def test_calls_have_a_limit(index):
    """More calls than a response may have are refused, and not asked for again, whatever their indexes say."""
    with pytest.raises(ModelError) as caught:
        assemble(*(piece(n if index == "n" else index, f"i{n}", "read", "{}") for n in range(MOST_CALLS + 1)))
    assert (caught.value.code, caught.value.retryable) == ("too_large", False)


values = st.dictionaries(
    st.sampled_from("pqr"), st.integers(0, 9) | st.text(alphabet='a "{}\\', max_size=4), max_size=3
)


@st.composite
def streams(draw):
    """Calls, and their pieces: each call cut at random, with its own index or all with index 0, ids or none."""
    count = draw(st.integers(1, 3))
    calls = [
        Call(f"id{number}", draw(st.sampled_from(["read", "write"])), json.dumps(draw(values)))
        for number in range(count)
    ]
    shared = draw(st.booleans())
    queues = []
    for number, call in enumerate(calls):
        index = 0 if shared else number
        cuts = sorted(draw(st.lists(st.integers(0, len(call.arguments)), max_size=3)))
        texts = [call.arguments[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
        with_ids = draw(st.booleans())
        tails = [piece(index, call.id if with_ids else None, None, text) for text in texts[1:]]
        queues.append([piece(index, call.id, call.name, texts[0]), *tails])
    pieces = []
    while any(queues):
        pieces.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return calls, pieces


@given(streams())
def test_calls_come_out_as_they_went_in_or_not_at_all(drawn):
    """However calls are cut, mixed and numbered: the same calls come out, or the response is refused."""
    calls, pieces = drawn
    try:
        found = assemble(*pieces)
    except ModelError:
        assert len({each["index"] for each in pieces}) < len(calls)
    else:
        assert sorted(found) == sorted((call.id, call.name, call.arguments) for call in calls)
