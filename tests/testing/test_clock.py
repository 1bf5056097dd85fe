"""The virtual clock: order, jumps, and everything that must keep it from jumping."""

import asyncio
import datetime
import os
import socket
import sys
import threading
import time

import pytest

from lictor.testing.clock import VirtualClock
from lictor.testing.idle import busy_threads
from lictor.values import Clock

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


async def note(clock, log, name, seconds, **options):
    await clock.sleep(seconds, **options)
    log.append((name, clock.monotonic()))


async def stays(clock, task, seconds=0.05):
    """Let real time pass and tell that the sleeper stayed asleep."""
    before = clock.now()
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, seconds)
    assert not task.done()
    assert clock.now() == before


def test_it_starts_where_it_is_told():
    """A clock stands at its start, to the millisecond, and is a Clock."""
    clock = VirtualClock()
    assert isinstance(clock, Clock)
    assert (clock.now(), clock.monotonic()) == (1767225600.0, 0.0)
    assert clock.timestamp() == "2026-01-01T00:00:00.000Z"
    assert VirtualClock("2026-06-19T16:03:11.123+02:00").timestamp() == "2026-06-19T14:03:11.123Z"
    assert VirtualClock(12.5).now() == 12.5
    for wrong in ("2026-01-01T00:00:00", "tomorrow"):
        with pytest.raises(ValueError, match=r"time zone|Invalid"):
            VirtualClock(wrong)


async def test_time_jumps_when_every_task_waits():
    """A year of sleep takes no time; what was written in order happens in order of time."""
    clock, log = VirtualClock(), []
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for name, seconds in [("year", YEAR), ("hour", HOUR), ("second", 1), ("also", 1)]:
            group.create_task(note(clock, log, name, seconds))
    assert log == [("second", 1), ("also", 1), ("hour", HOUR), ("year", YEAR)]
    assert time.monotonic() - began < 5
    assert clock.timestamp() == "2027-01-01T00:00:00.000Z"


async def test_a_task_that_works_is_waited_for():
    """Time stands still while a task still has something to do."""
    clock, log = VirtualClock(), []

    async def work():
        for _ in range(1000):
            await asyncio.sleep(0)
        log.append(("work", clock.monotonic()))

    await asyncio.gather(note(clock, log, "sleeper", 1), work())
    assert log == [("work", 0), ("sleeper", 1)]


async def test_zero_only_lets_others_run():
    """Sleeping for nothing, or less, does not move the clock."""
    clock = VirtualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


async def test_advance_wakes_in_order_and_lets_the_loop_settle():
    """Each sleeper has done all it can do at its instant before the next one wakes."""
    clock, log = VirtualClock(autojump=False), []

    async def chain(name, *seconds):
        for each in seconds:
            await clock.sleep(each)
            for _ in range(50):
                await asyncio.sleep(0)
            log.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(chain("a", 1, 1, 1))
        group.create_task(chain("b", 2.5))
        late = group.create_task(chain("c", 10))
        await clock.advance(datetime.timedelta(seconds=5))
        assert log == [("a", 1), ("a", 2), ("b", 2.5), ("a", 3)]
        assert clock.monotonic() == 5
        assert not late.done()
        await clock.advance(5)
        assert log[-1] == ("c", 10)
    assert late.done()


async def test_advance_stops_before_what_is_later():
    """A clock that was told to move on by a minute stands a minute later, and a second is no hour."""
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(60.001))
    await clock.advance(60)
    assert clock.monotonic() == 60
    assert not task.done()
    await clock.advance(0.001)
    assert task.done()
    with pytest.raises(ValueError, match="does not go back"):
        await clock.advance(-1)


async def test_advance_waits_for_worker_threads():
    """What a sleeper starts in a thread is done before the next instant."""
    clock, log = VirtualClock(autojump=False), []

    async def work():
        await clock.sleep(1)
        await asyncio.to_thread(time.sleep, 0.03)
        log.append(clock.monotonic())
        await clock.sleep(1)
        log.append(clock.monotonic())

    task = asyncio.create_task(work())
    await clock.advance(10)
    assert log == [1, 2]
    await task


async def test_it_never_jumps_over_a_deadline():
    """A deadline passes only by `advance`; what lies before it, or after it has passed, is jumped to."""
    clock, log = VirtualClock(), []
    deadline = asyncio.create_task(note(clock, log, "deadline", HOUR, jump=False))
    await note(clock, log, "before", 10)
    same = asyncio.create_task(note(clock, log, "same", HOUR - 10))
    after = asyncio.create_task(note(clock, log, "after", 2 * HOUR))
    await stays(clock, same)
    assert not deadline.done()
    await clock.advance(HOUR - 10)
    assert log == [("before", 10), ("deadline", HOUR), ("same", HOUR)]
    await after
    assert log[-1] == ("after", 2 * HOUR + 10)


async def test_it_never_jumps_while_a_thread_works():
    """Work in an executor, its own or another, keeps time still, and so does a queue before it."""
    clock, gate = VirtualClock(), threading.Event()
    task = asyncio.create_task(clock.sleep(HOUR))
    work = asyncio.create_task(asyncio.to_thread(gate.wait))
    await asyncio.sleep(0)
    await stays(clock, task)
    gate.set()
    await task
    await work
    assert busy_threads() == []


async def test_it_never_jumps_while_a_busy_thread_lives():
    """A thread with a true attribute `busy` counts, one without does not."""
    clock, gate = VirtualClock(), threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        await clock.sleep(1)
        thread.busy = True
        assert busy_threads() == [thread]
        task = asyncio.create_task(clock.sleep(HOUR))
        await stays(clock, task)
        thread.busy = False
        await task
    finally:
        gate.set()
        thread.join()


async def test_it_never_jumps_while_a_socket_is_connected():
    """A connection may bring something at any moment; a listening socket alone does not."""
    clock, served = VirtualClock(), []

    async def serve(reader, writer):
        served.append(await reader.readline())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    await clock.sleep(1)  # listening is no work
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    task = asyncio.create_task(clock.sleep(HOUR))
    await stays(clock, task)
    writer.write(b"x\n")
    writer.close()
    await writer.wait_closed()
    await task
    assert served == [b"x\n"]
    server.close()
    await server.wait_closed()


async def test_a_reader_without_transport_counts_too():
    """A socket watched by `add_reader`, as database drivers do, keeps time still."""
    clock = VirtualClock()
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    with here, there:
        arrived = loop.create_future()
        loop.add_reader(here, lambda: arrived.done() or arrived.set_result(None))
        task = asyncio.create_task(clock.sleep(HOUR))
        await stays(clock, task)
        there.send(b"x")
        await arrived
        loop.remove_reader(here)
        await task


async def test_it_never_jumps_while_a_child_process_is_awaited():
    """A process that somebody waits for keeps time still, with or without pipes."""
    read, write = os.pipe()
    for stdin in (asyncio.subprocess.PIPE, read):
        clock = VirtualClock()
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        child = await asyncio.create_subprocess_exec(*command, stdin=stdin)
        task = asyncio.create_task(clock.sleep(HOUR))
        await stays(clock, task)
        if child.stdin is None:
            os.close(write)
        else:
            child.stdin.close()
        assert await child.wait() == 0
        await task
    os.close(read)


async def test_it_never_jumps_while_a_task_really_sleeps():
    """A real `asyncio.sleep` is waited for; an `asyncio.timeout` is a guard and is not."""
    clock, log = VirtualClock(), []
    async with asyncio.timeout(30):
        await clock.sleep(HOUR)

    async def really():
        await asyncio.sleep(0.02)  # budget: a real sleep is what this test is about
        log.append(("real", clock.monotonic()))

    await asyncio.gather(really(), note(clock, log, "virtual", 1))
    assert log == [("real", HOUR), ("virtual", HOUR + 1)]


async def test_hold_keeps_it_still():
    """Work that the clock cannot see holds it."""
    clock = VirtualClock()
    with clock.hold():
        task = asyncio.create_task(clock.sleep(1))
        await stays(clock, task)
    await task


async def test_advance_goes_on_beside_an_open_connection():
    """`next_sleep` and `advance` move a clock that a kept connection holds."""
    clock = VirtualClock()
    here, there = socket.socketpair()
    with here, there:
        asyncio.get_running_loop().add_reader(here, lambda: None)
        waiting = asyncio.create_task(clock.next_sleep())
        await asyncio.sleep(0)
        assert not waiting.done()
        task = asyncio.create_task(clock.sleep(30))
        assert await waiting == 30
        assert await clock.next_sleep() == 30
        await clock.advance(30)
        assert task.done()
        asyncio.get_running_loop().remove_reader(here)


async def test_a_thread_that_hangs_does_not_stop_advance():
    """A worker that never ends is given a quarter of a second for each instant, no more."""
    clock, gate = VirtualClock(), threading.Event()
    work = asyncio.create_task(asyncio.to_thread(gate.wait))
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    await clock.advance(1)
    assert task.done()
    assert not work.done()
    gate.set()
    await work


async def test_a_cancelled_sleeper_is_forgotten():
    """Time does not stop where a cancelled sleeper would have woken."""
    clock, log = VirtualClock(), []
    task = asyncio.create_task(note(clock, log, "cancelled", 1))
    deadline = asyncio.create_task(clock.sleep(2, jump=False))
    await asyncio.sleep(0)
    task.cancel()
    deadline.cancel()
    await note(clock, log, "kept", 5)
    assert log == [("kept", 5)]
    assert task.cancelled()
    advance = asyncio.create_task(clock.advance(1))
    await asyncio.sleep(0)
    advance.cancel()
    await asyncio.gather(advance, return_exceptions=True)
    await clock.sleep(1)  # a cancelled advance leaves the clock free


async def test_a_timeout_on_the_clock_cancels_in_time():
    """A race of two sleepers ends at the earlier one and leaves nothing behind."""
    clock = VirtualClock()
    done, pending = await asyncio.wait(
        [asyncio.create_task(clock.sleep(5)), asyncio.create_task(clock.sleep(50))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert (len(done), clock.monotonic()) == (1, 5)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)


def test_one_clock_serves_loops_one_after_the_other():
    """A loop that ended with sleepers left does not hold up the next one."""
    clock = VirtualClock()

    async def leaves_one():
        task = asyncio.create_task(clock.sleep(5, jump=False))
        await clock.sleep(1)
        return task

    asyncio.run(leaves_one())
    asyncio.run(clock.sleep(100))
    assert clock.monotonic() == 101


@pytest.mark.parametrize("way", ["thread", "executor"])
def test_one_clock_serves_two_loops_at_once(way):
    """Time jumps only when both loops wait, and each sleeper wakes in its own loop, in order."""
    clock, log = VirtualClock(), []
    both = threading.Barrier(2)

    async def sleeper(name, pauses, work):
        await clock.sleep(0)  # from now on the clock knows this loop
        both.wait()
        for pause in pauses:
            await clock.sleep(pause)
            for _ in range(work):  # the loop is busy; the other one must not run ahead
                await asyncio.sleep(0)
            log.append((clock.monotonic(), name))

    def other():
        asyncio.run(sleeper("b", [2, 2, 2], 2000))

    async def main():
        if way == "executor":
            await asyncio.gather(asyncio.to_thread(other), sleeper("a", [1, 2, 2], 0))
        else:
            await sleeper("a", [1, 2, 2], 0)

    thread = threading.Thread(target=other)
    if way == "thread":
        thread.start()
    asyncio.run(main())
    if way == "thread":
        thread.join()
    assert log == [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a"), (6, "b")]


async def test_two_clocks_share_a_loop():
    """Two clocks in one loop are independent of each other."""
    one, two = VirtualClock(), VirtualClock()
    await asyncio.gather(one.sleep(5), two.sleep(7))
    assert (one.monotonic(), two.monotonic()) == (5, 7)


async def test_another_kind_of_loop_is_refused():
    """Where idleness cannot be seen, the first sleep says so instead of hanging."""

    class Bare(asyncio.AbstractEventLoop):
        pass

    from lictor.testing.idle import IdleLoop

    with pytest.raises(RuntimeError, match="not Bare"):
        IdleLoop(Bare())
