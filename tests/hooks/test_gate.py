"""The gate: failures, time, cancellation, sinks, modes, order of asking, and what an emission says."""

import asyncio
import threading
from functools import partial

import pytest

from lictor.errors import DefinitionError
from lictor.hooks import ALLOW, ApprovalResolution, Composition, ContextBuilder, Decision, Gate, Verdict, interceptor

PROFILES = ["sequential/first_deny", "sequential/run_all", "parallel/strictest", "parallel/unanimous"]


def tool_call(args=None, *, sequence=0, session="s"):
    build = ContextBuilder(agent_id="a", session_id=session, sequence=sequence)
    return build.pre_tool_call("c1", "pay", {"x": 1} if args is None else args)


def giving(verdict, name="giving", **options):
    """A declared interceptor that gives one verdict."""

    @interceptor(name=name, **options)
    def give(context):
        return verdict

    return give


def raising(error):
    """A declared interceptor that raises."""

    @interceptor(name="raising")
    def fail(context):
        raise error

    return fail


# ---- failures of an interceptor -----------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES[:3])
async def test_an_interceptor_that_raises_is_a_deny_in_its_slot(profile):
    """The failure is at its index, names the type, and never the text of the exception (§6.3, §14)."""
    gate = Gate([giving(ALLOW), raising(ValueError("s3cret"))], composition=profile)
    emission = await gate.emit(tool_call())
    assert emission.verdict.reason == "host_error:interceptor_failed"
    assert emission.record["decided_by"] == 1
    assert emission.record["verdict"]["message"] == "ValueError"
    assert emission.record["verdicts"][1] == {
        "index": 1,
        "decision": "deny",
        "reason": "host_error:interceptor_failed",
        "name": "raising",
    }
    assert emission.denies == (("raising", emission.verdict),)


@pytest.mark.parametrize("answer", [None, "allow", 7, {"decision": "perhaps"}, [], object()])
async def test_an_answer_that_is_no_verdict_is_a_deny_in_its_slot(answer):
    """Whatever is not a verdict is `verdict_invalid`, and the message holds no content (§5)."""
    emission = await Gate([giving(answer)]).emit(tool_call())
    assert emission.verdict.reason == "host_error:verdict_invalid"
    assert emission.record["decided_by"] == 0
    assert "perhaps" not in str(emission.record)


async def test_a_foreign_verdict_that_raises_is_invalid():
    """An exception in a foreign `to_wire` is the interceptor's invalid verdict."""

    class Broken:
        def to_wire(self):
            raise RuntimeError("s3cret")

    emission = await Gate([giving(Broken())]).emit(tool_call())
    assert emission.verdict.reason == "host_error:verdict_invalid"
    assert emission.verdict.message == "RuntimeError"


async def never(context):
    await asyncio.Event().wait()


async def test_an_interceptor_that_hangs_times_out():
    """An awaitable is cut off after the gate's timeout (§7)."""
    cancelled = []

    @interceptor()
    async def hang(context):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    emission = await Gate([hang], timeout=0.001).emit(tool_call())
    assert emission.verdict.reason == "host_error:interceptor_timeout"
    assert cancelled == [True]


async def test_a_timeout_of_its_own_is_a_failure():
    """A TimeoutError that an interceptor raises itself is no timeout of the gate's."""

    @interceptor()
    async def own(context):
        raise TimeoutError

    emission = await Gate([own]).emit(tool_call())
    assert emission.verdict.reason == "host_error:interceptor_failed"
    assert emission.verdict.message == "TimeoutError"


@pytest.mark.parametrize("kind", ["sync", "async", "future"])
async def test_a_cancellation_of_its_own_is_a_failure(kind):
    """CancelledError that nobody asked for is a deny, and the task goes on (§6.3)."""

    @interceptor()
    def sync(context):
        raise asyncio.CancelledError

    @interceptor()
    async def coroutine(context):
        raise asyncio.CancelledError

    @interceptor()
    async def future(context):
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        return await waiting

    judge = {"sync": sync, "async": coroutine, "future": future}[kind]
    emission = await Gate([judge]).emit(tool_call())
    assert emission.verdict.reason == "host_error:interceptor_failed"
    assert emission.verdict.message == "CancelledError"


async def test_a_real_cancellation_leaves_a_record_and_goes_on():
    """Cancelling the emission records a fail-closed deny, then the cancellation continues (§6.3)."""
    records = []
    started = asyncio.Event()

    @interceptor()
    async def hang(context):
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(Gate([hang], sink=records.append).emit(tool_call(sequence=4)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record["verdict"]["reason"] for record in records] == ["host_error:interceptor_failed"]
    assert [record["sequence"] for record in records] == [4]
    assert records[0]["fold_truncated"] is True


async def test_an_exit_leaves_a_record_and_goes_on():
    """SystemExit in an interceptor is no verdict: it is recorded as a deny and goes up."""
    records = []
    with pytest.raises(SystemExit):
        await Gate([raising(SystemExit(1))], sink=records.append).emit(tool_call())
    assert [record["verdict"]["message"] for record in records] == ["SystemExit"]


async def test_an_emission_in_a_cancelled_task_is_judged():
    """Cleaning up after a cancellation, a host can still emit `agent_shutdown`, also past async interceptors."""

    @interceptor()
    async def judge(context):
        await asyncio.sleep(0)
        return ALLOW

    emissions = []

    async def run():
        try:
            await asyncio.Event().wait()
        finally:
            emissions.append(await Gate([judge]).emit(tool_call()))

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert emissions[0].proceeds


async def test_blocking_interceptors_run_in_a_thread():
    """blocking=True judges in another thread, on the same frozen context."""
    seen = []

    @interceptor(blocking=True)
    def judge(context):
        seen.append((threading.current_thread() is threading.main_thread(), context))
        return Verdict.deny("seen")

    context = tool_call()
    emission = await Gate([judge]).emit(context)
    assert emission.verdict.reason == "seen"
    assert seen == [(False, context)]


# ---- who is asked what --------------------------------------------------------------------------


async def test_interceptors_are_asked_at_their_points():
    """Elsewhere a declared interceptor counts as having allowed; its index stays its index."""
    asked = []

    @interceptor(points=["output"])
    def at_output(context):
        asked.append("at_output")
        return Verdict.deny("no")

    @interceptor(points=["pre_tool_call"])
    def at_tool(context):
        asked.append("at_tool")
        return Verdict.deny("no")

    gate = Gate([at_output, at_tool])
    emission = await gate.emit(tool_call())
    assert asked == ["at_tool"]
    assert gate.order() == ["at-output", "at-tool"]
    assert emission.record["decided_by"] == 1
    assert [row["decision"] for row in emission.record["verdicts"]] == ["allow", "deny"]
    assert emission.record["interceptors_registered"] == 2


async def test_declared_interceptors_share_one_frozen_context():
    """Declared interceptors see the context itself, foreign ones a plain copy each (§7)."""
    seen = []

    def foreign(context):
        seen.append(context)
        return ALLOW

    @interceptor()
    def declared(context):
        seen.append(context)
        return ALLOW

    context = tool_call()
    await Gate([foreign, declared, partial(foreign)]).emit(context)
    assert seen[1] is context
    assert [type(each) for each in (seen[0], seen[2])] == [dict, dict]
    assert seen[0] is not seen[2]
    assert seen[0]["target"] is seen[0]["tool_call"]["args"]


async def test_a_gate_without_interceptors_denies():
    """An empty gate denies every emission; in evaluate_only that is recorded and changes nothing (§7, §8)."""
    emission = await Gate([]).emit(tool_call())
    assert emission.verdict.reason == "host_error:no_interceptor"
    assert (emission.record["decided_by"], emission.record["interceptors_registered"]) == (None, 0)
    evaluated = await Gate([], mode="evaluate_only").emit(tool_call())
    assert (evaluated.verdict.reason, evaluated.proceeds) == ("host_error:no_interceptor", True)


async def test_registration_can_be_undone():
    """`register` adds in index order and returns what takes the interceptor out again."""
    gate = Gate({"last": (giving(ALLOW), 10)})
    undo = gate.register(giving(Verdict.deny("no")), name="first")
    assert gate.order() == ["first", "last"]
    assert not (await gate.emit(tool_call())).proceeds
    undo()
    undo()
    assert gate.order() == ["last"]
    assert (await gate.emit(tool_call(sequence=1))).proceeds


def test_registration_refuses_doubles():
    """The same object or the same name cannot be registered twice; nothing changes then."""
    judge = giving(ALLOW)
    gate = Gate({"one": judge})
    with pytest.raises(DefinitionError, match="registered already"):
        gate.register(judge)
    with pytest.raises(DefinitionError, match="two interceptors are called 'one'"):
        gate.register(giving(ALLOW), name="one")
    assert gate.order() == ["one"]


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "audit"},
        {"composition": "sequential/most_permissive"},
        {"composition": 7},
        {"timeout": 0},
        {"timeout": "5"},
        {"timeout": True},
        {"resolver_timeout": -1},
        {"sink_timeout": 0},
        {"resolver": "ask"},
        {"redactor": "hide"},
        {"sink": "print"},
    ],
)
def test_wrong_options_are_told_at_once(options):
    """An option that cannot work raises where the gate is made."""
    with pytest.raises(DefinitionError):
        Gate([giving(ALLOW)], **options)


async def test_a_gate_can_ask_somebody_else_for_one_emission():
    """`resolving` gives a gate with another resolver; sequences and lost records are shared."""

    def broken(record):
        raise OSError

    gate = Gate([giving(Verdict.escalate("ask"))], sink=broken)
    other = gate.resolving(lambda request: ApprovalResolution("approve", request.context_identity, ALLOW))
    assert (await other.emit(tool_call())).proceeds
    assert (await gate.emit(tool_call(sequence=1))).verdict.reason == "ask"
    assert (await other.emit(tool_call(sequence=1))).verdict.reason == "host_error:context_invalid"
    assert gate.lost_records == other.lost_records == 3
    assert (await gate.resolving(None).emit(tool_call(sequence=2))).verdict.reason == "ask"


# ---- what an emission says ----------------------------------------------------------------------


async def test_every_allow_leaves_the_same_short_record():
    """The record of an emission nobody objected to, member by member (§10.3)."""
    context = tool_call()
    emission = await Gate([giving(ALLOW, "guard")]).emit(context)
    assert emission.record == {
        "interception_point": "pre_tool_call",
        "mode": "enforce",
        "verdict": {"decision": "allow"},
        "input_identity": emission.record["input_identity"],
        "enforced_identity": emission.record["input_identity"],
        "identity_provider": "jcs-sha256",
        "session_id": "s",
        "sequence": 0,
        "timestamp": context["timestamp"],
        "decided_by": None,
        "composition": {"profile": "sequential/first_deny", "on_approval": "stop"},
        "verdicts": [{"index": 0, "decision": "allow", "name": "guard"}],
        "fold_truncated": False,
        "interceptors_registered": 1,
    }
    assert emission[:2] == (ALLOW, context["target"])
    assert emission.context is context
    assert (emission.proceeds, emission.denies, emission.control, emission.labels) == (True, (), None, {})
    with pytest.raises(TypeError):
        emission.record["mode"] = "evaluate_only"


async def test_a_trace_block_joins_the_record():
    """W3C identifiers of the context are echoed, on the fast path and off it (§10.3)."""
    for verdict in (ALLOW, Verdict.deny("no")):
        context = dict(tool_call()) | {"trace": {"trace_id": "ab", "other": 1}}
        record = (await Gate([giving(verdict)]).emit(context)).record
        assert record["trace"] == {"trace_id": "ab"}


async def test_a_transform_changes_the_target_and_the_enforced_identity():
    """The action gets the folded target; input and enforced identity differ (§6, §10.3)."""
    emission = await Gate([giving(Verdict.transform("$target.x", 2))]).emit(tool_call())
    assert emission.target == {"x": 2}
    assert emission.record["input_identity"] != emission.record["enforced_identity"]
    assert emission.record["verdict"] == {"decision": "transform", "transform": {"path": "$target.x"}}


@pytest.mark.parametrize("value", [None, [], "text", 5])
async def test_a_transform_must_leave_a_valid_context(value):
    """Arguments have to stay an object; otherwise the value could not be set (§5.2)."""
    emission = await Gate([giving(Verdict.replace(value))]).emit(tool_call())
    assert emission.verdict.reason == "host_error:transform_invalid"
    assert emission.target == {"x": 1}


async def test_a_transform_beyond_the_limits_is_an_invalid_context():
    """A folded target outside the domain, too deep or too big is `context_invalid` and unbound (§10.2, §12.3)."""
    deep = {}
    for _ in range(126):
        deep = {"a": deep}
    for value in (deep, "a" * (6 * 1024 * 1024), 2**53, {1}, b"1", (1,), float("nan"), "\ud800", {"a": ["\ud800"]}):
        for verdict in (
            Verdict.transform("$target.x", value),
            {"decision": "transform", "transform": {"path": "$target.x", "value": value}},
        ):
            emission = await Gate([giving(verdict)]).emit(tool_call())
            assert emission.verdict.reason == "host_error:context_invalid"
            assert not emission.proceeds
            assert emission.record["enforced_identity"] is None
            assert emission.record["input_identity"] is not None


async def test_the_size_limit_counts_the_target_once():
    """4 MiB of arguments pass although the projection holds them twice (§12.3)."""
    assert (await Gate([giving(ALLOW)]).emit(tool_call({"x": "a" * (4 * 1024 * 1024)}))).proceeds
    messages = [{"role": "user", "content": "a" * (1024 * 1024)}] * 6
    build = ContextBuilder(agent_id="a", session_id="s")
    assert not (await Gate([giving(ALLOW)]).emit(build.pre_model_call("m", messages))).proceeds
    assert (await Gate([giving(ALLOW)]).emit(build.pre_model_call("m", messages[:4]))).proceeds


async def test_labels_go_with_what_proceeds():
    """Labels come by interceptor, of permits only, and only if the action goes on (§5.4)."""
    label = Verdict(Decision.ALLOW, result_labels=["pii", "web"])
    gate = Gate([giving(label, "one"), giving(ALLOW, "two")], composition="sequential/run_all")
    emission = await gate.emit(tool_call())
    assert emission.labels == {"one": ("pii", "web")}
    assert emission.record["verdict"]["result_labels"] == ["pii", "web"]
    gate.register(giving(Verdict.deny("no"), "three"))
    blocked = await gate.emit(tool_call(sequence=1))
    assert blocked.labels == {}
    assert "result_labels" not in blocked.record["verdict"]


STOP = Verdict.stop("enough", scope="member")
RETRY = Verdict.retry("again")


@pytest.mark.parametrize(
    ("verdicts", "control"),
    [
        ([ALLOW, STOP], STOP),
        ([Verdict.deny("no"), STOP], STOP),
        ([RETRY, RETRY], RETRY),
        ([RETRY, Verdict.deny("no")], None),
        ([RETRY, STOP], STOP),
        ([RETRY, ALLOW], RETRY),
        ([Verdict.deny("no")], None),
        ([ALLOW], None),
    ],
)
async def test_control_is_a_stop_or_a_common_retry(verdicts, control):
    """A stop counts if anybody returned one while blocking, a retry only if every deny is one."""
    judges = [giving(verdict, f"i{number}") for number, verdict in enumerate(verdicts)]
    emission = await Gate(judges, composition="sequential/run_all").emit(tool_call())
    assert emission.control == control


async def test_foreign_interceptors_cannot_stop():
    """Nothing on the wire says stop."""
    emission = await Gate([lambda context: STOP.to_wire()]).emit(tool_call())
    assert not emission.proceeds
    assert emission.control is None


async def test_denies_are_listed_with_their_names():
    """Every deny is there for the host, in the order of the gate, with its full verdict."""
    first, second = Verdict.escalate("one", responders=["human:ana"]), Verdict.deny("two", "text")
    gate = Gate({"a": giving(first), "b": giving(ALLOW), "c": giving(second)}, composition="sequential/run_all")
    assert (await gate.emit(tool_call())).denies == (("a", first), ("c", second))


# ---- evaluate_only ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
async def test_evaluate_only_records_and_changes_nothing(profile):
    """Verdicts are recorded, transforms validated and not applied, nobody is consulted (§8)."""
    asked = []
    gate = Gate(
        [giving(Verdict.transform("$target.x", 2)), giving(Verdict.escalate("ask"), "asks")],
        mode="evaluate_only",
        composition=profile,
        resolver=asked.append,
    )
    emission = await gate.emit(tool_call())
    assert emission.proceeds
    assert emission.target == {"x": 1}
    assert emission.verdict.decision is Decision.DENY
    assert emission.record["mode"] == "evaluate_only"
    assert emission.record["input_identity"] == emission.record["enforced_identity"]
    assert asked == []


async def test_evaluate_only_validates_transforms():
    """A transform that could not be applied is recorded as such (§8)."""
    emission = await Gate([giving(Verdict.transform("$target.nope", 1))], mode="evaluate_only").emit(tool_call())
    assert emission.proceeds
    assert emission.verdict.reason == "host_error:transform_invalid"


async def test_limits_bind_under_evaluate_only():
    """What is always enforced blocks, and the record then says that this was enforcement."""
    limit = giving(Verdict.deny("limit"), "limit", always_enforce=True)
    gate = Gate(
        [limit, giving(Verdict.deny("policy"), "policy")], mode="evaluate_only", composition="sequential/run_all"
    )
    emission = await gate.emit(tool_call())
    assert not emission.proceeds
    assert (emission.verdict.reason, emission.record["decided_by"], emission.record["mode"]) == ("limit", 0, "enforce")
    assert [row["decision"] for row in emission.record["verdicts"]] == ["deny", "deny"]


@pytest.mark.parametrize("profile", PROFILES)
async def test_policies_do_not_keep_limits_from_being_asked(profile):
    """A policy that would have cut the fold short under evaluate_only hides no limit."""
    policy = giving(Verdict.deny("policy"), "policy")
    failing = giving(Verdict.transform("$target.nope", 1), "failing")
    limit = giving(Verdict.stop("limit"), "limit", always_enforce=True)
    emission = await Gate([policy, failing, limit], mode="evaluate_only", composition=profile).emit(tool_call())
    assert not emission.proceeds
    assert ("limit", Verdict.stop("limit")) in emission.denies


async def test_limits_that_allow_leave_the_policies_verdict():
    """If nothing that is always enforced objects, the record is the policies' evaluation."""
    warned = giving(Verdict.warn("w2"), "limit", always_enforce=True)
    policy = giving(Verdict(Decision.DENY, "policy", warnings=Verdict.warn("w1").warnings), "policy")
    emission = await Gate([warned, policy], mode="evaluate_only").emit(tool_call())
    assert emission.proceeds
    assert (emission.verdict.reason, emission.record["mode"]) == ("policy", "evaluate_only")
    assert [warning["reason"] for warning in emission.record["verdict"]["warnings"]] == ["w1", "w2"]


async def test_approvals_that_are_always_enforced_are_asked_under_evaluate_only():
    """A limit's transform and escalation work as in enforce mode."""
    asks = giving(Verdict.escalate("ask"), "asks", always_enforce=True)
    emission = await Gate(
        [giving(Verdict.deny("policy"), "policy"), asks],
        mode="evaluate_only",
        resolver=lambda request: {
            "outcome": "approve",
            "context_identity": request.context_identity,
            "verdict": {"decision": "transform", "transform": {"path": "$target.x", "value": 9}},
        },
    ).emit(tool_call())
    assert emission.proceeds
    assert emission.target == {"x": 9}
    assert emission.record["resolved_by"] == "approval"


async def test_a_required_sink_binds_under_evaluate_only():
    """sink_required is no policy: an emission that cannot be recorded does not go on in either mode."""

    def broken(record):
        raise OSError

    gate = Gate([giving(ALLOW)], mode="evaluate_only", sink=broken, sink_required=True)
    assert not (await gate.emit(tool_call())).proceeds


# ---- sinks --------------------------------------------------------------------------------------


async def test_sinks_get_every_record():
    """Allowed, denied and invalid emissions all reach the sink, a sync or an async one."""
    for kind in ("sync", "async"):
        records = []

        async def later(record, into=records):
            await asyncio.sleep(0)
            into.append(record)

        gate = Gate([giving(ALLOW)], sink=records.append if kind == "sync" else later)
        emissions = [await gate.emit(tool_call()), await gate.emit({}), await gate.emit(tool_call(sequence=1))]
        gate.register(giving(Verdict.deny("no"), "no"))
        emissions.append(await gate.emit(tool_call(sequence=2)))
        assert records == [emission.record for emission in emissions]
        assert gate.lost_records == 0


async def test_a_slow_sink_loses_its_record():
    """An async sink is given up after its timeout, and the loss is counted."""

    async def hang(record):
        await asyncio.Event().wait()

    gate = Gate([giving(ALLOW)], sink=hang, sink_timeout=0.001)
    assert (await gate.emit(tool_call())).proceeds
    assert gate.lost_records == 1


async def test_a_cancelled_delivery_is_counted():
    """Cancelling while the sink works loses the record and goes on as a cancellation."""
    started = asyncio.Event()

    async def hang(record):
        started.set()
        await asyncio.Event().wait()

    gate = Gate([giving(ALLOW)], sink=hang)
    task = asyncio.ensure_future(gate.emit(tool_call()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.lost_records == 1


async def test_a_required_sink_keeps_the_reason_of_what_was_blocked():
    """A deny that could not be recorded stays that deny, and says that the sink failed."""

    def broken(record):
        raise OSError

    gate = Gate([giving(Verdict.deny("no"))], sink=broken, sink_required=True)
    emission = await gate.emit(tool_call())
    assert (emission.verdict.reason, emission.sink_failed, emission.proceeds) == ("no", True, False)


# ---- sequences ----------------------------------------------------------------------------------


async def test_sessions_count_for_themselves():
    """Each session of a gate has its own last number, and the gate remembers many sessions, not all."""
    gate = Gate([giving(ALLOW)])
    for session in ("one", "two"):
        assert (await gate.emit(tool_call(session=session))).proceeds
    for number in range(10_000):
        await gate.emit(tool_call(session=f"s{number}"))
    assert len(gate._last) <= 10_000


async def test_a_forgotten_session_may_start_anywhere():
    """After `forget` any number is taken as the session's first."""
    gate = Gate([giving(ALLOW)])
    await gate.emit(tool_call(sequence=5))
    gate.forget("s")
    gate.forget("never seen")
    assert (await gate.emit(tool_call(sequence=0))).proceeds


async def test_compositions_are_named_or_made():
    """A gate takes the name of a profile or a Composition with knobs."""
    named = await Gate([giving(ALLOW)], composition="parallel/unanimous").emit(tool_call())
    made = await Gate([giving(ALLOW)], composition=Composition("parallel/unanimous")).emit(tool_call())
    assert (
        named.record["composition"]
        == made.record["composition"]
        == {
            "profile": "parallel/unanimous",
            "on_disagreement": "deny",
        }
    )
    assert "fold_truncated" not in named.record
