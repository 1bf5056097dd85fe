"""What a reader was told before a kill is still there after it, at the same cursor, and nothing is told twice."""

import asyncio
import contextlib
import signal

import pytest
from shopfloor import Shop, agent_like_the_workers, holds

from lictor import Runtime

pytestmark = pytest.mark.crash

POINTS = [
    "intent.before",
    "intent.after",
    "effect.after",
    "effect.after:1",
    "intent.before:1",
    "append.before:2",
    "append.before:5",
    "append.after:5",
    "append.after:8",
    "park.before",
    "park.after",
    "effect.after:3",
    "finish.before",
    "finish.after",
]


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


def lines(events):
    return [f"{event.cursor} {event.kind} {event.seq}" for event in events]


@pytest.mark.parametrize("point", POINTS)
async def test_a_reader_goes_on_where_a_killed_process_stopped_telling(shop, point):
    """What the killed process printed is in the file; with its last cursor the rest comes, without gap or double."""
    first = shop.worker("tell", LICTOR_CRASH_AT=point)
    await shop.decide_until(first)
    assert first.returncode == -signal.SIGKILL
    told = [line for line in first.communicate()[0].split("\n")[1:] if line]
    second = shop.worker("start")
    await shop.decide_until(second)
    assert second.communicate()[0].split("\n")[1] == "completed All done."
    async with Runtime(shop.url, definitions={"clerk": agent_like_the_workers()}, drive=False) as runtime:
        run = await runtime.run(runtime._rows.values()[0].run_id)
        every = lines([event async for event in run.events()])
        assert every[: len(told)] == told
        after = told[-1].split()[0] if told else None
        assert lines([event async for event in run.events(after=after)]) == every[len(told) :]
    assert told or point.startswith(("intent", "append", "effect.after"))
    await holds(shop)


@pytest.mark.parametrize("point", ["effect.after", "effect.after:2", "append.before:5", "park.after", "finish.before"])
async def test_a_reader_in_another_process_sees_the_run_across_a_kill(shop, point):
    """It follows a run that it does not drive, as it goes on, through the death of one driver and the next one."""
    first = shop.worker("start", LICTOR_CRASH_AT=point)
    seen = []
    async with (
        asyncio.timeout(30),
        Runtime(shop.url, definitions={"clerk": agent_like_the_workers()}, drive=False) as web,
    ):
        while not web._rows.values():  # noqa: ASYNC110 - the other side is another process
            await asyncio.sleep(0.01)  # budget: the other side is a real process
        run = await web.run(web._rows.values()[0].run_id)

        async def follow():
            async for event in run.events(follow=True):
                seen.append(event)

        async with asyncio.TaskGroup() as group:
            group.create_task(follow())
            await shop.decide_until(first)
            assert first.returncode == -signal.SIGKILL
            while not seen:  # noqa: ASYNC110 - events come from another process
                await asyncio.sleep(0.01)  # budget: the other side is a real process
            before = len(seen)
            second = shop.worker("start")
            await shop.decide_until(second)
        assert 0 < before < len(seen)
        assert lines(seen) == lines([event async for event in run.events()])
    await holds(shop)


async def test_a_reader_in_another_process_is_told_at_once(shop):
    """The start of a slow tool is told while the tool still runs, to a process that drives nothing."""
    first = shop.worker("start", SLOW="3")
    async with asyncio.timeout(30), Runtime(shop.url, drive=False) as web:
        while not web._rows.values():  # noqa: ASYNC110 - the other side is another process
            await asyncio.sleep(0.01)  # budget: the other side is a real process
        run = await web.run(web._rows.values()[0].run_id)
        async with contextlib.aclosing(run.events(follow=True)) as events:
            async for event in events:
                if event.kind == "tool_started" and event.payload["tool"] == "send":
                    break
        assert [entry.kind for entry in web.store.entries(run.id)].count("tool_finished") == 2  # look and mark
        await shop.decide_until(first)
