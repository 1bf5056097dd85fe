"""TeamInterceptor: what may be said at each moment of a team run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lictor.hooks import ALLOW, POINTS, Bound, Context, Verdict, interceptor

if TYPE_CHECKING:
    from lictor.models import ModelResponse
    from lictor.team.decisions import Decision
    from lictor.team.trace import MemberResult, TeamTrace
    from lictor.team.wrapping import CallNext, ModelRequestView, WrappedStep

__all__ = ["HOOKS", "Answer", "Hook", "TeamInterceptor", "has", "hooks_of"]

Answer: TypeAlias = "Verdict | bool | None | Awaitable[Verdict | bool | None]"


@interceptor(points=POINTS, name=None, version="0")
class TeamInterceptor:
    """Subclass it and write the methods you need, sync or async; each may be left out (seed 000).

    A `should_*` method returns a bool or a Verdict. The others may return a Verdict too: deny,
    escalate (somebody is asked, and the run waits for it exactly there) or stop; `trace.suspend(reason)`
    does the same as an escalation. What a deny does depends on the moment: see docs/team.md.
    Raising or not answering in time counts as "no".

    `enabled` is read when a moment begins. With a method `intercept(context)` it is an ordinary
    interceptor too, at `points` (all eight unless the class says less).
    """

    points: Sequence[str] | None = ()
    enabled: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "intercept" in cls.__dict__ and "points" not in cls.__dict__:
            cls.points = POINTS

    def intercept(self, context: Context) -> Any:
        """Judge one of the eight points."""
        return ALLOW

    # the team

    def on_team_start(self, trace: TeamTrace) -> Answer:
        """The run begins; "no" blocks it."""

    def on_team_end(self, trace: TeamTrace) -> Answer:
        """The answer stands. Only on the success path; nothing can be undone."""

    def on_team_finished(self, trace: TeamTrace, outcome: Mapping[str, Any]) -> Answer:
        """The run is over, however it ended: `outcome` has status, reason, by. After a crash at least once."""

    # steps

    def on_node_start(self, trace: TeamTrace, node: str) -> Answer:
        """A step of the supervisor or of a member begins."""

    def on_node_end(self, trace: TeamTrace, node: str) -> Answer:
        """It is over."""

    # the supervisor

    def should_supervisor_continue(self, trace: TeamTrace) -> Answer:
        """Before the supervisor thinks, and before limits; "no" ends the run as `stopped`."""

    def on_prepare(self, trace: TeamTrace, request: ModelRequestView) -> Answer:
        """The request of the supervisor is being made: change its messages, tools and settings."""

    def on_model_start(self, trace: TeamTrace, request: ModelRequestView) -> Answer:
        """It is about to be sent: change it still, or say no."""

    def on_model_end(self, trace: TeamTrace, response: ModelResponse) -> Answer:
        """The response, before it is read; "no" asks again, at most twice. Its usage is booked."""

    def on_supervisor_decision(self, trace: TeamTrace, decision: Decision) -> Answer:
        """Before the route is taken; "no" asks again, at most twice; a transform changes the arguments of the call."""

    # members

    def should_agent_continue(self, trace: TeamTrace, agent: Any) -> Answer:
        """Before a member works; "no" skips it."""

    def on_agent_end(self, trace: TeamTrace, agent: Any, result: MemberResult) -> Answer:
        """A member has worked, and its record is written."""

    # around

    async def wrap(self, step: WrappedStep, call_next: CallNext) -> Any:
        """Around a stretch of the run (`flow`), a model call of the supervisor (`call`) or a member (`tool`).

        The methods of the seed, `intercept_flow`, `intercept_call`, `intercept_stream` and `intercept_tool`, do
        the same for one kind each.
        """
        return await call_next(step)


HOOKS = (
    "on_team_start",
    "on_team_end",
    "on_team_finished",
    "on_node_start",
    "on_node_end",
    "should_supervisor_continue",
    "on_prepare",
    "on_model_start",
    "on_model_end",
    "on_supervisor_decision",
    "should_agent_continue",
    "on_agent_end",
)


class Hook(NamedTuple):
    """Somebody who may say something at moments of a team run, under a qualified name."""

    name: str
    target: Any
    always_enforce: bool

    def method(self, moment: str) -> Callable[..., Any] | None:
        """What it does at a moment, unless it does nothing there or is switched off."""
        if not has(self.target, moment) or not getattr(self.target, "enabled", True):
            return None
        found: Callable[..., Any] = getattr(self.target, moment)
        return found


def hooks_of(order: Sequence[Bound]) -> tuple[Hook, ...]:
    """Those of an order that have a word at some moment."""
    found = [Hook(bound.name, bound.interceptor, bound.always_enforce) for bound in order]
    return tuple([hook for hook in found if any(has(hook.target, name) for name in (*HOOKS, "wrap", *WRAPS))])


WRAPS = ("intercept_flow", "intercept_call", "intercept_stream", "intercept_tool")


def has(target: Any, moment: str) -> bool:
    """Whether it does something at a moment, switched on or off."""
    own = getattr(type(target), moment, None)
    return callable(getattr(target, moment, None)) and own is not getattr(TeamInterceptor, moment, None)
