"""Field cases of class a, f and g where they are about what is stored: a file, a killed process, the audit view."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from driving import Strict, check, decided, park, policy, settled, tools_said

from lictor import ALLOW, Agent, Mask, Runtime, Verdict, faults, tool
from lictor.errors import StoreError
from lictor.journal.audit import verify
from lictor.journal.sqlite import SqliteStore
from lictor.models import call, say
from lictor.testing import invariants, sweep
from lictor.values import digest

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


# ---- A04: the process is gone

PROGRAM = """
import asyncio, sys
from lictor import Agent, Runtime, tool
from lictor.models import ScriptedModel, call, say

@tool(requires_approval=True)
async def wipe(disk: str) -> str:
    "Wipe a disk."
    with open(sys.argv[2], "a") as file:
        file.write(disk + "\\n")
    return "wiped"

def model(name, *script):
    def told(entry):
        def respond(request):
            with open(sys.argv[3], "a") as file:
                file.write(f"{name}{request.position}\\n")
            return entry
        return respond
    return ScriptedModel([told(entry) for entry in script], id=name)

inner = Agent("inner", model=model("I", call("wipe", disk="a"), say("it is wiped")), tools=[wipe])
outer = Agent("outer", model=model("O", call("inner", task="wipe a"), say("done")), tools=[inner])

async def main():
    async with Runtime(sys.argv[1], definitions={"outer": outer}) as runtime:
        run = await runtime.start(outer, "go", key="k")
        result = await run.result()
        for request in result.requests:
            print(request.id, flush=True)
            if "approve" in sys.argv:
                await runtime.docket.decide(request.id, "approve", by="human:ana")
        result = await run.result()
        print(result.status, result.answer, flush=True)

asyncio.run(main())
"""


def played(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, env=environment, check=False, capture_output=True, timeout=30)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["park.before", "park.after"])
async def test_A04_a_pause_inside_an_agent_survives_its_process(url: str, tmp_path: Path, point: str) -> None:
    """Killed while the inner agent waits; a new process finds the same request, repeats no model call, wipes once."""
    wiped, asked = tmp_path / "wiped", tmp_path / "asked"
    command = [sys.executable, "-c", PROGRAM, url, str(wiped), str(asked)]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    first = played(command, environment | {"LICTOR_CRASH_AT": point})
    assert first.returncode == -signal.SIGKILL, first.stderr
    async with Runtime(url, drive=False) as runtime:
        before = [request.id for request in await runtime.docket.pending()]
        recorded = [item.entry.kind for item in runtime.store.root_entries(next(iter(runtime._rows)))]
    second = played([*command, "approve"], environment)
    told = second.stdout.decode().split("\n")
    assert told[-2] == "completed done", second
    assert wiped.read_text() == "a\n"
    models = asked.read_text().split()
    if "model_finished" in recorded:  # what is recorded is never asked again
        assert (models, told[:-2]) == (["O0", "I0", "I1", "O1"], before)
    async with Runtime(url, drive=False) as runtime:
        assert await sweep(runtime) == []
        assert [request.id for request in await runtime.docket.requests(run=next(iter(runtime._rows)))] == before


# ---- A24: the store fails instead of the process


class Failing(SqliteStore):
    """A store whose writes fail while it is told to."""

    fails = False

    def _transaction(self, root: str | None, appends: bool, sure: bool = False) -> Any:
        if self.fails:
            raise StoreError("the disk is full")
        return super()._transaction(root, appends, sure)


@pytest.mark.parametrize("over_soon", [False, True], ids=["noticed", "over soon"])
async def test_A24_a_store_that_fails_after_the_effect_never_repeats_it(url: str, over_soon: bool) -> None:
    """The tool ran and its result could not be written: it is written later, or somebody is asked; never run again."""
    paid: list[int] = []

    @tool(requires_approval=True)
    async def pay(n: int) -> str:
        paid.append(n)
        return "paid"

    async def answer(request: Any) -> Any:
        while over_soon and store.fails:  # noqa: ASYNC110 - a timer ends it
            await asyncio.sleep(0.005)  # budget: the store's own thread has to meet the fault
        return say("ok")

    def fail() -> None:
        store.fails = True
        if over_soon:
            asyncio.get_running_loop().call_later(0.05, setattr, store, "fails", False)

    agent = Agent("clerk", model=Strict([call("pay", n=1), answer]), tools=[pay])
    with closing(Failing(url)) as store:
        async with Runtime(store, definitions={"clerk": agent}) as runtime:
            run, result = await park(runtime, agent)
            faults.arm("effect.after", fail)
            await runtime.docket.decide(result.requests[0].id, "approve", by="human:ana")
            if over_soon:
                result = await settled(runtime, run)
            else:
                with pytest.raises(StoreError, match="disk is full"):
                    await run.result()
                store.fails = False
                await runtime.resume(run.id)
                (unknown,) = (await settled(runtime, run)).requests
                assert (unknown.kind, paid) == ("unknown_effect", [1])
                result = await decided(runtime, run, (unknown.id, "respond", {"text": "paid"}))
            assert (result.status, result.answer, paid) == ("completed", "ok", [1])
            assert tools_said(result.trace.messages) == ["paid"]
            in_memory = result.trace.messages
            await invariants(run)
    async with Runtime(url, definitions={"clerk": agent}, drive=False) as runtime:
        assert (await runtime.trace(run.id)).messages == in_memory
        assert await sweep(runtime) == []


# ---- F10: the audit view


@pytest.fixture(params=["memory:", "file"])
def store_url(request: pytest.FixtureRequest, url: str) -> str:
    return url if request.param == "file" else "memory:"


SECRET = "canary-7f3a"
ENDINGS = {
    "done": ("done", None, None),
    "raises": ("tool_failed", "ValueError", None),
    "denied result": ("denied", "no", "agent:clerk/policy"),
    "too large": ("host_error", "host_error:context_invalid", None),
    "denied call": ("denied", "not_today", "agent:clerk/before"),
    "rejected": ("denied", "rejected", "human:ana"),
}


@pytest.mark.parametrize("kind", ENDINGS)
async def test_F10_the_audit_view_keeps_every_call_whole(store_url: str, kind: str) -> None:
    """However a call ends, its entry has id, path, times and the digest of its arguments; none has its content."""

    @tool(requires_approval=kind == "rejected")
    async def work(text: str) -> Any:
        if kind == "raises":
            raise ValueError(f"broken {SECRET}")
        return "x" * (6 * 1024 * 1024) if kind == "too large" else SECRET

    refused = Verdict.deny("not_today", SECRET) if kind == "denied call" else ALLOW
    policies = [
        policy("pre_tool_call", lambda c: refused, "before"),
        policy("post_tool_call", lambda c: Verdict.deny("no", SECRET) if kind == "denied result" else ALLOW),
    ]
    script = [call("work", text=SECRET, id="provider_7"), say("done")]
    agent = Agent("clerk", model=Strict(script), tools=[work], interceptors=policies)
    async with Runtime(store_url) as runtime:
        run, result = await park(runtime, agent, user="ana")
        if kind == "rejected":
            result = await decided(runtime, run, (result.requests[0].id, "reject", {"feedback": SECRET}))
        (entry,) = await runtime.audit(run.id)
        requests = await runtime.docket.requests(run=run.id)
    assert (entry.outcome, entry.reason, entry.decided_by) == ENDINGS[kind]
    assert (entry.call, entry.provider_id, entry.tool) == ("provider_7", "provider_7", "work")
    assert [(step.name, step.run_id) for step in entry.path] == [("clerk", run.id)]
    assert list(entry.requests) == [request.id for request in requests]
    told = digest({"text": SECRET})
    ran = kind not in ("denied call", "rejected")
    assert (entry.proposed, entry.approved, entry.executed) == (told, told if ran else None, told if ran else None)
    assert (entry.ended_at or 0) >= (entry.started_at or entry.proposed_at) >= entry.proposed_at > 0
    assert SECRET not in json.dumps(entry.json())


# ---- G15: odd characters, saved and loaded


async def test_G15_odd_characters_are_the_same_after_a_reload(url: str) -> None:
    """Two turns over a file, closed and read by another process: texts, digests and the chain of the log agree."""

    @tool
    async def odd(text: str) -> str:
        return f"{text} a\ud83d"

    script = [call("odd", '{"text": "\\ud83c\\udf78"}'), say("half \ud83c"), call("odd", '{"text": "x"}'), say("next")]
    agent = Agent("clerk", model=Strict(script), tools=[odd], interceptors=[Mask("secret")])
    seen = []
    async with Runtime(url) as runtime:
        for task in ("\x00 text \ufffe", "go on"):
            run, result = await park(runtime, agent, task, conversation="c")
            seen.append((run.id, result.answer, result.trace.messages, await runtime.audit(run.id)))
        stored = (await runtime.conversation("c")).messages
    assert [answer for _, answer, _, _ in seen] == ["half \ufffd", "next"]
    assert tools_said(seen[0][2]) == ["\U0001f378 a\ufffd"]
    async with Runtime(url, definitions={"clerk": agent}, drive=False) as runtime:
        assert (await runtime.conversation("c")).messages == stored
        for run_id, answer, messages, audit in seen:
            result = await (await runtime.run(run_id)).result()
            assert (result.answer, result.trace.messages) == (answer, messages)
            assert await runtime.audit(run_id) == audit
            assert [each.executed for each in audit] == [each.approved for each in audit]
            check(runtime.store, run_id)
        assert await sweep(runtime) == []
    report = verify(url)
    assert (report.intact, report.complete) == (True, True)
