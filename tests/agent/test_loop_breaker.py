"""LoopBreaker in agents and teams: warns, tells, stops; what it is told is folded from the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from driving import Strict, both_ways, crash_at, decided, park, play, policy, reopened, settled, tools_said

from lictor import ALLOW, Agent, Governance, LoopBreaker, Runtime, Verdict, tool
from lictor.errors import DefinitionError, SimulatedCrash
from lictor.models import call, say


@tool(effect="pure")
async def look(q: int = 0) -> str:
    """Look."""
    return "seen"


@tool(effect="pure")
async def take(q: int = 0) -> str:
    """Take."""
    return "taken"


@tool(effect="pure", polling=True)
async def poll() -> str:
    """Poll."""
    return "not yet"


def count() -> Any:
    """A tool whose result is another one each time."""
    calls = []

    @tool(effect="pure")
    async def tick() -> int:
        calls.append(1)
        return len(calls)

    return tick


def clerk(*script: Any, tools: Sequence[Any] = (look, take, poll), **options: Any) -> Agent:
    """An agent that follows a script and then answers."""
    return Agent("clerk", model=Strict([*script, say("done")]), tools=tools, **options)


def judged(records: Sequence[Any]) -> list[str]:
    """What the breaker made of each call: `-`, `warn`, `tell` or `stop` (the run ends with it)."""
    words = []
    for record in records:
        if record["interception_point"] != "pre_tool_call":
            continue
        verdict = record["verdict"]
        if verdict.get("reason") == "loop":
            words.append("tell" if verdict["message"].endswith("do something else") else "stop")
        else:
            words.append("warn" if any(w["reason"] == "loop" for w in verdict.get("warnings", ())) else "-")
    return words


@both_ways
async def test_the_same_call_with_the_same_result_is_warned_told_stopped(how: str) -> None:
    """The third call is warned about, the fourth is denied and the model told, the fifth ends the run."""
    played = await play(clerk(*[call("look", q=1)] * 6), how=how)
    assert judged(played.records) == ["-", "-", "warn", "tell", "stop"]
    assert (played.status, played.reason, played.by) == ("stopped", "loop", "lictor/loop-breaker")
    told = json.loads(played.result_of(3))
    assert (told["error"], told["reason"]) == ("denied", "loop")
    assert told["message"] == (
        "look was called 3 times with these arguments and gave the same result; do something else"
    )
    assert len([event for event in played.events if event.kind == "tool_started"]) == 3


async def test_the_evidence_names_calls_and_no_content() -> None:
    """A deny and a stop carry tool, digest of arguments, period, steps, count and score."""
    played = await play(clerk(*[call("look", q=90210)] * 6))
    denies = [r["verdict"]["evidence"] for r in played.records if r["verdict"].get("reason") == "loop"]
    first, second = [dict(evidence["verification_pointers"]) for evidence in denies]
    assert [evidence["artefact"] for evidence in denies] == ["loop:stagnation"] * 2
    assert first.pop("arguments").startswith("sha256:")
    assert first == {
        "tool": "look",
        "period": "1",
        "steps": "call_0,call_1,call_2",
        "count": "3",
        "score": "1.0",
    }
    assert (second["count"], second["steps"]) == ("4", "call_0,call_1,call_2,call_3")
    assert "90210" not in json.dumps(denies)


@both_ways
async def test_doing_something_else_is_enough(how: str) -> None:
    """Who heeds what he is told goes on; the same call is right again later, and is counted anew."""
    script = [*[call("look", q=1)] * 4, call("take", q=1), *[call("look", q=1)] * 3]
    played = await play(clerk(*script), how=how)
    assert judged(played.records) == ["-", "-", "warn", "tell", "-", "-", "-", "warn"]
    assert (played.status, played.answer) == ("completed", "done")


@both_ways
async def test_changing_results_arguments_and_polls_are_no_loop(how: str) -> None:
    """Progress is left alone, and so are declared pollers."""
    script = [*[call("tick")] * 6, *[call("look", q=n) for n in range(6)], *[call("poll")] * 6]
    played = await play(clerk(*script, tools=[count(), look, poll]), how=how)
    assert judged(played.records) == ["-"] * 18
    assert played.status == "completed"


@both_ways
async def test_progress_in_between_counts(how: str) -> None:
    """The same call again and again is fine while something else goes on."""
    script = [step for n in range(5) for step in (call("look", q=1), call("take", q=n))]
    played = await play(clerk(*script), how=how)
    assert (played.status, set(judged(played.records))) == ("completed", {"-"})


async def test_a_poll_between_equal_calls_hides_nothing() -> None:
    """A poll is exempt; what it stands between is not."""
    script = [step for _ in range(6) for step in (call("look", q=1), call("poll"))]
    played = await play(clerk(*script))
    assert (played.status, played.reason) == ("stopped", "loop")
    assert [word for word in judged(played.records) if word != "-"] == ["warn", "tell", "stop"]


@both_ways
async def test_cycles_of_calls(how: str) -> None:
    """A cycle is judged call by call; a response with several calls is one step of the escalation."""
    one_by_one = await play(clerk(*[call("look", q=1), call("take", q=1)] * 4), how=how)
    assert judged(one_by_one.records) == ["-", "-", "-", "-", "warn", "tell", "stop"]
    together = await play(clerk(*[[call("look", q=1), call("take", q=1)]] * 6), how=how)
    assert judged(together.records)[:8] == ["-"] * 4 + ["warn"] * 2 + ["tell"] * 2
    assert (together.status, together.reason) == ("stopped", "loop")
    assert len([event for event in together.events if event.kind == "tool_started"]) == 6


@both_ways
async def test_escalations(how: str) -> None:
    """`on_hit` says what each hit does; `repeats` allows more; None switches it off."""

    async def words(**options: Any) -> list[str]:
        return judged((await play(clerk(*[call("look", q=1)] * 6, **options), how=how)).records)

    assert await words(loop_breaker=LoopBreaker(on_hit=("stop",))) == ["-", "-", "stop"]
    assert await words(loop_breaker=LoopBreaker(on_hit=["warn"])) == ["-", "-", "warn", "warn", "warn", "warn"]
    assert await words(loop_breaker=LoopBreaker(on_hit=["tell"])) == ["-", "-", "tell", "tell", "tell", "tell"]
    assert await words(loop_breaker=LoopBreaker(repeats=2)) == ["-", "-", "-", "-", "warn", "tell"]
    assert await words(loop_breaker=None) == ["-"] * 6
    with pytest.raises(DefinitionError, match="loop_breaker"):
        clerk(loop_breaker=5)


async def test_a_listed_breaker_takes_the_place_of_the_built_in_one() -> None:
    """One breaker is enough; it stands where it was listed."""
    played = await play(clerk(*[call("look", q=1)] * 6, interceptors=[LoopBreaker(on_hit=("stop",))]))
    assert (played.reason, played.by) == ("loop", "agent:clerk/loop-breaker")
    names = [slot["name"] for slot in played.records[0]["verdicts"]]
    assert names == ["lictor/deny-repeats", "agent:clerk/loop-breaker"]


async def test_options_are_part_of_the_policy() -> None:
    """Other options are another policy fingerprint; the object does not change."""
    from lictor.agent import plan_for

    def fingerprint(**options: Any) -> str:
        return plan_for(clerk(loop_breaker=LoopBreaker(**options)), (), (), Governance()).policy

    assert fingerprint() == fingerprint(window=10)
    assert len({fingerprint(), fingerprint(window=9), fingerprint(similarity=0.9), fingerprint(on_hit=("stop",))}) == 4
    with pytest.raises(AttributeError, match="window"):
        LoopBreaker().window = 3  # type: ignore[misc]


# ---- what the host says ------------------------------------------------------------------------------


async def test_recent_calls_are_said_only_when_they_matter() -> None:
    """`recent` is there when the very call was made before and somebody wants to know; at most `window` + 2 of them."""
    heard: list[Any] = []

    def listen(context: Any) -> Verdict:
        heard.append(context["extensions"]["lictor"].get("recent"))
        return ALLOW

    listening = policy("pre_tool_call", listen)
    script = [call("look", q=1), call("take", q=1), call("poll"), call("look", q=1)]
    await play(clerk(*script, interceptors=[listening]))
    assert heard[:3] == [None] * 3
    assert [(row["call"], row["step"], row["tool"], row["polling"]) for row in heard[3]] == [
        ("call_0", 1, "look", False),
        ("call_1", 2, "take", False),
        ("call_2", 3, "poll", True),
    ]
    heard.clear()
    await play(clerk(*script, interceptors=[listening], loop_breaker=None))
    assert heard == [None] * 4
    heard.clear()
    many = [call("look", q=n % 15) for n in range(40)]
    await play(clerk(*many, interceptors=[listening], loop_breaker=LoopBreaker(window=20), max_steps=60))
    assert len(heard[-1]) == 22


async def test_a_changed_argument_is_still_the_call_that_the_model_made() -> None:
    """A policy that rewrites arguments each time hides no loop: what the model asked for is compared."""
    numbers = iter(range(100, 200))
    rewriting = policy("pre_tool_call", lambda c: Verdict.transform("$target.q", next(numbers)))
    played = await play(clerk(*[call("look", q=1)] * 6, interceptors=[rewriting]))
    assert (played.status, played.reason) == ("stopped", "loop")
    assert [word for word in judged(played.records) if word != "-"] == ["warn", "tell", "stop"]


@both_ways
async def test_denied_calls_count_and_deny_repeats_comes_first(how: str) -> None:
    """Who keeps asking for what is denied is stopped by DenyRepeats; without it, by the breaker."""
    denying = policy("pre_tool_call", lambda c: Verdict.deny("no"))
    usual = await play(clerk(*[call("look", q=1)] * 6, interceptors=[denying]), how=how)
    assert (usual.status, usual.reason, usual.by) == ("stopped", "denied_repeatedly", "lictor/deny-repeats")
    alone = await play(clerk(*[call("look", q=1)] * 6, interceptors=[denying], deny_repeats=None), how=how)
    assert (alone.status, alone.reason, alone.by) == ("stopped", "loop", "lictor/loop-breaker")
    assert len(tools_said(alone.messages)) == 5


async def test_it_binds_where_policies_are_only_evaluated() -> None:
    """It is a limit: under `evaluate_only` it still stops."""
    played = await play(clerk(*[call("look", q=1)] * 6, governance=Governance(mode="evaluate_only")))
    assert (played.status, played.reason) == ("stopped", "loop")


@pytest.mark.parametrize("after", range(4))
async def test_a_new_process_goes_on_counting(after: int) -> None:
    """Wherever the driver dies, the next one folds the same calls from the log and says the same."""
    agent = clerk(*[call("look", q=1)] * 6)
    with crash_at("effect.after", after=after):
        async with Runtime() as first:
            run = await first.start(agent, "go")
            if after < 3:
                with pytest.raises(SimulatedCrash):
                    await run.result()
            else:
                await run.result()
    async with reopened(first, agent) as second:
        result = await settled(second, await second.run(run.id))
    assert (result.status, result.reason) == ("stopped", "loop")
    assert [word for word in judged(result.records) if word != "-"] == ["warn", "tell", "stop"]


async def test_a_run_that_was_parked_goes_on_counting_and_earlier_runs_do_not_count() -> None:
    """The record is that of the run: across a park, and not of what a conversation did before."""

    @tool(effect="pure", requires_approval=True)
    async def ask(q: int = 0) -> str:
        return "asked"

    agent = clerk(*[call("ask", q=1)] * 4, tools=[ask])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent)
        for _ in range(3):
            result = await decided(runtime, run, (result.requests[0].id, "approve", {}))
        assert result.status == "completed"
        assert [word for word in judged(result.records) if word != "-"][-1] == "tell"

        talk = Agent("talk", model=Strict([call("look", q=1), say("a")] * 4), tools=[look])
        for _ in range(4):
            run = await runtime.start(talk, "go", conversation="c")
            again = await run.result()
            assert (again.status, judged(again.records)) == ("completed", ["-"])


# ---- teams -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A record of a team as any host might keep it."""

    source: str
    content: str
    kind: str = "output"
    is_agent: bool = True
    tools: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Nothing but records."""

    records: list[Recorded]


def said(*sources: str, content: str = "I could not find anything") -> list[Recorded]:
    """Each source says the same; `!` is a decision, `?` a member that a breaker kept from running."""
    marks = {
        "!": Recorded(source="supervisor", content="assign B", kind="decision", is_agent=False),
        "?": Recorded(source="A", content="[Skipped] Cancelled by team:t/loop-breaker", kind="skip"),
    }
    return [marks.get(source) or Recorded(source=source, content=content) for source in sources]


def word(answer: Any) -> str:
    """What an answer of the breaker does."""
    if answer is True:
        return "go"
    assert isinstance(answer, Verdict)
    if answer.control == "stop":
        assert (answer.reason, answer.scope, answer.status) == ("loop", "run", "stopped")
        return "stop"
    return "tell" if answer.decision == "deny" else "warn"


TEAMS = {
    "!A": ("go", "go"),
    "!A!B": ("go", "go"),
    "!A!A": ("warn", "warn"),
    "!A!A!A": ("warn", "tell"),
    "!A!A!A?!": ("warn", "stop"),
    "!A!A!A!A": ("stop", "stop"),
    "!A!B!A!B": ("warn", "warn"),
    "!A!B!A!B!A": ("warn", "tell"),
    "!A!B!A!B!A!B": ("stop", "stop"),
    "!A!A!B": ("go", "go"),
    "!A!B!C!A!B!C": ("warn", "warn"),
}


@pytest.mark.parametrize("marks", TEAMS)
def test_teams(marks: str) -> None:
    """What is answered before the supervisor thinks, and before member A runs."""
    trace = Trace(records=said(*marks))
    breaker = LoopBreaker()
    assert (word(breaker.should_supervisor_continue(trace)), word(breaker.should_agent_continue(trace, "A"))) == (
        TEAMS[marks]
    )


def test_a_member_outside_the_loop_may_run() -> None:
    """Somebody else is progress; the member may be given as an agent, too."""
    trace = Trace(records=said("A", "A", "A"))
    assert LoopBreaker().should_agent_continue(trace, "B") is True
    member = Agent("A", model=Strict([say("x")]))
    assert word(LoopBreaker().should_agent_continue(trace, member)) == "tell"


def test_the_seeds_behaviour() -> None:
    """`on_hit=("stop",)` stops at the first hit, before the supervisor is asked."""
    breaker = LoopBreaker(on_hit=("stop",))
    assert word(breaker.should_supervisor_continue(Trace(records=said("A", "A")))) == "stop"
    assert word(breaker.should_supervisor_continue(Trace(records=said("A", "B", "A", "B")))) == "stop"
    assert breaker.should_supervisor_continue(Trace(records=said("A", "B", "A"))) is True


def test_the_evidence_of_a_team() -> None:
    """Steps are places in the trace, decisions counted in; a message says who repeats what, and no text."""
    answer = LoopBreaker(on_hit=("tell",)).should_agent_continue(Trace(records=said(*"!A!B!A!B")), "A")
    assert isinstance(answer, Verdict)
    assert answer.message == "the same 2 answers came 2 times, from A and B; do something else"
    assert answer.evidence is not None
    assert answer.evidence.to_wire() == {
        "artefact": "loop:cycle",
        "verification_pointers": {"period": "2", "steps": "1,3,5,7", "count": "2", "score": "1.0", "sources": "A,B"},
    }


def test_only_outputs_of_members_are_compared() -> None:
    """Decisions, system notes and what people say may repeat."""
    others = [
        Recorded(source=kind, content="I could not find anything", kind=kind, is_agent=False)
        for kind in ("decision", "system", "human", "error", "skip")
    ]
    assert LoopBreaker().should_supervisor_continue(Trace(records=others * 4)) is True
    assert word(LoopBreaker().should_supervisor_continue(Trace(records=[*said("A"), *others, *said("A")]))) == "warn"
