"""What we emit is valid by the contract's own schemas."""

import pytest
from contract_schemas import validator

from lictor.hooks import ALLOW, Composition, ContextBuilder, Decision, Evidence, Gate, Verdict, Warning
from lictor.values import thaw

ANSWER = {"content": None, "tool_calls": [{"id": "c1", "name": "t", "args": {"a": 1}}], "finish_reason": "tool_calls"}


def contexts():
    """A context of every point, with everything the builder can fill in."""
    build = ContextBuilder(
        agent_id="a", session_id="s", agent_name="A", started_at="2026-01-01T00:00:00Z", extensions={"lictor": {"x": 1}}
    )
    model = {"id": "m", "vendor": "v", "params": {"temperature": 0.2}}
    tools = [{"name": "t", "description": "d", "schema": {}}]
    return [
        build.agent_startup(["t"], turn=0),
        build.input([{"type": "text", "text": "x"}], "external", turn=1),
        build.pre_model_call(model, [{"role": "user", "content": "x"}], tools=tools, request_id="r", turn=1),
        build.post_model_call(
            model, ANSWER, request_id="r", usage={"prompt_tokens": 3, "completion_tokens": 1}, turn=1
        ),
        build.pre_tool_call("c1", "t", {"a": 1}, turn=1),
        build.post_tool_call("c1", "t", {"a": 1}, [1.5, None], True, duration_ms=0.5, turn=1),
        build.output("done", turn=1),
        build.agent_shutdown("cancelled", turn=1),
    ]


@pytest.mark.parametrize("context", contexts(), ids=lambda context: context["interception_point"])
def test_contexts_are_valid(context):
    """The general schema and the closed one of its point accept a built context."""
    for name in ("agent-context", f"agent-context/{context['interception_point']}"):
        validator(name).validate(thaw(context))


FULL = Verdict(
    Decision.DENY,
    "r",
    "m" * 400,
    [Warning("w", "é" * 300), Warning()],
    {"who": "x"},
    evidence=Evidence("sha256:00", {"k": "https://example.org"}),
)
VERDICTS = {
    "allow": ALLOW,
    "everything": FULL,
    "labels": Verdict(Decision.ALLOW, result_labels=["pii"]),
    "stop": Verdict.stop("r"),
    "transform": Verdict.transform("$target.x", 2),
    "failed transform": Verdict.transform("$target.nope", 2),
    "invalid": None,
}
COMPOSITIONS = [
    Composition(),
    Composition("sequential/run_all"),
    Composition("parallel/strictest"),
    Composition("parallel/unanimous", on_disagreement="approval"),
]


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.profile)
@pytest.mark.parametrize("name", VERDICTS)
async def test_records_are_valid(name, composition):
    """Every record has the contract's schema, in both modes, asked and unasked, rejected and lifted."""
    records = []
    for mode in ("enforce", "evaluate_only"):
        for resolver in (None, lambda request: None):
            options = {"mode": mode, "composition": composition, "resolver": resolver, "sink": records.append}
            gate = Gate([lambda context: ALLOW, lambda context: VERDICTS[name]], **options)
            build = ContextBuilder(agent_id="a", session_id="s")
            await gate.emit(dict(build.pre_tool_call("c", "t", {"x": 1})) | {"trace": {"trace_id": "t", "z": 1}})
            await gate.emit(build.agent_startup([]))
            await gate.emit({"interception_point": "nowhere"})
            await gate.record_host_failure("output", "s", 9, "TypeError")
            await Gate([], **options).emit(build.output("x"))
    assert len(records) == 20
    for record in records:
        validator("interception-record").validate(thaw(record))


@pytest.mark.parametrize("name", [name for name in VERDICTS if name != "invalid"])
def test_verdicts_are_valid(name):
    """What a verdict is on the wire has the contract's schema."""
    validator("verdict").validate(thaw(VERDICTS[name].to_wire()))
