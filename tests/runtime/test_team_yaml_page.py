"""The file on docs/team-yaml.md is a file that works, and so is the one of the example."""

import re
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from lictor import Agent, Runtime, Team
from lictor.console.order import order_of
from lictor.runtime import file_schema, yaml_of
from lictor.testing import ScriptedModel, call, say

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "team-yaml.md").read_text()
[WRITTEN] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOP = {
    "policy.py": """
from lictor import ALLOW, Context, Verdict, interceptor

@interceptor(points=["output"], version="1")
def secret_egress(context: Context) -> Verdict:
    return Verdict.deny("secret", "A key.") if "sk-" in str(context["target"]) else ALLOW

@interceptor(points=["pre_tool_call"], version="1")
class SmallRefunds:
    def __init__(self, most):
        self.most = most

    def intercept(self, context: Context) -> Verdict:
        return ALLOW
""",
    "team.py": """
from lictor import TeamInterceptor

class RefundPermission(TeamInterceptor):
    def should_agent_continue(self, trace, agent):
        return agent.name != "refunds" or trace.user.id == "ana"
""",
    "tools.py": '''
def opening_hours(day: str) -> str:
    """Say when the shop is open."""
    return "9 to 5"
''',
}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The file of the page, beside stand-ins for the modules that it names."""
    (tmp_path / "shop").mkdir()
    for name, text in {"__init__.py": "", **SHOP}.items():
        (tmp_path / "shop" / name).write_text(text)
    (tmp_path / "team.yaml").write_text(WRITTEN)
    monkeypatch.setenv("ORDERS_TOKEN", "secret")
    monkeypatch.delenv("LOCAL_URL", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:  # another test's
        monkeypatch.delitem(sys.modules, name)
    yield yaml_of(str(tmp_path / "team.yaml"))
    for name in [name for name in sys.modules if name == "shop" or name.startswith("shop.")]:
        del sys.modules[name]


async def test_the_file_of_the_page_works(page):
    """Every target of it is made, and the team runs: the nested desk writes, the permission skips a member."""
    assert (page.store, page.names) == (
        "sqlite:///orders.db",
        ["orders", "desk", "analyst", "refunds", "writer", "clerk"],
    )
    made = {name: page.definition(name) for name in page.names}
    assert [type(each) for each in made.values()] == [Team, Team, Agent, Agent, Agent, Agent]
    assert page.definition() is made["orders"]
    order = [each["name"] for each in order_of(made["orders"])["interceptors"] if each["name"].startswith("team:")]
    assert order == [f"team:orders/{name}" for name in ("permission", "secret-egress", "card-mask", "no-wiping")]
    scripts = {
        "orders": [
            call("assign", member="refunds", instruction="pay"),
            call("assign", member="desk", instruction="write"),
            call("finish", answer="Written."),
        ],
        "clerk": [call("opening_hours", day="Monday"), say("9 to 5.")],
        "writer": [say("Dear Ben, we are open from 9 to 5.")],
    }
    models = {name: ScriptedModel(script) for name, script in scripts.items()}
    async with Runtime(models=models) as runtime:
        run = await runtime.start(page.definition(), "My mug broke", user="ben")
        result = await run.result()
        trace = await runtime.trace(run.id)
    assert (result.status, result.answer) == ("completed", "Written.")
    assert [(each.source, each.kind) for each in trace.records if each.kind != "decision"] == [
        ("refunds", "skip"),
        ("desk", "output"),
    ]
    assert trace.last_agent_content == "Dear Ben, we are open from 9 to 5."


@pytest.mark.parametrize("text", [WRITTEN, (ROOT / "examples/2_team/team.yaml").read_text()], ids=["page", "example"])
def test_the_schema_accepts_what_works(text):
    """An editor with the schema finds nothing wrong in a file that works."""
    jsonschema.validate(yaml.safe_load(text), file_schema())
