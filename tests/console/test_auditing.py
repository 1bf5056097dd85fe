"""`lictor audit` and `lictor migrate` over a real file, damaged in every way that has a name."""

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lictor import Agent, Runtime, tool
from lictor.console.cli import main
from lictor.errors import OlderSchema
from lictor.models import ScriptedModel, call, say

OLD = Path(__file__).parents[1] / "journal" / "fixtures" / "v001.sql"


@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    return "paid"


def clerk():
    script = [call("refund", order=42), say("Paid."), call("refund", order=43), say("Paid again.")]
    return Agent("clerk", model=ScriptedModel(script), tools=[refund])


@pytest.fixture(params=[None, "secret"], ids=["plain", "keyed"])
def key(request, monkeypatch):
    """The audit key of this process, if any."""
    if request.param is None:
        monkeypatch.delenv("LICTOR_AUDIT_KEY", raising=False)
    else:
        monkeypatch.setenv("LICTOR_AUDIT_KEY", request.param)
    return request.param


@pytest.fixture
def path(tmp_path, key, monkeypatch):
    """A store with a completed run that somebody approved, and one that waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LICTOR_STORE", "sqlite:///s.db")
    asyncio.run(fill())
    return tmp_path / "s.db"


async def fill():
    agent = clerk()
    async with Runtime("sqlite:///s.db", definitions={"clerk": agent}) as runtime:
        done = await runtime.start(agent, "refund 42")
        [request] = (await done.result()).requests
        await runtime.docket.decide(request.id, "approve", scope="same_arguments", by="human:ana")
        assert (await done.result("end")).answer == "Paid."
        waits = await runtime.start(agent, "refund 43")
        assert (await waits.result()).status == "suspended"


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


@pytest.fixture
def verified(lictor):
    """Run `lictor audit verify --json`; gives the exit code and what it printed."""

    def run(*arguments):
        code, printed, told = lictor("audit", "verify", "--json", *arguments)
        assert told == ""
        return code, json.loads(printed)

    return run


def alter(path, *statements):
    with closing(sqlite3.connect(path)) as db, db:
        for statement, *values in statements:
            assert db.execute(statement, values).rowcount > 0


def ask(path, sql):
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def body_of(path, status):
    [(name, body)] = ask(path, f"SELECT key, body FROM request WHERE status = '{status}'")
    return name, json.loads(body)


def test_an_untouched_store_is_intact_and_complete(path, lictor, verified, tmp_path):
    """Nothing is found, also against a checkpoint that was written before more happened."""
    assert lictor("audit", "checkpoint", "--out", "c.json")[0] == 0
    [(entries,)] = ask(path, "SELECT count(*) FROM event")
    request, _ = body_of(path, "pending")
    assert lictor("reject", request, "-m", "no", "--no-run", "--as", "human:bea")[0] == 0
    code, found = verified("--checkpoint", "c.json")
    assert (code, found["intact"], found["complete"], found["changed"], found["missing"]) == (0, True, True, [], [])
    assert found["entries"] == entries + 1
    printed = lictor("audit", "verify")[1].splitlines()
    assert printed[1:] == ["intact    yes", "complete  yes (without --checkpoint a tail that was cut does not show)"]


def test_a_changed_byte_is_found(path, verified):
    """One bit of one payload: not intact, and the entry is named; nothing is missing."""
    [(run, payload)] = ask(path, "SELECT run, payload FROM event WHERE kind = 'tool_finished'")
    alter(
        path,
        ("UPDATE event SET payload = ? WHERE kind = 'tool_finished'", bytes([*payload[:-2], payload[-2] ^ 1, 125])),
    )
    code, found = verified()
    assert (code, found["intact"], found["complete"]) == (1, False, True)
    assert found["changed"][0].startswith(f"run {run}, entry ")
    assert found["changed"][0].endswith("its content was changed")


def test_a_deleted_row_is_found(path, verified):
    """A hole: what is there is intact, and the log is not complete."""
    alter(path, ("DELETE FROM event WHERE kind = 'tool_finished'",))
    code, found = verified()
    assert (code, found["intact"], found["complete"]) == (1, True, False)
    assert any(line.endswith(" missing") for line in found["missing"])
    assert any("was started, and the run ended without its result" in line for line in found["missing"])


def test_a_swapped_pair_is_found(path, verified):
    """Two whole entries that changed places."""
    [(run,)] = ask(path, "SELECT run FROM event WHERE kind = 'tool_finished'")
    alter(
        path,
        ("UPDATE event SET seq = -1 WHERE run = ? AND seq = 3", run),
        ("UPDATE event SET seq = 3 WHERE run = ? AND seq = 4", run),
        ("UPDATE event SET seq = 4 WHERE run = ? AND seq = -1", run),
    )
    code, found = verified()
    assert (code, found["intact"]) == (1, False)
    assert len([line for line in found["changed"] if f"run {run}" in line]) >= 2


def test_a_cut_tail_is_found_against_a_checkpoint(path, lictor, verified):
    """The last entry of a log is gone: only the checkpoint knows that there was one."""
    assert lictor("audit", "checkpoint", "--out", "c.json")[0] == 0
    [(root,)] = ask(path, "SELECT key FROM run WHERE status = 'waiting'")
    alter(
        path,
        (f"DELETE FROM event WHERE root = '{root}' AND cursor = (SELECT max(cursor) FROM event WHERE root = ?)", root),
    )
    assert verified()[0] == 0
    code, found = verified("--checkpoint", "c.json")
    assert (code, found["intact"], found["complete"]) == (1, True, False)
    assert found["missing"][0].startswith(f"run {root}: its tail is cut after entry ")


def test_a_forged_decision_is_found(path, verified):
    """A pending request that somebody approves in the file: the row says so, and no entry does."""
    name, body = body_of(path, "pending")
    body |= {"status": "approved", "resolution": {"verb": "approve", "at": 1.0, "decided_by": {"kind": "human", "id": "ana", "via": "cli"}}}  # fmt: skip # noqa: E501
    alter(path, ("UPDATE request SET status = 'approved', body = ? WHERE key = ?", json.dumps(body).encode(), name))
    code, found = verified()
    assert (code, found["intact"], found["complete"]) == (1, False, True)
    assert found["changed"] == [f"request {name}: it is approved by human:ana, and the log tells nothing of it"]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("decided_by", lambda body: body["resolution"]["decided_by"].update(id="eve")),
        ("at", lambda body: body["resolution"].update(at=1.0)),
        ("content", lambda body: body["resolution"].update(feedback="as you like")),
        ("shown", lambda body: body.update(digest="0" * 64)),
        ("status", lambda body: body.update(status="pending")),
        ("content", lambda body: (body["resolution"].update(value="paid"), body.update(erased=True))),
    ],
)
def test_a_changed_decision_is_found(path, verified, field, change):
    """A decision that was made, made to look like another one."""
    name, body = body_of(path, "approved")
    change(body)
    alter(path, ("UPDATE request SET body = ? WHERE key = ?", json.dumps(body).encode(), name))
    code, found = verified()
    assert (code, found["changed"]) == (1, [f"request {name}: its row was changed, the log tells of another {field}"])


def test_a_deleted_decision_and_a_forged_grant_are_found(path, verified):
    """The row of a decided request is gone; a standing approval appears that nobody gave."""
    name, _ = body_of(path, "approved")
    alter(
        path,
        ("DELETE FROM request WHERE key = ?", name),
        ("INSERT INTO standing SELECT 'grant_forged', replace(body, key, 'grant_forged'), binding FROM standing",),
    )
    code, found = verified()
    assert (code, found["changed"]) == (
        1,
        [
            f"request {name}: a decision is told, and the row is gone",
            "grant grant_forged: the log does not tell of it as it stands",
        ],
    )


def test_one_run_is_checked_by_itself(path, verified, lictor):
    """--run takes the beginning of an id and leaves the others out."""
    [(good,), (bad,)] = ask(path, "SELECT key FROM run ORDER BY status")
    alter(path, ("UPDATE event SET kind = 'nota' WHERE run = ? AND seq = 1", bad))
    assert verified("--run", good[:10])[0] == 0
    code, found = verified("--run", bad)
    assert (code, found["logs"]) == (1, 1)
    assert lictor("audit", "verify", "--run", "nothing")[0] == 2
    assert lictor("audit", "checkpoint", "--out", "c.json")[0] == 0
    alter(path, ("DELETE FROM event WHERE root = ?", good))
    code, found = verified("--run", good, "--checkpoint", "c.json")
    assert (code, [line for line in found["missing"] if f"run {good}: its tail is cut" in line] != []) == (1, True)


def test_a_key_that_is_missing_or_wrong_is_told(path, lictor, key, monkeypatch):
    """One line says which; no verdict is given with the wrong key, and nobody writes with it."""
    wanted = {
        None: "LICTOR_AUDIT_KEY is not the key that the log of this store was written with",
        "secret": "the log of this store is keyed; set LICTOR_AUDIT_KEY to the key it was written with",
    }
    monkeypatch.delenv("LICTOR_AUDIT_KEY", raising=False)
    if key is None:
        monkeypatch.setenv("LICTOR_AUDIT_KEY", "other")
    code, printed, told = lictor("audit", "verify")
    assert (code, printed, told) == (2, "", f"lictor: {wanted[key]}\n")
    code, _, told = lictor("inbox")
    assert (code, "LICTOR_AUDIT_KEY" in told) == (1, True)


def test_a_checkpoint_is_one_or_is_refused(path, lictor, tmp_path):
    """Without --out it is printed; a file that is none, or not there, is wrong usage."""
    printed = json.loads(lictor("audit", "checkpoint")[1])
    assert len(printed["runs"]) == len(ask(path, "SELECT DISTINCT run FROM event"))
    (tmp_path / "x.json").write_text('{"runs": {}}')
    code, _, told = lictor("audit", "verify", "--checkpoint", "x.json")
    assert (code, "is no checkpoint" in told) == (2, True)
    assert lictor("audit", "verify", "--checkpoint", "none.json")[0] == 2


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A store as the first schema wrote it: a run that was approved and completed, and one that waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LICTOR_AUDIT_KEY", raising=False)
    monkeypatch.setenv("LICTOR_STORE", "sqlite:///old.db")
    with closing(sqlite3.connect("old.db")) as db:
        db.executescript(OLD.read_text())
    return tmp_path / "old.db"


async def test_a_store_of_the_first_schema_is_migrated_once_and_goes_on(old, lictor, verified):
    """`lictor migrate` says from and to, is repeatable; the log is intact before and after, and the run goes on."""
    assert verified()[0] == 0
    with pytest.raises(OlderSchema, match="run `lictor migrate`"):
        Runtime("sqlite:///old.db", migrate=False)
    assert json.loads(lictor("migrate", "--json")[1]) == {"store": "sqlite:///old.db", "from": 1, "to": 2}
    assert lictor("migrate")[:2] == (0, "schema 2: nothing to do\n")
    agent = Agent("clerk", model=ScriptedModel([call("refund", order=42), say("Paid.")]), tools=[refund])
    async with Runtime("sqlite:///old.db", definitions={"clerk": agent}, migrate=False) as runtime:
        [(run_id,)] = ask(old, "SELECT key FROM run WHERE status = 'waiting'")
        run = await runtime.resume(run_id, accept_policy_change=True)
        [request] = (await run.result()).requests
        await runtime.docket.decide(request.id, "approve", by="human:ana")
        assert (await run.result("end")).answer == "Paid."
    assert verified()[0] == 0


def test_a_changed_decision_of_an_old_store_is_found(old, verified):
    """From before decisions had logs: the log of the run tells of them."""
    name, body = body_of(old, "approved")
    body["resolution"]["decided_by"]["id"] = "eve"
    alter(old, ("UPDATE request SET body = ? WHERE key = ?", json.dumps(body).encode(), name))
    assert verified()[1]["changed"] == [f"request {name}: its row was changed, the log tells of another decision"]


def test_an_old_store_is_not_migrated_under_another_key(old, lictor, monkeypatch):
    """It does not say which key it has, but its entries do."""
    monkeypatch.setenv("LICTOR_AUDIT_KEY", "other")
    code, _, told = lictor("migrate")
    assert (code, "LICTOR_AUDIT_KEY is not the key" in told) == (1, True)


def test_a_newer_store_is_refused(old, lictor):
    """It is left as it is, and the line says what to do."""
    with closing(sqlite3.connect(old)) as db:
        db.execute("PRAGMA user_version = 99")
    code, _, told = lictor("migrate")
    assert (code, told) == (1, "lictor: store: old.db has schema 99, this Lictor knows 2; upgrade Lictor\n")
