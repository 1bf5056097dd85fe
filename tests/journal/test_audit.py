"""A changed, deleted, swapped, cut or forged log is found, and a whole one is not accused."""

import json
import sqlite3
from contextlib import closing

import pytest

from lictor.errors import StoreError
from lictor.journal import open_store
from lictor.journal.audit import checkpoints, verify
from lictor.journal.chain import link
from lictor.runtime import RUNS, RunRow


@pytest.fixture(params=[None, b"secret"], ids=["plain", "keyed"])
def key(request):
    return request.param


@pytest.fixture
def url(tmp_path, key, monkeypatch):
    """A store with two runs of five entries each, one below the other."""
    if key is not None:
        monkeypatch.setenv("LICTOR_AUDIT_KEY", key.decode())
    url = f"sqlite:///{tmp_path}/s.db"
    with closing(open_store(url)) as store:
        store.table(RUNS)["r"] = RunRow(run_id="r", definition="a", task="go", created=1.0)
        for number in range(5):
            for run in ("r", "child"):
                store.log(run, "r").append("note", {"text": f"{run} {number}"}, float(number))
    return url


def alter(url, *statements):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        for statement, *values in statements:
            assert db.execute(statement, values).rowcount > 0


def test_an_untouched_log_is_intact_and_complete(url, key):
    """Nothing is found in what the store wrote, also against its own checkpoint after JSON and more entries."""
    known = json.loads(json.dumps(checkpoints(url)))
    with closing(open_store(url)) as store:
        store.log("r", "r").append("note", {"text": "more"}, 9.0)
    report = verify(url, audit_key=key, known=known)
    assert (report.intact, report.complete, report.changed, report.missing) == (True, True, (), ())
    assert (report.runs, report.entries, report.erased) == (2, 11, 0)


def test_every_changed_byte_of_every_column_is_found(url, key):
    """Whichever byte of an entry is flipped, the log is not intact, and the entry is named."""
    row = "run = 'child' AND seq = 2"
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        for column in ("payload", "digest", "prev", "hash"):
            ((before,),) = db.execute(f"SELECT {column} FROM event WHERE {row}").fetchall()
            for place in range(len(before)):
                after = bytes([*before[:place], before[place] ^ 1, *before[place + 1 :]])
                db.execute(f"UPDATE event SET {column} = ? WHERE {row}", (after,))
                db.commit()
                report = verify(url, audit_key=key)
                assert not report.intact
                assert "run child, entry 2" in report.changed[0]
                assert report.complete
            db.execute(f"UPDATE event SET {column} = ? WHERE {row}", (before,))
            db.commit()
    assert verify(url, audit_key=key).intact


@pytest.mark.parametrize(
    "change", ["kind = 'nota'", "version = 1", "version = 3", "seq = 7", "cursor = 77", "root = 'q'", "at = at + 0.001"]
)
def test_a_changed_field_is_found(url, key, change):
    """Kind, version, place and time of an entry are part of what is hashed or checked."""
    alter(url, (f"UPDATE event SET {change} WHERE run = 'r' AND seq = 2",))
    assert not verify(url, audit_key=key).intact


def test_a_deleted_entry_is_missing(url, key):
    """A hole in the middle is told as missing, by run and number."""
    alter(url, ("DELETE FROM event WHERE run = 'r' AND seq = 2",))
    report = verify(url, audit_key=key)
    assert not report.complete
    assert report.missing[0] == "run r: entry 2 missing"
    assert report.intact


def test_a_swapped_pair_is_found(url, key):
    """Two entries that changed places are not intact, whole as they are."""
    alter(
        url,
        ("UPDATE event SET seq = -1 WHERE run = 'r' AND seq = 1",),
        ("UPDATE event SET seq = 1 WHERE run = 'r' AND seq = 2",),
        ("UPDATE event SET seq = 2 WHERE run = 'r' AND seq = -1",),
    )
    report = verify(url, audit_key=key)
    assert (report.intact, report.complete) == (False, True)


def test_a_cut_tail_shows_against_a_checkpoint(url, key):
    """The last entries of all are gone: the rest is intact, and a checkpoint says what is missing."""
    known = checkpoints(url)
    alter(url, ("DELETE FROM event WHERE cursor > 8",))
    blind = verify(url, audit_key=key)
    assert (blind.intact, blind.complete) == (True, True)
    report = verify(url, audit_key=key, known=known)
    assert (report.intact, report.complete) == (True, False)
    assert report.missing == (
        "run child: its tail is cut after entry 3, it had come to 4",
        "run r: its tail is cut after entry 3, it had come to 4",
    )


def test_a_deleted_log_is_missing(url, key):
    """A run whose entries are all gone is told by its row, and by a checkpoint."""
    known = checkpoints(url)
    alter(url, ("DELETE FROM event",))
    report = verify(url, audit_key=key, known=known)
    assert "run r: its whole log is missing" in report.missing
    assert "run child: its tail is cut after entry -1, it had come to 4" in report.missing


def test_a_forged_entry_is_found(url, key):
    """An entry that somebody wrote behind the last one, without the hash, does not pass."""
    insert = "INSERT INTO event SELECT root, 99, run, 5, kind, version, at, payload, digest, prev, hash"
    alter(url, (insert + " FROM event WHERE run = 'r' AND seq = 4",))
    assert not verify(url, audit_key=key).intact


def test_a_chain_written_anew_takes_the_key_or_shows_against_a_checkpoint(url, key):
    """Whoever writes the last entry with a fitting plain hash is found by the key, or else by a checkpoint."""
    known = checkpoints(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        ((prev, cursor, at),) = db.execute("SELECT prev, cursor, at FROM event WHERE run = 'r' AND seq = 4").fetchall()
    payload = b'{"text":"never said"}'
    digest, hashed = link(prev, ("r", cursor, "r", 4, "note", at), payload)
    sql = "UPDATE event SET payload = ?, digest = ?, hash = ? WHERE run = 'r' AND seq = 4"
    alter(url, (sql, payload, digest, hashed))
    assert verify(url, audit_key=key).intact is (key is None)
    assert not verify(url, audit_key=key, known=known).intact


def test_the_wrong_key_proves_nothing(url, key):
    """Logs written with one key are not intact under another, or under none."""
    assert not verify(url, audit_key=b"another").intact
    assert verify(url).intact is (key is None)
    assert verify(url, audit_key=b"another").key == "wrong"
    assert verify(url).key == ("ok" if key is None else "missing")
    assert verify(url, audit_key=key).key == "ok"


def test_an_erased_payload_leaves_the_log_intact(url, key):
    """Retention takes content away; the digest stays, and the number of such entries is told."""
    alter(url, ("UPDATE event SET payload = NULL WHERE run = 'r' AND seq = 2",))
    report = verify(url, audit_key=key)
    assert (report.intact, report.complete, report.erased) == (True, True, 1)


def test_a_file_that_cannot_be_read_is_no_verdict(tmp_path):
    """A missing file and one that is no database raise StoreError, and nothing is made."""
    with pytest.raises(StoreError, match="no such file"):
        verify(f"sqlite:///{tmp_path}/none.db")
    (tmp_path / "text.db").write_text("hello, this is no database at all" * 100)
    with pytest.raises(StoreError, match="no SQLite database"):
        verify(f"sqlite:///{tmp_path}/text.db")
    assert not (tmp_path / "none.db").exists()
