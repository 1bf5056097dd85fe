"""Workers killed or stopped at every named point: nothing is lost, nothing happens twice."""

import asyncio
import contextlib
import signal

import pytest
from scenarios import die, restarted, zombie
from shopfloor import Shop, effects_fit, holds, stopped, wait_for

from lictor import Runtime

pytestmark = pytest.mark.crash

LEASE = 0.6  # of the workers
TWICE = ("look", "mark")
# Where a worker dies, and the tools whose effect may be there twice: those that may be repeated.
POINTS = {
    "submit.before": (),
    "submit.after": (),
    "claim.before_first_step": (),
    "intent.before": ("look",),  # the result of what may be repeated is written within some milliseconds
    "intent.after": (),
    "effect.before": (),
    "effect.after": ("look",),
    "intent.before:1": ("mark",),
    "intent.after:1": (),
    "effect.before:2": (),
    "effect.after:1": ("mark",),
    "effect.after:2": (),
    "park.before": (),
    "park.after": (),
    "claim.before_first_step:1": (),
    "intent.before:2": (),
    "intent.after:2": (),
    "effect.before:3": (),
    "effect.after:3": (),
    "finish.before": (),
    "finish.after": (),
    "append.before": (),
    "append.before:3": TWICE,
    "append.before:6": TWICE,
    "append.before:9": TWICE,
    "append.after:3": TWICE,
    "append.after:6": TWICE,
    "append.after:9": TWICE,
}

# The same worker again: where it differs from another one, which is told nothing.
SAME_WORKER = [point for point in POINTS if not point.startswith(("intent", "effect"))]
UNSUBMITTED = ("submit.before", "append.before")
SAME_WORKER += ["effect.after", "effect.after:2"]


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("point", SAME_WORKER)
async def test_a_restarted_worker_finishes_what_the_killed_one_began(shop, point):
    """The same start in a new process gives the same run, with each effect as often as it may be."""
    await restarted(shop, point, POINTS[point])


@pytest.mark.parametrize("point", [point for point in POINTS if point not in UNSUBMITTED])
async def test_a_worker_that_was_already_open_adopts_what_the_killed_one_began(shop, point):
    """Another process takes the run over without being told, and finishes it."""
    await die_with_peer(shop, point)
    effects_fit(shop, POINTS[point])
    assert (await holds(shop)).answer == "All done."


async def die_with_peer(shop, point):
    # The peer must be idle while the first one works: it is stopped until that one is dead.
    peer = shop.worker("serve")
    assert peer.stdout.readline() == "open\n"
    peer.send_signal(signal.SIGSTOP)
    await die(shop, point)
    peer.send_signal(signal.SIGCONT)
    await shop.decide_until(peer)
    assert peer.communicate()[0] == "completed All done.\n"


async def test_a_once_tool_killed_after_its_effect_is_asked_about_and_not_repeated(shop):
    """Somebody who looks says skip; the effect is there once, and the question was asked once."""
    await die(shop, "effect.after:2")
    process = shop.worker("start")
    await shop.decide_until(process)
    assert shop.asked.count(("unknown_effect", "send", "skip")) == 1
    assert shop.done()["send"] == 1


async def test_a_once_tool_killed_before_its_effect_is_asked_about_and_run_on_retry(shop):
    """Somebody who looks says retry; the effect is there once."""
    await die(shop, "intent.after:1")
    process = shop.worker("start")
    await shop.decide_until(process)
    assert shop.asked.count(("unknown_effect", "send", "retry")) == 1
    assert shop.done()["send"] == 1


# Where a worker is stopped, and the tools whose effect may be there twice.
STOPS = {
    "claim.before_first_step": (),
    "written claim.before_first_step": (),
    "intent.before:1": ("mark",),
    "written intent.before:1": (),
    "effect.after:2": (),
    "park.before": (),
    "written park.before": (),
    "park.after": (),
    "claim.before_first_step:1": (),
    "written intent.before:2": (),
    "finish.before": (),
    "written finish.before": (),
}


@pytest.mark.parametrize("point", STOPS)
async def test_a_worker_stopped_beyond_its_lease_writes_nothing_when_it_goes_on(shop, point):
    """The other worker takes over and finishes; the first one wakes up, tells the same end, and changed nothing."""
    await zombie(shop, point, STOPS[point])


@pytest.mark.parametrize("stop", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_run_has_a_new_driver_within_two_leases(shop, stop):
    """From the last sign of life of its driver on."""
    first = shop.worker("start", LICTOR_PAUSE_AT="effect.before:1")
    await asyncio.to_thread(wait_for, lambda: stopped(first.pid))
    async with Runtime(shop.url, drive=False) as runtime:
        [run_id] = runtime._rows
        owner, lease = runtime.store.read("SELECT owner, lease FROM run")[0]
        second = shop.worker("serve")
        assert second.stdout.readline() == "open\n"
        since = max(lease - LEASE, runtime.clock.now())
        first.send_signal(stop)
        await asyncio.to_thread(wait_for, lambda: runtime.store.read("SELECT owner FROM run")[0][0] != owner)
        assert runtime.clock.now() - since < 2 * LEASE + 1.0, "a slow machine is given a second"
        assert runtime.store.holder(run_id, runtime.clock.now()) != owner
    await shop.decide_until(second)
    first.send_signal(signal.SIGCONT)
    await shop.decide_until(first)
    effects_fit(shop, twice=("mark",))
    await holds(shop)
