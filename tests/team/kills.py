"""A program for test_team_fuzz: random teams over SQLite, killed by SIGKILL and finished by another process.

kills.py FOLDER FIRST COUNT      one line of JSON for each seed

It forks, so that a few programs do many runs: a child that starts the run and may be killed, then one that
finishes it, over the same file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from teamplay import holds, told
from test_team_fuzz import chance, decide, room, side_by_side, unbroken

from lictor import Runtime, faults
from lictor.runs import TERMINAL
from lictor.testing import invariants

PLACES = (
    "submit.after",
    "claim.before_first_step",
    "effect.before",
    "effect.after",
    "intent.before",
    "intent.after",
    "park.before",
    "park.after",
    "finish.before",
    "finish.after",
)
ENTRY = "entry"  # right after so many entries, whether they are in the file by then or not


def die() -> None:
    """What a kill is."""
    os.kill(os.getpid(), signal.SIGKILL)


async def drive(url: str, seed: int, entries: int | None = None) -> dict[str, Any]:
    """Start the run of a seed, or find it, and bring it to its end; what it came to."""
    team, answers = room(seed), decide(seed)
    async with Runtime(url, definitions={team.name: team}) as runtime:
        run = await runtime.start(team, "go", key="k")
        if entries is not None:
            left = itertools.count(1)
            runtime.store.watch(run.id, lambda entry: die() if next(left) == entries else None)
        result = await run.result()
        while result.status not in TERMINAL:
            assert result.requests, "it is suspended and nobody is asked"
            for request in result.requests:
                verb, more = answers(request)
                await runtime.docket.decide(request.id, verb, by="human:ana", **more)
            result = await run.result()
        holds(runtime.store, run.id, whole=False)
        await invariants(run)
        return {"told": json.loads(json.dumps(told(runtime.store, run.id), default=str)), "status": result.status}


def child(url: str, seed: int, out: Path, point: tuple[str, int] | None) -> int:
    """The wait status of a process that drives the run, and dies at a point if it is told so."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        entries = point[1] if point is not None and point[0] == ENTRY else None
        if point is not None and entries is None:
            faults.arm(point[0], die, point[1])
        out.write_text(json.dumps(asyncio.run(asyncio.wait_for(drive(url, seed, entries), 20))))
        code = 0
    except BaseException as exc:
        out.write_text(json.dumps({"error": f"{type(exc).__name__}: {exc}"}))
    finally:
        os._exit(code)
    return code


def one(folder: Path, seed: int) -> dict[str, Any]:
    """One seed, killed up to three times, then finished."""
    url, out = f"sqlite:///{folder}/{seed}.db", folder / f"{seed}.json"
    world, result = asyncio.run(unbroken(seed))
    entries = len(world.store.root_entries(result.run_id))
    here, killed = chance(seed, "kills"), []
    for _ in range(here.randrange(1, 4)):
        point = (here.choice(PLACES), here.randrange(2))
        if here.random() < 0.7:
            point = (ENTRY, here.randrange(1, entries))
        if os.WIFSIGNALED(child(url, seed, out, point)):
            killed.append(f"{point[0]}:{point[1]}")
    child(url, seed, out, None)
    found = json.loads(out.read_text())
    expected = json.loads(json.dumps(told(world.store, result.run_id), default=str))
    ends = [end[0] for *_, each in expected for end in each]
    by_chance = {"cancelled", "stopped"} & set(ends) and side_by_side(world, result.run_id)
    same = found.get("status") == result.status and (bool(by_chance) or found["told"] == expected)
    return {"seed": seed, "killed": killed, "same": same, "error": found.get("error")}


if __name__ == "__main__":
    for number in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
        print(json.dumps(one(Path(sys.argv[1]), number)), flush=True)
