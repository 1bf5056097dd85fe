"""Contexts: what the builder makes, what it refuses, and which foreign ones a gate admits (§4)."""

import copy
import json

import pytest

from lictor.errors import DefinitionError, ValueDomainError
from lictor.hooks import ALLOW, POINTS, AgentContext, Context, ContextBuilder, Gate, interceptor
from lictor.hooks.context import plain_copy, read_context
from lictor.hooks.points import TARGETS
from lictor.hooks.record import public_path
from lictor.values import Clock, canonical_json, freeze, thaw

ANSWER = {"content": "ok", "tool_calls": [{"id": "c1", "name": "t", "args": {"a": 1}}], "finish_reason": "stop"}
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}]


def builder(**options):
    return ContextBuilder(agent_id="clerk", session_id="run_1", **options)


def build_all(**options):
    """A context of every point, with everything optional."""
    build = builder(agent_name="Clerk", started_at="2026-01-01T00:00:00Z", **options)
    extra = {"extensions": freeze({"lictor": {"path": []}}), "turn": 2}
    return [
        build.agent_startup(["t"], **extra),
        build.input([{"type": "text", "text": "hi"}], **extra),
        build.pre_model_call(
            {"id": "m", "vendor": "v", "params": {}}, MESSAGES, tools=[{"name": "t"}], request_id="r", **extra
        ),
        build.post_model_call("m", ANSWER, request_id="r", usage={"prompt_tokens": 1}, **extra),
        build.pre_tool_call("c1", "t", {"a": 1}, **extra),
        build.post_tool_call("c1", "t", {"a": 1}, None, False, duration_ms=2.5, **extra),
        build.output("done", **extra),
        build.agent_shutdown("completed", **extra),
    ]


def test_contexts_hold_the_required_core():
    """Every context has the core of §4.1, and its target is the object of its field (§4.2)."""
    for number, context in enumerate(build_all()):
        point = context["interception_point"]
        assert point == POINTS[number]
        assert (context["spec"], context["sequence"]) == ("agent-hooks/0.1", number)
        assert context["agent"] == {"id": "clerk", "framework": "lictor", "name": "Clerk"}
        assert context["session"] == {"id": "run_1", "started_at": "2026-01-01T00:00:00Z", "turn": 2}
        assert context["extensions"] == {"lictor": {"path": []}}
        held = context
        for name in TARGETS[point]:
            held = held[name]
        assert held is context["target"]
        assert isinstance(context, AgentContext)


def test_what_stays_the_same_is_shared():
    """Agent, session, extensions and frozen messages are the same objects in every context."""
    build = builder()
    extensions = freeze({"lictor": {}})
    message = freeze({"role": "user", "content": "x"})
    first, second = (build.pre_model_call("m", [message], extensions=extensions, turn=1) for _ in range(2))
    for name in ("agent", "session", "extensions"):
        assert first[name] is second[name]
    assert first["messages"][0] is message
    canonical_json(first["messages"][0])
    assert second["messages"][0]._canon is not None


def test_the_sequence_goes_on_where_it_stood():
    """A builder counts from the number it is given; a failed build takes none, `take_sequence` does (§10.3)."""
    build = builder(sequence=7)
    assert build.output("x")["sequence"] == 7
    with pytest.raises(ValueDomainError):
        build.output({1})
    assert build.sequence == 8
    assert build.take_sequence() == 8
    assert build.output("x")["sequence"] == 9


class Noon(Clock):
    def now(self):
        return 1781877791.5


def test_timestamps_come_from_the_clock():
    """The clock a builder is given dates its contexts."""
    assert builder(clock=Noon()).output("x")["timestamp"] == "2026-06-19T14:03:11.500Z"


BAD_BUILDS = {
    "input role": lambda build: build.input("x", role="tool"),
    "shutdown reason": lambda build: build.agent_shutdown("finished"),
    "message without role": lambda build: build.pre_model_call("m", [{"content": "x"}]),
    "message without content": lambda build: build.pre_model_call("m", [{"role": "user"}]),
    "message of another type": lambda build: build.pre_model_call("m", ["x"]),
    "model without id": lambda build: build.pre_model_call({"vendor": "v"}, []),
    "empty model": lambda build: build.pre_model_call("", []),
    "answer without finish_reason": lambda build: build.post_model_call("m", {"content": "x", "tool_calls": []}),
    "answer without tool_calls": lambda build: build.post_model_call("m", {"content": "x", "finish_reason": "stop"}),
    "answer without content": lambda build: build.post_model_call("m", {"tool_calls": [], "finish_reason": "stop"}),
    "call of another type": lambda build: build.post_model_call("m", {**ANSWER, "tool_calls": ["t"]}),
    "call without name": lambda build: build.post_model_call("m", {**ANSWER, "tool_calls": [{"args": {}}]}),
    "call without args": lambda build: build.post_model_call("m", {**ANSWER, "tool_calls": [{"name": "t"}]}),
    "empty call id": lambda build: build.pre_tool_call("", "t", {}),
    "name of another type": lambda build: build.pre_tool_call("c", None, {}),
    "args of another type": lambda build: build.pre_tool_call("c", "t", []),
    "args outside the domain": lambda build: build.pre_tool_call("c", "t", {"a": {1}}),
    "surrogate in extensions": lambda build: build.output("x", extensions={"lictor": "\ud800"}),
    "surrogate in a request id": lambda build: build.pre_model_call("m", [], request_id="\ud800"),
    "surrogate in a model": lambda build: build.pre_model_call("\ud800", []),
    "target too deep": lambda build: build.output(deep(127)),
    "extensions too deep": lambda build: build.output("x", extensions=deep(128)),
}


def deep(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize("kind", BAD_BUILDS)
def test_the_builder_refuses_what_is_no_context(kind):
    """A value that does not fit §4 raises where the context is built."""
    with pytest.raises(ValueDomainError):
        BAD_BUILDS[kind](builder())


@pytest.mark.parametrize("options", [{"agent_id": ""}, {"session_id": ""}, {"session_id": "\ud800"}])
def test_a_session_needs_its_names(options):
    """Agent and session ids are strings that are not empty."""
    with pytest.raises(ValueDomainError):
        ContextBuilder(**{"agent_id": "a", "session_id": "s", **options})


def plain(**changes):
    """A plain tool call context with members changed, or removed with Ellipsis."""
    context = thaw(builder().pre_tool_call("c1", "t", {"a": 1}))
    return {name: value for name, value in {**context, **changes}.items() if value is not ...}


BAD_ENVELOPES = {
    "spec": {"spec": "agent-hooks/one"},
    "no spec": {"spec": ...},
    "point": {"interception_point": "before_tool"},
    "point of another type": {"interception_point": ["output"]},
    "no timestamp": {"timestamp": ...},
    "timestamp": {"timestamp": "yesterday"},
    "negative sequence": {"sequence": -1},
    "float sequence": {"sequence": 1.0},
    "boolean sequence": {"sequence": True},
    "no agent": {"agent": ...},
    "agent of another type": {"agent": "a"},
    "empty agent id": {"agent": {"id": "", "framework": "f"}},
    "no framework": {"agent": {"id": "a"}},
    "framework": {"agent": {"id": "a", "framework": "My Framework"}},
    "no session": {"session": ...},
    "empty session id": {"session": {"id": ""}},
    "no target": {"target": ...},
    "target of its own": {"target": {"a": 2}},
    "target true for one": {"target": {"a": True}},
    "no tool_call": {"tool_call": ...},
    "tool_call of another type": {"tool_call": "t", "target": {"a": 1}},
    "tool name of another type": {"tool_call": {"id": "c1", "name": 1, "args": {"a": 1}}},
    "tool_call without name": {"tool_call": {"id": "c1", "args": {"a": 1}}},
    "args of another type": {"tool_call": {"id": "c1", "name": "t", "args": []}, "target": []},
    "extensions of another type": {"extensions": []},
    "namespace": {"extensions": {"My Space": 1}},
    "surrogate in an optional field": {"request_id": "\ud800"},
}


@interceptor()
def nothing(context):
    return ALLOW


@pytest.mark.parametrize("kind", BAD_ENVELOPES)
async def test_an_invalid_envelope_is_denied_before_anybody_sees_it(kind):
    """A context that fails §4 is `context_invalid` with null identities and best-effort fields (§6.3, §10.3)."""
    context = plain(**BAD_ENVELOPES[kind])
    emission = await Gate([nothing]).emit(context)
    assert emission.verdict.reason == "host_error:context_invalid"
    assert (emission.target, emission.context, emission.proceeds) == (None, None, False)
    record = emission.record
    assert (record["input_identity"], record["enforced_identity"], record["decided_by"]) == (None, None, None)
    assert record["identity_provider"] == "jcs-sha256"
    assert record["session_id"] == ("run_1" if kind not in ("no session", "empty session id") else "")
    assert record["verdicts"] == []


BAD_FIELDS = {
    "agent_startup": {"agent_init": {"tools_registered": [1]}},
    "input": {"input": {"content": "x", "role": "robot"}},
    "pre_model_call": {"model": {"id": "m"}, "messages": {"role": "user"}},
    "post_model_call": {"model": {"id": 1}, "response": ANSWER},
    "post_tool_call": {"tool_call": {"id": "c", "name": "t", "args": {}}, "tool_result": {"value": 1, "is_error": 0}},
    "output": {"output": "text"},
    "agent_shutdown": {"summary": {"reason": "bored"}},
}


@pytest.mark.parametrize("point", BAD_FIELDS)
def test_the_fields_of_each_point_are_checked(point):
    """The conditional fields have the types of §4.2."""
    context = plain(**{"interception_point": point, "tool_call": ..., **BAD_FIELDS[point]})
    context["target"] = list(BAD_FIELDS[point].values())[-1]
    with pytest.raises(ValueDomainError):
        read_context(context)


@pytest.mark.parametrize("value", [None, "context", [], 7])
async def test_a_context_that_is_no_object_is_denied(value):
    """Whatever is handed to a gate, the answer is an emission with a record."""
    emission = await Gate([nothing]).emit(value)
    assert emission.verdict.reason == "host_error:context_invalid"
    assert (emission.record["session_id"], emission.record["sequence"]) == ("", -1)


async def test_messages_of_invalid_contexts_hold_no_content():
    """The record says which field of the contract is wrong; keys and values below it are content (§14)."""
    context = plain(tool_call={"id": "c1", "name": "t", "args": {"p4ssw0rd": {1}}}, target={"p4ssw0rd": {1}})
    emission = await Gate([nothing]).emit(context)
    assert emission.record["verdict"]["message"] == "$.target: set is not a JSON type"
    assert "p4ssw0rd" not in json.dumps(emission.record)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("$", "$"),
        ("$.messages[3].content", "$.messages"),
        ("$.response.tool_calls[0].args.p4ssw0rd", "$.response.tool_calls"),
        ("$.p4ssw0rd.target", "$"),
        ("p4ssw0rd", "$"),
    ],
)
def test_paths_are_shown_as_far_as_the_contract_names_them(path, shown):
    """Names that somebody else chose are content (§14)."""
    assert public_path(path) == shown


async def test_unknown_fields_of_an_invalid_context_do_not_reach_the_record():
    """Only texts and numbers the record's schema allows are copied from a broken envelope (§10.3)."""
    context = plain(
        session={"id": "\ud800"}, sequence=2**60, timestamp=5, trace={"trace_id": "t", "span_id": 5, "x": 1}
    )
    record = (await Gate([nothing]).emit(context)).record
    assert (record["session_id"], record["sequence"], record["trace"]) == ("", -1, {"trace_id": "t"})
    assert "timestamp" not in record


async def test_plain_and_built_contexts_are_judged_alike():
    """A plain dict with the members of §4 gives the record a built context gives."""
    for context in build_all():
        built = await Gate([nothing]).emit(context)
        given = await Gate([nothing]).emit(thaw(context))
        assert built.record == given.record
        assert built.target == given.target
        assert type(given.context) is Context


def test_copies_of_a_context_are_plain_and_aliased():
    """The copy of a foreign interceptor is plain, and writing to its target writes to its field (§4.3)."""
    for context in build_all():
        copied = plain_copy(context)
        held = copied
        for name in TARGETS[context["interception_point"]]:
            held = held[name]
        assert held is copied["target"]
        assert copied == copy.deepcopy(context) == context
        assert [type(copied), type(copy.deepcopy(context))] == [dict, dict]


async def test_a_host_failure_leaves_a_record():
    """A context that could not be built at all is recorded in the rejection shape (§10.3)."""
    records = []
    gate = Gate([nothing], sink=records.append)
    build = builder()
    emission = await gate.record_host_failure(
        "pre_tool_call", "run_1", build.take_sequence(), "ValueDomainError", "2026-01-01T00:00:00Z"
    )
    assert not emission.proceeds
    assert records == [emission.record]
    assert (emission.record["session_id"], emission.record["sequence"]) == ("run_1", 0)
    assert emission.record["verdict"]["message"] == "ValueDomainError"
    assert emission.record["interceptors_registered"] == 1
    assert not (await gate.emit(builder().output("x"))).proceeds  # its number is taken
    assert (await gate.emit(build.output("x"))).proceeds
    with pytest.raises(ValueDomainError) as caught:
        build.pre_tool_call("c1", "t", {"p4ssw0rd": {1}})
    failed = await gate.record_host_failure("pre_tool_call", "run_1", build.take_sequence(), caught.value)
    assert failed.record["verdict"]["message"] == "$: set is not a JSON type"
    unknown = await gate.record_host_failure("output")
    assert (unknown.record["session_id"], unknown.record["sequence"]) == ("", -1)
    with pytest.raises(DefinitionError):
        await gate.record_host_failure("before_tool")
