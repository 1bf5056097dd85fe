"""Lictor's team: plain (`team`), governed, and governed over SQLite.

Governed: one TeamInterceptor that answers at every moment of the team and at all eight points, for the supervisor
and for each member.
"""

import platform
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
from _team_workloads import FINAL, INSTRUCTIONS, MEMBERS, MOST_TURNS, SYSTEM, TASK, TURNS, Script, check_team, expect
from _workloads import Contender, Tally

from lictor import ALLOW, Agent, Context, Runtime, Team, TeamInterceptor, Verdict
from lictor.models import Call, ModelEvent, ModelResponse

ASSIGN = [orjson.dumps({"member": MEMBERS[n % 3], "instruction": INSTRUCTIONS[n]}).decode() for n in range(MOST_TURNS)]
FINISH = orjson.dumps({"answer": FINAL}).decode()
ONCE = ("on_team_start", "on_team_end", "on_team_finished")
DECIDING = ("should_supervisor_continue", "on_prepare", "on_model_start", "on_model_end", "on_supervisor_decision")
WORKING = ("should_agent_continue", "on_agent_end")
NODES = ("on_node_start", "on_node_end")


class Supervisor:
    """Assigns the turns of the script, then finishes. It bounds its own time, as the models that ship do."""

    id = "supervisor"
    keeps_timeout = True

    def __init__(self, script: Script) -> None:
        self.script = script

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> AsyncIterator[ModelEvent]:
        turn = self.script.decide()
        if turn is None:
            yield ModelResponse(None, (Call("end", "finish", FINISH),), "tool_calls")
        else:
            yield ModelResponse(None, (Call(f"c{turn}", "assign", ASSIGN[turn]),), "tool_calls")


class Worker:
    """A member's model."""

    id = "member"
    keeps_timeout = True

    def __init__(self, script: Script) -> None:
        self.script = script

    async def respond(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
    ) -> AsyncIterator[ModelEvent]:
        yield ModelResponse(self.script.work())


class Everywhere(TeamInterceptor):
    """Has a word at every moment and at all eight points; it allows."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.moments: dict[str, int] = {}

    def intercept(self, context: Context) -> Verdict:
        self.tally.emissions += 1
        return ALLOW


def _counting(moment: str) -> Any:
    def method(self: Everywhere, *about: Any) -> None:
        self.moments[moment] = self.moments.get(moment, 0) + 1

    return method


for _moment in (*ONCE, *DECIDING, *WORKING, *NODES):
    setattr(Everywhere, _moment, _counting(_moment))


def heard(turns: int) -> dict[str, int]:
    """How often each moment comes in a run."""
    return {
        **dict.fromkeys(ONCE, 1),
        **dict.fromkeys(DECIDING, turns + 1),
        **(dict.fromkeys(WORKING, turns) if turns else {}),
        **dict.fromkeys(NODES, 2 * turns + 1),
    }


def build(name: str, tally: Tally) -> Contender:
    """The contender `team`, `team-governed` or `team-governed-sqlite`."""
    script = Script(tally)
    policies = [Everywhere(tally)] if name != "team" else []
    members = [Agent(member, model=Worker(script), instructions=member) for member in MEMBERS]
    team = Team(
        "bench",
        members=members,
        model=Supervisor(script),
        instructions=SYSTEM,
        interceptors=policies,
        max_turns=MOST_TURNS + 1,
    )
    runtimes: list[Runtime] = []

    async def run(turns: int) -> str:
        script.begin(turns)
        for policy in policies:
            policy.moments.clear()
        if runtimes:
            return str((await (await runtimes[0].start(team, TASK)).result()).answer)
        return str((await team.run(TASK)).answer)

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        if name != "team-governed-sqlite":
            yield
            return
        with tempfile.TemporaryDirectory() as folder:
            async with Runtime(f"sqlite:///{folder}/team.db") as runtime:
                runtimes.append(runtime)
                yield
                runtimes.clear()

    def shape(workload: str, contender: Contender, tally: Tally, answer: str) -> None:
        check_team(workload, contender, tally, answer)
        turns = TURNS[workload]
        # a member: startup, input, output, shutdown and its model call; the supervisor: the same once, each of its
        # model calls, and each of its decisions as a tool call
        emissions = 6 * turns + 4 + 2 * (turns + 1) + 2 * (turns + 1)
        for policy in policies:
            expect(contender, workload, policy.moments, heard(turns))
            expect(contender, workload, tally.emissions, emissions)

    workloads = {workload: partial(run, turns) for workload, turns in TURNS.items()}
    versions = {"python": platform.python_version()}
    return Contender(
        name=name, versions=versions, workloads=workloads, governed=bool(policies), shape=shape, opened=opened
    )
