"""Breaks loops: says first that something repeats, then that something else has to be done, then stops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

from lictor.agent.loops import LOOP, LoopEvidence, LoopRecord, detect_loop, hits
from lictor.errors import DefinitionError
from lictor.hooks import ALLOW, Context, Decision, Evidence, Verdict, Warning, interceptor
from lictor.values import digest

__all__ = ["MOST_RECALLED", "LoopBreaker", "TraceRecord", "TraceView"]

NAME: Final = "loop-breaker"
STEPS: Final = ("warn", "tell", "stop")
MOST_RECALLED: Final = 64
_made = tuple.__new__
"""Finished calls, or records, that anybody keeps for a breaker."""


class TraceRecord(Protocol):
    """What a breaker reads of a record of a team."""

    @property
    def source(self) -> str:
        """Who made it."""
        ...

    @property
    def kind(self) -> str:
        """Only `output` is compared; of `skip` those count that the breaker caused itself."""
        ...

    @property
    def content(self) -> str:
        """The text."""
        ...

    @property
    def is_agent(self) -> bool:
        """Whether a member made it."""
        ...

    @property
    def tools(self) -> tuple[tuple[str, str, str], ...]:
        """Its calls, as in `LoopRecord`; may be empty."""
        ...


class TraceView(Protocol):
    """What a breaker reads of the trace of a team."""

    @property
    def records(self) -> Sequence[TraceRecord]:
        """Everything recorded in this run, in order."""
        ...


@interceptor(points=["pre_tool_call"], name=NAME, version="1", always_enforce=True)
class LoopBreaker:
    """Ends what goes round in circles; on by default in every agent.

    In an agent it judges each call that was made before: the same tool with the same arguments and, as the calls behind
    it show, the same result, alone or as part of a cycle of calls. In a team it compares what members put out. It keeps
    nothing: how often a loop was found before follows from the records, so one object serves any number of runs, also
    in several processes.

    Arguments:
        window: records looked at; cycles may be half as long (2 to 60).
        similarity: likeness from which on two texts are the same, 0.5 to 1.
        repeats: how many earlier near-identical occurrences are allowed. With 0 the second one is a loop; a call is
            stopped only when the results show it, so its third attempt is the first one to be judged.
        min_length: characters below which a text alone is no repetition.
        on_hit: what the first hit in a row does, the second, and so on (the last one stays): `warn` records a warning,
            `tell` denies and says what repeats, `stop` ends the run (`stopped`, reason `loop`).

    Raises DefinitionError for values outside these.
    """

    __slots__ = ("min_length", "on_hit", "repeats", "similarity", "window")

    window: int
    similarity: float
    repeats: int
    min_length: int
    on_hit: tuple[str, ...]

    def __init__(
        self,
        *,
        window: int = 10,
        similarity: float = 0.95,
        repeats: int = 0,
        min_length: int = 10,
        on_hit: Sequence[str] = STEPS,
    ) -> None:
        _check_number("window", window, 2, 60)
        _check_number("repeats", repeats, 0, window - 2)
        _check_number("min_length", min_length, 0, 1_000_000)
        _check_similarity(similarity)
        steps = () if isinstance(on_hit, str) else tuple(on_hit)
        if not steps or any(step not in STEPS for step in steps):
            raise DefinitionError(f"LoopBreaker: on_hit={on_hit!r}; give a list of {', '.join(STEPS)}")
        if window + len(steps) - 1 > MOST_RECALLED:
            raise DefinitionError(
                f"LoopBreaker: on_hit has {len(steps)} steps; {MOST_RECALLED + 1 - window} are possible"
            )
        values = {"window": window, "similarity": float(similarity), "repeats": repeats, "min_length": min_length}
        for name, value in {**values, "on_hit": steps}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a LoopBreaker does not change; make a new one instead of setting {name}")

    def __repr__(self) -> str:
        return f"LoopBreaker({', '.join(f'{name}={value!r}' for name, value in self.config().items())})"

    @property
    def recalls(self) -> int:
        """How many finished calls the host says in `extensions.lictor.recent`."""
        return self.window + len(self.on_hit) - 1

    def config(self) -> dict[str, Any]:
        """What the policy fingerprint covers."""
        return {
            "window": self.window,
            "similarity": self.similarity,
            "repeats": self.repeats,
            "min_length": self.min_length,
            "on_hit": list(self.on_hit),
        }

    # -- agents ---------------------------------------------------------------------------------

    def intercept(self, context: Context) -> Verdict:
        """Judge a call. The host says what the calls before it were when it was made before."""
        about: Mapping[str, Any] = context["extensions"]["lictor"] if "extensions" in context else {}
        if "recent" not in about:
            return ALLOW
        call = context["tool_call"]
        rows, asked = about["recent"], (call["name"], digest(call["args"]))
        if any(row["polling"] for row in rows if row["tool"] == call["name"]):
            return ALLOW
        found = detect_loop([_record_of(row) for row in rows], self)
        if found is None:
            return ALLOW
        steps = [rows[step] for step in found.steps]
        if asked not in [(row["tool"], row["arguments"]) for row in steps[-found.period :]]:
            return ALLOW
        evidence = _evidence(found, [row["call"] for row in steps], tool=asked[0], arguments=asked[1])
        count = sum(asked == (row["tool"], row["arguments"]) for row in steps)
        what = f"{asked[0]} was called {count} times with these arguments and gave the same result"
        if found.period > 1:
            what += f", in a cycle of {found.period} calls"
        return self._verdict(hits(found, self, [row["step"] for row in rows]), what, evidence)

    # -- teams ----------------------------------------------------------------------------------

    def should_supervisor_continue(self, trace: TraceView) -> Verdict | bool:
        """Judge a team before its supervisor thinks: a loop is a warning, or stops the run.

        The supervisor is the one who can do something else, so `tell` does not keep it from being asked.
        """
        found = self._found(trace)
        if found is None:
            return True
        level = self._level(hits(found, self))
        return self._act("warn" if level == "tell" else level, *_about_team(found))

    def should_agent_continue(self, trace: TraceView, agent: Any) -> Verdict | bool:
        """Judge a team before `agent` (a member, or its name) runs: one outside the loop is progress, and may."""
        found = self._found(trace)
        if found is None or getattr(agent, "name", agent) not in found.sources:
            return True
        return self._verdict(hits(found, self) + _own_skips(trace), *_about_team(found))

    def _found(self, trace: TraceView) -> LoopEvidence | None:
        """The loop in the newest outputs. `steps` are places in `trace.records`."""
        newest = list(islice(_outputs(trace.records), self.recalls))[::-1]
        found = detect_loop([record for _, record in newest], self)
        if found is None:
            return None
        return replace(found, steps=tuple([newest[step][0] for step in found.steps]))

    # -- what it says ---------------------------------------------------------------------------

    def _level(self, number: int) -> str:
        return self.on_hit[min(number, len(self.on_hit)) - 1]

    def _verdict(self, number: int, what: str, evidence: Evidence) -> Verdict:
        return self._act(self._level(number), what, evidence)

    def _act(self, level: str, what: str, evidence: Evidence) -> Verdict:
        if level == "warn":
            return Verdict(Decision.ALLOW, warnings=[Warning(LOOP, what)], evidence=evidence)
        if level == "tell":
            return Verdict(Decision.DENY, LOOP, f"{what}; do something else", evidence=evidence)
        return Verdict.stop(LOOP, what, evidence=evidence)


def _check_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DefinitionError(f"LoopBreaker: {name}={value!r}; give a whole number from {least} to {most}")


def _check_similarity(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= 1:
        raise DefinitionError(f"LoopBreaker: similarity={value!r}; give a number from 0.5 to 1")


def _record_of(row: Mapping[str, Any]) -> LoopRecord:
    return LoopRecord("", "", ((row["tool"], row["arguments"], row["result"]),), row["polling"])


def _outputs(records: Sequence[TraceRecord]) -> Iterator[tuple[int, LoopRecord]]:
    """What members put out, newest first, each with its place."""
    for place in range(len(records) - 1, -1, -1):
        record = records[place]
        if record.kind == "output" and record.is_agent:
            polling = getattr(record, "polling", False)
            yield place, _made(LoopRecord, (record.source, record.content, tuple(record.tools), polling))


def _own_skips(trace: TraceView) -> int:
    """How often a member was kept from running by a breaker since the last output."""
    count = 0
    for record in reversed(trace.records):
        if record.kind == "output" and record.is_agent:
            break
        count += record.kind == "skip" and NAME in record.content
    return count


def _about_team(found: LoopEvidence) -> tuple[str, Evidence]:
    who = " and ".join(dict.fromkeys(found.sources))
    if found.period == 1:
        what = f"{who} gave nearly the same answer {found.count} times"
    else:
        what = f"the same {found.period} answers came {found.count} times, from {who}"
    return what, _evidence(
        found, found.steps, tool=found.tool, arguments=found.arguments, sources=",".join(found.sources)
    )


def _evidence(found: LoopEvidence, steps: Sequence[object], **more: str | None) -> Evidence:
    """What an auditor looks up in the log: digests and places, never content."""
    pointers = {
        "period": str(found.period),
        "steps": ",".join(map(str, steps)),
        "count": str(found.count),
        "score": str(found.score),
        **{name: value for name, value in more.items() if value is not None},
    }
    return Evidence(f"loop:{found.kind}", pointers)
