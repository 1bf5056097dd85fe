"""`Gate.refuse`: the host's own deny, which no interceptor is asked about."""

import pytest
from hooks.contract_schemas import validator

from lictor.hooks import ALLOW, Composition, ContextBuilder, Gate, IdentityProvider
from lictor.values import thaw

REASON = "host_error:streaming_unsupported"
RESPONSE = {"content": "half an ans", "tool_calls": [], "finish_reason": "stream_incomplete"}


@pytest.mark.parametrize("mode", ["enforce", "evaluate_only"])
@pytest.mark.parametrize("profile", ["sequential/first_deny", "sequential/run_all", "parallel/strictest"])
async def test_a_refusal_is_recorded_and_asks_nobody(profile, mode):
    """The record has the reason and both identities, nobody decided it, and it proceeds in no mode."""
    asked, records = [], []
    gate = Gate([lambda c: asked.append(c) or ALLOW], composition=Composition(profile), mode=mode, sink=records.append)
    context = ContextBuilder(agent_id="a", session_id="s").post_model_call("m", RESPONSE)
    emission = await gate.refuse(context, REASON)
    assert (emission.proceeds, emission.verdict.reason, asked) == (False, REASON, [])
    (record,) = map(thaw, records)
    validator("interception-record").validate(record)
    assert (record["verdict"], record["mode"]) == ({"decision": "deny", "reason": REASON}, mode)
    assert (record["decided_by"], record["verdicts"], record["interceptors_registered"]) == (None, [], 1)
    assert record["input_identity"] == record["enforced_identity"] == (await gate_identity(context))
    assert record.get("fold_truncated", True) is True
    assert "half" not in str(record)


async def gate_identity(context):
    """The identity that an ordinary emission of the same context has."""
    return (await Gate([lambda c: ALLOW]).emit(dict(context))).record["input_identity"]


async def test_a_refusal_without_identity_is_an_invalid_context():
    """A provider that fails makes it the deny it would have been anyway (§10.1)."""

    def broken(context):
        raise RuntimeError("no")

    gate = Gate([lambda c: ALLOW], identity=IdentityProvider("broken", broken))
    emission = await gate.refuse(ContextBuilder(agent_id="a", session_id="s").post_model_call("m", RESPONSE), REASON)
    assert (emission.proceeds, emission.verdict.reason) == (False, "host_error:context_invalid")
    assert emission.record["input_identity"] is None
