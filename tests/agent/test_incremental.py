"""`stream="incremental"`: the four disciplines of §12.1's exception, and what they cost a caller."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from driving import Played, Seen, both_ways, check, decided, park, play, policy, reopened, said_by, settled
from hypothesis import given
from hypothesis import strategies as st

from lictor import ALLOW, Agent, Budget, Governance, InterceptionBlocked, Mask, Runtime, Verdict, interceptor, tool
from lictor.agent import Incremental
from lictor.errors import DefinitionError, SimulatedCrash, StoreError
from lictor.journal import MemoryStore
from lictor.models import ModelResponse, Reply, ScriptedModel, TextDelta, call, chunks, fail, say
from lictor.testing import VirtualClock, crash_at, invariants
from lictor.testing.invariants import problems_in
from lictor.testing.runlog import RunLog

UNSUPPORTED = "host_error:streaming_unsupported"
SPELL = re.compile(r"system\s+prompt\s*:")
SECRET = "the system  prompt : be kind"


def clerk(*entries: Any, **options: Any) -> Agent:
    """An agent that streams incrementally and answers from a script."""
    options.setdefault("stream", "incremental")
    return Agent("clerk", model=ScriptedModel(entries), **options)


def broken_after(*pieces: str, code: str = "stream_cut") -> Reply:
    """A stream that breaks after these pieces."""
    return Reply(tuple(TextDelta(piece) for piece in pieces), fail(code=code).failure)


def no(pattern: str | re.Pattern[str], reason: str = "no") -> Any:
    """A policy that denies a response whose text matches."""
    found = re.compile(pattern).search
    return policy("post_model_call", lambda c: Verdict.deny(reason) if found(c["target"]["content"] or "") else ALLOW)


def released(events: Iterable[Any]) -> list[str]:
    """The pieces a caller was given, in order."""
    return [event.payload["text"] for event in events if event.kind == "model_delta"]


def judged(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, str | None]]:
    """Decision and reason of every `post_model_call`."""
    verdicts = [record["verdict"] for record in records if record["interception_point"] == "post_model_call"]
    return [(verdict["decision"], verdict.get("reason")) for verdict in verdicts]


def stored(played: Played) -> str:
    """Everything the store of a run holds."""
    tables = {name: dict(rows) for name, rows in played.store._tables.items()}
    return f"{[item.entry for item in played.store.root_entries('r')]} {tables}"


class Slow:
    """A model that waits for a signal before each piece but the first, and tells when it was closed."""

    id = "slow"
    keeps_timeout = True

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.signals = [asyncio.Event() for _ in pieces]
        self.given: list[str] = []
        self.closed = False

    async def respond(self, messages: Any, tools: Any, settings: Any) -> AsyncIterator[Any]:
        """Give the pieces, each at its signal."""
        try:
            for piece, signal in zip(self.pieces, self.signals, strict=True):
                await signal.wait()
                self.given.append(piece)
                yield TextDelta(piece)
            yield ModelResponse("".join(self.pieces))
        finally:
            self.closed = True


# ---- released only behind a verdict -----------------------------------------------------------------


@both_ways
async def test_each_piece_is_judged_and_then_released(how: str) -> None:
    """Every piece closes a prefix, judged as `incremental`; the last one carries the real finish reason."""
    seen = Seen()
    played = await play(clerk(chunks(["the quick ", "brown", " fox"]), interceptors=[seen]), how=how)
    assert [(each["content"], each["finish_reason"]) for each in seen.at("post_model_call")] == [
        ("the quick ", "incremental"),
        ("the quick brown", "incremental"),
        ("the quick brown fox", "stop"),
    ]
    assert released(played.events) == ["the quick ", "brown", " fox"]
    assert (played.status, played.answer) == ("completed", "the quick brown fox")
    assert played.messages[-1] == {"role": "assistant", "content": "the quick brown fox"}
    sequences = [record["sequence"] for record in played.records]
    assert sequences == list(range(len(sequences)))


async def test_text_comes_while_the_model_still_writes() -> None:
    """A judged piece reaches the caller before the model has given what comes after the next one."""
    model = Slow("one ", "two ", "three")
    events = Agent("clerk", model=model, stream="incremental").stream("go")
    had: list[str] = []
    for number, signal in enumerate(model.signals):
        signal.set()
        if number == 0:
            continue
        async for event in events:
            if event.kind == "model_delta":
                had.append(event.payload["text"])
                break
        assert model.given == ["one ", "two ", "three"][: number + 1]
        assert had == ["one ", "two "][:number]
    rest = [event async for event in events]
    assert (released(rest), rest[-1].payload["status"]) == (["three"], "completed")


async def test_nothing_is_ahead_of_its_verdict() -> None:
    """At each emission the caller has at most what the emissions before it covered, also while the policy waits."""
    given: list[str] = []
    covered = [""]

    @interceptor(points=["post_model_call", "output"])
    async def checks(context: Any) -> Verdict:
        for _ in range(3):
            await asyncio.sleep(0)
            assert "".join(given) == covered[-1]
        covered.append(context["target"]["content"])
        return ALLOW

    agent = clerk(chunks(list("abcdefgh")), interceptors=[checks])
    async for event in agent.stream("go"):
        if event.kind == "model_delta":
            given.append(event.payload["text"])
    assert covered[-1] == "".join(given) == "abcdefgh"


async def test_each_release_is_a_barrier() -> None:
    """The next thing happens only when the store has what was released."""

    class Counting(MemoryStore):
        __slots__ = ("known",)

        async def barrier(self, root: str) -> None:
            self.known = [entry.kind for entry in self.entries("r")]
            assert self.known[-1] == "model_delta"
            await asyncio.sleep(0)
            assert [entry.kind for entry in self.entries("r")] == self.known

    store = Counting()
    result = await clerk(chunks(["a", "b", "c"])).run("go", store=store, run_id="r")
    assert (result.status, store.known.count("model_delta")) == ("completed", 3)


async def test_a_long_answer_is_judged_in_growing_steps() -> None:
    """The prefixes of an answer of 100,000 characters are 150 times its size together, not 12,500 times."""
    seen = Seen()
    text = "wxyz" * 25_000
    agent = clerk(chunks([text[at : at + 4] for at in range(0, len(text), 4)]), interceptors=[seen])
    played = await play(agent, sure=False)
    sizes = [len(each["content"]) for each in seen.at("post_model_call")]
    assert sizes[:100] == [4 * number for number in range(1, 101)]
    assert len(sizes) < 1000
    assert sum(sizes) < 150 * len(text)
    assert played.answer == text


async def test_a_release_without_a_verdict_breaks_an_invariant() -> None:
    """The kit finds text that was released although no `post_model_call` had let it pass."""
    result = await clerk(chunks(["a", "b"])).run("go")
    steps = list(result.trace.steps)
    assert problems_in(RunLog(run_id="r", steps=steps)) == []
    first = [kind for kind, _ in steps].index("model_delta")
    early = [*steps[: first - 1], steps[first], steps[first - 1], *steps[first + 1 :]]
    assert "model_delta was stored without a verdict" in str(problems_in(RunLog(run_id="r", steps=early)))


# ---- a deny ends the stream ----------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("posture", ["terminate", "continue", "terminate_all"])
async def test_a_deny_withholds_the_rest(how: str, posture: str) -> None:
    """A denied prefix ends stream and run; neither it nor what comes after it is released or stored."""
    script = chunks(["public part, ", "SECRET-PART", " then a tail"])
    agent = clerk(script, interceptors=[no("SECRET", "streamed-secret")], governance=Governance(posture=posture))
    played = await play(agent, how=how)
    assert (played.status, played.reason, played.answer) == ("blocked", "streamed-secret", None)
    assert released(played.events) == ["public part, "]
    assert judged(played.records) == [("allow", None), ("deny", "streamed-secret")]
    assert "SECRET" not in played.text
    assert "tail" not in played.text
    assert [message["role"] for message in played.messages] == ["user"]


async def test_a_deny_closes_the_model() -> None:
    """Nothing more is read from the provider, and the request ends."""
    model = Slow("fine ", "BAD ", "more ", "and more")
    for signal in model.signals[:3]:
        signal.set()
    with pytest.raises(InterceptionBlocked) as caught:
        await Agent("clerk", model=model, stream="incremental", interceptors=[no("BAD")]).run("go")
    assert (model.given, model.closed) == (["fine ", "BAD ", "more "], True)
    assert caught.value.run.usage.requests == 1  # type: ignore[attr-defined]
    assert "BAD" not in repr(caught.value.result) + repr(caught.value.run)


@both_ways
async def test_a_stop_ends_the_run_as_stopped(how: str) -> None:
    """`Verdict.stop` over a prefix ends the run as it does elsewhere."""
    halt = policy("post_model_call", lambda c: Verdict.stop("enough") if "two" in c["target"]["content"] else ALLOW)
    played = await play(clerk(chunks(["one ", "two ", "three"]), interceptors=[halt]), how=how)
    assert (played.status, played.reason, released(played.events)) == ("stopped", "enough", ["one "])


@both_ways
@pytest.mark.parametrize("act", [RuntimeError("x"), None, {"decision": "maybe"}])
async def test_a_policy_that_fails_over_a_prefix_blocks(how: str, act: Any) -> None:
    """A failing policy is a deny in the middle of a stream as anywhere."""

    def judge(context: Any) -> Any:
        if "two" not in context["target"]["content"]:
            return ALLOW
        if isinstance(act, Exception):
            raise act
        return act

    played = await play(
        clerk(chunks(["one ", "two ", "three"]), interceptors=[policy("post_model_call", judge)]), how=how
    )
    assert (played.status, str(played.reason)[:11], released(played.events)) == ("blocked", "host_error:", ["one "])


@both_ways
async def test_escalations_over_a_prefix(how: str) -> None:
    """Nobody can wait in the middle of a stream: a resolver in place is asked, otherwise the deny stands."""
    ask = policy("post_model_call", lambda c: Verdict.escalate("ask") if "two" in c["target"]["content"] else ALLOW)
    pieces = ["one ", "two ", "three"]
    async with Runtime() as runtime:
        _, result = await park(runtime, clerk(chunks(pieces), interceptors=[ask]), how=how)
        assert (result.status, result.reason, result.requests) == ("blocked", "ask", ())
    asked: list[str] = []

    def approve(request: Any) -> dict[str, Any]:
        asked.append(request.context["target"]["content"])
        return {"outcome": "approve", "context_identity": request.context_identity, "verdict": {"decision": "allow"}}

    played = await play(clerk(chunks(pieces), interceptors=[ask], resolver=approve), how=how)
    assert (played.status, asked) == ("completed", ["one two ", "one two three"])


@both_ways
async def test_an_escalation_over_the_whole_parks(how: str) -> None:
    """The whole response may wait for a decision; in another process only the rest of it is released."""
    last = policy("post_model_call", lambda c: Verdict.escalate("ask") if "three" in c["target"]["content"] else ALLOW)
    agent = clerk(chunks(["one ", "two ", "three"]), interceptors=[last])
    async with Runtime() as runtime:
        run, result = await park(runtime, agent, how=how)
        assert result.status == "suspended"
        before = [event async for event in run.events()]
        assert released(before) == ["one ", "two "]
        (request,) = result.requests
    async with reopened(runtime, agent) as again:
        run = await again.run(run.id)
        result = await decided(again, run, (request.id, "approve", {}), how=how)
        assert (result.status, result.answer) == ("completed", "one two three")
        after = [event async for event in run.events(after=before[-1].cursor)]
        assert (released(after), [event for event in after if event.kind == "stream_reset"]) == (["three"], [])
        await invariants(run)


# ---- what nobody judged fails closed ---------------------------------------------------------------------


class Endless(ScriptedModel):
    """A model whose stream just ends, without a response."""

    async def respond(self, messages: Any, tools: Any, settings: Any) -> AsyncIterator[Any]:
        """Give everything but the response."""
        async for event in super().respond(messages, tools, settings):
            if not isinstance(event, ModelResponse):
                yield event


@both_ways
@pytest.mark.parametrize("kind", ["an error", "no response"])
async def test_a_stream_that_dies_after_a_release_fails_closed(how: str, kind: str) -> None:
    """The part no emission covered is denied by the host, withheld and not stored; the model is not asked again."""
    pieces = ["clean segment, ", "partial tail"]
    model = (
        ScriptedModel([broken_after(*pieces), "never"]) if kind == "an error" else Endless([chunks(pieces), "never"])
    )
    seen = Seen()
    played = await play(Agent("clerk", model=model, stream="incremental", interceptors=[seen]), how=how)
    assert (played.status, played.reason, released(played.events)) == ("blocked", UNSUPPORTED, ["clean segment, "])
    assert judged(played.records) == [("allow", None), ("deny", UNSUPPORTED)]
    refused = next(record for record in played.records if record["verdict"]["decision"] == "deny")
    assert (refused["decided_by"], refused["input_identity"] == refused["enforced_identity"] is not None) == (
        None,
        True,
    )
    assert "partial tail" not in played.text
    assert len(model.requests) == 1
    assert [each["content"] for each in seen.at("post_model_call")] == ["clean segment, "]


@both_ways
async def test_a_stream_that_dies_before_a_release_is_asked_again(how: str) -> None:
    """Nothing was shown, so it is a failed model call as any other (D17)."""
    agent = clerk(broken_after("half"), broken_after(), chunks(["who", "le"]))
    played = await play(agent, how=how, clock=VirtualClock())
    assert (played.status, played.answer, played.usage.retries) == ("completed", "whole", 2)
    assert released(played.events) == ["who", "le"]
    assert "half" not in played.text


@both_ways
@pytest.mark.parametrize("code", ["server_error", "rate_limit", "timeout"])
async def test_a_model_that_fails_after_a_release_takes_it_back(how: str, code: str) -> None:
    """The caller is told to forget what it has before the model is asked again."""
    entries = [broken_after("wrong ", "start ", "vanished", code=code), chunks(["right ", "start"])]
    played = await play(clerk(*entries), how=how, clock=VirtualClock())
    kinds = [(event.kind, event.payload.get("text", event.payload.get("step"))) for event in played.events]
    told = [each for each in kinds if each[0] in ("model_delta", "stream_reset")]
    assert told == [
        ("model_delta", "wrong "),
        ("model_delta", "start "),
        ("stream_reset", 0),
        ("model_delta", "right "),
        ("model_delta", "start"),
    ]
    assert (played.status, played.answer, said_by(played.events)) == ("completed", "right start", "right start")
    assert "vanished" not in played.text
    assert [message["content"] for message in played.messages] == ["go", "right start"]


@both_ways
async def test_a_model_that_fails_for_good_after_a_release_fails_the_run(how: str) -> None:
    """What cannot be retried ends the run as `failed`, with the text taken back."""
    played = await play(clerk(broken_after("a ", "b", code="bad_request")), how=how)
    assert (played.status, played.reason) == ("failed", "model_error:bad_request")
    assert [event.kind for event in played.events if event.kind in ("model_delta", "stream_reset")] == [
        "model_delta",
        "stream_reset",
    ]


@both_ways
async def test_a_fallback_model_begins_anew(how: str) -> None:
    """When the first model is given up, what it released is taken back before the next one is asked."""
    first = ScriptedModel([broken_after("one ", "more", code="auth")], id="first")
    second = ScriptedModel([chunks(["two", "!"])], id="second")
    played = await play(Agent("clerk", model=[first, second], stream="incremental"), how=how)
    assert (played.status, played.answer, released(played.events)) == ("completed", "two!", ["one ", "two", "!"])


@both_ways
async def test_a_response_that_is_no_continuation_fails_closed(how: str) -> None:
    """A model whose response says something else than its pieces did is not believed."""
    lies = Reply((TextDelta("I say "), TextDelta("this"), ModelResponse("I mean that")))
    played = await play(clerk(lies), how=how)
    assert (played.status, played.reason, released(played.events)) == ("blocked", UNSUPPORTED, ["I say "])
    assert "mean" not in played.text


# ---- what was withheld is not stored -------------------------------------------------------------------


@pytest.mark.parametrize("history", ["run", "call"])
async def test_what_was_withheld_is_in_no_store(history: str) -> None:
    """Neither log, rows, conversation nor the next request hold a denied part, or one that nobody judged."""
    secret = ["keep this, ", "DROP-THIS-SECRET", " and this undelivered tail"]
    cut = broken_after("keep that, ", "partial tail")
    model = ScriptedModel([chunks(secret), cut, chunks(["all ", "well"])])
    agent = Agent("clerk", model=model, stream="incremental", interceptors=[no("SECRET")])
    async with Runtime() as runtime:
        for status in ("blocked", "blocked", "completed"):
            _, result = await park(runtime, agent, "hi", conversation="c", history=history)
            assert result.status == status
        store = runtime.store
        assert isinstance(store, MemoryStore)
        entries = [entry for log in store._logs.values() for entry in log.entries]
        held = f"{entries} {store._tables} {await runtime.conversation('c')}"
    for text in ("SECRET", "undelivered", "partial tail"):
        assert text not in held
    assert [[m["content"] for m in request.messages] for request in model.requests] == [
        ["hi"],
        ["hi", "hi"],
        ["hi", "hi", "hi"],
    ]


@both_ways
async def test_a_denied_output_cannot_call_text_back(how: str) -> None:
    """The limit of the mode: `output` blocks the run and keeps the answer out of the history, not out of the stream."""
    deny = policy("output", lambda c: Verdict.deny("not_this"))
    played = await play(clerk(chunks(["too ", "late"]), interceptors=[deny]), how=how)
    assert (played.status, played.reason, played.answer) == ("blocked", "not_this", None)
    assert released(played.events) == ["too ", "late"]
    assert [message["role"] for message in played.messages] == ["user"]


# ---- splits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, len(SECRET)))
async def test_B30_a_rule_sees_text_across_pieces(at: int) -> None:
    """A forbidden phrase that is split anywhere is denied; with a holdback no part of it is released."""
    pieces = [SECRET[:at], SECRET[at:], " and a tail"]
    start = SPELL.search(SECRET).start()  # type: ignore[union-attr]
    for stream, most in (("incremental", len(SECRET)), (Incremental(32), start)):
        for how in ("plain", "streamed"):
            played = await play(clerk(chunks(pieces), stream=stream, interceptors=[no(SPELL)]), how=how)
            assert (played.status, played.reason) == ("blocked", "no")
            given = "".join(released(played.events))
            assert SECRET.startswith(given)
            assert len(given) <= most
            assert not SPELL.search(played.text)
            assert "be kind" not in played.text


@given(st.lists(st.integers(0, len(SECRET)), max_size=8), st.sampled_from(["", "é𝄞", "x" * 40]))
def test_B30_a_rule_sees_text_in_any_split(places: Sequence[int], before: str) -> None:
    """However the text is cut, the phrase is denied, and with a holdback the stream ends before it."""
    text = before + SECRET
    cuts = [0, *sorted(len(before) + place for place in places), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
    agent = clerk(chunks(pieces), stream=Incremental(32), interceptors=[no(SPELL)])
    played = asyncio.run(play(agent))
    assert played.status == "blocked"
    assert (before + "the ").startswith("".join(released(played.events)))


@pytest.mark.parametrize("text", ["Grüße, 日本語 und 𝄞 Musik", "cafe\u0301 👩‍👩‍👧 !"])
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_B30_splits_inside_characters(text: str, size: int) -> None:
    """Text cut between code points, and inside surrogate pairs, is released whole and well formed."""
    halves = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    units = [chr(int.from_bytes(u, "little")) for u in _pairs(halves.encode("utf-16-le"))]
    pieces = ["".join(units[at : at + size]) for at in range(0, len(units), size)]
    response = Reply((*(TextDelta(piece) for piece in pieces), ModelResponse(text)))
    seen = Seen()
    played = await play(clerk(response, interceptors=[seen]))
    assert "".join(released(played.events)) == played.answer == text
    for each in [*released(played.events), *[target["content"] for target in seen.at("post_model_call")]]:
        assert each.encode()
    assert all(text.startswith(target["content"]) for target in seen.at("post_model_call"))


def _pairs(data: bytes) -> list[bytes]:
    return [data[at : at + 2] for at in range(0, len(data), 2)]


async def test_B30_reasoning_is_neither_shown_nor_a_separator() -> None:
    """Reasoning between two pieces of a phrase does not hide it, and is not released."""
    model = ScriptedModel([say("system prompt: x", reasoning="I should not")])
    played = await play(Agent("clerk", model=model, stream="incremental", interceptors=[no(SPELL)]))
    assert (played.status, released(played.events)) == ("blocked", ["system "])
    assert "should not" not in played.text


# ---- transforms -----------------------------------------------------------------------------------------


CARD = "pay with 4111 1111 1111 1111 today, or with 5555 5555 5555 4444"
MASKED = "pay with **** 1111 today, or with **** 4444"


@both_ways
@pytest.mark.parametrize("size", [1, 3, 7, 25, 100])
async def test_B30_a_masked_stream_is_the_mask_of_the_whole(how: str, size: int) -> None:
    """With a holdback as long as what is masked, what is released is what a buffered answer would have been."""
    pieces = [CARD[at : at + size] for at in range(0, len(CARD), size)]
    mask = Mask("card", points=["post_model_call"])
    played = await play(clerk(chunks(pieces), stream=Incremental(32), interceptors=[mask]), how=how)
    assert (played.status, "".join(released(played.events)), played.answer) == ("completed", MASKED, MASKED)
    assert "4111 1111" not in played.text


@both_ways
async def test_a_transform_of_what_was_released_fails_closed(how: str) -> None:
    """What was released must begin the transformed text; if it does not, nothing more comes and the run is blocked."""
    mask = Mask("card", points=["post_model_call"])
    played = await play(clerk(chunks(["pay 4111 1111 11", "11 1111 now", " please"]), interceptors=[mask]), how=how)
    assert (played.status, played.reason, released(played.events)) == ("blocked", UNSUPPORTED, ["pay 4111 1111 11"])
    assert [decision for decision, _ in judged(played.records)] == ["allow", "transform", "deny"]
    assert "now" not in played.text


@both_ways
async def test_a_transform_that_only_goes_on_is_released(how: str) -> None:
    """A policy that adds to the end of the whole is no rewrite of what was shown."""

    def add(context: Any) -> Verdict:
        target = context["target"]
        done = target["finish_reason"] == "stop"
        return Verdict.transform("$target.content", f"{target['content']} (checked)") if done else ALLOW

    played = await play(clerk(chunks(["a ", "b"]), interceptors=[policy("post_model_call", add)]), how=how)
    assert (played.answer, released(played.events)) == ("a b (checked)", ["a ", "b (checked)"])


@both_ways
async def test_a_policy_may_hold_text_back_itself(how: str) -> None:
    """A transform of a prefix to a shorter one releases only that, until a later verdict gives more."""

    def whole_words(context: Any) -> Verdict:
        target = context["target"]
        if target["finish_reason"] != "incremental":
            return ALLOW
        return Verdict.transform("$target.content", target["content"].rpartition(" ")[0])

    played = await play(clerk(chunks(list("ab cd ef")), interceptors=[policy("post_model_call", whole_words)]), how=how)
    assert (played.answer, released(played.events)) == ("ab cd ef", ["ab", " cd", " ef"])


@both_ways
@pytest.mark.parametrize("value", [None, ["parts"], {"type": "text"}])
async def test_a_prefix_that_becomes_no_text_is_not_released(how: str, value: Any) -> None:
    """What is no text cannot be shown in pieces; the whole decides."""

    def hide(context: Any) -> Verdict:
        early = context["target"]["finish_reason"] == "incremental"
        return Verdict.transform("$target.content", value) if early else ALLOW

    played = await play(clerk(chunks(["a ", "b ", "c"]), interceptors=[policy("post_model_call", hide)]), how=how)
    assert (played.status, played.answer, released(played.events)) == ("completed", "a b c", ["a b c"])


@both_ways
async def test_the_output_may_go_on_but_not_rewrite(how: str) -> None:
    """At `output` an addition is released as the rest; a rewrite of what is shown already blocks the run."""

    def ends(text: str) -> Any:
        return policy("output", lambda c: Verdict.transform("$target.content", text))

    played = await play(clerk(chunks(["a ", "b"]), interceptors=[ends("a b!")]), how=how)
    assert (played.answer, released(played.events)) == ("a b!", ["a ", "b", "!"])
    played = await play(clerk(chunks(["a ", "b"]), interceptors=[ends("A B")]), how=how)
    assert (played.status, played.reason, released(played.events)) == ("blocked", UNSUPPORTED, ["a ", "b"])
    assert [record["verdict"]["decision"] for record in played.records if record["interception_point"] == "output"] == [
        "transform",
        "deny",
    ]
    assert "A B" not in played.text


@both_ways
async def test_evaluate_only_releases_and_changes_nothing(how: str) -> None:
    """A policy on trial is recorded over every prefix and changes and blocks nothing."""
    rules = Governance(mode="evaluate_only")
    agent = clerk(chunks(["one ", "two"]), interceptors=[no("t"), Mask("card")], governance=rules)
    played = await play(agent, how=how)
    assert (played.status, released(played.events)) == ("completed", ["one ", "two"])
    assert judged(played.records) == [("allow", None), ("deny", "no")]
    played = await play(clerk(broken_after("one ", "two"), governance=rules), how=how)
    assert (played.status, played.reason) == ("failed", "model_error:stream_cut")
    assert judged(played.records)[-1] == ("deny", UNSUPPORTED)


# ---- tools, re-asks, retries, crashes --------------------------------------------------------------------


@both_ways
async def test_only_the_text_of_a_response_with_calls_is_incremental(how: str) -> None:
    """Calls are judged with the whole response; a denied whole runs none of them."""
    ran: list[int] = []

    @tool
    async def look(order_id: int) -> str:
        ran.append(order_id)
        return "here"

    asks = say("let me look", calls=[call("look", order_id=7)], finish="tool_calls")
    seen = Seen()
    agent = clerk(asks, chunks(["it is ", "here"]), tools=[look], interceptors=[seen])
    played = await play(agent, how=how)
    shown = [(len(each["tool_calls"]), each["finish_reason"]) for each in seen.at("post_model_call")]
    assert shown == [(0, "incremental"), (0, "incremental"), (1, "tool_calls"), (0, "incremental"), (0, "stop")]
    pieces = [(event.payload["step"], event.payload["text"]) for event in played.events if event.kind == "model_delta"]
    assert pieces == [(0, "let "), (0, "me "), (0, "look"), (1, "it is "), (1, "here")]
    assert (played.status, played.answer, ran) == ("completed", "it is here", [7])
    calls = policy("post_model_call", lambda c: Verdict.deny("no_calls") if c["target"]["tool_calls"] else ALLOW)
    played = await play(clerk(asks, "never", tools=[look], interceptors=[calls]), how=how)
    assert (played.status, released(played.events), ran) == ("blocked", ["let ", "me "], [7])


@both_ways
async def test_an_answer_that_is_asked_again_is_taken_back(how: str) -> None:
    """A cut answer is not used; its text is taken back before the next one, and what is cut off is not shown."""
    cut = chunks(["a long ", "story ", "that"], finish="length")
    played = await play(clerk(cut, chunks(["short", "er"])), how=how)
    assert (played.status, played.answer) == ("completed", "shorter")
    assert released(played.events) == ["a long ", "story ", "short", "er"]
    assert [event.payload for event in played.events if event.kind == "stream_reset"] == [{"step": 0}]


@both_ways
async def test_an_output_that_is_sent_back_is_taken_back(how: str) -> None:
    """`Verdict.retry` at `output` sends the agent back; the caller is told to forget the first answer."""
    again = policy("output", lambda c: Verdict.retry("again") if "bad" in c["target"]["content"] else ALLOW)
    played = await play(clerk(chunks(["bad ", "one"]), chunks(["good ", "one"]), interceptors=[again]), how=how)
    assert (played.status, played.answer, said_by(played.events)) == ("completed", "good one", "good one")
    assert [event.payload for event in played.events if event.kind == "stream_reset"] == [{"step": 0}]


@pytest.mark.parametrize(
    ("point", "after", "had"), [("release.before", 1, ["one "]), ("release.after", 1, ["one ", "two "])]
)
async def test_a_lost_call_is_not_asked_again_in_silence(point: str, after: int, had: list[str]) -> None:
    """After a crash in the middle of a stream the caller is told to forget its text before it gets another."""
    agent = clerk(chunks(["one ", "two ", "three"]))
    async with Runtime() as runtime:
        with crash_at(point, after=after):
            run = await runtime.start(agent, "go")
            with pytest.raises(SimulatedCrash):
                await run.result()
        before = [item.entry for item in runtime.store.root_entries(run.id)]
        assert [entry.payload["text"] for entry in before if entry.kind == "model_delta"] == had
    async with reopened(runtime, agent) as again:
        run = await again.run(run.id)
        result = await run.result()
        assert (result.status, result.answer) == ("completed", "one two three")
        events = [event async for event in run.events()]
        told = [event.kind for event in events if event.kind in ("model_delta", "stream_reset")]
        assert told == ["model_delta"] * len(had) + ["stream_reset"] + ["model_delta"] * 3
        assert said_by(events, run.id) == "one two three"
        await invariants(run)


async def test_an_answer_lost_before_its_output_is_taken_back() -> None:
    """An answer that was released whole and lost before `output` was judged is asked for anew, and said so."""

    class Once:
        dies = True

        def intercept(self, context: Any) -> Verdict:
            if context["interception_point"] == "output" and Once.dies:
                Once.dies = False
                raise SimulatedCrash("output")
            return ALLOW

    agent = clerk(chunks(["all ", "of it"]), interceptors=[Once()])
    async with Runtime() as runtime:
        run = await runtime.start(agent, "go")
        with pytest.raises(SimulatedCrash):
            await run.result()
    async with reopened(runtime, agent) as again:
        run = await again.run(run.id)
        result = await run.result()
        assert (result.status, result.answer) == ("completed", "all of it")
        events = [event async for event in run.events()]
        assert released(events) == ["all ", "of it", "all ", "of it"]
        assert [event.payload["step"] for event in events if event.kind == "stream_reset"] == [0]


class Dying(MemoryStore):
    """A store whose process dies once, right behind an entry."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def log(self, run_id: str, root: str) -> Any:
        """The log, counted."""
        log = super().log(run_id, root)
        if not self._root(root).callbacks:
            self.watch(root, self._count)
        return log

    def _count(self, entry: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise SimulatedCrash(entry.kind)


async def test_a_death_behind_any_entry_confuses_no_caller() -> None:
    """Wherever the process dies, the run ends as an unbroken one, and what the caller puts together is the answer."""

    @tool(effect="pure")
    async def look(n: int) -> str:
        return f"saw {n}"

    script = [
        broken_after("oh ", "no", code="server_error"),
        say("let me look", calls=[call("look", n=1)]),
        chunks(["far ", "too ", "long"], finish="length"),
        chunks(["good ", "answer ", "at last"]),
    ]
    agent = clerk(*script, tools=[look])
    lived = 0
    while True:
        lived += 1
        store = Dying(lived)
        clock = VirtualClock()
        async with Runtime(store, clock=clock) as runtime:
            try:
                run = await runtime.start(agent, "go", key="k")
                result = await run.result()
                break
            except SimulatedCrash:
                pass
        async with Runtime(store, definitions={"clerk": agent}, clock=clock) as again:
            run = await again.start(agent, "go", key="k")
            result = await run.result()
            assert (result.status, result.answer) == ("completed", "good answer at last"), lived
            events = [event async for event in run.events()]
            assert said_by(events, run.id) == "good answer at last", lived
            contents = [message["content"] for message in result.trace.messages]
            assert contents == ["go", "let me look", "saw 1", "good answer at last"], lived
            await invariants(run)
    assert lived > 30


@given(st.text(max_size=60), st.lists(st.integers(0, 60), max_size=10), st.integers(0, 70))
def test_it_comes_to_what_buffered_comes_to(text: str, places: Sequence[int], holdback: int) -> None:
    """Without a verdict against it any text, cut anywhere, is released as a whole and answered as buffered would."""
    cuts = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts)]

    async def both() -> tuple[Played, Played]:
        one = await play(clerk(chunks(pieces), *["again"] * 3, stream="buffered"))
        return one, await play(clerk(chunks(pieces), *["again"] * 3, stream=Incremental(holdback)))

    buffered, incremental = asyncio.run(both())
    for name in ("status", "reason", "answer", "messages"):
        assert getattr(buffered, name) == getattr(incremental, name)
    assert said_by(incremental.events) == said_by(buffered.events) == (buffered.answer or "")


async def test_the_next_attempt_of_a_failed_run_takes_text_back() -> None:
    """`resume` of a run that failed in the middle of a stream tells the caller first."""
    agent = clerk(*[broken_after("try ", "it", code="server_error")] * 3, chunks(["done", "!"]))
    async with Runtime(clock=VirtualClock()) as runtime:
        run, result = await park(runtime, agent)
        assert (result.status, result.resumable) == ("failed", True)
        await runtime.resume(run.id)
        result = await settled(runtime, run)
        assert (result.status, result.answer) == ("completed", "done!")
        assert said_by([event async for event in run.events()], run.id) == "done!"


async def test_a_stop_command_ends_the_stream() -> None:
    """After a stop nothing more is released, and no other model is asked."""
    model, other = Slow("one ", "two ", "three"), ScriptedModel(["never"])
    async with Runtime() as runtime:
        run = await runtime.start(Agent("clerk", model=[model, other], stream="incremental"), "go")
        model.signals[0].set()
        model.signals[1].set()
        async for event in run.events(follow=True):
            if event.kind == "model_delta":
                await runtime.commands.stop(run.id, reason="enough", by="human:ana")
                model.signals[2].set()
        result = await settled(runtime, run)
        assert (result.status, result.reason) == ("stopped", "enough")
        assert (released([event async for event in run.events()]), other.requests) == (["one "], [])


@pytest.mark.parametrize("at", ["one ", "one two ", "one two three"])
async def test_a_stop_while_a_prefix_is_judged_releases_it_no_more(at: str) -> None:
    """A run that is stopped while a policy thinks shows nothing after that, also when the policy permits."""
    async with Runtime() as runtime:

        @interceptor(points=["post_model_call"])
        async def thinks(context: Any) -> Verdict:
            if context["target"]["content"] == at:
                await runtime.commands.stop(context["session"]["id"], reason="enough", by="human:ana")
            return ALLOW

        run = await runtime.start(clerk(chunks(["one ", "two ", "three"]), interceptors=[thinks]), "go")
        result = await settled(runtime, run)
        assert (result.status, result.reason) == ("stopped", "enough")
        had = "".join(released([event async for event in run.events()]))
        assert had == at.rpartition(at.split()[-1])[0]


async def test_a_caller_that_leaves_ends_the_stream() -> None:
    """Leaving `stream()` early cancels the run and closes the provider's answer."""
    model = Slow("one ", "two ", "three")
    model.signals[0].set()
    model.signals[1].set()
    store = MemoryStore()
    events = Agent("clerk", model=model, stream="incremental").stream("go", store=store, run_id="r")
    async for event in events:
        if event.kind == "model_delta":
            break
    await events.aclose()  # type: ignore[attr-defined]
    assert model.closed
    check(store, "r")


# ---- time, budgets, children, definitions ---------------------------------------------------------------


async def test_the_models_time_is_not_the_policies_time() -> None:
    """A policy that thinks longer than the model may answer does not time the model out; a slow model is."""

    @interceptor(points=["post_model_call"])
    async def thinks(context: Any) -> Verdict:
        await asyncio.sleep(0.25)  # budget: more than the model's time, which is a real timeout
        return ALLOW

    class Prompt:
        id = "prompt"

        def __init__(self, *events: Any) -> None:
            self.events = events

        async def respond(self, messages: Any, tools: Any, settings: Any) -> AsyncIterator[Any]:
            for event in self.events:
                if event is None:
                    await asyncio.Event().wait()
                yield event

    quick = Prompt(TextDelta("a"), TextDelta("b"), ModelResponse("ab"))
    options: dict[str, Any] = {"stream": "incremental", "settings": {"timeout": 0.2}}
    result = await Agent("clerk", model=quick, interceptors=[thinks], **options).run("go")
    assert (result.status, result.answer) == ("completed", "ab")
    stuck = Prompt(TextDelta("a"), TextDelta("b"), None)
    fallback = ScriptedModel(["late"])
    agent = Agent("clerk", model=[stuck, fallback], **options)
    played = await play(agent, sure=False, clock=VirtualClock())
    assert (played.status, played.answer, played.usage.retries) == ("completed", "late", 3)


async def test_a_fault_of_the_store_is_not_the_models() -> None:
    """A store that fails at a release fails the run as itself; the model is not asked again."""

    class Full(MemoryStore):
        __slots__ = ()

        async def barrier(self, root: str) -> None:
            raise StoreError("the disk is full")

    agent = clerk(chunks(["a", "b", "c"]), "never")
    result = await agent.run("go", store=Full())
    assert (result.status, result.reason) == ("failed", None)
    assert "the disk is full" in str(result.error)
    assert len(agent.models[0].requests) == 1  # type: ignore[attr-defined]


async def test_a_budget_counts_a_stream_that_was_stopped() -> None:
    """A denied stream was a request; the price of its model is known behind the mediation too."""
    agent = clerk(chunks(["a ", "BAD ", "c"]), interceptors=[no("BAD")], budget=Budget(max_total_tokens=100_000))
    with pytest.raises(InterceptionBlocked) as caught:
        await agent.run("go")
    assert caught.value.run.usage.requests == 1  # type: ignore[attr-defined]


@both_ways
async def test_a_nested_agent_streams_under_its_path(how: str) -> None:
    """The pieces of an agent used as a tool carry its path; policies above it judge its prefixes."""
    inner = Agent("poet", model=ScriptedModel([chunks(["roses ", "RED"])]), stream="incremental")
    seen = Seen()
    agent = Agent(
        "clerk", model=ScriptedModel([call("poet", task="write"), "done"]), tools=[inner], interceptors=[seen]
    )
    played = await play(agent, how=how)
    pieces = [event for event in played.events if event.kind == "model_delta" and len(event.path) == 2]
    assert [(event.path[1].name, event.payload["text"]) for event in pieces] == [("poet", "roses "), ("poet", "RED")]
    assert [each["content"] for each in seen.at("post_model_call")] == [None, "roses ", "roses RED", "done"]


@both_ways
async def test_a_typed_answer_streams_as_its_text(how: str) -> None:
    """With an output type the pieces are the JSON that the model writes, the answer is the value."""
    agent = clerk(chunks(["[1, ", "2]"]), output_type=list[int])
    if how == "plain":
        assert (await agent.run("go")).answer == [1, 2]
    else:
        assert "".join(released([event async for event in agent.stream("go")])) == "[1, 2]"


async def test_a_model_without_pieces_answers_at_once() -> None:
    """A model that does not stream is judged once, as a whole."""
    seen = Seen()
    played = await play(clerk(Reply((ModelResponse("whole"),)), interceptors=[seen]))
    assert (released(played.events), len(seen.at("post_model_call"))) == (["whole"], 1)


@both_ways
async def test_labels_of_the_whole_are_kept(how: str) -> None:
    """Result labels of the last emission go with the answer (§5.4)."""
    tag = policy("post_model_call", lambda c: Verdict.from_wire({"decision": "allow", "result_labels": ["web"]}))
    played = await play(clerk(chunks(["a ", "b"]), interceptors=[tag]), how=how)
    entries = [entry.payload for entry in played.store.entries("r") if entry.kind == "labels"]
    assert [entry["labels"] for entry in entries] == [["web"]]


def test_the_options_are_checked() -> None:
    """A word or a number that cannot be meant is told at once."""
    for stream in ("bufered", True, None, 3):
        with pytest.raises(DefinitionError, match="'buffered', 'incremental'"):
            Agent("clerk", model="openai:x", stream=stream)
    for holdback in (-1, 1.5, True, "8"):
        with pytest.raises(DefinitionError, match="holdback"):
            Incremental(holdback)  # type: ignore[arg-type]
    agent = Agent("clerk", model="openai:x", stream=Incremental(8))
    assert agent.with_(description="d").stream_mode == Incremental(8)
    assert agent.with_(stream="buffered").stream_mode == "buffered"
