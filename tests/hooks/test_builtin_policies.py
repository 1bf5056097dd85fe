"""Masks, tool lists and call limits, and the helpers that read and rewrite texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import DefinitionError
from lictor.hooks import AllowTools, ContextBuilder, DenyTools, Gate, Mask, MaxCalls, arrange, map_texts, texts
from lictor.values import freeze


def builder():
    return ContextBuilder(agent_id="a", session_id="s")


async def masked(mask, value):
    """What a mask makes of a tool result."""
    return (await Gate([mask]).emit(builder().post_tool_call("c", "lookup", {}, value, False))).target


MASKED = {
    "card": {
        "4111 1111 1111 1111": "**** 1111",
        "pay with 4111-1111-1111-1111 now": "pay with **** 1111 now",
        "5500005555555559.": "**** 5559.",
        "378282246310005": "**** 0005",
        "ref-4111111111111111-x": "ref-**** 1111-x",
        "4111 1111 1111 1111 12 30": "**** 1111 12 30",
        "7 4111 1111 1111 1111 5500 0055 5555 5559": "7 **** 1111 **** 5559",
        "6011000990139424 and 30569309025904": "**** 9424 and **** 5904",
    },
    "email": {"to ana.b+x@mail.example.org!": "to ****@mail.example.org!"},
    "iban": {"DE89 3704 0044 0532 0130 00": "DE** **** 3000", "GB82WEST12345698765432": "GB** **** 5432"},
    "secret": {
        "key sk-abcdefghijklmnopqrstuv": "key ****",
        "AKIAABCDEFGHIJKLMNOP": "****",
        "ghp_" + "a" * 36: "****",
        "x -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- y": "x **** y",
    },
    r"\d{3}-\d{4}": {"call 555-1234": "call ****"},
}
KEPT = {
    "card": ["4111 1111 1111 1112", "1781877791124", "42", "order 12345678901234567890", "4111  1111 1111 1111"],
    "email": ["a@b", "@example.org", "ana at example.org"],
    "iban": ["DE89 3704 0044 0532 0130 01", "IBAN"],
    "secret": ["sk-short", "AKIA", "task-abcdefghijklmnopqrst"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, cases in MASKED.items() for text in cases])
async def test_masks_replace_what_they_are_for(kind, text):
    """What a kind or pattern matches is replaced, wherever in the result it stands."""
    assert await masked(Mask(kind), {"rows": [{"card": text, "n": 1}]}) == {
        "rows": [{"card": MASKED[kind][text], "n": 1}]
    }


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, cases in KEPT.items() for text in cases])
async def test_masks_leave_the_rest_alone(kind, text):
    """Numbers with a wrong check digit and texts that only look similar stay as they are."""
    emission = await Gate([Mask(kind)]).emit(builder().post_tool_call("c", "lookup", {}, [text], False))
    assert emission.verdict.decision == "allow"
    assert emission.target == [text]


async def test_masks_work_where_they_are_told_to():
    """A mask for tool results does not touch the output."""
    mask = Mask("card", points=["post_tool_call"])
    assert await masked(mask, "4111 1111 1111 1111") == "**** 1111"
    assert (await Gate([mask]).emit(builder().output("4111 1111 1111 1111"))).verdict.decision == "allow"


def test_masks_are_named_after_their_kind():
    """A kind is part of the name; patterns are numbered or named."""
    masks = [Mask("card"), Mask("email"), Mask("a+"), Mask(re.compile("b+")), Mask("c", name="tidy")]
    assert [bound.name for bound in arrange([("", masks)])] == ["mask-card", "mask-email", "mask", "mask-2", "tidy"]


@pytest.mark.parametrize(
    "arguments", [{"pattern": "("}, {"pattern": "x", "points": ["agent_startup"]}, {"pattern": "x", "points": []}]
)
def test_masks_that_could_not_work_are_refused(arguments):
    """A broken expression, or a point at which nothing can be changed, raises at once."""
    with pytest.raises(DefinitionError):
        Mask(**arguments)


async def test_tools_can_be_denied_and_allowed_by_name():
    """DenyTools denies the named, AllowTools all others."""
    for policy, denied in ((DenyTools("pay", "refund"), {"pay"}), (AllowTools("lookup"), {"pay", "search"})):
        build = builder()
        gate = Gate([policy])
        for name in ("pay", "lookup", "search"):
            emission = await gate.emit(build.pre_tool_call("c", name, {}))
            assert emission.proceeds is (name not in denied)


async def test_calls_are_limited_by_session():
    """MaxCalls counts attempts of each session, of all tools or of the named together, until its end."""
    build, other = builder(), ContextBuilder(agent_id="a", session_id="other")
    gate = Gate([MaxCalls("search", "fetch", 2)])
    order = ["search", "lookup", "fetch", "search", "lookup"]
    outcomes = [(await gate.emit(build.pre_tool_call("c", name, {}))).proceeds for name in order]
    assert outcomes == [True, True, True, False, True]
    assert (await gate.emit(other.pre_tool_call("c", "search", {}))).proceeds
    await gate.emit(build.agent_shutdown("completed"))
    assert (await gate.emit(build.pre_tool_call("c", "search", {}))).proceeds


async def test_a_limit_binds_under_evaluate_only():
    """MaxCalls is a limit and not a policy."""
    build = builder()
    gate = Gate([MaxCalls(1), DenyTools("pay")], mode="evaluate_only")
    outcomes = [await gate.emit(build.pre_tool_call("c", "pay", {})) for _ in range(2)]
    assert [emission.proceeds for emission in outcomes] == [True, False]
    assert outcomes[1].verdict.reason == "max_calls"


@pytest.mark.parametrize(
    "make",
    [
        DenyTools,
        lambda: AllowTools(""),
        lambda: DenyTools(["pay"]),
        MaxCalls,
        lambda: MaxCalls("search"),
        lambda: MaxCalls(-1),
        lambda: MaxCalls(True),
        lambda: MaxCalls(3, 4),
    ],
)
def test_limits_and_lists_that_could_not_work_are_refused(make):
    """Names are texts, limits are counts."""
    with pytest.raises(DefinitionError):
        make()


def test_policies_tell_their_configuration():
    """What a built-in is set up to do goes into the policy fingerprint."""
    assert MaxCalls("a", limit=3).config() == MaxCalls("a", 3).config() == {"limit": 3, "tools": ["a"]}
    assert MaxCalls(0).config() == {"limit": 0, "tools": None}
    assert DenyTools("b", "a").config() == AllowTools("a", "b").config() == ["a", "b"]
    assert Mask("x", points=["output"]).config() == {"pattern": "x", "points": ["output"]}


TREES = st.recursive(
    st.one_of(st.none(), st.integers(-9, 9), st.text("ab", max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("xy", max_size=2), inner, max_size=3)),
    max_leaves=12,
)


@given(TREES)
def test_mapping_keeps_the_shape(tree):
    """map_texts changes the texts that `texts` yields, in order, and nothing else."""
    frozen = freeze(tree)
    mapped = map_texts(frozen, lambda text: text + "!")
    assert [*texts(mapped)] == [text + "!" for text in texts(frozen)]
    assert map_texts(mapped, lambda text: text[:-1]) == tree


@given(TREES)
def test_mapping_shares_what_did_not_change(tree):
    """Parts without a change are the same objects, and so is the whole."""
    frozen = freeze(tree)
    assert map_texts(frozen, lambda text: text) is frozen


def test_texts_can_include_member_names():
    """A model may hide something in a key; whoever cares asks for keys too."""
    target = {"secret": ["a", {"b": "c"}], "n": 1}
    assert [*texts(target)] == ["a", "c"]
    assert [*texts(target, keys=True)] == ["secret", "a", "b", "c", "n"]
