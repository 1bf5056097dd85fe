"""Snapshots: a state that was written down and read back goes on like one folded from the whole log."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from test_machine import DyingStore, World, play, scripts

from lictor import Agent, Runtime, tool
from lictor.agent import AgentMachine
from lictor.agent.folded import Beside, beside_after, from_json, to_json
from lictor.journal import Entry, open_store, sqlite_logs
from lictor.models import ScriptedModel, call, say
from lictor.values import freeze

STEPS = 30


def folded(machine: AgentMachine, state: Any, beside: Beside, entries: list[Entry]) -> tuple[Any, Beside]:
    """State and rest after these entries."""
    for entry in entries:
        if entry.kind in machine.kinds:
            state, _ = machine.advance(state, entry)
    return state, beside_after(beside, entries, own=True)


def same_from_anywhere(machine: AgentMachine, entries: list[Entry]) -> int:
    """Compare fold(snapshot + tail) with fold(all) for a snapshot after each entry; how many were compared."""
    start = Beside(labels={})
    whole = folded(machine, machine.begin(), start, entries)
    state, beside = machine.begin(), start
    for number, entry in enumerate(entries):
        state, beside = folded(machine, state, beside, [entry])
        body = to_json(machine, state, beside)
        assert body is not None
        restored = from_json(machine, body)
        assert restored == (state, beside)
        assert type(restored[0].messages) is tuple
        assert folded(machine, *restored, entries[number + 1 :]) == whole
    return len(entries)


@given(scripts, scripts)
@settings(max_examples=25, deadline=None)
def test_a_snapshot_and_the_tail_fold_to_the_same_as_the_whole_log(script: Any, inner: Any) -> None:
    """For random runs with approvals, children, denials and failures, wherever the snapshot is taken."""
    store = DyingStore()
    _, root = asyncio.run(play(World(script, inner), store))
    runs: dict[str, list[Entry]] = {}
    for item in store.root_entries(root):
        seq, kind, payload, at = item.entry
        runs.setdefault(item.run_id, []).append(Entry(seq, kind, freeze(json.loads(json.dumps(payload))), at))
    assert sum(same_from_anywhere(AgentMachine(), entries) for entries in runs.values()) > 0


async def test_the_conversation_before_a_run_is_not_stored_twice() -> None:
    """A snapshot holds what the run added; what it began with comes from its row."""
    store = DyingStore()
    _, root = await play(World([("calls", [("pure", 1)])], []), store)
    history = (freeze({"role": "user", "content": "before"}), freeze({"role": "assistant", "content": "told"}))
    machine = AgentMachine(history=history, numbered=3, positions={"outer": 2})
    entries = list(store.entries(root))
    same_from_anywhere(machine, entries)
    state, beside = folded(machine, machine.begin(), Beside(labels={}), entries)
    body = to_json(machine, state, beside)
    assert body is not None
    assert b"before" not in body
    assert state.messages[:2] == history
    [(_, [finished])] = state.recent
    assert finished.content is not None
    assert body.count(finished.content.encode()) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"fields": []}', b"\xff", b'{"fields": null, "state": 1}'])
def test_a_body_that_is_none_of_ours_is_no_snapshot(body: bytes) -> None:
    """Whatever is there, the log is folded instead."""
    assert from_json(AgentMachine(), body) is None


# ---- in a store --------------------------------------------------------------------------------


@tool(effect="pure")
async def look(n: int) -> str:
    """Look."""
    await asyncio.sleep(0)
    return f"seen {n}"


@tool(requires_approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def clerk() -> Agent:
    script = [*(call("look", n=number) for number in range(STEPS)), call("pay", n=1), say("Done.")]
    return Agent("clerk", model=ScriptedModel(script), tools=[look, pay], max_steps=STEPS + 5)


@pytest.fixture
def url(tmp_path: Any, monkeypatch: Any) -> str:
    """A store in which a run of many steps waits; snapshots are made early."""
    monkeypatch.setattr(sqlite_logs, "LEAST_GROWTH", 16)
    asyncio.run(park(f"sqlite:///{tmp_path}/s.db"))
    return f"sqlite:///{tmp_path}/s.db"


async def park(url: str) -> None:
    async with Runtime(url) as runtime:
        run = await runtime.start(clerk(), "go", key="k", max_tool_calls=100)
        assert (await run.result()).status == "suspended"


def query(url: str, sql: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        return db.execute(sql, values).fetchall()


async def go_on(url: str) -> Any:
    """Approve what waits, in another Runtime, and give the result and what was read of the log to resume."""
    read: list[int] = []
    agent = clerk()
    async with Runtime(url, definitions={"clerk": agent}) as runtime:
        stored = runtime.store._stored

        def counted(run_id: str, after: int, *more: Any) -> Any:
            read.append(after)
            return stored(run_id, after, *more)

        runtime.store._stored = counted
        [request] = await runtime.docket.pending()
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        result = await (await runtime.start(agent, "go", key="k")).result("end")
    return result, read[0]


async def test_a_run_is_resumed_from_its_snapshot(url: str) -> None:
    """Only what came after it is read to go on; usage, numbers of records and the answer are those of a whole run."""
    [(seq, size)] = query(url, "SELECT seq, (SELECT count(*) FROM event WHERE run = s.run) FROM snapshot AS s")
    assert seq + 1 >= size / 2
    result, read = await go_on(url)
    assert read == seq
    assert (result.status, result.answer) == ("completed", "Done.")
    assert (result.usage.tool_calls, result.usage.requests) == (STEPS + 1, STEPS + 2)
    sequences = [record["sequence"] for record in result.records]
    assert sequences == list(range(len(sequences)))


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshot",
        "UPDATE snapshot SET version = 99",
        "UPDATE snapshot SET seq = seq - 1",
        "UPDATE snapshot SET body = replace(body, 'seen 3', 'seen 4')",
        "UPDATE snapshot SET body = CAST(replace(body, 'seen 3', 'seen 4') AS BLOB)",
        "UPDATE snapshot SET body = x'00'",
        "UPDATE snapshot SET head = x'00'",
    ],
)
async def test_without_a_snapshot_that_fits_the_whole_log_is_folded(url: str, damage: str) -> None:
    """Missing, of another version, changed, or about another log: the run goes on all the same."""
    query(url, damage)
    result, read = await go_on(url)
    assert read == -1
    assert (result.status, result.answer, result.usage.tool_calls) == ("completed", "Done.", STEPS + 1)


async def test_snapshots_are_fewer_than_the_log(url: str) -> None:
    """One for each run, smaller than its log: together at most twice the history."""
    [(kept,)] = query(url, "SELECT sum(length(body)) FROM snapshot")
    [(logged,)] = query(url, "SELECT sum(length(payload)) FROM event")
    assert query(url, "SELECT count(*) FROM snapshot") == [(1,)]
    assert 0 < kept <= logged


async def test_a_snapshot_with_children_counts_what_they_used(tmp_path: Any, monkeypatch: Any) -> None:
    """Usage and number of nested runs are those of the whole tree, before and after the snapshot."""
    monkeypatch.setattr(sqlite_logs, "LEAST_GROWTH", 16)
    url = f"sqlite:///{tmp_path}/s.db"

    def boss() -> Agent:
        inner = Agent("inner", model=ScriptedModel([call("look", n=1), say("seen")]), tools=[look])
        six = [call("inner", task=f"look {n}") for n in range(6)]  # else a loop
        script = [*six, call("pay", n=1), call("inner", task="look"), say("Done.")]
        return Agent("boss", model=ScriptedModel(script), tools=[pay, inner], max_steps=20)

    def inner_model() -> Any:
        return ScriptedModel([entry for _ in range(9) for entry in (call("look", n=1), say("seen"))])

    async with Runtime(url, models={"inner": inner_model()}) as runtime:
        run = await runtime.start(boss(), "go", key="k")
        before = await run.result()
        assert before.status == "suspended"
    assert query(url, "SELECT count(*) FROM snapshot") == [(1,)]
    agent = boss()
    async with Runtime(url, definitions={"boss": agent}, models={"inner": inner_model()}) as runtime:
        run = await runtime.start(agent, "go", key="k")
        again = await run.result()
        assert again.usage == before.usage
        await runtime.docket.decide(again.requests[0].id, "approve", by="human:ana")
        result = await run.result("end")
    with closing(open_store(url)) as store:
        entries = [item.entry for item in store.root_entries(run.id)]
    assert result.usage.tool_calls == len([entry for entry in entries if entry.kind == "tool_started"])
    assert result.usage.requests == len([entry for entry in entries if entry.kind == "model_finished"])
