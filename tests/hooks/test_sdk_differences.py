"""Where the reference SDK departs from its specification and we do not (design page 10, numbered there)."""

import asyncio
import copy
import json
import math
import threading

import pytest

from lictor.hooks import (
    ALLOW,
    ApprovalResolution,
    ContextBuilder,
    Gate,
    IdentityProvider,
    Verdict,
    canonical_json,
    context_identity,
    interceptor,
)
from lictor.values import thaw

sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")
NEIGHBOURS = (0.2002200276212568, math.nextafter(0.2002200276212568, 1))


class Judge:
    """A foreign interceptor: an object with `intercept`."""

    def __init__(self, answer):
        self.answer = answer

    def intercept(self, context):
        return self.answer(context) if callable(self.answer) else self.answer


class Resolver:
    """A resolver made of a function."""

    def __init__(self, answer):
        self.resolve = answer


def allow_all(context):
    return ALLOW


def tool_call(args, **changes):
    """A plain dict context of a tool call, as a host without our builder makes it."""
    context = thaw(ContextBuilder(agent_id="a", session_id="s").pre_tool_call("c1", "pay", {}))
    return context | {"tool_call": {"id": "c1", "name": "pay", "args": args}, "target": args, **changes}


async def sdk_emit(context, *answers, **options):
    """The SDK's record of one emission; `context` afterwards holds what would run."""
    emitter = sdk.InterceptionEmitter(**options)
    for answer in answers:
        emitter.register(Judge(answer))
    return await emitter.emit_unchecked(context)


async def sdk_raises(context, *answers, **options):
    """The exception the SDK's emitter lets out, and how many records it left."""
    emitter = sdk.InterceptionEmitter(**options)
    for answer in answers:
        emitter.register(Judge(answer))
    try:
        await emitter.emit_unchecked(context)
    except Exception as error:
        return error, len(emitter.results)
    return None, len(emitter.results)


def transform(path, value):
    return lambda context: Verdict.transform(path, value)


def wire_transform(path, value):
    return {"decision": "transform", "transform": {"path": path, "value": value}}


async def test_1_neighbouring_floats_have_different_identities():
    """Floats are written as RFC 8785 says, so two amounts never share an identity (1)."""
    contexts = [tool_call({"amount": amount}, sequence=1, timestamp="2026-01-01T00:00:00Z") for amount in NEIGHBOURS]
    assert canonical_json(NEIGHBOURS[0]) != canonical_json(NEIGHBOURS[1])
    assert context_identity(contexts[0]) != context_identity(contexts[1])

    assert sdk.canonical_json(NEIGHBOURS[0]) == sdk.canonical_json(NEIGHBOURS[1])
    assert sdk.context_identity(contexts[0]) == sdk.context_identity(contexts[1])
    for context in contexts:
        assert context_identity(context, compat="agent-hooks-sdk") == sdk.context_identity(context)


async def test_2_a_transform_changes_the_addressed_location_only():
    """Sibling floats, key order and the alias of the target survive a transform (2)."""
    args = {"z": "old", "amount": 0.9317477150100243, "a": [1]}
    emission = await Gate([transform("$target.z", "new")]).emit(tool_call(args))
    assert json.dumps(emission.target) == json.dumps({**args, "z": "new"})
    assert emission.context["tool_call"]["args"] is emission.target

    context = tool_call(copy.deepcopy(args))
    await sdk_emit(context, wire_transform("$target.z", "new"))
    assert context["target"]["amount"] != args["amount"]
    assert list(context["target"]) != list(args)
    assert context["tool_call"]["args"] is not context["target"]


@pytest.mark.parametrize("block", [{"path": "$target.x", "value": None}, {"path": "$target.x"}])
async def test_3_a_transform_to_null_works(block):
    """Null is a value like another, also as an absent member (3)."""
    wire = {"decision": "transform", "transform": block}
    emission = await Gate([Judge(wire)]).emit(tool_call({"x": 1}))
    assert emission.proceeds
    assert emission.target == {"x": None}

    record = await sdk_emit(tool_call({"x": 1}), wire)
    assert record.verdict.reason == "host_error:verdict_invalid"


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


OUTSIDE = {
    "set": {1},
    "bytes": b"1",
    "tuple": (1, 2),
    "integer key": {1: "a"},
    "object": object(),
    "nan": math.nan,
    "infinity": -math.inf,
    "surrogate": "\ud800",
    "surrogate in a key": {"\udfff": 1},
    "big integer": 2**53,
    "129 levels": deep(129),
    "100,000 levels": deep(100_000),
    "6 MiB": "a" * (6 * 1024 * 1024),
}
SDK_RAISES = {"set", "bytes", "object", "100,000 levels"}  # no record at all
SDK_LETS_PASS = {"tuple", "integer key", "6 MiB"}


@pytest.mark.parametrize("kind", OUTSIDE)
async def test_4_values_outside_the_domain_are_denied_with_a_record(kind):
    """Whatever is no JSON, too deep or too big is `context_invalid` with a record, and never a crash (4)."""
    seen = []
    records = []
    gate = Gate([lambda context: seen.append(context) or ALLOW], sink=records.append)
    emission = await gate.emit(tool_call({"x": OUTSIDE[kind]}))
    assert emission.verdict.reason == "host_error:context_invalid"
    assert not emission.proceeds
    assert records == [emission.record]
    assert seen == []

    error, count = await sdk_raises(tool_call({"x": OUTSIDE[kind]}), {"decision": "allow"})
    if kind in SDK_RAISES:
        assert error is not None
        assert count == 0
    elif kind in SDK_LETS_PASS:
        record = await sdk_emit(tool_call({"x": OUTSIDE[kind]}), {"decision": "allow"})
        assert record.proceeds


async def test_4_a_cyclic_context_is_denied_with_a_record():
    """A context that contains itself is `context_invalid` (4)."""
    args = {}
    args["self"] = args
    emission = await Gate([allow_all]).emit(tool_call(args))
    assert emission.verdict.reason == "host_error:context_invalid"

    error, count = await sdk_raises(tool_call(args), {"decision": "allow"})
    assert (error is None) == (count == 1)


ESCALATE = {"decision": "deny", "reason": "ask", "approval": {}}


async def sleep_forever(request):
    await asyncio.sleep(3600)


def raising(request):
    raise RuntimeError("secret")


RESOLUTIONS = {
    "returns None": (lambda request: None, "approval_resolver_failed"),
    "returns a number": (lambda request: 7, "approval_resolver_failed"),
    "raises": (raising, "approval_resolver_failed"),
    "hangs": (sleep_forever, "approval_resolver_failed"),
    "unknown outcome": (
        lambda request: {
            "outcome": "maybe",
            "context_identity": request.context_identity,
            "verdict": {"decision": "allow"},
        },
        "approval_resolver_failed",
    ),
    "wrong echo before a wrong outcome": (
        lambda request: {"outcome": "maybe", "context_identity": "sha256:other", "verdict": {"decision": "allow"}},
        "approval_identity_mismatch",
    ),
    "approve without a verdict": (
        lambda request: ApprovalResolution("approve", request.context_identity),
        "approval_resolver_failed",
    ),
    "unresolved with a verdict": (
        lambda request: ApprovalResolution("unresolved", request.context_identity, ALLOW),
        "approval_resolver_failed",
    ),
    "unresolved": (lambda request: ApprovalResolution("unresolved", request.context_identity), "approval_unresolved"),
    "approve with a deny": (
        lambda request: ApprovalResolution("approve", request.context_identity, Verdict.deny("no")),
        "verdict_invalid",
    ),
    "reject with an allow": (
        lambda request: ApprovalResolution("reject", request.context_identity, ALLOW),
        "verdict_invalid",
    ),
    "a verdict that is none": (
        lambda request: {
            "outcome": "approve",
            "context_identity": request.context_identity,
            "verdict": {"decision": "yes"},
        },
        "verdict_invalid",
    ),
}


@pytest.mark.parametrize("kind", RESOLUTIONS)
async def test_5_a_broken_resolution_is_denied_with_the_prescribed_reason(kind):
    """Every way a resolver can fail has its reason, in the order of §9, and leaves a record (5)."""
    answer, reason = RESOLUTIONS[kind]
    records = []
    gate = Gate([Judge(ESCALATE)], resolver=answer, resolver_timeout=0.01, sink=records.append)
    emission = await gate.emit(tool_call({}))
    assert emission.verdict.reason == f"host_error:{reason}"
    assert emission.record["resolved_by"] == "rejection"
    assert emission.record["decided_by"] is None
    assert records == [emission.record]
    assert "secret" not in json.dumps(emission.record)


@pytest.mark.parametrize("answer", [lambda request: None, lambda request: {"outcome": "approve"}])
async def test_5_the_sdk_lets_the_resolver_break_the_emission(answer):
    """A resolver that returns None or a dict: an exception and no record in the SDK, a deny here (5)."""
    emission = await Gate([Judge(ESCALATE)], resolver=answer).emit(tool_call({}))
    assert emission.verdict.reason in ("host_error:approval_resolver_failed", "host_error:approval_identity_mismatch")

    error, count = await sdk_raises(tool_call({}), ESCALATE, resolver=Resolver(answer))
    assert isinstance(error, AttributeError)
    assert count == 0


async def test_5_a_valid_dict_is_a_resolution():
    """A resolver may answer in wire form (5)."""
    gate = Gate(
        [Judge(ESCALATE)],
        resolver=lambda request: {
            "outcome": "approve",
            "context_identity": request.context_identity,
            "verdict": {"decision": "allow"},
        },
    )
    assert (await gate.emit(tool_call({}))).proceeds


async def coroutine_identity(context):
    return "id"


@pytest.mark.parametrize("provide", [lambda context: None, lambda context: 123, coroutine_identity, raising])
async def test_6_an_identity_provider_that_fails_fails_closed(provide):
    """A provider that returns no string, or a coroutine, or raises denies with a record (6)."""
    records = []
    gate = Gate([allow_all], identity=IdentityProvider("mine", provide), sink=records.append)
    emission = await gate.emit(tool_call({}))
    assert emission.verdict.reason == "host_error:context_invalid"
    assert emission.record["input_identity"] is None
    assert emission.record["identity_provider"] == "mine"
    assert records == [emission.record]


async def test_6_the_sdk_proceeds_without_an_identity():
    """With a provider that returns None the SDK lets the action run unbound; we do not (6)."""
    theirs = sdk.IdentityProvider("mine", lambda context: None)
    record = await sdk_emit(tool_call({}), {"decision": "allow"}, identity_provider=theirs)
    assert record.proceeds

    emission = await Gate([allow_all], identity=IdentityProvider("mine", lambda context: None)).emit(tool_call({}))
    assert not emission.proceeds


def spoil(context):
    context["target"]["x"] = "SPOILT"
    context["tool_call"]["args"]["x"] = "SPOILT"
    return context


async def test_7_nobody_can_change_what_runs_through_their_copy():
    """Resolver, redactor, identity provider and interceptors only spoil a copy of their own (7)."""

    def resolve(request):
        spoil(request.context)
        return ApprovalResolution("approve", request.context_identity, ALLOW)

    gate = Gate(
        [lambda context: spoil(context) and ALLOW, Judge(ESCALATE)],
        resolver=resolve,
        redactor=spoil,
        identity=IdentityProvider("mine", lambda context: spoil(context) and "identity"),
    )
    emission = await gate.emit(tool_call({"x": 1}))
    assert emission.proceeds
    assert emission.target == {"x": 1}

    context = tool_call({"x": 1})

    def sdk_resolve(request):
        spoil(request.context)
        return sdk.ApprovalResolution(sdk.ApprovalOutcome.APPROVE, request.context_identity, sdk.ALLOW)

    record = await sdk_emit(context, ESCALATE, resolver=Resolver(sdk_resolve))
    assert record.proceeds
    assert context["target"] == {"x": "SPOILT"}


async def test_7_a_declared_interceptor_cannot_write_to_what_it_sees():
    """The shared view of a declared interceptor refuses writes, which is a failure of the interceptor (7)."""

    @interceptor()
    def scribble(context):
        context["target"]["x"] = 2
        return ALLOW

    emission = await Gate([scribble]).emit(tool_call({"x": 1}))
    assert emission.verdict.reason == "host_error:interceptor_failed"
    assert emission.record["verdict"]["message"] == "TypeError"
    assert emission.target == {"x": 1}


async def test_8_run_all_cut_short_says_so():
    """A transform that fails under run_all leaves others unasked, and the record says so (8)."""
    gate = Gate([transform("$target.nope.q", 1), allow_all], composition="sequential/run_all")
    emission = await gate.emit(tool_call({"x": 1}))
    assert emission.verdict.reason == "host_error:transform_invalid"
    assert emission.record["fold_truncated"] is True

    record = await sdk_emit(
        tool_call({"x": 1}),
        wire_transform("$target.nope.q", 1),
        {"decision": "allow"},
        composition=sdk.CompositionConfig.run_all(),
    )
    assert record.verdict.reason == "host_error:transform_invalid"
    assert not record.fold_truncated


async def test_10_a_sequence_that_does_not_rise_is_denied():
    """A number used before in the session is `context_invalid`, also under concurrency (10)."""
    gate = Gate([allow_all])
    assert (await gate.emit(tool_call({}, sequence=3))).proceeds
    for sequence in (3, 2):
        emission = await gate.emit(tool_call({}, sequence=sequence))
        assert emission.verdict.reason == "host_error:context_invalid"
        assert emission.record["sequence"] == sequence
    assert (await gate.emit(tool_call({}, sequence=4))).proceeds

    emitter = sdk.InterceptionEmitter().register(Judge({"decision": "allow"}))
    for sequence in (3, 3, 2):
        assert (await emitter.emit_unchecked(tool_call({}, sequence=sequence))).proceeds


async def test_10_concurrent_emissions_have_unique_rising_numbers():
    """Contexts of one builder, judged at once by a slow interceptor, keep unique numbers in order (10)."""

    @interceptor()
    async def slow(context):
        await asyncio.sleep(0)
        return ALLOW

    build = ContextBuilder(agent_id="a", session_id="s")
    gate = Gate([slow])
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gate.emit(build.pre_tool_call(f"c{n}", "t", {}))) for n in range(50)]
    emissions = [task.result() for task in tasks]
    assert [emission.record["sequence"] for emission in emissions] == list(range(50))
    assert all(emission.proceeds for emission in emissions)


def broken_sink(record):
    raise OSError("disk full")


async def test_11_a_failing_sink_is_counted_and_can_block():
    """A lost record is counted; with `sink_required` the action does not go on (11)."""
    gate = Gate([allow_all], sink=broken_sink)
    assert (await gate.emit(tool_call({}))).proceeds
    assert gate.lost_records == 1

    strict = Gate([allow_all], sink=broken_sink, sink_required=True)
    emission = await strict.emit(tool_call({}))
    assert not emission.proceeds
    assert emission.sink_failed
    assert emission.verdict.reason == "host_error:adapter_unsupported"
    assert emission.record["verdict"]["message"] == "record sink: OSError"

    emitter = sdk.InterceptionEmitter().register(Judge({"decision": "allow"}))
    emitter.set_record_sink(broken_sink)
    assert (await emitter.emit_unchecked(tool_call({}))).proceeds
    assert not hasattr(emitter, "lost_records")


async def test_14_a_blocking_interceptor_runs_under_the_timeout():
    """A sync interceptor declared blocking leaves the event loop free and is cut off in time (14)."""

    released = threading.Event()

    @interceptor(blocking=True)
    def stuck(context):
        released.wait(30)
        return ALLOW

    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        emission = await Gate([stuck], timeout=0.01).emit(tool_call({}))
        ticking.cancel()
    released.set()
    assert emission.verdict.reason == "host_error:interceptor_timeout"
    assert ticks > 1

    def slow(context):
        threading.Event().wait(0.03)
        return {"decision": "allow"}

    assert (await sdk_emit(tool_call({}), slow, timeout=0.01)).proceeds
