"""Every definition error of a team, at once and in one line."""

from __future__ import annotations

from typing import Any

import pytest
from teamplay import World, agent, boss, finish, say, two

from lictor import Agent, Governance, Runtime, Team
from lictor.errors import DefinitionError

ADA = agent("ada", say("x"))


class Odd:
    """A member under a name of its own."""

    def __init__(self, name: Any) -> None:
        self.name = name

    async def work(self, task: str) -> str:
        """Answer."""
        return f"{self.name} did it"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"members": []}, "no members"),
        ({"members": [object()]}, "is no member"),
        ({"members": ["ada"]}, "is no member"),
        ({"members": [ADA, agent("ADA")]}, "case does not count"),
        ({"members": [ADA, ADA]}, "two members are called"),
        ({"members": [agent("supervisor")]}, "may not be called"),
        ({"members": [agent("FINISH")]}, "may not be called"),
        ({"members": [Odd("not a name")]}, "use letters"),
        ({"members": [Odd("")]}, "use letters"),
        ({"members": [Odd("ä")]}, "use letters"),
        ({"members": [Odd("x" * 65)]}, "at most 64"),
        ({"members": [Odd(7)]}, "use letters"),
        ({"members": [agent("a", governance=Governance())]}, "governance"),
        ({"model": None}, "give it a model="),
        ({"protocol": "democratic"}, "choose from hierarchical, sequential, none, handoff"),
        ({"protocol": object()}, "give a name, or an object"),
        ({"max_turns": -1}, "whole number"),
        ({"max_turns": True}, "whole number"),
        ({"max_handoffs": 1.5}, "whole number"),
        ({"history_window": None}, "whole number"),
        ({"record_window": "8"}, "whole number"),
        ({"retries": -3}, "whole number"),
        ({"finish_marker": "  "}, "give a word"),
        ({"interceptors": [object()]}, "is none"),
        ({"interceptors": [TypeError]}, "class"),
        ({"watchers": ["x"]}, "watcher"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_written(options: dict[str, Any], says: str) -> None:
    """Nothing waits until the first run."""
    given = {"members": [ADA], "model": boss(finish()), **options}
    with pytest.raises(DefinitionError) as caught:
        Team("room", **given)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, None, "a/b"])
def test_a_team_needs_a_proper_name(name: Any) -> None:
    """The same rule as for members."""
    with pytest.raises(DefinitionError, match="use letters"):
        Team(name, members=[ADA], protocol="none")


@pytest.mark.parametrize(
    "limits", [{"max_steps": 3}, {"max_turns": -1}, {"max_turns": True}, {"no_such": 1}, {"max_handoffs": "2"}]
)
async def test_limits_of_a_run_are_checked_before_it_starts(limits: dict[str, Any]) -> None:
    """In memory and in a Runtime, and nothing is stored."""
    team = Team("room", members=[ADA], protocol="none")
    with pytest.raises(DefinitionError):
        await team.run("go", **limits)
    async with Runtime() as runtime:
        with pytest.raises(DefinitionError):
            await runtime.start(team, "go", **limits)
        assert await _rows(runtime) == []


async def _rows(runtime: Runtime) -> list[Any]:
    return list(runtime._rows.values())


async def test_only_the_outermost_sets_governance() -> None:
    """A nested team and a Runtime around a team may not both."""
    inner = Team("inner", members=[ADA], protocol="none", governance=Governance())
    with pytest.raises(DefinitionError, match="governance"):
        Team("outer", members=[inner], protocol="none")
    async with Runtime(governance=Governance()) as runtime:
        with pytest.raises(DefinitionError, match="governance"):
            await runtime.start(inner, "go")


async def test_any_object_with_a_name_and_work_is_a_member() -> None:
    """Its value is the answer; what it raises is its failure."""

    class Broken(Odd):
        async def work(self, task: str) -> str:
            raise ValueError("no idea")

    result = await Team("t", members=[Odd("one"), Broken("two")], protocol="none").run("go")
    assert (result.status, result.answer) == ("completed", "one did it")
    result = await Team("t", members=[Broken("two")], protocol="sequential").run("go")
    assert (result.status, result.by) == ("failed", "member:two")
    record = result.trace.records[0]  # type: ignore[attr-defined]
    assert (record.kind, record.content) == ("error", "[failed] ValueError: no idea")


async def test_what_a_member_gives_must_be_json() -> None:
    """Anything else is the member's failure, not the run's."""

    class Strange(Odd):
        async def work(self, task: str) -> Any:
            return object()

    result = await Team("t", members=[Strange("one"), Odd("two")], protocol="none").run("go")
    assert (result.status, result.answer) == ("completed", "two did it")


def test_a_team_says_what_it_is() -> None:
    """Its repr names members and protocol."""
    assert repr(Team("t", members=[ADA], protocol="none")) == "Team('t', members=['ada'], protocol='none')"


async def test_teams_without_a_supervisor_need_no_model() -> None:
    """Sequential, none and handoff run with members alone."""
    for protocol in ("sequential", "none", "handoff"):
        assert (await Team("t", members=[ADA], protocol=protocol).run("go")).answer == "x"


async def test_settings_and_instructions_reach_the_supervisor() -> None:
    """The instructions list the members with what they are for."""
    member = Agent("ada", model=ADA.models[0], description="knows numbers")
    team = Team("t", members=[member], model=boss(finish()), instructions="Be brief.", settings={"temperature": 0.5})
    await World().play(team)
    request = team.model.model.requests[0]  # type: ignore[union-attr]
    assert request.settings["temperature"] == 0.5
    told = request.messages[0]
    assert told["role"] == "system"
    assert "- ada: knows numbers" in told["content"]
    assert told["content"].endswith("Be brief.")


async def test_what_cannot_resolve_is_told_at_once() -> None:
    """A resolver is a function or has `resolve`, in the definition and for one run."""
    with pytest.raises(DefinitionError, match="resolver=7"):
        two(resolver=7)
    with pytest.raises(DefinitionError, match="resolver='ana'"):
        await two()[0].run("go", resolver="ana")
