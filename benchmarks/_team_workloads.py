"""What every team runs: a supervisor, three members, and a script that says the same texts for everybody.

Standard library only: a peer's own Python imports this file too.
"""

import random

from _workloads import Contender, ShapeError, Tally

TASK = "Why has order 42 not arrived?"
FINAL = "It waits at the border. Done."
SYSTEM = "You lead a team. Decide who works next, then answer."
MEMBERS = ("alice", "bob", "carol")
TURNS = {"W3-0": 0, "W3-1": 1, "W3": 10, "W3-30": 30}
MEANING = {
    "W3-0": "the supervisor answers at once: 1 model call",
    "W3-1": "1 turn: 3 model calls",
    "W3": "10 turns over 3 members: 21 model calls",
    "W3-30": "30 turns over 3 members: 61 model calls",
}
FIRST, MIDDLE, LAST = "W3-1", "W3", "W3-30"
SAID = (
    "order parcel border driver paper stamp invoice weight harbour winter storm delay letter office answer customs "
    "number street window phone colour yellow engine bridge river market copper garden ticket summer"
)
WORDS = SAID.split()
MOST_TURNS = max(TURNS.values())
# Every turn has words of its own: a team whose members repeat themselves goes round in circles.
PARTS = [" ".join(random.Random(n).sample(WORDS, 10)) for n in range(MOST_TURNS)]
INSTRUCTIONS = [f"Look at {words}." for words in PARTS]


class Script:
    """Says what the models of one run say, and counts it; runs take turns, so that a counter is enough.

    Nobody has to look at a history to know how far a run is: what that costs would be the script's, not a contender's.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.turns = self.decided = self.worked = 0

    def begin(self, turns: int) -> None:
        """A run with so many turns starts."""
        self.turns = turns
        self.decided = self.worked = 0

    def decide(self) -> int | None:
        """The supervisor is asked: the number of the next turn, None when it is done."""
        self.tally.models += 1
        number = self.decided
        if number == self.turns:
            return None
        self.decided = number + 1
        return number

    def work(self) -> str:
        """A member is asked: its part."""
        self.tally.models += 1
        self.tally.tools += 1
        number = self.worked
        self.worked = number + 1
        return PARTS[number]


def expect(contender: Contender, workload: str, found: object, expected: object) -> None:
    """Raise ShapeError unless it is what was expected."""
    if found != expected:
        raise ShapeError(f"{contender.name} {workload}: {found!r}, not {expected!r}")


def check_team(workload: str, contender: Contender, tally: Tally, answer: str) -> None:
    """A decision before each turn and one that ends the run, a member's work in each turn, and the answer."""
    turns = TURNS[workload]
    expect(contender, workload, (tally.models, tally.tools, answer), (2 * turns + 1, turns, FINAL))
