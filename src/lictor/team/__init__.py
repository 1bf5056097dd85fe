"""Teams: a supervisor, members, and moments at which a verdict counts."""

from __future__ import annotations

from lictor.team.decisions import Decision
from lictor.team.definition import Member, Team
from lictor.team.interceptor import TeamInterceptor
from lictor.team.machine import TeamMachine
from lictor.team.members import begun
from lictor.team.route import Finish, Go, Handoff, Hierarchical, Route, RouteState, Sequential, Unroutable, Unrouted
from lictor.team.running import assemble_team, begin_team, drive_team, split_team_limits
from lictor.team.state import Outcome, Record, TeamState
from lictor.team.trace import MemberResult, Metrics, TeamOptions, TeamTrace, team_trace_of
from lictor.team.wrapping import ModelRequestView, WrappedStep

__all__ = [
    "Decision",
    "Finish",
    "Go",
    "Handoff",
    "Hierarchical",
    "Member",
    "MemberResult",
    "Metrics",
    "ModelRequestView",
    "Outcome",
    "Record",
    "Route",
    "RouteState",
    "Sequential",
    "Team",
    "TeamInterceptor",
    "TeamMachine",
    "TeamOptions",
    "TeamState",
    "TeamTrace",
    "Unroutable",
    "Unrouted",
    "WrappedStep",
    "assemble_team",
    "begin_team",
    "begun",
    "drive_team",
    "split_team_limits",
    "team_trace_of",
]
