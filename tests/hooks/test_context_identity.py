"""Identities: the contract's golden ones, RFC 8785, providers, and long histories."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import DefinitionError, ValueDomainError
from lictor.hooks import (
    ALLOW,
    ContextBuilder,
    Gate,
    IdentityProvider,
    context_identity,
    interceptor,
    keyed_identity,
)
from lictor.values import canonical_json, freeze, thaw

HEAD = {
    "spec": "agent-hooks/0.1",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "agent": {"id": "agent-1", "framework": "reference"},
    "session": {"id": "sess-1"},
}


def tool_call(number, args, name="k"):
    """The fields of a tool call of the golden set."""
    return {"tool_call": {"id": f"tc-{number}", "name": name, "args": args}, "target": args}


def whole(field, value):
    """A field that is the target itself."""
    return {field: value, "target": value}


RFC_NUMBERS = {"a": 56.0, "b": 1e-6, "c": 1e-7, "d": 333333333.3333333, "e": 1e21, "f": 9.999999999999997e22, "g": 0.1}
MESSAGES = [{"role": "system", "content": "a"}, {"role": "user", "content": {"parts": [1, 2, {"k": "v"}]}}]
UTF16 = {"": 1, "\ue000": 2, "\U00010000": 3, "z": 4, "é": 5}
OPTIONAL = {
    "trace": {"trace_id": "IGNORED"},
    "budgets": {"tool_call_count": 999},
    "extensions": {"acs": {"anything": True}},
    "agent": {**HEAD["agent"], "name": "IGNORED", "version": "IGNORED"},
    "session": {**HEAD["session"], "started_at": "IGNORED", "turn": 99},
}
ANSWER = {"finish_reason": "stop", "tool_calls": [], "content": {"z": 1, "a": 2, "m": 3}}
ODD = {"i": 1, "f": 1.0, "neg0": -0.0, "big": 1e21, "small": 1e-7, "pi": 3.141592653589793}
NULL_RESULT = {"tool_call": {"id": "tc-1", "name": "t", "args": {}}, "tool_result": {"value": None, "is_error": False}}

# Facts of the contract's golden set: name -> point, sequence, fields, SHA-256 of the canonical projection.
GOLDEN = {
    "G-01": (
        "agent_startup",
        0,
        whole("agent_init", {"tools_registered": ["a", "b"]}),
        "1e8d587681f94c29a4af3b973bd3dd8793a78a99dac8f2f07a5e5f62f9e2e350",
    ),
    "G-02": (
        "input",
        1,
        whole("input", {"content": "héllo 🌍", "role": "user"}),
        "6b66816f89fcff55c4daa70ad754009efd6cd26685747864e48fa724c8330e01",
    ),
    "G-03": (
        "pre_tool_call",
        4,
        tool_call(1, ODD, "calc"),
        "4b48672d73d5c4b53974d536d92d210ef4b2d7594d55d8abfbeafc29e56a97c9",
    ),
    "G-04": (
        "post_model_call",
        3,
        {"model": {"id": "m"}, **whole("response", ANSWER)},
        "1f7972bc04c9bb0c3b20ac252cb350c484a6e7b7c19585d10fea4ea2d6f965d1",
    ),
    "G-05": (
        "input",
        1,
        {**OPTIONAL, **whole("input", {"content": "hi", "role": "user"})},
        "e84b6762b96c04e9713df30fef269a6b123da1c16a687f65305d744371adaff6",
    ),
    "G-05b": (
        "input",
        1,
        whole("input", {"content": "hi", "role": "user"}),
        "e84b6762b96c04e9713df30fef269a6b123da1c16a687f65305d744371adaff6",
    ),
    "G-06": (
        "pre_model_call",
        2,
        {"model": {"id": "gpt-x"}, **whole("messages", MESSAGES)},
        "32e7df4b4117a6a2cf07adc2170693bbc20579d7a650623c18371e00eb174879",
    ),
    "G-07": (
        "post_tool_call",
        5,
        {**NULL_RESULT, "target": None},
        "8a470ab3bb95e86a33a5e5ceb8df6ab2daa8153019393e3f086410a1252cd00d",
    ),
    "G-08": (
        "output",
        6,
        whole("output", {"content": 'line1\nline2\t"q"\\end'}),
        "f43bd3d6baa17bb3893f2d0bd83a3387bc91f59eb7787ad91934c2f99dcfea41",
    ),
    "G-09": (
        "agent_shutdown",
        7,
        whole("summary", {"reason": "completed"}),
        "aefb92c61e406acdbb3d23642ff6326b219abbf1129b29b08df8abc62afb1a51",
    ),
    "G-10": (
        "pre_tool_call",
        4,
        tool_call(1, {}, "noop"),
        "e87b3e17630a9701eec5d2915dab68a870daecbdc3ba4f4790abd4c901e02750",
    ),
    "G-11": (
        "pre_tool_call",
        8,
        tool_call(2, UTF16),
        "c29e0bd9b733b7c703e16ee6e84a60870637162d7adf814a9a4904e771071513",
    ),
    "G-12": (
        "pre_tool_call",
        9,
        tool_call(3, {"中文": 1, "émoji🎯": 2, "ascii": 3}),
        "b5a9de47d33bf3d47e21a7046069fe5e6ad2a9c4e44c348bbbd1a34fe2a8b767",
    ),
    "G-13": (
        "pre_tool_call",
        10,
        tool_call(4, {"max": 2**53 - 1, "min": 1 - 2**53}),
        "a243dd5905681dfbb0f274028ab516326defb498ed9f462f8022fe39190e470a",
    ),
    "G-14": (
        "pre_tool_call",
        11,
        tool_call(5, {"id": "9223372036854775807", "small": 42}),
        "3a78e0666b997220076415b95b9e32a51041547123028e62fe4175b0faed7308",
    ),
}
G15 = ("pre_tool_call", 12, tool_call(6, RFC_NUMBERS))
G15_SDK = "0147bdf34ae0be12583b51a42b3d7cf9dff6adf8e1bfc0b9d9fdb8353a14c7cf"


def context(point, sequence, fields):
    """A plain dict context."""
    return {**HEAD, "interception_point": point, "sequence": sequence, **fields}


@pytest.mark.parametrize("compat", [None, "agent-hooks-sdk"])
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_identities(name, compat):
    """The identity of a golden context is the one the contract pins, in both float modes."""
    *parts, expected = GOLDEN[name]
    assert context_identity(context(*parts), compat=compat) == f"sha256:{expected}"


def test_golden_identity_of_numbers_is_pinned_wrong():
    """G-15 pins 9.999999999999996e22 for the double …997e22: reproduced in compat mode only (decision 002)."""
    assert context_identity(context(*G15), compat="agent-hooks-sdk") == f"sha256:{G15_SDK}"
    assert context_identity(context(*G15)) != f"sha256:{G15_SDK}"
    assert canonical_json(RFC_NUMBERS["f"]) == b"9.999999999999997e+22"


@pytest.mark.parametrize(
    "fields", [tool_call(7, {"id": 2**53}), {"target": {}}], ids=["integer beyond 2^53-1", "no tool_call"]
)
def test_contexts_the_contract_refuses_have_no_identity(fields):
    """No identity is made up for a context outside the domain or without its fields (G-N01, G-N02)."""
    with pytest.raises(ValueDomainError):
        context_identity(context("pre_tool_call", 13, fields))


@pytest.mark.parametrize("point", ["", "pre_tool", None])
def test_no_identity_over_a_guessed_point(point):
    """A context whose point is absent or unknown is refused (§10.2)."""
    with pytest.raises(ValueDomainError):
        context_identity(context(point, 1, tool_call(1, {})))


def test_members_beyond_the_required_ones_do_not_count():
    """Optional members of a field are outside the projection, but inside the target they count (§10.2)."""
    plain = context("post_tool_call", 1, {**NULL_RESULT, "target": None})
    timed = {**plain, "tool_result": {**NULL_RESULT["tool_result"], "duration_ms": 3.5}, "usage": {}}
    assert context_identity(plain) == context_identity(timed)
    short = whole("output", {"content": "x"})
    long = whole("output", {"content": "x", "extra": 1})
    assert context_identity(context("output", 1, short)) != context_identity(context("output", 1, long))


def build_all():
    """One context of every point."""
    build = ContextBuilder(agent_id="a%s", session_id='s"1', agent_name="A", extensions={"lictor": {"turn": 1}})
    answer = {"content": None, "tool_calls": [{"id": "c", "name": "t", "args": {}}], "finish_reason": "tool_calls"}
    return [
        build.agent_startup(["t"]),
        build.input("hi"),
        build.pre_model_call({"id": "m", "vendor": "v"}, MESSAGES, tools=[{"name": "t"}], request_id="r"),
        build.post_model_call("m", {**answer, "reasoning": "…"}, usage={"prompt_tokens": 1}),
        build.pre_tool_call("c", "t", {"a": 0.1, "é": [1]}),
        build.post_tool_call("c", "t", {"a": 0.1}, "text", True, duration_ms=1.5),
        build.output([{"type": "text", "text": "x"}]),
        build.agent_shutdown("error"),
    ]


@pytest.mark.parametrize("made", build_all(), ids=lambda made: made["interception_point"])
def test_built_and_plain_contexts_have_one_identity(made):
    """What the builder knows in advance changes nothing about the identity."""
    assert context_identity(made) == context_identity(thaw(made))
    assert context_identity(made, compat="agent-hooks-sdk") == context_identity(thaw(made), compat="agent-hooks-sdk")


@pytest.mark.parametrize("made", build_all(), ids=lambda made: made["interception_point"])
def test_identities_are_the_sdk_core_s(made):
    """The SDK computes the same identity from the plain context."""
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")
    assert context_identity(made, compat="agent-hooks-sdk") == sdk.context_identity(thaw(made))


TEXTS = st.text(max_size=8)
TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXTS), max_size=6)
FILLERS = [[freeze({"role": "user", "content": f"{n} " + "x" * size}) for n in range(20)] for size in (10, 3000)]


def frozen(turns):
    """Messages of a history."""
    return [freeze({"role": role, "content": text}) for role, text in turns]


@given(start=st.sampled_from([[], *FILLERS]), history=TURNS, cut=st.integers(0, 26), more=TURNS)
def test_resuming_the_hash_of_a_history_changes_nothing(start, history, cut, more):
    """Whatever a session sent before, the identity of a call is that of its own messages."""
    build = ContextBuilder(agent_id="a", session_id="s")
    first = start + frozen(history)
    second = first[:cut] + frozen(more)
    longer = second + frozen(history)
    for messages in (first, second, longer, first, longer, longer):
        made = build.pre_model_call("m", messages)
        assert context_identity(made) == context_identity(thaw(made))


def test_equal_messages_that_are_not_the_same_bytes_are_not_confused():
    """True equals 1 in Python; a resumed hash goes by object, never by equality."""
    build = ContextBuilder(agent_id="a", session_id="s")
    for value in (1, True, 1.0, 1):
        made = build.pre_model_call("m", [*FILLERS[1], {"role": "user", "content": value}])
        assert context_identity(made) == context_identity(thaw(made))
        longer = build.pre_model_call("m", [*FILLERS[1], {"role": "user", "content": value}, FILLERS[0][0]])
        assert context_identity(longer) == context_identity(thaw(longer))


async def test_a_lone_surrogate_in_a_long_history_is_found():
    """The bytes of long histories are checked like those of short ones (§4.4)."""
    build = ContextBuilder(agent_id="a", session_id="s")
    made = build.pre_model_call("m", [*FILLERS[1], {"role": "user", "content": "\udead"}])
    with pytest.raises(ValueDomainError, match="surrogate"):
        context_identity(made)


def test_a_builder_for_another_session_differs_in_the_session():
    """`for_session` shares what is the agent's and starts a session of its own."""
    first = ContextBuilder(agent_id="a", session_id="s", agent_name="A", extensions={"lictor": {"x": 1}})
    first.output("x")
    second = first.for_session("t").output("x")
    plain = ContextBuilder(agent_id="a", session_id="t", agent_name="A", extensions={"lictor": {"x": 1}}).output("x")
    assert {**second, "timestamp": 0} == {**plain, "timestamp": 0}
    assert context_identity(second) == context_identity(thaw(second))
    for session in ("", "\ud800"):
        with pytest.raises(ValueDomainError):
            first.for_session(session)


@interceptor()
def nothing(context):
    return ALLOW


async def test_a_keyed_identity_depends_on_key_and_content():
    """keyed_identity is content-derived, unlinkable without the key, and named after its key id (§10.1)."""
    build = ContextBuilder(agent_id="a", session_id="s")
    made = build.output("x")
    records = [
        (await Gate([nothing], identity=keyed_identity("k1", key)).emit(made)).record
        for key in (b"one", b"two", b"one")
    ]
    identities = [record["input_identity"] for record in records]
    assert records[0]["identity_provider"] == "hmac-sha256-k1"
    assert identities[0] == identities[2]
    assert identities[0] != identities[1]


async def test_records_are_unbound_without_a_provider():
    """identity=None gives null identities under a null provider (§10.1), and still checks the domain."""
    gate = Gate([nothing], identity=None)
    record = (await gate.emit(ContextBuilder(agent_id="a", session_id="s").output("x"))).record
    assert (record["identity_provider"], record["input_identity"], record["enforced_identity"]) == (None, None, None)
    bad = await gate.emit(ContextBuilder(agent_id="a", session_id="s", sequence=5).output("\udead"))
    assert bad.verdict.reason == "host_error:context_invalid"


@pytest.mark.parametrize("name", ["", "jcs", "jcs-mine", "Mine", "1a", "a b", None])
def test_provider_names_are_checked(name):
    """A provider cannot claim the reserved prefix or a name records could not carry (§10.1)."""
    with pytest.raises(DefinitionError):
        IdentityProvider(name, str)


def test_providers_and_keys_are_checked():
    """A provider needs a function, a keyed identity a key and a name for it."""
    for make in (
        lambda: IdentityProvider("mine", "sha256"),
        lambda: keyed_identity("Key", b"k"),
        lambda: keyed_identity("k1", "text"),
        lambda: keyed_identity("k1", b""),
    ):
        with pytest.raises(DefinitionError):
            make()


async def test_a_gate_in_compat_mode_records_the_sdk_s_identity():
    """`compat` decides about the bytes of floats in what a gate records, input and enforced."""
    made = ContextBuilder(agent_id="a", session_id="s").pre_tool_call("c", "t", {"x": RFC_NUMBERS["f"]})
    record = (await Gate([nothing], compat="agent-hooks-sdk").emit(made)).record
    assert record["input_identity"] == context_identity(made, compat="agent-hooks-sdk") != context_identity(made)


@pytest.mark.parametrize("options", [{"identity": "sha1"}, {"identity": str}, {"compat": "other"}])
def test_unknown_identities_are_refused(options):
    """A gate takes the default, a provider or None."""
    with pytest.raises(DefinitionError):
        Gate([nothing], **options)


async def test_a_provider_gets_a_plain_copy():
    """A host-defined provider reads a plain dict and may do with it what it likes."""
    seen = []
    provider = IdentityProvider("mine", lambda given: seen.append(type(given)) or json.dumps(given["target"]))
    emission = await Gate([nothing], identity=provider).emit(ContextBuilder(agent_id="a", session_id="s").output("x"))
    assert seen == [dict]
    assert emission.record["enforced_identity"] == '{"content": "x"}'


def test_the_preimage_is_the_sorted_projection():
    """Spelled out once: the bytes under an identity (§10.2)."""
    made = thaw(ContextBuilder(agent_id="a", session_id="s", agent_name="N").output("x")) | {
        "timestamp": "2026-01-01T00:00:00Z"
    }
    expected = (
        '{"agent":{"framework":"lictor","id":"a"},"interception_point":"output","output":{"content":"x"},"sequence":0,'
        '"session":{"id":"s"},"spec":"agent-hooks/0.1","target":{"content":"x"},"timestamp":"2026-01-01T00:00:00Z"}'
    )
    assert context_identity(made) == "sha256:" + hashlib.sha256(expected.encode()).hexdigest()
