"""Transform paths: the grammar, resolution, and what a replacement leaves alone (§5.2)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import PathError
from lictor.hooks import parse_path
from lictor.hooks.path import replace_at
from lictor.values import FrozenDict, FrozenList, freeze, thaw

TARGET = freeze({"x": 1, "a-b": 2, "l": [1, {"k": 2}], "7": 3, "n": None, "s": "str", "_": {"é": 0.1}})
FORBIDDEN = "host_error:transform_target_forbidden"
INVALID = "host_error:transform_invalid"

GOOD = {
    "$target": (),
    "$policy_target": (),
    "$target.x": ("x",),
    '$target["x"]': ("x",),
    "$policy_target.x": ("x",),
    "$target.a-b": ("a-b",),
    "$target.7": ("7",),
    "$target.l[0]": ("l", 0),
    "$target.l[001]": ("l", 1),
    "$target.l[1].k": ("l", 1, "k"),
    '$target["l"][1]["k"]': ("l", 1, "k"),
    "$target._": ("_",),
}
BAD = {
    "": FORBIDDEN,
    "$": FORBIDDEN,
    "x": FORBIDDEN,
    "target.x": FORBIDDEN,
    "$other.x": FORBIDDEN,
    "$TARGET": FORBIDDEN,
    " $target": FORBIDDEN,
    "$targetx": INVALID,
    "$policy_targetx": INVALID,
    "$target.": INVALID,
    "$target..x": INVALID,
    "$target.é": INVALID,
    "$target .x": INVALID,
    "$target.x ": INVALID,
    "$target.x\n": INVALID,
    "$target['x']": INVALID,
    '$target["a b"]': INVALID,
    '$target[""]': INVALID,
    "$target[x]": INVALID,
    "$target[-1]": INVALID,
    "$target[１]": INVALID,
    "$target[]": INVALID,
    "$target.l[99999999999999999999]": INVALID,
    '$target["x"][': INVALID,
    "$target.*": INVALID,
    "$target[0:1]": INVALID,
}
UNRESOLVED = [
    "$target.new",
    "$target.l[2]",
    "$target[7]",
    '$target.l["0"]',
    "$target.n.x",
    "$target.s[0]",
    "$target.x.y",
]


@pytest.mark.parametrize("path", GOOD)
def test_paths_of_the_grammar_are_parsed(path):
    """Members, indexes and quoted members, below either root."""
    assert parse_path(path) == GOOD[path]
    assert replace_at(TARGET, parse_path(path), None) is not TARGET


@pytest.mark.parametrize("path", BAD)
def test_other_paths_are_refused(path):
    """A wrong root is forbidden, a wrong segment invalid."""
    with pytest.raises(PathError) as caught:
        parse_path(path)
    assert caught.value.reason == BAD[path]


@pytest.mark.parametrize("path", UNRESOLVED)
def test_a_path_must_resolve(path):
    """A transform replaces what is there; it adds nothing."""
    with pytest.raises(PathError) as caught:
        replace_at(TARGET, parse_path(path), 1)
    assert caught.value.reason == INVALID


def test_errors_hold_no_content():
    """The message of a path error says which segment, not what it is called or what it found."""
    with pytest.raises(PathError) as caught:
        replace_at(freeze({"secret": "s3cr3t"}), ("secret", "hidden"), 1)
    assert "s3cr3t" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_replacement_may_not_nest_too_deeply():
    """A value that makes the target too deep is refused as a breach of the depth limit (§12.3)."""
    deep = {}
    for _ in range(127):
        deep = {"a": deep}
    with pytest.raises(PathError) as caught:
        replace_at(freeze({"a": 1}), ("a",), deep)
    assert caught.value.reason == "host_error:context_invalid"


NAMES = st.text("abz09_-", min_size=1, max_size=3)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(0, 1), st.text(max_size=3))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)


def places(tree, path="$target"):
    """Every path that resolves in a tree."""
    yield path
    if isinstance(tree, dict):
        for name, item in tree.items():
            yield from places(item, f"{path}.{name}")
    elif isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from places(item, f"{path}[{index}]")


def shared(old, new, segments):
    """Whether everything beside the path is the same object in both trees."""
    for segment in segments:
        keys = old if isinstance(old, dict) else range(len(old))
        if any(old[key] is not new[key] for key in keys if key != segment):
            return False
        if list(old) != list(new) and isinstance(old, dict):
            return False
        old, new = old[segment], new[segment]
    return True


@given(tree=TREES, value=LEAVES, data=st.data())
def test_a_replacement_changes_one_location(tree, value, data):
    """The addressed location holds the value; all else is the very same object, in the same order."""
    frozen = freeze(tree)
    path = data.draw(st.sampled_from(list(places(tree))))
    segments = parse_path(path)
    new = replace_at(frozen, segments, value)
    found = new
    for segment in segments:
        found = found[segment]
    assert json.dumps(found) == json.dumps(value)
    assert shared(frozen, new, segments)
    assert type(new) in (FrozenDict, FrozenList) or not segments
    assert thaw(frozen) == tree


def outcome(compute):
    """The result, or the reason of a path error, ours or the SDK's."""
    try:
        return compute()
    except ValueError as error:
        return getattr(error, "reason", None) or str(error.host_error.value)


@given(tree=TREES, data=st.data())
def test_replacements_agree_with_the_sdk(tree, data):
    """Our result is the SDK core's, but for the order of members and the floats it moves."""
    sdk = pytest.importorskip("agent_hooks.path", reason="agent-hooks-sdk is a development dependency")
    tree = json.loads(json.dumps(tree), parse_float=lambda text: round(float(text), 3))
    path = data.draw(st.one_of(st.sampled_from(list(places(tree))), st.sampled_from([*GOOD, *BAD, *UNRESOLVED])))
    theirs = outcome(lambda: sdk.apply(tree, path, "new"))
    assert outcome(lambda: replace_at(freeze(tree), parse_path(path), "new")) == theirs


@given(st.text(max_size=20))
def test_no_text_breaks_the_parser(text):
    """Any text is a path or a PathError with one of two reasons."""
    for path in (text, "$target" + text):
        result = outcome(lambda path=path: parse_path(path))
        assert isinstance(result, tuple) or result in (FORBIDDEN, INVALID)
