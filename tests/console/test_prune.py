"""`lictor runs prune`: what ended runs said is gone from the file, that they ran is proved as before."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing

import pytest

from lictor import Agent, Runtime, tool
from lictor.console.cli import main
from lictor.errors import NotResumable
from lictor.journal import MemoryStore, open_store, sqlite_logs
from lictor.models import ScriptedModel, call, say
from lictor.runtime import prune
from lictor.testing.clock import VirtualClock

DAY = 86400.0
WORDS = ("heliotrope", "marzipan", "obsidian", "quicksilver", "tamarind", "vermilion", "saffron")
TASK, ARGUMENT, RESULT, ANSWER, FEEDBACK, CONTEXT, INNER = WORDS


@tool(requires_approval=True)
async def refund(to: str) -> str:
    """Pay back."""
    return f"paid {RESULT}"


def clerk():
    inner = Agent("inner", model=ScriptedModel([say(f"inner {INNER}")] * 9), tools=[])
    script = [call("inner", task=f"look {INNER}"), call("refund", to=ARGUMENT), say(f"done {ANSWER}")]
    return Agent("clerk", model=ScriptedModel(script * 3), tools=[refund, inner])


async def run_one(runtime, agent, *, end=True, **options):
    """A run that is approved and ends, or waits."""
    run = await runtime.start(agent, f"go {TASK}", context={"x": CONTEXT}, **options)
    [request] = (await run.result()).requests
    if end:
        await runtime.docket.decide(request.id, "approve", feedback=f"fine {FEEDBACK}", by="human:ana")
        assert (await run.result("end")).status == "completed"
    return run.id


async def fill(url):
    """An old run, an old conversation, one with a run that still waits, and a run that waits."""
    agent = clerk()
    async with Runtime(url, definitions={"clerk": agent}) as runtime:
        return {
            "over": await run_one(runtime, agent),
            "talk": await run_one(runtime, agent, conversation="old"),
            "first": await run_one(runtime, agent, conversation="living"),
            "second": await run_one(runtime, agent, conversation="living", end=False),
        }


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LICTOR_STORE", "sqlite:///s.db")
    monkeypatch.delenv("LICTOR_AUDIT_KEY", raising=False)
    monkeypatch.setattr(sqlite_logs, "LEAST_GROWTH", 4)
    return tmp_path / "s.db"


@pytest.fixture
def lictor(monkeypatch, capsys):
    """Run `lictor`; gives exit code, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lictor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed, told = capsys.readouterr()
        return ended.value.code or 0, printed, told

    return run


def in_files(path):
    """Which of the words are anywhere in the store's files, free pages and the write-ahead log included."""
    data = b"".join(each.read_bytes() for each in path.parent.glob("s.db*"))
    return {word for word in WORDS if word.encode() in data}


def ask(path, sql):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def test_the_text_of_ended_runs_is_gone_from_the_file_and_the_log_is_intact(path, lictor):
    """Every word of two old runs is in the file before, and none after; trace says erased; audit finds nothing."""

    async def two():
        agent = clerk()
        async with Runtime("sqlite:///s.db", definitions={"clerk": agent}) as runtime:
            return [await run_one(runtime, agent), await run_one(runtime, agent, conversation="old")]

    ids = asyncio.run(two())
    assert in_files(path) == set(WORDS)
    assert lictor("audit", "checkpoint", "--out", "c.json")[0] == 0
    code, printed, _ = lictor("runs", "prune", "--older-than", "0m", "--dry-run", "--json")
    planned = json.loads(printed)
    assert (code, planned["runs"], planned["conversations"]) == (0, ids, ["old"])
    assert in_files(path) == set(WORDS)
    code, printed, _ = lictor("runs", "prune", "--older-than", "0m", "--json")
    assert (code, json.loads(printed)) == (0, planned | {"dry_run": False})
    assert in_files(path) == set()
    code, printed, _ = lictor("audit", "verify", "--checkpoint", "c.json", "--json")
    found = json.loads(printed)
    assert (code, found["intact"], found["complete"], found["erased"]) == (0, True, True, planned["entries"])
    code, printed, _ = lictor("trace", ids[0])
    assert (code, printed.splitlines()[1].endswith("run_started  erased")) == (0, True)
    assert json.loads(lictor("trace", ids[1], "--json")[1])["messages"] == []
    assert [each["erased"] is not None for each in json.loads(lictor("runs", "--json")[1])["runs"]] == [True, True]
    assert lictor("runs", "prune", "--older-than", "0m")[1] == "erased 0 runs, 0 entries, 0 requests, 0 conversations\n"


def test_a_run_that_waits_keeps_everything_it_needs(path, lictor):
    """It and its conversation are untouched while the older run of that is erased, and it goes on to its end."""
    ids = asyncio.run(fill("sqlite:///s.db"))
    found = json.loads(lictor("runs", "prune", "--older-than", "0m", "--json")[1])
    assert found["runs"] == [ids["over"], ids["talk"], ids["first"]]
    assert found["conversations"] == ["old"]

    async def go_on():
        agent = clerk()
        async with Runtime("sqlite:///s.db", definitions={"clerk": agent}) as runtime:
            [request] = await runtime.docket.pending()
            assert request.arguments == {"to": ARGUMENT}
            await runtime.docket.decide(request.id, "approve", by="human:ana")
            result = await (await runtime.run(ids["second"])).result("end")
            return result, await runtime.conversation("living")

    result, conversation = asyncio.run(go_on())
    assert (result.status, result.answer) == ("completed", f"done {ANSWER}")
    assert len(conversation.messages) == 13  # the older run is erased, what the living one goes on from is not
    assert lictor("audit", "verify")[0] == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_only_runs_that_ended_long_enough_ago_are_erased(kind, path):
    """Age counts from the end; an erased run tells its status, has no answer, and cannot be resumed."""
    clock, agent = VirtualClock(), clerk()
    store = MemoryStore() if kind == "memory" else open_store("sqlite:///s.db")
    async with Runtime(store, definitions={"clerk": agent}, clock=clock) as runtime:
        old = await run_one(runtime, agent)
        await clock.advance(20 * DAY)
        waits = await run_one(runtime, agent, end=False)
        await clock.advance(20 * DAY)
        assert (await prune(runtime, older_than=30 * DAY)).runs == (old,)
        assert (await prune(runtime, older_than=0.0)).runs == ()
        result = await (await runtime.run(old)).result()
        assert (result.status, result.answer) == ("completed", None)
        assert {entry.payload.get("erased") for entry in store.entries(old)} == {True}
        assert (await runtime.trace(old)).status == "completed"
        with pytest.raises(NotResumable, match="erased"):
            await runtime.resume(old)
        kinds = [event.kind async for event in (await runtime.run(old)).events()]
        assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")
        assert not any(entry.payload.get("erased") for entry in store.entries(waits))
    store.close()


def test_an_age_that_is_none_is_wrong_usage(path, lictor):
    """The line says how it is written."""
    for age in ("30", "d", "x9d", "-1d"):
        code, _, told = lictor("runs", "prune", "--older-than", age)
        assert (code, "for example 30d" in told) == (2, True)
