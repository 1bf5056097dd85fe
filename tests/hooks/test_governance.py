"""Governance: one frozen value, checked when it is made."""

import dataclasses

import pytest

from lictor.errors import DefinitionError
from lictor.hooks import RESERVED_REASONS, Composition, Governance, IdentityProvider


def test_the_defaults_are_those_of_a_run():
    """Unlike a bare gate a run asks every policy, and a failure of enforcement ends it."""
    governance = Governance()
    assert governance.composition == Composition("sequential/run_all")
    assert (governance.mode, governance.posture, governance.timeout) == ("enforce", "terminate", 5.0)
    assert (governance.resolver, governance.resolver_timeout) == (None, None)
    assert governance == Governance(composition="sequential/run_all")
    with pytest.raises(dataclasses.FrozenInstanceError):
        governance.mode = "evaluate_only"


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "audit"},
        {"composition": "sequential"},
        {"composition": None},
        {"timeout": 0},
        {"resolver_timeout": "1"},
        {"sink_timeout": -1},
        {"identity": "md5"},
        {"posture": "ignore"},
        {"redactor": 1},
        {"record_sink": []},
        {"resolver": 1},
        {"sink_required": True},
    ],
)
def test_wrong_options_are_told_at_once(options):
    """Each option is checked where the governance is written."""
    with pytest.raises(DefinitionError):
        Governance(**options)


def test_every_option_can_be_set():
    """Options that fit are kept as they are."""
    governance = Governance(
        mode="evaluate_only",
        composition=Composition("parallel/strictest", on_transform_conflict="approval"),
        timeout=None,
        resolver_timeout=60,
        identity=IdentityProvider("mine", str),
        posture="continue",
        redactor=dict,
        record_sink=print,
        sink_required=True,
        sink_timeout=None,
        resolver=print,
    )
    assert governance.record_sink is print
    assert governance.composition.on_transform_conflict == "approval"


def test_the_reserved_reasons_are_the_contract_s():
    """The closed set of §11, word by word."""
    words = (
        "adapter_unsupported approval_identity_mismatch approval_resolver_failed approval_unresolved "
        "composition_disagreement context_invalid interceptor_failed interceptor_timeout no_interceptor "
        "streaming_unsupported transform_conflict transform_invalid transform_target_forbidden verdict_invalid"
    )
    assert {f"host_error:{word}" for word in words.split()} == RESERVED_REASONS
