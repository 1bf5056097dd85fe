"""Random teams under random denials, failures, suspensions, stops and crashes: what holds for each of them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from teamplay import ANA, HOOKS, World, assign, call, delegate, finish, holds, say, told, transfer

from lictor import Agent, ScriptedModel, Team, Verdict, tool
from lictor.errors import SimulatedCrash
from lictor.models import fail
from lictor.runs import TERMINAL
from lictor.team import Decision, TeamInterceptor
from lictor.testing import StrictProvider, invariants

PROTOCOLS = ("hierarchical", "hierarchical", "sequential", "none", "handoff")
ANSWERS = ("deny", "raise", "escalate", "suspend", "stop", "stop_member", "false", "nonsense", "transform")


def chance(*parts: Any) -> random.Random:
    """The same chance for the same place, in whatever process: after a crash everybody says the same again."""
    return random.Random("|".join(map(str, parts)))


class Moody(TeamInterceptor):
    """At some moments says something, by chance of the place and not of the time."""

    def __init__(self, seed: int, rate: float) -> None:
        self.seed = seed
        self.rate = rate
        self.told = 0

    def answer(self, moment: str, trace: Any, about: Any) -> Any:
        """Mostly nothing."""
        place = (self.seed, trace.name, moment, trace.turn_count, getattr(about, "name", about))
        here = chance(*place, len(trace.messages) if "model" in moment else "")
        if here.random() > self.rate:
            return None
        kind = here.choice(ANSWERS)
        if kind == "raise":
            raise ValueError(moment)
        if kind == "suspend":
            return trace.suspend("somebody has to look")
        if kind == "transform":
            trace.extras[moment] = trace.turn_count
            return Decision(kind="assign", member="m0", instruction="x") if "decision" in moment else None
        return {
            "deny": Verdict.deny("no", "never"),
            "escalate": Verdict.escalate("look"),
            "stop": Verdict.stop("enough"),
            "stop_member": Verdict.stop("enough", scope="member"),
            "false": False,
            "nonsense": 7,
        }[kind]


def _moody(moment: str) -> Any:
    def plain(self: Any, trace: Any, *about: Any) -> Any:
        return self.answer(moment, trace, _about(about))

    async def later(self: Any, trace: Any, *about: Any) -> Any:
        await asyncio.sleep(0)
        return self.answer(moment, trace, _about(about))

    return later if moment.endswith(("e", "t")) else plain


def _about(given: tuple[Any, ...]) -> Any:
    found = given[0] if given else ""
    return found if isinstance(found, str) else getattr(found, "name", "")


for _moment in HOOKS:
    setattr(Moody, _moment, _moody(_moment))


@tool(effect="idempotent", requires_approval=True)
async def gated(n: int) -> str:
    """Wait for a person."""
    return f"gated {n}"


@tool(effect="pure")
async def look(n: int) -> str:
    """Look."""
    await asyncio.sleep(0)
    return f"saw {n}"


class Plain:
    """A member that is no agent."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed

    async def work(self, task: str) -> Any:
        """Answer, or fail."""
        await asyncio.sleep(0)
        if chance(self.seed, self.name).random() < 0.2:
            raise RuntimeError("broken")
        return {"words": len(self.name)}


def worker(name: str, seed: int, handoff: bool, others: list[str]) -> Agent:
    """A member whose every answer is by chance of its place."""

    def answer(request: Any) -> Any:
        here = chance(seed, name, request.position, len(request.messages))
        roll = here.random()
        if handoff and roll < 0.6:
            return transfer(here.choice([*others, "nobody"]), "note")
        if roll < 0.15:
            return [call("look", n=1), call("gated", n=2)]
        if roll < 0.25:
            return call("gated", n=here.randrange(3))
        if roll < 0.4:
            return call("look", n=here.randrange(3))
        if roll < 0.45:
            return fail(400)
        return say("" if roll < 0.48 else f"{name} says {here.randrange(100)}")

    model = StrictProvider(ScriptedModel([answer] * 60, id=f"m-{name}"))
    return Agent(name, model=model, tools=[look, gated], max_steps=here_steps(seed, name))


def here_steps(seed: int, name: str) -> int:
    """A limit of steps."""
    return chance(seed, name, "steps").randrange(1, 6)


def supervisor(seed: int, name: str, members: list[str]) -> Any:
    """A model that decides by chance of its place, well or badly."""

    def answer(request: Any) -> Any:
        here = chance(seed, name, request.position, len(request.messages))
        one, other = here.choice(members), here.choice(members)
        choices = [
            (8, lambda: assign(one)),
            (3, lambda: delegate(one, other)),
            (3, lambda: [assign(one), assign(other)]),
            (5, lambda: finish(f"answer {here.randrange(9)}")),
            (1, lambda: say(one)),
            (1, lambda: say("FINISH it is done")),
            (1, lambda: say("let me think")),
            (1, lambda: say("")),
            (1, lambda: assign("nobody")),
            (1, lambda: [finish("x"), assign(one)]),
            (1, lambda: call("unheard_of")),
            (1, lambda: call("finish", {"wrong": 1})),
            (1, lambda: call("ask_human", reason="what now?")),
            (1, lambda: fail(400)),
        ]
        return here.choices([each for _, each in choices], [weight for weight, _ in choices])[0]()

    return StrictProvider(ScriptedModel([answer] * 200, id=f"s-{name}"))


def room(seed: int, name: str = "room", depth: int = 0) -> Team:
    """A random team."""
    here = chance(seed, name, "team")
    protocol = here.choice(PROTOCOLS)
    names = [f"m{number}" if depth == 0 else f"n{number}" for number in range(here.randrange(1, 4))]
    members: list[Any] = []
    for each in names:
        roll = here.random()
        if roll < 0.12 and depth < 1:
            members.append(room(seed, f"{each}-team", depth + 1))
        elif roll < 0.2:
            members.append(Plain(each, seed))
        else:
            members.append(worker(each, seed, protocol == "handoff", names))
    called = [member.name for member in members]
    return Team(
        name,
        members=members,
        protocol=protocol,
        model=supervisor(seed, name, called) if protocol == "hierarchical" else None,
        feedback=here.random() < 0.5,
        max_turns=here.choice([0, 1, 3, 6, 8, 8, 8, 8]),
        max_handoffs=here.choice([0, 1, 3, 8]),
        record_window=here.choice([0, 1, 8]),
        retries=here.choice([0, 1, 3, 3]),
        interceptors=[Moody(seed, here.choice([0.02, 0.1, 0.25]))] if here.random() < 0.7 else [],
    )


def decide(seed: int) -> Any:
    """Decides by chance of the step, which is the same in every run of a seed."""

    def decided(request: Any) -> tuple[str, dict[str, Any]]:
        path = "/".join(step.name for step in request.path)
        here = chance(seed, path, request.step, request.kind, len(request.path))
        if request.kind == "feedback":
            return "respond", {"value": "do as you like"}
        verb = "approve" if here.random() < 0.7 else "reject"
        return verb, ({"feedback": "no"} if verb == "reject" else {})

    return decided


async def unbroken(seed: int) -> tuple[World, Any]:
    """A run without crashes."""
    world = World()
    result = await world.play(room(seed), decide=decide(seed))
    return world, result


async def one(seed: int) -> None:
    """A run, and the same run killed at several places, or ended from outside: one outcome, and the same history."""
    world, result = await unbroken(seed)
    assert result.status in TERMINAL
    async with world.open(room(seed), drive=False) as runtime:
        await invariants(await runtime.run(result.run_id))
    entries = len(world.store.root_entries(result.run_id))
    if seed % 2:
        await ended(seed, entries)
        return
    expected = told(world.store, result.run_id)
    here = chance(seed, "crashes")
    broken = World()
    places = [here.randrange(1, entries + 1) for _ in range(here.randrange(1, 4))]
    again = await broken.play(room(seed), crash=places, decide=decide(seed))
    broken_off = [end for *_, ends in expected for end in ends if end[0] in ("cancelled", "stopped")]
    if broken_off and side_by_side(world, result.run_id):  # who ends it first, and how far others had come, is chance
        async with broken.open(room(seed), drive=False) as runtime:
            await invariants(await runtime.run(again.run_id))
        return
    assert told(broken.store, again.run_id) == expected, f"killed after {places}"
    assert (again.status, again.reason, again.answer) == (result.status, result.reason, result.answer)


def side_by_side(world: World, root: str) -> bool:
    """Whether members worked at the same time."""
    working: dict[str, int] = {}
    for item in world.store.root_entries(root):
        if item.entry.kind in ("member_started", "member_finished"):
            step = 1 if item.entry.kind == "member_started" else -1
            working[item.run_id] = working.get(item.run_id, 0) + step
        tasks = item.entry.payload.get("members", ()) if item.entry.kind == "chosen" else ()
        calls = item.entry.payload.get("calls", ()) if item.entry.kind == "model_finished" else ()
        many = len([call for call in calls if call["name"] == "assign"]) > 1 or "delegate" in str(calls)
        if working.get(item.run_id, 0) > 1 or len(tasks) > 1 or many:
            return True
    return False


async def ended(seed: int, entries: int) -> None:
    """The same team stopped or cancelled from outside at some place: it ends, and nothing is left."""
    here = chance(seed, "ending")
    before = asyncio.all_tasks()
    world, team, how = World(), room(seed), here.choice(["stop", "cancel"])
    async with world.open(team) as runtime:
        run = await runtime.start(team, "go")
        left = [here.randrange(1, entries + 1)]
        due = asyncio.Event()

        def count(entry: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                due.set()

        world.store.watch(run.id, count)

        async def end() -> None:
            await due.wait()
            if how == "stop":
                await runtime.commands.stop(run.id, reason="enough", by=ANA)
            else:
                await runtime.commands.cancel(run.id, by=ANA)

        task = asyncio.create_task(end())
        answers = decide(seed)
        result = await run.result()
        while result.status not in TERMINAL:
            assert result.requests, f"{how}: it is suspended and nobody is asked"
            for request in result.requests:
                verb, more = answers(request)
                await runtime.docket.decide(request.id, verb, by=ANA, **more)
            result = await run.result()
        task.cancel()
        await asyncio.wait([task])
        holds(world.store, run.id)
        await invariants(run)
    assert asyncio.all_tasks() == before


def played(seeds: range) -> None:
    """Each seed in a loop of its own."""
    for seed in seeds:
        try:
            asyncio.run(asyncio.wait_for(one(seed), 20))
        except (Exception, SimulatedCrash) as exc:
            raise AssertionError(f"seed {seed}: {type(exc).__name__}: {exc}") from exc


@pytest.mark.parametrize("part", range(5))
def test_random_teams_end_once_and_the_same_after_every_kill(part: int) -> None:
    """500 random teams: one outcome each, valid histories, nothing left, and kills change nothing."""
    played(range(part * 100, part * 100 + 100))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_teams_end_once_and_the_same_after_every_kill(part: int) -> None:
    """20,000 more."""
    played(range(1000 + part * 1000, 2000 + part * 1000))


@pytest.mark.crash
@pytest.mark.parametrize("part", range(4))
def test_random_teams_over_a_file_survive_real_kills(part: int, tmp_path: Path) -> None:
    """200 random teams over SQLite, killed by SIGKILL up to three times each: the history of an unbroken run."""
    program = Path(__file__).with_name("kills.py")
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here, here.parent, here.parents[1] / "src")))
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(part * 50), "50"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (len(lines), done.returncode) == (50, 0), done.stderr
    assert [line for line in lines if not line["same"]] == []
    assert len([line for line in lines if line["killed"]]) > 25, "too few were killed: then the test tests nothing"
