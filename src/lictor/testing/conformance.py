"""The Conformance Test Kit over the production loop, and what of it is claimed (§13).

The kit comes with `agent-hooks-sdk[ctk]`, a development dependency: its vectors, scripted
interceptors and assertions. What its runner does not look at, the text released to the caller and
what was stored, is asserted here from the raw vectors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lictor.errors import DefinitionError
from lictor.testing.harness import CAPABILITIES, LictorHarness

__all__ = ["CAPABILITIES", "KIT", "NOT_CLAIMED", "POSTURES", "STREAMS", "Checked", "Report", "check_vector", "run_kit"]

KIT = "agent-hooks-sdk[ctk]==0.1.0b3"
POSTURES = ("terminate", "continue")
STREAMS = ("buffered", "incremental")
UNLABELLED = "core"
STATUSES = ("passed", "failed", "skipped", "not_claimed")
WORST_FIRST = ("failed", "passed", "not_claimed", "skipped")
NOT_CLAIMED = (
    "it demands a host that is built from a declaration document by the SDK's loader; "
    "Lictor has its own engine of the contract, and no such loader"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One vector, run in one posture with one way of streaming.

    Arguments:
        id, title, part: as the kit names them.
        posture, stream: how it was run.
        status: `passed`, `failed`, `skipped` or `not_claimed`.
        told: what failed, or why it was not run.
    """

    id: str
    title: str
    part: str
    posture: str
    stream: str
    status: str
    told: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """As a JSON object, without the posture."""
        names = ("id", "title", "part", "stream", "status")
        return {**{name: getattr(self, name) for name in names}, "told": list(self.told)}


@dataclass(frozen=True, slots=True)
class Report:
    """What the kit said (§13.1): every vector in both postures, buffered and incremental.

    Arguments:
        kit: version of the kit.
        checked: one for each run of each vector.
    """

    kit: str
    checked: tuple[Checked, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not any(each.status == "failed" for each in self.checked)

    def of(self, *, posture: str | None = None, stream: str | None = None) -> dict[str, str]:
        """Vector id -> status over the runs that match: failed if one failed, passed if all that ran did."""
        found: dict[str, str] = {}
        for each in self.checked:
            if posture in (None, each.posture) and stream in (None, each.stream):
                known = found.get(each.id, "skipped")
                found[each.id] = min(known, each.status, key=WORST_FIRST.index)
        return found

    def counts(self, *, posture: str | None = None, stream: str | None = None) -> dict[str, int]:
        """How many vectors passed, failed, were skipped, and are not claimed."""
        counted = Counter(self.of(posture=posture, stream=stream).values())
        return {status: counted[status] for status in STATUSES}

    def parts(self, posture: str | None = None) -> dict[str, dict[str, int]]:
        """The counts for each part of the kit, in its order."""
        statuses = self.of(posture=posture)
        ids = {part: {each.id for each in self.checked if each.part == part} for part in self._part_names()}
        return {part: dict(Counter(statuses[id] for id in sorted(members))) for part, members in ids.items()}

    def json(self) -> dict[str, Any]:
        """As a JSON object; the numbers at the top count a vector as passed if it passed in both postures."""
        return {
            **self.counts(),
            "kit": {"package": KIT.partition("[")[0], "version": self.kit, "vectors": len(self.of())},
            "capabilities": list(CAPABILITIES),
            "not_claimed_because": NOT_CLAIMED,
            "postures": {posture: self._posture(posture) for posture in POSTURES},
        }

    def _part_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.part for each in self.checked))

    def _posture(self, posture: str) -> dict[str, Any]:
        streams = {stream: self.counts(posture=posture, stream=stream) for stream in STREAMS}
        return {
            **self.counts(posture=posture),
            "streams": streams,
            "parts": self.parts(posture),
            "vectors": [each.json() for each in self.checked if each.posture == posture],
        }


def run_kit() -> Report:
    """Run every vector of the installed kit. Raises DefinitionError when there is no kit."""
    vectors = _vectors()
    return Report(version("agent-hooks-sdk"), asyncio.run(_run_all(vectors)))


async def check_vector(vector: Mapping[str, Any], harness: LictorHarness) -> tuple[str, tuple[str, ...]]:
    """Run one vector through the kit's runner and our own assertions: its status, and what was told."""
    from agent_hooks.ctk import run_vector

    runner: Any = run_vector  # takes a harness without the parts that belong to declarations
    result = await runner(harness, dict(vector))
    if result.status == "skip":
        return "skipped", (result.detail,)
    failures = [*result.failures, *unlike(vector, harness.released, harness.persisted)]
    return ("failed" if failures or result.status != "pass" else "passed"), tuple(failures)


def unlike(vector: Mapping[str, Any], released: str | None, persisted: str | None) -> list[str]:
    """What was released and stored against what a vector expects (HARNESS.md, "Incremental mediation").

    A harness that tells nothing fails, and so does one whose store does not even hold the input.
    """
    expected = vector["expect"]
    if "released_output" not in expected:
        return []
    if released is None or persisted is None:
        return ["the harness does not tell what was released and what was stored"]
    problems = []
    if released != expected["released_output"]:
        problems.append(f"released_output == {released!r}, want {expected['released_output']!r}")
    if vector["scenario"]["input"]["content"] not in persisted:
        problems.append("persisted does not hold the input: it cannot be what was stored")
    for text in expected.get("persisted_must_not_contain", ()):
        if text in persisted:
            problems.append(f"persisted contains {text!r}")
    return problems


def _vectors() -> list[dict[str, Any]]:
    try:
        from agent_hooks.ctk import load_vectors

        version("agent-hooks-sdk")
    except (ImportError, PackageNotFoundError) as error:
        raise DefinitionError(f'the Conformance Test Kit is not installed: pip install "{KIT}"') from error
    vectors: list[dict[str, Any]] = load_vectors()
    return vectors


async def _run_all(vectors: Sequence[Mapping[str, Any]]) -> tuple[Checked, ...]:
    return tuple(
        [
            await _run(vector, posture, stream)
            for posture in POSTURES
            for vector in vectors
            for stream in _streams(vector)
        ]
    )


def _streams(vector: Mapping[str, Any]) -> tuple[str, ...]:
    """How a vector is run: those about incremental mediation have no buffered form."""
    return ("incremental",) if "incremental_output" in vector["capabilities"] else STREAMS


async def _run(vector: Mapping[str, Any], posture: str, stream: str) -> Checked:
    told: tuple[str, ...] = (NOT_CLAIMED,)
    status = "not_claimed"
    if "host_declaration" not in vector["capabilities"]:
        status, told = await check_vector(vector, LictorHarness(vector, posture=posture, stream=stream))
    return Checked(
        id=vector["id"],
        title=vector["title"],
        part=vector.get("part", UNLABELLED),
        posture=posture,
        stream=stream,
        status=status,
        told=told,
    )
