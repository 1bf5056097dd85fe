"""Protocols: who works next. One pure file each."""

from __future__ import annotations

from lictor.team.route.command import ASK, Ask, Finish, Go, Move, Route, RouteState, Unroutable
from lictor.team.route.handoff import Handoff
from lictor.team.route.hierarchical import Hierarchical
from lictor.team.route.none import Unrouted
from lictor.team.route.sequential import Sequential

__all__ = [
    "ASK",
    "Ask",
    "Finish",
    "Go",
    "Handoff",
    "Hierarchical",
    "Move",
    "Route",
    "RouteState",
    "Sequential",
    "Unroutable",
    "Unrouted",
]
