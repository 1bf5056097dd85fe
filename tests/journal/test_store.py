"""What every store promises, over both of them; and what only a file can show."""

import asyncio
import contextlib
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from lictor.errors import DefinitionError, LostLease
from lictor.journal import MemoryStore, Table, new_owner, open_store, retire
from lictor.runtime import RUNS, RunRow

LEASE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A row for tests, in a table that the schema has."""

    id: str
    root: str
    due: float | None = None


THINGS = Table(name="signal", kind=Thing, columns={"root_run": lambda row: row.root})


def root_row(run_id="r", **fields):
    return RunRow(run_id=run_id, definition="agent", task="go", created=1.0, **fields)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    """One store of each kind, with a root run in it."""
    with closing(open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db")) as opened:
        opened.table(RUNS)["r"] = root_row()
        yield opened


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture
def pair(url):
    """Two store objects of one file, as two processes have them, with a root run in it."""
    with closing(open_store(url)) as first, closing(open_store(url)) as second:
        first.table(RUNS)["r"] = root_row()
        yield first, second


@pytest.fixture
def owners():
    names = [new_owner(), new_owner()]
    yield names
    for name in names:
        retire(name)


def append(store, *kinds, run="r", root="r"):
    log = store.log(run, root)
    return [log.append(kind, {"kind": kind}, 1.0) for kind in kinds]


def kinds(store, run="r"):
    return [entry.kind for entry in store.entries(run)]


# ---- both stores


def test_entries_come_back_in_order_and_behind_a_position(store):
    """What was appended is read at once, whole or behind a sequence number, with payload and time."""
    store.log("r", "r").append("first", {"a": [1, {"b": "ü"}]}, 2.5)
    append(store, "second", "third")
    first = store.entries("r")[0]
    assert (first.seq, first.kind, first.payload["a"][1]["b"], first.at) == (0, "first", "ü", 2.5)
    assert [entry.seq for entry in store.entries("r")] == [0, 1, 2]
    assert [entry.kind for entry in store.entries("r", after=0)] == ["second", "third"]
    assert list(store.entries("nobody")) == []


def test_the_cursor_counts_over_all_runs_below_a_root(store):
    """Entries of a root and its children have one order, also behind a cursor."""
    append(store, "a")
    append(store, "b", run="child")
    append(store, "c")
    found = store.root_entries("r")
    assert [(item.cursor, item.run_id, item.entry.kind) for item in found] == [
        (1, "r", "a"),
        (2, "child", "b"),
        (3, "r", "c"),
    ]
    assert [item.entry.kind for item in store.root_entries("r", after=2)] == ["c"]


def test_a_watcher_hears_each_append_below_its_root_until_it_stops(store):
    """Appends of the root and of children are told, those of other roots and later ones are not."""
    heard = []
    append(store, "before")
    stop = store.watch("r", lambda entry: heard.append(entry.kind))
    append(store, "a")
    append(store, "b", run="child")
    append(store, "elsewhere", run="other", root="other")
    stop()
    append(store, "after")
    assert heard == ["a", "b"]


def test_rows_are_added_once_replaced_found_and_removed(store):
    """`add` keeps the first row, assignment replaces it in its place, `find` reads columns, `remove` forgets."""
    rows = store.table(THINGS)
    one, two = Thing(id="1", root="r"), Thing(id="2", root="q")
    assert rows.add("1", one) == one
    assert rows.add("1", two) == one
    rows["2"] = two
    rows["1"] = replace(one, due=3.0)
    assert rows.values() == [replace(one, due=3.0), two]
    assert list(rows) == ["1", "2"]
    assert rows.find(root_run="q") == [two]
    assert rows.find(root_run="nobody") == []
    assert rows.find() == rows.values()
    with pytest.raises(KeyError):
        rows.find(nothing=1)
    rows.remove("1")
    rows.remove("1")
    assert "1" not in rows
    assert rows.get("1") is None
    with pytest.raises(KeyError):
        rows["1"]


def test_swap_is_a_compare_and_set(store):
    """Only who knows the row as it stands may replace it."""
    rows = store.table(THINGS)
    before = rows.add("1", Thing(id="1", root="r", due=5))
    after = replace(before, due=6)
    assert rows.swap("1", before, after)
    assert not rows.swap("1", before, replace(before, due=7))
    assert not rows.swap("nobody", before, after)
    assert rows["1"].due == 6


def test_a_lease_is_held_by_one_driver_until_it_is_given_back_or_runs_out(store, owners):
    """A claim of another driver waits for the release or the end of the lease."""
    ours, theirs = owners
    assert store.claim("r", ours, 100.0, LEASE)
    assert store.claim("r", ours, 101.0, LEASE)
    assert not store.claim("r", theirs, 102.0, LEASE)
    assert store.holder("r", 102.0) == ours
    store.release("r", theirs)
    assert store.holder("r", 102.0) == ours
    store.release("r", ours)
    assert store.holder("r", 102.0) is None
    assert store.claim("r", theirs, 102.0, LEASE)
    assert store.claim("r", ours, 108.0, LEASE)
    assert store.holder("r", 108.0) == ours


def test_a_renewed_lease_goes_on_and_that_of_a_dead_driver_does_not(store, owners):
    """Renewal prolongs every lease of its owner; a driver known to be gone holds nothing."""
    ours, theirs = owners
    store.claim("r", ours, 100.0, LEASE)
    store.renew(ours, 104.0, LEASE)
    assert not store.claim("r", theirs, 108.0, LEASE)
    retire(ours)
    assert store.holder("r", 108.0) is None
    assert store.claim("r", theirs, 108.0, LEASE)


def test_what_is_woken_is_seen_by_its_driver_or_by_anybody(store, owners):
    """A woken run is its driver's; without one everybody sees it; a claim takes the mark away."""
    ours, theirs = owners
    store.table(RUNS)["r"] = root_row(status="waiting")
    assert store.woken(ours, 100.0) == []
    store.wake("r")
    assert store.woken(ours, 100.0) == ["r"]
    store.claim("r", ours, 100.0, LEASE)
    assert store.woken(ours, 100.0) == []
    store.wake("r")
    assert store.woken(ours, 100.0) == ["r"]
    assert store.woken(theirs, 100.0) == []
    assert store.woken(theirs, 106.0) == ["r"]


def test_a_run_under_way_without_a_driver_is_an_orphan(store, owners):
    """It is listed for everybody without being woken; one that is driven or over is not."""
    ours, theirs = owners
    assert store.woken(ours, 100.0) == ["r"]
    store.claim("r", theirs, 100.0, LEASE)
    assert store.woken(ours, 100.0) == []
    store.release("r", theirs)
    store.table(RUNS)["r"] = root_row(status="completed")
    assert store.woken(ours, 100.0) == []


def test_a_driver_that_died_right_after_its_claim_takes_no_wake_up_with_it(store, owners):
    """A waiting run that was woken and claimed is an orphan when its driver is gone."""
    ours, theirs = owners
    store.table(RUNS)["r"] = root_row(status="waiting")
    store.wake("r")
    store.claim("r", theirs, 100.0, LEASE)
    assert store.woken(ours, 100.0) == []
    retire(theirs)
    assert store.woken(ours, 100.0) == ["r"]


def test_something_can_be_added_from_beside_a_run_that_nobody_drives(store):
    """The entry goes behind the others, and a later log goes on behind it."""
    append(store, "a")
    assert store.append_outside("r", "r", "refused", {"by": "ana"}, 2.0)
    append(store, "b")
    assert kinds(store) == ["a", "refused", "b"]
    assert [entry.seq for entry in store.entries("r")] == [0, 1, 2]


def test_an_unknown_url_is_refused_with_what_to_write():
    """A URL that names no store says which ones there are."""
    for wrong in ("postgres://x", "sqlite:", "sqlite:///", "sqlite://x.db"):
        with pytest.raises(DefinitionError, match=r"sqlite:///file\.db"):
            open_store(wrong)


# ---- the file


def test_everything_is_there_after_closing_and_opening(url):
    """Entries, order, rows and leases are in the file."""
    with closing(open_store(url)) as store:
        store.table(RUNS)["r"] = root_row(key="k", limits={"max_steps": 3})
        append(store, "a")
        append(store, "b", run="child")
    with closing(open_store(url)) as store:
        assert store.table(RUNS)["r"] == root_row(key="k", limits={"max_steps": 3})
        assert store.table(RUNS).find(start_key="k") == [store.table(RUNS)["r"]]
        assert [item.entry.kind for item in store.root_entries("r")] == ["a", "b"]
        append(store, "c")
        assert [item.cursor for item in store.root_entries("r")] == [1, 2, 3]


def test_a_second_process_sees_entries_rows_and_is_told(pair):
    """What one store object wrote is read by the other, whatever that one read before, and it is told soon."""
    first, second = pair
    told = threading.Event()
    second.on_change(told.set)
    told.wait(0.2)
    told.clear()
    assert kinds(second) == []
    assert second.log("r", "r").size == 0
    append(first, "a")
    asyncio.run(first.barrier("r"))
    assert told.wait(2.0)
    assert kinds(second) == ["a"]
    assert second.log("r", "r").size == 1
    row = replace(root_row(), status="waiting")
    first.table(RUNS)["r"] = row
    assert second.table(RUNS)["r"] == row


def test_what_nobody_waits_for_is_written_soon_all_the_same(pair):
    """An append without a barrier reaches the file by the writer thread."""
    first, second = pair
    told = threading.Event()
    second.on_change(told.set)
    append(first, "a")
    while kinds(second) != ["a"]:
        assert told.wait(2.0)
        told.clear()


def test_a_driver_that_lost_its_lease_writes_nothing_any_more(pair, owners):
    """Its queued and later entries are dropped, its barrier and its transactions raise LostLease."""
    (first, second), (ours, theirs) = pair, owners
    first.claim("r", ours, 100.0, LEASE)
    log = first.log("r", "r")
    log.append("before", {}, 100.0)
    asyncio.run(first.barrier("r"))
    assert second.claim("r", theirs, 106.0, LEASE)
    append(second, "taken over")
    asyncio.run(second.barrier("r"))
    log.append("late", {}, 107.0)
    with pytest.raises(LostLease):
        asyncio.run(first.barrier("r"))
    assert first.lost("r")
    log.append("later", {}, 108.0)
    with pytest.raises(LostLease), first.transaction("r"):
        first.table(RUNS)["r"] = root_row(status="completed")
    assert kinds(first) == kinds(second) == ["before", "taken over"]
    assert second.table(RUNS)["r"].status == "queued"
    asyncio.run(second.barrier("r"))
    assert not second.lost("r")


def test_a_driver_that_lost_its_lease_and_takes_it_again_goes_on_behind_the_other(pair, owners):
    """A new claim reads the log anew; nothing of the lost time is in it."""
    (first, second), (ours, theirs) = pair, owners
    first.claim("r", ours, 100.0, LEASE)
    first.log("r", "r").append("before", {}, 100.0)
    asyncio.run(first.barrier("r"))
    second.claim("r", theirs, 106.0, LEASE)
    append(second, "other")
    second.release("r", theirs)
    first.log("r", "r").append("lost", {}, 107.0)
    with pytest.raises(LostLease):
        asyncio.run(first.barrier("r"))
    assert first.claim("r", ours, 108.0, LEASE)
    append(first, "again")
    asyncio.run(first.barrier("r"))
    assert kinds(second) == ["before", "other", "again"]
    assert [item.cursor for item in second.root_entries("r")] == [1, 2, 3]


def test_losing_one_root_leaves_the_others_alone(pair, owners):
    """The same store goes on writing the log of a root it still holds."""
    (first, second), (ours, theirs) = pair, owners
    first.table(RUNS)["q"] = root_row("q")
    for root in ("r", "q"):
        first.claim(root, ours, 100.0, LEASE)
    second.claim("r", theirs, 106.0, LEASE)
    append(first, "dropped")
    append(first, "kept", run="q", root="q")
    asyncio.run(first.barrier("q"))
    assert (kinds(second), kinds(second, "q")) == ([], ["kept"])


def test_nothing_is_added_from_beside_a_run_that_another_process_drives(pair, owners):
    """Only its driver writes its log; when the driver has given it back, others may, in turns."""
    (first, second), (ours, _) = pair, owners
    first.claim("r", ours, 100.0, LEASE)
    append(first, "a")
    assert not second.append_outside("r", "r", "refused", {}, 101.0)
    first.release("r", ours)
    for number in range(4):
        assert (first, second)[number % 2].append_outside("r", "r", f"outside {number}", {}, 102.0)
    assert kinds(first) == kinds(second) == ["a", *(f"outside {number}" for number in range(4))]


def test_a_failed_block_takes_its_own_away_and_leaves_what_was_queued(pair):
    """Rows and entries of the block are gone; entries from before are written once, with the next write."""
    first, second = pair
    append(first, "before")
    with contextlib.suppress(ZeroDivisionError), first.transaction():
        first.table(RUNS)["x"] = root_row("x")
        append(first, "within", run="x", root="x")
        raise ZeroDivisionError
    append(first, "after")
    asyncio.run(first.barrier("r"))
    assert kinds(second) == ["before", "after"]
    assert kinds(second, "x") == kinds(first, "x") == []
    assert "x" not in second.table(RUNS)


def test_rows_and_entries_of_a_block_are_seen_together(pair):
    """Until the end of the block the other process sees neither, then both."""
    first, second = pair
    with first.transaction():
        first.table(RUNS)["x"] = root_row("x")
        append(first, "within", run="x", root="x")
        with first.transaction():
            first.table(THINGS)["1"] = Thing(id="1", root="x")
        assert "x" not in second.table(RUNS)
        assert second.table(THINGS).values() == []
    assert kinds(second, "x") == ["within"]
    assert "x" in second.table(RUNS)
    assert second.table(THINGS).find(root_run="x") == [Thing(id="1", root="x")]


def test_a_lease_given_back_in_a_failed_block_is_still_held(pair, owners):
    """The fence goes on holding after a rollback, so that a take-over is noticed."""
    (first, second), (ours, theirs) = pair, owners
    first.claim("r", ours, 100.0, LEASE)
    log = first.log("r", "r")
    with contextlib.suppress(ZeroDivisionError), first.transaction("r"):
        first.release("r", ours)
        raise ZeroDivisionError
    assert second.holder("r", 101.0) == ours
    second.claim("r", theirs, 106.0, LEASE)
    log.append("late", {}, 107.0)
    with pytest.raises(LostLease):
        asyncio.run(first.barrier("r"))
    assert kinds(second) == []


def test_appends_beside_the_writer_thread_are_neither_lost_nor_doubled(url):
    """Many small appends with a thread that takes them all the time end up in the file, in order."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with closing(open_store(url)) as store:
            flushing, over = [], threading.Event()

            def flush():
                while not over.is_set():
                    store.flush()
                    flushing.append(1)

            thread = threading.Thread(target=flush)
            thread.start()
            log = store.log("r", "r")
            for number in range(5_000):
                log.append("e", {"number": number}, 1.0)
            over.set()
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert flushing
    with closing(open_store(url)) as store:
        assert [entry.payload["number"] for entry in store.entries("r")] == list(range(5_000))


def test_two_writers_of_two_roots_do_not_disturb_each_other(pair):
    """Both write at once through their own connection; each finds its log whole."""
    first, second = pair

    def write(store, root):
        for number in range(100):
            append(store, f"e{number}", run=root, root=root)
            store.flush()

    threads = [threading.Thread(target=write, args=(store, root)) for store, root in ((first, "a"), (second, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds(second, "a") == kinds(first, "b") == [f"e{number}" for number in range(100)]


def test_a_memory_store_outlives_its_closing():
    """Another Runtime may go on with it."""
    store = MemoryStore()
    append(store, "a")
    store.close()
    assert kinds(store) == ["a"]
