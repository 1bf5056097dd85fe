"""`lictor hooks`: the resolved order of the interceptors of an agent or a team."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lictor.agent import NO_GOVERNANCE, Agent, plan_for
from lictor.hooks import POINTS
from lictor.team import Team, TeamInterceptor
from lictor.values import digest

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["order_of", "show"]


def order_of(agent: Agent | Team) -> dict[str, Any]:
    """The fold that a run of `agent` has by itself, as JSON.

    A Runtime, a team or a run may put more around it; that cannot be seen from here.
    """
    rules = agent.governance or NO_GOVERNANCE
    if isinstance(agent, Team):
        plan = plan_for(agent.supervision.agent, ((f"team:{agent.name}", agent.interceptors),), (), rules)
    else:
        plan = plan_for(agent, (), (), rules)
    declared = plan.declared()
    interceptors = [{**each, "fingerprint": digest(each)} for each in declared["interceptors"]]
    found = {
        "agent": agent.name,
        "mode": declared["mode"],
        "composition": declared["composition"],
        "policy": plan.policy,
        "interceptors": interceptors,
        "order": {point: [each["name"] for each in interceptors if point in each["points"]] for point in POINTS},
    }
    return found | {"moments": _moments(agent)} if isinstance(agent, Team) else found


def _moments(team: Team) -> dict[str, list[str]]:
    """Who has a word at each moment of a team, by the name of its method."""
    names = [name for name in vars(TeamInterceptor) if name.startswith(("on_", "should_"))]
    hooks = team.supervision.hooks((), ())
    return {name: [hook.name for hook in hooks if hook.method(name) is not None] for name in names}


def show(console: Console, order: Mapping[str, Any]) -> None:
    """Print it: the interceptors, then who judges at each point."""
    from rich.table import Table
    from rich.text import Text

    profile = order["composition"]["profile"]
    console.print(Text(f"agent {order['agent']}: {profile}, {order['mode']}"))
    console.print(Text(f"policy {order['policy']}"), overflow="fold")
    console.print()
    numbers = {each["name"]: str(number) for number, each in enumerate(order["interceptors"], 1)}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("#", "interceptor", "version", "fingerprint", "code"):
        table.add_column(name, overflow="fold")
    for each in order["interceptors"]:
        fingerprint = each["fingerprint"].removeprefix("sha256:")[:12]
        table.add_row(numbers[each["name"]], each["name"], each["version"], fingerprint, each["code"])
    console.print(table)
    console.print()
    points = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    points.add_column("point")
    points.add_column("judged in this order by", overflow="fold")
    for point, names in order["order"].items():
        points.add_row(point, ", ".join(f"{numbers[name]} {name}" for name in names) or "nobody (allowed)")
    for moment, names in order.get("moments", {}).items():
        if names:
            points.add_row(moment, ", ".join(f"{numbers.get(name, '')} {name}".strip() for name in names))
    console.print(points)
