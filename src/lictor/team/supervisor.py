"""The supervisor of a team: the agent that decides, and the hooks of its model and decisions in its gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lictor.agent import Agent, LoopBreaker, Session, Tool, foreign_tool
from lictor.errors import ModelError
from lictor.hooks import ALLOW, Bound, Context, Verdict, arrange, awaited, pending
from lictor.team.decisions import Decision, decision_of, decision_tools
from lictor.team.interceptor import Hook, has, hooks_of
from lictor.team.live import BEFORE, CURRENT, bound_of, keep_extras
from lictor.team.state import DECISIONS
from lictor.team.trace import TeamTrace

if TYPE_CHECKING:
    from lictor.team.definition import Team

__all__ = ["Supervision", "adapters", "transfer_tool"]

PROMPT = (
    "You lead a team. Decide after every result who works next. Give work with assign, or with delegate to several "
    "members at once; when the task is done, call finish with the answer for the user. Members know nothing but "
    "what you and the work so far tell them. Never invent what a member would say."
)
UNBOUNDED = 1_000_000  # turns are the limit of a team; its supervisor's steps are not


class NoModel:
    """The model of a team that nobody supervises: it is never asked."""

    id = "none"

    async def respond(self, messages: Any, tools: Any, settings: Any) -> AsyncIterator[Any]:
        """Raise: a protocol without a supervisor asked for one."""
        for _ in ("never",):
            raise ModelError("no_model", "this team has no supervisor; give it a model=")
        yield None


class Supervision:
    """What all runs of a team have in common: its supervisor, its hooks, its members with their extra tools."""

    def __init__(self, team: Team) -> None:
        self._team = team
        own = arrange([(f"team:{team.name}", team.interceptors)])
        breaker = self._breaker(own)
        self._hooks = hooks_of((*breaker, *own))
        self._members: dict[str, Agent] = {}
        self._scopes: tuple[Any, Any, Any] = (None, None, ())
        about = [(name, getattr(member, "description", "")) for name, member in team.table.items()]
        listed = "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in about)
        told = "\n\n".join([part for part in (PROMPT, f"Your members:\n{listed}", team.instructions) if part])
        tools = decision_tools(about, _results, team.feedback) if team.route.supervised else []
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools}
        model: Any = NoModel() if team.model is None else team.model
        self.agent = Agent(
            team.name,
            model=model,
            instructions=told if team.route.supervised else "",
            tools=tools,
            interceptors=[*[replace(bound, points=frozenset()) for bound in breaker], *adapters(self._hooks)],
            settings=team.settings,
            max_steps=UNBOUNDED,
            deny_repeats=None,
            loop_breaker=None,  # the team has its own
            governance=team.governance,
            resolver=team.resolver,
        )

    def hooks(self, scopes: Sequence[tuple[str, Any]], per_run: Any) -> tuple[Hook, ...]:
        """Whoever has a word at a moment of this run, outermost first, those given for it last.

        Policies above a team hold for it too: its own supervisor cannot give work to whom they refuse.
        """
        if not scopes and not per_run:
            return self._hooks
        team = self._team
        order = arrange([*scopes, (f"team:{team.name}", team.interceptors), ("run", per_run)])
        return hooks_of((*self._breaker(order), *order))

    def scopes(self, above: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
        """The scopes above a team and its own; the same tuple as last time, so that plans are made once."""
        own = self._team.interceptors
        if self._scopes[0] is not above or self._scopes[1] is not own:
            self._scopes = (above, own, (*above, (f"team:{self._team.name}", own)))
        found: tuple[tuple[str, Any], ...] = self._scopes[2]
        return found

    def _breaker(self, order: Sequence[Bound]) -> tuple[Bound, ...]:
        """The team's loop breaker, unless somebody gave one; its members have their own for their tools."""
        breaker = self._team.loop_breaker
        if breaker is None or any(isinstance(bound.interceptor, LoopBreaker) for bound in order):
            return ()
        return arrange([("lictor", [breaker])])

    def added(self, hooks: Sequence[Hook]) -> list[Bound]:
        """The interceptors of those hooks that are not the team's own."""
        own = {id(hook.target) for hook in self._hooks}
        return adapters([hook for hook in hooks if id(hook.target) not in own])

    def member(self, name: str) -> Any:
        """A member as it works here; under `handoff` it can transfer."""
        found = self._team.table[name]
        if self._team.route.name != "handoff" or not isinstance(found, Agent):
            return found
        if name not in self._members:
            others = [other for other in self._team.table if other != name]
            tools = [*found.tools, transfer_tool(others)]
            self._members[name] = found.with_(tools=tools)
        return self._members[name]


def _results(call_id: str) -> Any:
    session = CURRENT.get()
    team: Any = session.mediator
    return team.results(session, call_id)


def transfer_tool(members: Sequence[str]) -> Tool:
    """`transfer_to(member, note)`: the first transfer of a turn wins, and ends the sender's work."""
    properties = {
        "member": {"type": "string", "description": f"One of: {', '.join(members)}."},
        "note": {"type": "string", "description": "What the other has to know; it does not see your work."},
    }

    def transfer(arguments: Mapping[str, Any], context: Any) -> str:
        team: Any = CURRENT.get().mediator
        told: str = team.transfer(context.run_id, context.call_id, arguments["member"], arguments.get("note") or "")
        return told

    schema = {"type": "object", "properties": properties, "required": ["member"], "additionalProperties": False}
    about = "Hand the whole task over to another member; your own work ends with that."
    return foreign_tool("transfer_to", transfer, schema=schema, description=about, effect="pure")


# ---- hooks of the model and of decisions, as interceptors of the supervisor -------------------


def adapters(hooks: Sequence[Hook]) -> list[Bound]:
    """One interceptor for each hook that speaks at a point of the supervisor (40-team: no second gate)."""
    found: list[Bound] = []
    for hook in hooks:
        for name in BEFORE:
            if has(hook.target, name):
                target: Any = Earlier(name=f"{hook.name}.{name}")
                found.append(bound_of(target.name, ["pre_model_call"], target, hook.always_enforce))
        if has(hook.target, "on_model_end"):
            target = Response(hook=hook)
            found.append(bound_of(f"{hook.name}.on_model_end", ["post_model_call"], target, hook.always_enforce))
        if has(hook.target, "on_supervisor_decision"):
            target = Decided(hook=hook)
            name = f"{hook.name}.on_supervisor_decision"
            found.append(bound_of(name, ["pre_tool_call"], target, hook.always_enforce))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Says what a hook before the model call has said while the request was made."""

    name: str

    def call(self, context: Context) -> Any:
        """The verdict, or what the hook raised."""
        team: Any = CURRENT.get().mediator
        answer = team.prepared.get(self.name)
        if isinstance(answer, Exception):
            raise answer
        return verdict_from(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Shows a hook the response before it is read."""

    hook: Hook

    def call(self, context: Context) -> Any:
        """What the hook says."""
        return _asked(self.hook, "on_model_end", context["target"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Shows a hook the decision before its route is taken."""

    hook: Hook

    def call(self, context: Context) -> Any:
        """What the hook says; another Decision stands for a change of the arguments."""
        name = context["tool_call"]["name"]
        if name not in DECISIONS:
            return ALLOW
        return _asked(self.hook, "on_supervisor_decision", decision_of(name, context["target"]))


def _asked(hook: Hook, moment: str, about: Any) -> Any:
    """What a hook says at a moment, or something that comes to it: the gate awaits it, and bounds its time."""
    method = hook.method(moment)
    if method is None:
        return ALLOW
    session = CURRENT.get()
    team: Any = session.mediator
    trace = team.trace(session)
    answer = method(trace, about)
    if answer is not None and answer is not True and pending(answer):
        return _later(session, trace, moment, answer)
    return _concluded(session, trace, moment, answer)


async def _later(session: Session, trace: TeamTrace, moment: str, answer: Any) -> Any:
    return _concluded(session, trace, moment, await awaited(answer, None))


def _concluded(session: Session, trace: TeamTrace, moment: str, answer: Any) -> Any:
    if trace.extras != trace.given:
        unkept = keep_extras(session, trace)
        if unkept is not None:
            return unkept
    reason = trace.resumed()
    if reason is not None and (answer is None or answer is True):
        return Verdict.escalate("suspended", reason)
    if isinstance(answer, Decision) and moment == "on_supervisor_decision":
        return Verdict.replace(answer.arguments(), "redirected")
    return verdict_from(answer)


def verdict_from(answer: Any) -> Any:
    """A hook's answer as an interceptor's: nothing and True allow, False denies."""
    if answer is None or answer is True:
        return ALLOW
    return Verdict.deny("not_continued") if answer is False else answer
