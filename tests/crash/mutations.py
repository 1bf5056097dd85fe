"""Takes one guard out of the product, in a worker process only: what it guards has to turn red (test_mutations.py).

A guard is named by the environment variable MUTATION of the process. The product knows nothing of this.
"""

import os

from lictor.docket import Docket
from lictor.journal import owners, sqlite
from lictor.journal.sqlite_events import EventQueue
from lictor.journal.sqlite_table import SqliteTable


def no_fence():
    """Whoever drove a run once may write to it for ever."""
    EventQueue.owned = lambda self, root: True


def no_compare():
    """A decision is written over whatever stands there."""

    def swap(self, key, before, after):
        self[key] = after
        return True

    SqliteTable.swap = swap


def no_intent():
    """An effect begins although its intent is not in the file yet."""

    async def barrier(self, root):
        return None

    sqlite.FLUSH_SECONDS = 5.0  # a slow machine: the writer thread comes too late
    sqlite.SqliteStore.barrier = barrier


def no_consume():
    """An approval that was used stays good."""
    Docket.consume = lambda self, request_id, digest: True


def no_lease():
    """Whoever comes by takes a run, driven or not."""
    owners.is_alive = sqlite.is_alive = lambda owner: False


MUTATIONS = {each.__name__: each for each in (no_fence, no_compare, no_intent, no_consume, no_lease)}


def apply():
    """Take out the guard that this process is asked to do without."""
    name = os.environ.get("MUTATION")
    if name:
        MUTATIONS[name]()
