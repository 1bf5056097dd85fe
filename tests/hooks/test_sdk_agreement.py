"""On random scripts our gate records what the reference SDK records, outside the listed differences."""

import asyncio
import copy

import pytest
from contract_schemas import validator
from hypothesis import given, settings
from hypothesis import strategies as st

from lictor.hooks import ApprovalResolution, Composition, ContextBuilder, Gate, Verdict
from lictor.values import thaw

sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")

LABELS = st.lists(st.sampled_from(["pii", "web"]), max_size=2, unique=True)
WARNINGS = st.lists(
    st.fixed_dictionaries({}, optional={"reason": st.sampled_from("ab"), "message": st.sampled_from(["m", "é" * 200])}),
    max_size=2,
)
REASON = {"reason": st.sampled_from(["r1", "r2", None]), "message": st.sampled_from(["text", "ü" * 300])}
META = {**REASON, "warnings": WARNINGS, "evidence": st.just({"artefact": "sha256:00"})}

ALLOWS = st.fixed_dictionaries({"decision": st.just("allow")}, optional={**META, "result_labels": LABELS})
DENIES = st.fixed_dictionaries({"decision": st.just("deny")}, optional=META)
ESCALATES = st.fixed_dictionaries({"decision": st.just("deny"), "approval": st.just({"who": "x"})}, optional=META)
PLACES = st.one_of(
    st.tuples(
        st.sampled_from(["$target.x", "$target.l[1]", '$policy_target["x"]', "$target.nope", "$target.l[7]"]),
        st.sampled_from([5, "text", {"k": [1]}, [], True]),
    ),
    st.tuples(st.just("$target"), st.just({"x": 9, "l": [0, 0], "content": "c"})),
)
BLOCKS = PLACES.map(lambda place: {"path": place[0], "value": place[1]})
TRANSFORMS = st.fixed_dictionaries(
    {"decision": st.just("transform"), "transform": BLOCKS}, optional={**META, "result_labels": LABELS}
)
BROKEN = st.sampled_from(["raise", None, {"decision": "maybe"}, {"decision": "deny", "reason": "host_error:x"}, []])
SCRIPTS = st.lists(
    st.one_of(ALLOWS, DENIES, ESCALATES, ESCALATES, TRANSFORMS, TRANSFORMS, BROKEN), min_size=1, max_size=5
)

PLAIN = {"decision": "deny", "reason": "no"}
REPLIES = st.lists(
    st.one_of(
        st.sampled_from([("approve", {"decision": "allow"}), ("approve", PLAIN), ("reject", PLAIN)]),
        st.sampled_from([("reject", {"decision": "allow"}), ("unresolved", None), ("echo", None), ("raise", None)]),
        BLOCKS.map(lambda block: ("approve", {"decision": "transform", "transform": block})),
    ),
    max_size=4,
)
PROFILES = st.sampled_from(
    [
        {"profile": "sequential/first_deny"},
        {"profile": "sequential/first_deny", "on_approval": "stop"},
        {"profile": "sequential/first_deny", "on_approval": "resume"},
        {"profile": "sequential/run_all"},
        {"profile": "parallel/strictest"},
        {"profile": "parallel/strictest", "on_transform_conflict": "approval"},
        {"profile": "parallel/unanimous"},
        {"profile": "parallel/unanimous", "on_disagreement": "approval"},
    ]
)
POINTS = st.sampled_from(
    ["pre_tool_call", "pre_tool_call", "post_tool_call", "output", "agent_startup", "agent_shutdown"]
)


def context_of(point):
    """A context whose target has members the transforms aim at."""
    build = ContextBuilder(agent_id="a", session_id="s")
    args = {"x": 1, "l": [1, {"k": "v"}], "z": "é"}
    return {
        "pre_tool_call": lambda: build.pre_tool_call("c1", "tool", args),
        "post_tool_call": lambda: build.post_tool_call("c1", "tool", {}, args, False),
        "output": lambda: build.output("text"),
        "agent_startup": lambda: build.agent_startup(["t"]),
        "agent_shutdown": lambda: build.agent_shutdown("completed"),
    }[point]()


class Scripted:
    """Returns one wire value, or raises."""

    def __init__(self, answer):
        self.answer = answer

    def intercept(self, context):
        if self.answer == "raise":
            raise RuntimeError("content that must not be recorded")
        return copy.deepcopy(self.answer)


class Resolver:
    """Answers the consultations in order, in the types of one implementation."""

    def __init__(self, replies, resolution, verdict):
        self.replies, self.resolution, self.verdict = list(replies), resolution, verdict

    def resolve(self, request):
        outcome, wire = self.replies.pop(0) if self.replies else ("unresolved", None)
        if outcome == "raise":
            raise RuntimeError("no")
        if outcome == "echo":
            return self.resolution("approve", "sha256:other", self.verdict({"decision": "allow"}))
        return self.resolution(outcome, request.context_identity, wire and self.verdict(wire))


def sdk_resolution(outcome, identity, verdict):
    return sdk.ApprovalResolution(sdk.ApprovalOutcome(outcome), identity, verdict)


async def ours(point, script, profile, mode, replies):
    """Our record, whether it proceeds, and the target after the fold."""
    resolver = None if replies is None else Resolver(replies, ApprovalResolution, Verdict.from_wire)
    gate = Gate(
        {f"i{n}": Scripted(answer) for n, answer in enumerate(script)},
        composition=Composition(**profile),
        mode=mode,
        resolver=resolver,
    )
    emission = await gate.emit(context_of(point))
    return dict(emission.record), emission.proceeds, thaw(emission.target)


async def theirs(point, script, profile, mode, replies, timestamp):
    """The same from the SDK's emitter."""
    emitter = sdk.InterceptionEmitter(
        mode=sdk.EnforcementMode(mode),
        composition=sdk.CompositionConfig.from_wire(profile),
        resolver=None if replies is None else Resolver(replies, sdk_resolution, sdk.Verdict.from_wire),
    )
    for n, answer in enumerate(script):
        emitter.register(Scripted(answer), name=f"i{n}")
    context = thaw(context_of(point)) | {"timestamp": timestamp}
    record = await emitter.emit_unchecked(context)
    return record.to_wire(), record.proceeds, context["target"]


def comparable(record):
    """A record without what is known to differ, each with the clause that we follow."""
    verdict = dict(record["verdict"])
    record = {**record, "verdict": verdict, "verdicts": [dict(row) for row in record.get("verdicts", [])]}
    reason = str(verdict.get("reason"))
    # §10.3: 256 bytes with the ellipsis; the SDK adds it to 256.
    texts = [verdict, *verdict.get("warnings", [])]
    for text in texts:
        if "message" in text:
            text["message"] = text["message"][:100]
    if reason.startswith("host_error:"):
        verdict.pop("message", None)  # synthesised texts are each implementation's own
    if reason.startswith("host_error:transform_") and reason != "host_error:transform_conflict":
        verdict.pop("warnings", None)  # §7.3: warnings come from every verdict, also when a transform failed
        record.pop("fold_truncated", None)  # §7.4: run_all cut short says so
        record.pop("decided_by")  # §10.3: null for a failed transform, also for one an approval brought
        for row in record["verdicts"]:  # §7.4: the failed transform is a deny; in the SDK only in run_all
            if row["decision"] == "transform" or row.get("reason") == reason:
                row.update(decision="deny", reason=reason)
    if verdict["decision"] == "deny":
        verdict.pop("result_labels", None)  # §7.3: labels are dropped when nothing proceeds
    if not record.get("fold_truncated"):
        record.pop("fold_truncated", None)
    return record


RUNNER = asyncio.Runner()


def agree(point, script, profile, mode, replies):
    mine, proceeds, target = RUNNER.run(ours(point, script, profile, mode, replies))
    other, others_proceeds, others_target = RUNNER.run(theirs(point, script, profile, mode, replies, mine["timestamp"]))
    validator("interception-record").validate(thaw(mine))
    assert comparable(thaw(mine)) == comparable(other)
    assert proceeds == others_proceeds
    assert target == others_target


CASES = {
    "point": POINTS,
    "script": SCRIPTS,
    "profile": PROFILES,
    "mode": st.sampled_from(["enforce", "enforce", "evaluate_only"]),
    "replies": st.one_of(st.none(), REPLIES),
}


@given(**CASES)
@settings(max_examples=300)
def test_records_agree_with_the_sdk(point, script, profile, mode, replies):
    """Verdict, summaries, identities, resolution and target of a random emission are the SDK's."""
    agree(point, script, profile, mode, replies)


@pytest.mark.slow
@given(**CASES)
@settings(max_examples=10_000)
def test_records_agree_with_the_sdk_at_length(point, script, profile, mode, replies):
    """The same with many more scripts."""
    agree(point, script, profile, mode, replies)
