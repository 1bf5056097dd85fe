"""Each guard of the store and its drivers is needed: without it, the test that stands on it turns red."""

import contextlib
from functools import partial

import mutations
import pytest
from scenarios import late_decider, nothing_happens, restarted, slow_tool, zombie
from shopfloor import Shop

from lictor.errors import InvariantBroken

pytestmark = pytest.mark.crash

# The guard that is missing -> what happens then, and what the tests say about it.
GUARDED = {
    "no_fence": (partial(zombie, point="written intent.before:1"), "the one that came back wrote something"),
    "no_compare": (late_decider, "two deciders were told yes"),
    "no_intent": (partial(restarted, point="effect.after:2", twice=("look", "mark")), "an effect that must be once"),
    "no_consume": (nothing_happens, "was not used up"),
    "no_lease": (slow_tool, "an effect that must be once|nobody lost"),
}


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as opened:
        yield opened


def test_every_mutation_is_played():
    """No guard can be taken out without a test that says so."""
    assert GUARDED.keys() == mutations.MUTATIONS.keys()


@pytest.mark.parametrize("guard", GUARDED)
async def test_with_its_guard_all_holds(shop, guard):
    """The same scenario is green as the product is."""
    await GUARDED[guard][0](shop)


@pytest.mark.parametrize("guard", GUARDED)
async def test_without_its_guard_it_turns_red(shop, guard):
    """The sweep, the count of effects or the decision that was told says what went wrong."""
    scenario, told = GUARDED[guard]
    shop.mutation = guard
    with pytest.raises((AssertionError, InvariantBroken), match=told):
        await scenario(shop)
