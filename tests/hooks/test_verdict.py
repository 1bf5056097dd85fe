"""Verdicts: constructors, the wire form, and everything §5 refuses."""

import copy
import json
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.errors import VerdictInvalid
from lictor.hooks import ALLOW, ContextBuilder, Decision, Evidence, Gate, Transform, Verdict, Warning, record_projection
from lictor.hooks.verdict import read_verdict

CONSTRUCTED = {
    "allow": (Verdict.allow(), {"decision": "allow"}),
    "allow by hand": (Verdict(decision=Decision.ALLOW), {"decision": "allow"}),
    "by name": (Verdict("deny", "r", "m"), {"decision": "deny", "reason": "r", "message": "m"}),
    "deny": (Verdict.deny(), {"decision": "deny"}),
    "deny by keyword": (Verdict.deny(reason="r", message="m"), {"decision": "deny", "reason": "r", "message": "m"}),
    "deny by position": (Verdict.deny("r", "m"), {"decision": "deny", "reason": "r", "message": "m"}),
    "warn": (Verdict.warn("r", "m"), {"decision": "allow", "warnings": [{"reason": "r", "message": "m"}]}),
    "warn by keyword": (Verdict.warn(message="m"), {"decision": "allow", "warnings": [{"message": "m"}]}),
    "escalate": (Verdict.escalate("r"), {"decision": "deny", "reason": "r", "approval": {}}),
    "escalate to": (
        Verdict.escalate("r", "m", responders=["human:ana"], deadline=timedelta(hours=1), verbs=["approve"]),
        {
            "decision": "deny",
            "reason": "r",
            "message": "m",
            "approval": {"responders": ["human:ana"], "deadline": 3600.0, "verbs": ["approve"]},
        },
    ),
    "transform": (
        Verdict.transform("$target.x", None),
        {"decision": "transform", "transform": {"path": "$target.x", "value": None}},
    ),
    "transform by hand": (
        Verdict(decision=Decision.TRANSFORM, reason="r", transform=Transform(path="$target.x", value=[1])),
        {"decision": "transform", "reason": "r", "transform": {"path": "$target.x", "value": [1]}},
    ),
    "replace": (
        Verdict.replace({"a": 1}),
        {"decision": "transform", "transform": {"path": "$target", "value": {"a": 1}}},
    ),
    "stop": (
        Verdict.stop("r", "m", scope="member", status="exhausted"),
        {"decision": "deny", "reason": "r", "message": "m"},
    ),
    "retry": (Verdict.retry("r", "m"), {"decision": "deny", "reason": "r", "message": "m"}),
    "everything": (
        Verdict(
            Decision.ALLOW,
            warnings=[Warning("w")],
            evidence=Evidence("sha256:00", {"k": "https://example.org"}),
            result_labels=["pii"],
        ),
        {
            "decision": "allow",
            "warnings": [{"reason": "w"}],
            "evidence": {"artefact": "sha256:00", "verification_pointers": {"k": "https://example.org"}},
            "result_labels": ["pii"],
        },
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_constructors_make_the_wire_form(name):
    """Each constructor stands for one shape on the wire, and the shape reads back."""
    verdict, wire = CONSTRUCTED[name]
    assert verdict.to_wire() == wire
    read = Verdict.from_wire(wire)
    assert read.to_wire() == wire
    assert (read == verdict) is (verdict.control is None)


def test_allow_is_one_object():
    """`Verdict.allow()` is `ALLOW`, which the gate recognises at a glance."""
    assert Verdict.allow() is ALLOW


def test_only_an_escalation_is_liftable():
    """A deny with an approval block is liftable, nothing else (§5.1)."""
    assert Verdict.escalate("r").liftable
    assert Verdict(Decision.DENY, approval={}).liftable
    assert not any(verdict.liftable for verdict in (ALLOW, Verdict.deny("r"), Verdict.stop("r"), Verdict.retry("r")))


def test_stop_and_retry_are_ours_alone():
    """What a stop ends and how is on the verdict, not on the wire (§6.2)."""
    stop = Verdict.stop("r", scope="member", status="exhausted")
    assert (stop.control, stop.scope, stop.status) == ("stop", "member", "exhausted")
    assert (Verdict.retry("r").control, Verdict.deny("r").control) == ("retry", None)
    assert stop != Verdict.deny("r")
    with pytest.raises(VerdictInvalid):
        Verdict.stop("r", scope="team")


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_verdicts_are_values(name):
    """A verdict equals its copies and pickles, shows no payload, and cannot be changed."""
    verdict = CONSTRUCTED[name][0]
    assert copy.deepcopy(verdict) == verdict
    assert copy.copy(verdict) == verdict
    assert pickle.loads(pickle.dumps(verdict)) == verdict
    assert verdict != verdict.to_wire()
    with pytest.raises(AttributeError):
        verdict.reason = "x"
    with pytest.raises(AttributeError):
        del verdict.reason
    assert "Verdict(" in repr(verdict)


def test_a_policy_cannot_change_a_verdict_afterwards():
    """Values and blocks given to a verdict are frozen into it."""
    value = {"a": [1]}
    approval = {"who": []}
    verdict = Verdict.transform("$target", value)
    liftable = Verdict(Decision.DENY, approval=approval)
    value["a"].append(2)
    approval["who"].append("x")
    assert verdict.transform.value == {"a": [1]}
    assert liftable.approval == {"who": []}
    assert "[1]" not in repr(verdict)


WRONG = {
    "not an object": [],
    "null": None,
    "no decision": {},
    "unknown decision": {"decision": "warn"},
    "case": {"decision": "Allow"},
    "decision of another type": {"decision": ["allow"]},
    "unknown member": {"decision": "allow", "bogus": 1},
    "reason of another type": {"decision": "deny", "reason": 1},
    "reserved reason": {"decision": "deny", "reason": "host_error:interceptor_failed"},
    "message of another type": {"decision": "deny", "message": 1},
    "approval on allow": {"decision": "allow", "approval": {}},
    "approval on transform": {"decision": "transform", "transform": {"path": "$target"}, "approval": {}},
    "approval of another type": {"decision": "deny", "approval": []},
    "transform without a block": {"decision": "transform"},
    "transform with null": {"decision": "transform", "transform": None},
    "block without transform": {"decision": "allow", "transform": {"path": "$target", "value": 1}},
    "block without path": {"decision": "transform", "transform": {"value": 1}},
    "path of another type": {"decision": "transform", "transform": {"path": 1, "value": 1}},
    "unknown transform member": {"decision": "transform", "transform": {"path": "$target", "value": 1, "x": 1}},
    "warnings of another type": {"decision": "allow", "warnings": {}},
    "a warning of another type": {"decision": "allow", "warnings": ["w"]},
    "unknown warning member": {"decision": "allow", "warnings": [{"x": 1}]},
    "a warning's reason of another type": {"decision": "allow", "warnings": [{"reason": 1}]},
    "a warning's reserved reason": {"decision": "allow", "warnings": [{"reason": "host_error:x"}]},
    "evidence of another type": {"decision": "allow", "evidence": []},
    "unknown evidence member": {"decision": "allow", "evidence": {"x": 1}},
    "artefact of another type": {"decision": "allow", "evidence": {"artefact": 1}},
    "pointers of another type": {"decision": "allow", "evidence": {"verification_pointers": None}},
    "a pointer of another type": {"decision": "allow", "evidence": {"verification_pointers": {"k": 1}}},
    "evidence too big": {"decision": "allow", "evidence": {"artefact": "a" * 10_240}},
    "labels of another type": {"decision": "allow", "result_labels": "pii"},
    "a label of another type": {"decision": "allow", "result_labels": [1]},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_verdict_is_refused(name):
    """Everything §5 and its schema refuse is refused, by the SDK's core too."""
    with pytest.raises(VerdictInvalid):
        Verdict.from_wire(WRONG[name])
    core = pytest.importorskip("agent_hooks._core", reason="agent-hooks-sdk is a development dependency")
    with pytest.raises(core.AgentHooksCoreError):
        core.validate_verdict(json.dumps(WRONG[name]))


@pytest.mark.parametrize(
    "member", ["reason", "message", "warnings", "approval", "transform", "evidence", "result_labels"]
)
def test_null_members_are_absent(member):
    """A member that is null counts as absent."""
    assert Verdict.from_wire({"decision": "deny", member: None}) == Verdict.deny()


OUTSIDE = {
    "surrogate in a reason": lambda: Verdict.deny("\ud800"),
    "surrogate in a warning": lambda: Verdict.warn("w", "\ud800"),
    "surrogate in a label": lambda: Verdict(Decision.ALLOW, result_labels=["\ud800"]),
    "tuple as approval": lambda: {"decision": "deny", "approval": {"a": (1,)}},
    "evidence too big": lambda: Verdict(Decision.ALLOW, evidence=Evidence("é" * 5120)),
    "a string": lambda: "allow",
    "nothing": lambda: None,
    "a class": lambda: Verdict,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_answers_outside_the_domain_are_refused(name):
    """What an interceptor hands over is checked as a whole, native verdicts too."""
    with pytest.raises(VerdictInvalid):
        read_verdict(OUTSIDE[name]())


def test_evidence_may_have_10_240_bytes():
    """The cap counts canonical bytes, and the last one is allowed (§5.3)."""
    fits = Evidence("a" * (10_240 - len('{"artefact":""}')))
    assert read_verdict(Verdict(Decision.ALLOW, evidence=fits)).evidence == fits
    with pytest.raises(VerdictInvalid):
        read_verdict(Verdict(Decision.ALLOW, evidence=Evidence(fits.artefact + "a")))


def test_constructor_mistakes_are_told_at_once():
    """Members that do not fit together raise where the verdict is made."""
    for make in (
        lambda: Verdict("maybe"),
        lambda: Verdict(Decision.DENY, "host_error:x"),
        lambda: Verdict(Decision.ALLOW, approval={}),
        lambda: Verdict(Decision.TRANSFORM),
        lambda: Verdict(Decision.DENY, transform=Transform("$target", 1)),
        lambda: Verdict(Decision.TRANSFORM, transform={"path": "$target"}),
        lambda: Verdict(Decision.ALLOW, evidence={"artefact": "x"}),
        lambda: Verdict(Decision.ALLOW, warnings=["w"]),
        lambda: Verdict(Decision.ALLOW, result_labels="pii"),
        lambda: Verdict.escalate("r", responders="human:ana"),
        lambda: Verdict.deny(1),
    ):
        with pytest.raises(VerdictInvalid):
            make()


async def test_verdicts_of_the_sdk_are_taken():
    """An object with `to_wire` is a verdict; the SDK leaves a null transform value out (§5.2)."""
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")
    theirs = sdk.Verdict(decision=sdk.Decision.TRANSFORM, transform=sdk.Transform("$target.x", None))
    assert read_verdict(theirs) == Verdict.transform("$target.x", None)
    assert read_verdict(sdk.Verdict.escalate(reason="r")) == Verdict.escalate("r")
    emission = await Gate([lambda context: theirs]).emit(
        ContextBuilder(agent_id="a", session_id="s").pre_tool_call("c", "t", {"x": 1})
    )
    assert emission.target == {"x": None}


MESSAGES = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(MESSAGES, MESSAGES)
def test_projected_messages_have_at_most_256_bytes(message, warning):
    """A long message is cut on a character boundary and ends with an ellipsis (§10.3)."""
    shown = record_projection(Verdict(Decision.DENY, "r", message or None, [Warning("w", warning)]))
    for full, cut in ((message, shown.get("message", "")), (warning, shown["warnings"][0]["message"])):
        assert len(cut.encode()) <= 256
        assert cut == full or (cut.endswith("…") and full.startswith(cut[:-1]) and len(full.encode()) > 256)


def test_projections_hold_no_payload():
    """The value of a transform and the members of an approval stay out of records (§10.3)."""
    assert record_projection(Verdict.transform("$target.x", "secret")) == {
        "decision": "transform",
        "transform": {"path": "$target.x"},
    }
    assert record_projection(Verdict.escalate("r", responders=["human:ana"]))["approval"] == {}
    evidence = Evidence("sha256:00", {"k": "https://example.org"})
    assert record_projection(Verdict(Decision.ALLOW, evidence=evidence))["evidence"] == evidence.to_wire()
