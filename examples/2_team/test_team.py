import os
import sys
from pathlib import Path

import pytest

from lictor.runtime import definition_of
from lictor.testing import call, say
from shop.directory import directory
from shop.team import team

HERE = Path(__file__).parent
SCRIPTS = {
    "orders": [call("assign", member="analyst", instruction="order 42"),
               call("assign", member="refunds", instruction="pay 30 back"),
               call("assign", member="writer", instruction="tell her"), call("finish", answer="30 are on their way.")],
    "analyst": [call("lookup_order", order_id=42), say("It broke on the way.")],
    "refunds": [call("refund", order_id=42, amount=30.0), say("Paid.")],
    "writer": [say("Dear Ana, 30 are on their way.")],
}


def paid():
    return Path("paid.txt").read_text() if Path("paid.txt").exists() else ""


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    (tmp_path / "orders-mcp").write_text(f'#!/bin/sh\nexec {sys.executable} {HERE}/orders_mcp.py "$@"\n')
    (tmp_path / "orders-mcp").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)


async def test_a_refund_of_the_team_in_yaml_waits_for_a_person_and_is_paid_once(runtime):
    runtime.script(**SCRIPTS)
    result = await runtime.run_to_park(definition_of(f"{HERE}/team.yaml"), "My mug broke", user="ana")
    [request] = result.requests
    assert (request.tool, request.arguments) == ("refund", {"order_id": 42, "amount": 30.0})
    assert not paid()
    result = await runtime.decide(request, "approve")
    assert (result.status, result.answer) == ("completed", "30 are on their way.")
    assert paid() == "30.00 for order 42\n"


async def test_who_lost_the_role_is_skipped(runtime, monkeypatch):
    monkeypatch.setitem(directory.roles, "ana", set())
    runtime.script(**SCRIPTS)
    result = await runtime.run_to_park(team, "My mug broke", user="ana")
    assert [each.source for each in result.trace.records if each.kind == "skip"] == ["refunds"]
    assert result.status == "completed" and not paid()
