"""Definitions by reference: what a Runtime imports, and what it says when there is nothing to import."""

import sys

import pytest

from lictor import Agent, Runtime
from lictor.errors import DefinitionError
from lictor.models import ScriptedModel, say

SHOP = """
from lictor import Agent
from lictor.models import ScriptedModel, say

class Company:
    clerk = Agent("clerk", model=ScriptedModel([say("Hello.")]))

clerk = Company.clerk
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module `lictor_shop` with an agent, and one that cannot be imported."""
    (tmp_path / "lictor_shop.py").write_text(SHOP)
    (tmp_path / "lictor_broken.py").write_text("import lictor_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    yield "lictor_shop"
    for name in ("lictor_shop", "lictor_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["clerk", "Company.clerk"])
async def test_a_run_is_driven_by_a_runtime_that_knows_its_agent_by_reference(shop, tmp_path, name):
    """What one process queued, another one finishes with nothing but the name of the definition."""
    url = f"sqlite:///{tmp_path}/s.db"
    async with Runtime(url, drive=False) as runtime:
        run = await runtime.start(Agent("clerk", model=ScriptedModel([say("never")])), "hi")
    async with Runtime(url, definitions={"clerk": f"{shop}:{name}"}) as runtime:
        assert (await (await runtime.run(run.id)).result()).answer == "Hello."


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("shop.team", "there is no module 'shop.team'"),
        ("lictor_shop", "write lictor_shop:NAME"),
        (":clerk", "there is no module"),
        ("lictor_none:clerk", "there is no module 'lictor_none'"),
        ("lictor_shop:boss", "there is no 'boss' in lictor_shop"),
        ("lictor_shop:Company", "is a type, neither an Agent nor a Team"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told_at_once(shop, reference, told):
    """The text names what is missing."""
    with pytest.raises(DefinitionError, match=told):
        Runtime(definitions={"clerk": reference})


def test_an_error_inside_the_module_is_that_error(shop):
    """What a module of the user raises is named, and is the cause."""
    with pytest.raises(DefinitionError, match=r"cannot be imported: .*lictor_nowhere"):
        Runtime(definitions={"clerk": "lictor_broken:clerk"})
