"""Composition as a pure fold: profiles, knobs, and what holds for every script (§7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import DefinitionError
from lictor.hooks import ALLOW, Composition, ContextBuilder, Decision, Verdict
from lictor.hooks.compose import Consult, Invoke, Ruling, compose

CONTEXT = ContextBuilder(agent_id="a", session_id="s").pre_tool_call("c", "t", {"x": 1, "y": [1]})
COMPOSITIONS = [
    Composition("sequential/first_deny"),
    Composition("sequential/first_deny", on_approval="resume"),
    Composition("sequential/run_all"),
    Composition("parallel/strictest"),
    Composition("parallel/strictest", on_transform_conflict="approval"),
    Composition("parallel/unanimous"),
    Composition("parallel/unanimous", on_disagreement="approval"),
]


def run(composition, script, rulings=(), *, enforce=True, context=CONTEXT):
    """Drive a fold with verdicts by slot and rulings in order; returns the outcome and what was asked."""
    fold = compose(composition, tuple(range(len(script))), context, enforce=enforce)
    rulings, steps, reply = list(rulings), [], None
    while True:
        try:
            step = fold.send(reply)
        except StopIteration as end:
            return end.value, steps
        steps.append(step)
        reply = script[step.slot] if isinstance(step, Invoke) else (rulings.pop(0) if rulings else None)


VERDICTS = st.sampled_from(
    [
        ALLOW,
        ALLOW,
        Verdict.warn("w", "m"),
        Verdict(Decision.ALLOW, result_labels=["pii"]),
        Verdict.deny("no"),
        Verdict.escalate("ask"),
        Verdict.transform("$target.x", 2),
        Verdict.transform("$target.y[0]", None),
        Verdict.transform("$target.nope", 2),
        Verdict.stop("enough"),
    ]
)
RULINGS = st.sampled_from(
    [
        None,
        Ruling(ALLOW, True),
        Ruling(Verdict.transform("$target.x", 7), True),
        Ruling(Verdict.transform("$target.nope", 7), True),
        Ruling(Verdict.deny("rejected"), False),
    ]
)
CASES = {
    "composition": st.sampled_from(COMPOSITIONS),
    "script": st.lists(VERDICTS, max_size=6),
    "rulings": st.lists(RULINGS, max_size=3),
    "enforce": st.booleans(),
}


@given(**CASES)
def test_invariants_of_every_composition(composition, script, rulings, enforce):
    """What a permit, a deny, a truncation and a consultation mean holds for every profile and script."""
    outcome, steps = run(composition, script, rulings, enforce=enforce)
    asked = [step.slot for step in steps if isinstance(step, Invoke)]
    consulted = [step for step in steps if isinstance(step, Consult)]
    lifted = outcome.resolved_by == "approval"
    denied = any(verdict.decision is Decision.DENY for verdict in outcome.returned.values())

    assert asked == sorted(set(asked)) == list(outcome.returned)
    assert outcome.fold_truncated is (len(asked) < len(script))
    assert all(step.verdict.liftable for step in consulted)
    assert not (consulted and not enforce)
    assert len(consulted) <= (len(script) if composition.on_approval == "resume" else 1)
    if denied and outcome.verdict.decision.permits:
        assert lifted
    if not enforce:
        assert outcome.context is CONTEXT
    if outcome.verdict.decision is Decision.DENY:
        assert outcome.verdict.result_labels == ()
    if any(verdict == Verdict.deny("no") for verdict in outcome.returned.values()):
        assert outcome.verdict.decision is Decision.DENY or composition.on_disagreement == "approval"


@given(**CASES)
def test_isolation_and_visibility(composition, script, rulings, enforce):
    """In sequential profiles each sees what those before transformed, in parallel all see the snapshot."""
    _, steps = run(composition, script, rulings, enforce=enforce)
    contexts = [step.context for step in steps if isinstance(step, Invoke)]
    if not composition.sequential or not enforce:
        assert all(context is CONTEXT for context in contexts)
    elif composition.profile == "sequential/run_all":
        expected = CONTEXT["target"]
        for context, verdict in zip(contexts, script, strict=False):
            assert context["target"] == expected
            if verdict.transform is not None and "nope" not in verdict.transform.path:
                key = {"x": 2} if verdict.transform.path.endswith("x") else {"y": [None]}
                expected = {**expected, **key}


def test_nobody_allows():
    """A fold over nobody allows; that an empty gate denies is the gate's rule (§7)."""
    for composition in COMPOSITIONS:
        outcome, steps = run(composition, [])
        assert (outcome.verdict, steps) == (ALLOW, [])


def test_ties_go_to_the_first_block_and_the_last_transform():
    """Equal denies resolve to the lowest index, folded transforms to the last (§7.3)."""
    run_all = Composition("sequential/run_all")
    assert run(run_all, [ALLOW, Verdict.deny("one"), Verdict.deny("two")])[0].decided_by == 1
    assert run(run_all, [Verdict.escalate("one"), Verdict.deny("two")])[0].decided_by == 1
    twice = [Verdict.transform("$target.x", 2), Verdict.transform("$target.x", 3), ALLOW]
    outcome, _ = run(run_all, twice)
    assert (outcome.decided_by, outcome.context["target"]["x"]) == (1, 3)


def test_lost_transforms_are_not_applied_in_parallel():
    """A transform that lost to a lifted deny changes nothing (§7.5)."""
    outcome, _ = run(
        Composition("parallel/strictest"),
        [Verdict.transform("$target.x", 2), Verdict.escalate("ask")],
        [Ruling(ALLOW, True)],
    )
    assert outcome.verdict.decision is Decision.ALLOW
    assert outcome.context is CONTEXT


def test_a_single_transform_wins_in_parallel():
    """One transform among allows is applied; two are a conflict of nobody's (§7.5)."""
    outcome, _ = run(Composition("parallel/strictest"), [ALLOW, Verdict.transform("$target.x", 2)])
    assert (outcome.decided_by, outcome.context["target"]["x"]) == (1, 2)
    conflict, _ = run(Composition("parallel/strictest"), [Verdict.transform("$target.x", 2)] * 2)
    assert (conflict.decided_by, conflict.verdict.reason) == (None, "host_error:transform_conflict")


def test_warnings_are_united_in_the_order_first_seen():
    """Every warning once, also of the losers, also when a transform failed (§7.3)."""
    script = [Verdict.warn("a"), Verdict.warn("b"), Verdict.warn("a"), Verdict.transform("$target.nope", 1)]
    for composition in COMPOSITIONS:
        outcome, _ = run(composition, script)
        assert [warning.reason for warning in outcome.verdict.warnings] == ["a", "b"]


WRONG = [
    {"profile": "most_permissive"},
    {"profile": "sequential/first_deny", "on_approval": "go"},
    {"profile": "sequential/run_all", "on_approval": "stop"},
    {"profile": "parallel/strictest", "on_disagreement": "deny"},
    {"profile": "parallel/unanimous", "on_transform_conflict": "deny"},
]


@pytest.mark.parametrize("options", WRONG)
def test_the_set_of_profiles_is_closed(options):
    """Unknown profiles, unknown values, and knobs a profile never looks at are refused (§7.2)."""
    with pytest.raises(DefinitionError):
        Composition(**options)


def test_records_carry_resolved_knobs():
    """The block on a record has the knobs the profile consults, with the defaults filled in (§10.3)."""
    assert [composition.to_wire() for composition in COMPOSITIONS[::2]] == [
        {"profile": "sequential/first_deny", "on_approval": "stop"},
        {"profile": "sequential/run_all"},
        {"profile": "parallel/strictest", "on_transform_conflict": "approval"},
        {"profile": "parallel/unanimous", "on_disagreement": "approval"},
    ]
