"""What an agent and the policies above it come to; the same for every run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lictor.agent.approvals import RequiresApproval
from lictor.agent.breaker import LoopBreaker
from lictor.agent.recall import wanted
from lictor.agent.structured import OutputType
from lictor.agent.tools import Tool, fingerprint, tool_spec
from lictor.hooks import (
    ALLOW,
    Bound,
    Composition,
    Context,
    ContextBuilder,
    Gate,
    Governance,
    Verdict,
    arrange,
    interceptor,
)
from lictor.values import FrozenList, canonical_json, digest, freeze

if TYPE_CHECKING:
    from lictor.agent.definition import Agent

__all__ = ["Plan", "gate_for", "plan_for", "resolve_order"]

BUILT_IN = "lictor"
Scopes = tuple[tuple[str, Any], ...]


@interceptor(name="allow-all", version="1", always_enforce=True)
class AllowAll:
    """The explicit, visible pass of a run without any policy (§7: never an empty gate)."""

    def intercept(self, context: Context) -> Verdict:
        """Allow."""
        return ALLOW


def resolve_order(agent: Agent, scopes: Scopes = (), per_run: Any = ()) -> tuple[Bound, ...]:
    """The fold of a run: outer scopes, agent, per-run, and the approval of `requires_approval` last.

    `DenyRepeats` comes first, so that nobody is asked again about what was denied; then `LoopBreaker`,
    unless one is listed. Without a policy the explicit `lictor/allow-all` is in its place (built-ins do
    not count). Limits and approvals hold under `evaluate_only` too.
    """
    order = arrange([*scopes, (f"agent:{agent.name}", agent.interceptors), ("run", per_run)])
    first: list[Any] = [] if agent.deny_repeats is None else [agent.deny_repeats]
    if agent.loop_breaker is not None and not any(isinstance(bound.interceptor, LoopBreaker) for bound in order):
        first.append(agent.loop_breaker)
    if not order:
        first.append(AllowAll())
    gated = bool(agent.sources) or any(tool.requires_approval for tool in agent.tool_table.values())
    last: list[Any] = [RequiresApproval(agent.tool_table)] if gated else []
    return (*_built_in(first), *order, *_built_in(last))


def _built_in(items: Sequence[Any]) -> tuple[Bound, ...]:
    return arrange([(BUILT_IN, items)]) if items else ()


def _declared(bound: Bound) -> dict[str, Any]:
    """What is declared of an interceptor; never its source or bytecode."""
    kind = bound.interceptor if hasattr(bound.interceptor, "__qualname__") else type(bound.interceptor)
    return {
        "name": bound.name,
        "code": f"{kind.__module__}:{kind.__qualname__}",
        "version": bound.version,
        "points": sorted(bound.points),
        "config": bound.config,
    }


@dataclass(slots=True, kw_only=True)  # budget: it fills in its digests when they are asked for
class Plan:
    """Order of interceptors, tools as a model and a policy see them, settings; made once.

    `below` is what is declared of the members, where the agent is the supervisor of a team.
    """

    agent: Agent
    scopes: Scopes
    per_run: Any
    governance: Governance
    order: tuple[Bound, ...]
    specs: FrozenList
    names: FrozenList
    settings: Mapping[str, Any]
    model: Any
    instructions: tuple[Any, ...]
    tools: Mapping[str, Any]
    output: OutputType | None
    recalls: int
    gate: Gate
    builder: ContextBuilder
    below: Sequence[Mapping[str, Any]] | None = None
    _policy: str | None = field(default=None)
    _digests: dict[str, str] | None = field(default=None)

    def declared(self) -> dict[str, Any]:
        """The declared data that the policy fingerprint covers (20-durability, identity of definitions)."""
        composition = self.governance.composition
        sources = [attached.declared() for attached in self.agent.sources]
        return {
            **({"sources": sources} if sources else {}),
            **({"members": list(self.below)} if self.below else {}),
            "interceptors": [_declared(bound) for bound in self.order],
            "mode": self.governance.mode,
            "composition": composition.to_wire() if isinstance(composition, Composition) else composition,
            "tools": {name: fingerprint(tool) for name, tool in self.agent.tool_table.items()},
        }

    @property
    def policy(self) -> str:
        """The policy fingerprint."""
        if self._policy is None:
            self._policy = digest(self.declared())
        return self._policy

    def tool_digest(self, name: str) -> str:
        """Digest of a tool's schema and declarations."""
        if self._digests is None:
            self._digests = {key: digest(fingerprint(tool)) for key, tool in self.tools.items()}
        return self._digests[name]

    def own(self) -> Plan:
        """A plan for one run whose tools come and go (`take`); the policy is the same."""
        tools = dict(self.tools)
        order = (*self.order[:-1], *_built_in([RequiresApproval(tools)]))  # it is the last one: `resolve_order`
        return replace(self, order=order, gate=gate_for(order, self.governance), tools=tools, _digests=None)

    def take(self, tools: Mapping[str, Tool]) -> None:
        """Have these tools from now on, in a plan of one's own: they are what the next model call is sent."""
        held: Any = self.tools
        held.clear()
        held.update(tools)
        self.specs = _made([tool_spec(tool) for tool in tools.values()])
        self._digests = None


def gate_for(order: tuple[Bound, ...], rules: Governance) -> Gate:
    """A gate over an order, as the governance of the run says."""
    return Gate(
        order,
        composition=rules.composition,
        mode=rules.mode,
        resolver=rules.resolver,
        redactor=rules.redactor,
        identity=rules.identity,
        timeout=rules.timeout,
        resolver_timeout=rules.resolver_timeout,
        sink=rules.record_sink,
        sink_required=rules.sink_required,
        sink_timeout=rules.sink_timeout,
    )


def _made(value: Any) -> Any:
    """Frozen, with its canonical bytes: checked once for every emission that carries it."""
    frozen = freeze(value)
    canonical_json(frozen)
    return frozen


def plan_for(agent: Agent, scopes: Scopes, per_run: Any, governance: Governance) -> Plan:
    """The plan of an agent under these policies; the last one is kept with the agent."""
    kept = agent.kept_plan
    if kept is not None and kept.scopes is scopes and kept.per_run is per_run and kept.governance is governance:
        return kept
    settings = dict(agent.settings)
    output = agent.output()
    if output is not None:
        settings["response_format"] = output.schema
    instructions = freeze({"role": "system", "content": agent.instructions})
    order = resolve_order(agent, scopes, per_run)
    names = _made([*agent.tool_table, *[name for attached in agent.sources for name in attached.names]])
    model = _made({"id": agent.models[0].id})
    builder = ContextBuilder(agent_id=agent.name, session_id=agent.name)
    builder.agent_startup(names)  # what it makes and checks here it need not in any run of the plan
    builder.pre_model_call(model, [])
    plan = Plan(
        agent=agent,
        scopes=scopes,
        per_run=per_run,
        governance=governance,
        order=order,
        gate=gate_for(order, governance),
        builder=builder,
        specs=_made([tool_spec(tool) for tool in agent.tool_table.values()]),
        names=names,
        settings=settings,
        model=model,
        instructions=(instructions,) if agent.instructions else (),
        tools=agent.tool_table,
        output=output,
        recalls=wanted(order),
    )
    object.__setattr__(agent, "kept_plan", plan)
    return plan
