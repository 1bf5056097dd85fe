"""One ledger for each root run; `Budget` only declares limits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from lictor.errors import DefinitionError
from lictor.runs.usage import NO_USAGE, Usage
from lictor.values import Clock

__all__ = ["Budget", "Ledger", "Reservation"]

DEFAULT_MAX_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run and everything below it. `None` = no limit.

    Counting rules: the final answer counts, retries that reported usage count, refused calls do
    not. A model call is refused before it starts when its reservation (canonical bytes of the
    request / 3 + `max_tokens`; in dollars at the model's prices, or as much as the dearest call so
    far where no price is known) does not fit, and settled with the real usage after it; the
    overshoot is at most the error of the calls in flight.

    Arguments:
        max_tool_calls: tool calls started.
        max_total_tokens: input plus output tokens.
        max_cost_usd: US dollars, where prices are known.
        max_seconds: seconds since the run was started, waiting included.
        max_turns, max_handoffs: of a team.
        per_member: what each member of a team may use over the whole run.
        limited: whether anything is limited at all; computed.
    """

    max_tool_calls: int | None = None
    max_total_tokens: int | None = None
    max_cost_usd: float | None = None
    max_seconds: float | None = None
    max_turns: int | None = None
    max_handoffs: int | None = None
    per_member: Budget | None = None
    limited: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None or item.name == "limited":
                continue
            if item.name == "per_member":
                if not isinstance(value, Budget) or value.per_member is not None:
                    raise DefinitionError(f"Budget(per_member={value!r}): give a Budget without per_member")
                continue
            object.__setattr__(self, "limited", True)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise DefinitionError(f"Budget({item.name}={value!r}): give a number >= 0, or None for no limit")


NO_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens and dollars set aside for one model call."""

    tokens: int = 0
    cost_usd: float = 0.0


NOTHING = Reservation()


class Ledger:
    """What a run and everything below it used, against its own budget and those above it.

    The chain of parents is one account: a reservation is taken at every level or at none.
    """

    __slots__ = (
        "_clock",
        "_reserved_cost",
        "_reserved_tokens",
        "budget",
        "children",
        "dearest",
        "limited",
        "parent",
        "started",
        "usage",
    )

    def __init__(self, clock: Clock, budget: Budget | None = None, parent: Ledger | None = None) -> None:
        self._clock = clock
        self.budget = NO_BUDGET if budget is None else budget
        self.parent = parent
        self.limited: bool = self.budget.limited or (parent is not None and parent.limited)
        self.started = clock.now() if self.limited else 0.0
        self.usage = NO_USAGE
        self.children = 0
        self.dearest = 0.0
        self._reserved_tokens = 0
        self._reserved_cost = 0.0

    @property
    def needs_max_tokens(self) -> bool:
        """Whether a token or cost limit holds here, so that a model call must be bounded."""
        budget = self.budget
        here = budget.max_total_tokens is not None or budget.max_cost_usd is not None
        return here or (self.parent is not None and self.parent.needs_max_tokens)

    def over_time(self) -> str | None:
        """The reason when `max_seconds` passed, here or above."""
        limit = self.budget.max_seconds
        if limit is not None and self._clock.now() - self.started >= limit:
            return "budget:max_seconds"
        return self.parent.over_time() if self.parent else None

    def remaining_seconds(self) -> float | None:
        """Seconds until the nearest `max_seconds`, or None."""
        own = None if self.budget.max_seconds is None else self.started + self.budget.max_seconds - self._clock.now()
        above = self.parent.remaining_seconds() if self.parent else None
        values = [value for value in (own, above) if value is not None]
        return max(0.0, min(values)) if values else None

    def reserve(self, want: Reservation) -> str | None:
        """Set aside for a model call; the reason of the refusal, or None when it fits everywhere."""
        if not self.limited:
            return None
        refused = self.over_time() or self._refusal(want)
        if refused is None:
            self._shift(want, 1)
        return refused

    def _refusal(self, want: Reservation) -> str | None:
        budget, usage = self.budget, self.usage
        tokens = usage.total_tokens + self._reserved_tokens
        if budget.max_total_tokens is not None and tokens + want.tokens > budget.max_total_tokens:
            return "budget:max_total_tokens"
        cost = usage.cost_usd + self._reserved_cost
        if budget.max_cost_usd is not None and (
            cost + want.cost_usd > budget.max_cost_usd or cost >= budget.max_cost_usd
        ):
            return "budget:max_cost_usd"
        return self.parent._refusal(want) if self.parent else None

    def _shift(self, want: Reservation, sign: int) -> None:
        self._reserved_tokens += sign * want.tokens
        self._reserved_cost += sign * want.cost_usd
        if self.parent is not None:
            self.parent._shift(want, sign)

    def settle(self, reserved: Reservation, used: Usage) -> None:
        """Give a reservation back and book what was really used."""
        if self.limited:
            self._shift(reserved, -1)
            self.root.dearest = max(self.root.dearest, used.cost_usd)
        self.book(used)

    def book(self, used: Usage) -> None:
        """Add to the usage here and above."""
        ledger: Ledger | None = self
        while ledger is not None:
            ledger.usage = used if ledger.usage is NO_USAGE else ledger.usage + used
            ledger = ledger.parent

    def restore(self, used: Usage) -> None:
        """Count what the log says was used before; the accounts above restore themselves."""
        self.usage = self.usage + used

    def start_tool(self) -> str | None:
        """Charge one tool call; the reason of the refusal, or None."""
        if self.limited:
            refused = self.over_time() or self._tool_refusal()
            if refused is not None:
                return refused
        self.book(ONE_TOOL_CALL)
        return None

    def refuses_turn(self, turns: int, handoffs: int | None = None) -> str | None:
        """Why no further turn (or hand-off) of a team may begin after so many; or None."""
        budget = self.budget
        if budget.max_turns is not None and turns >= budget.max_turns:
            return "budget:max_turns"
        if budget.max_handoffs is not None and handoffs is not None and handoffs >= budget.max_handoffs:
            return "budget:max_handoffs"
        return self.over_time() if self.limited else None

    def _tool_refusal(self) -> str | None:
        limit = self.budget.max_tool_calls
        if limit is not None and self.usage.tool_calls >= limit:
            return "budget:max_tool_calls"
        return self.parent._tool_refusal() if self.parent else None

    @property
    def root(self) -> Ledger:
        """The account of the root run."""
        return self.parent.root if self.parent else self


ONE_TOOL_CALL = Usage(tool_calls=1)
