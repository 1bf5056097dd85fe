"""The host's side of the Conformance Test Kit: one vector, run by a real agent (§13.2).

Only the model and the tools are scripted, as the kit demands. The rest is what every run goes
through: an `Agent` with the interceptors, resolver and rules of the vector, driven by the one driver,
seen by the caller as `Agent.stream` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lictor.agent import Agent, Session, Tool, begin, foreign_tool, result_of
from lictor.hooks import Composition, Gate, Governance, IdentityProvider, parse_path
from lictor.journal import MemoryStore
from lictor.models import Call, ModelResponse, Reply, ScriptedModel, TextDelta, fail
from lictor.runs import Event, RunResult, drive, follow_driven
from lictor.values import thaw

if TYPE_CHECKING:
    from agent_hooks import ApprovalResolver, CompositionConfig, EnforcementMode
    from agent_hooks.ctk import RunRecord, Scenario

__all__ = ["CAPABILITIES", "LictorHarness"]

CAPABILITIES = (
    "model_calls",
    "tool_calls",
    "parallel_tool_calls",
    "streaming",
    "int64_json",
    "bigint_json",
    "incremental_output",
)
"""What a Lictor host can do, in the kit's words (§13.1); `host_declaration` is not among them."""

POSTURES = {"terminate": "terminate_all", "continue": "continue"}
"""The contract's word for a posture, and ours: `terminate` alone spares what policies composed (§7.5)."""

RUN = "ctk-run"
OUTCOMES = {"completed": "completed", "blocked": "blocked", "suspended": "suspended"}  # any other is an error


class LictorHarness:
    """Runs one vector; the kit's runner calls `setup`, `run`, `teardown`.

    Beyond what the kit asks for it keeps what its runner does not look at (HARNESS.md, "Incremental
    mediation"): `released`, the text that reached the caller, and `persisted`, everything that was
    stored. Both are None until a run has told. `rule` is the posture that the agent is given.

    Arguments:
        vector: the raw vector; the kit's `Scenario` leaves out how its model streams.
        posture: what a failure of enforcement at a tool does, `terminate` or `continue`.
        stream: how the agent streams, `buffered` or `incremental`.
    """

    name = "lictor"

    def __init__(self, vector: Mapping[str, Any], *, posture: str, stream: str) -> None:
        from agent_hooks.ctk import Capability

        known = {capability.value for capability in Capability}
        self.capabilities = {Capability(name) for name in CAPABILITIES if name in known}
        self.tool_seam_host_error = posture
        self.rule = POSTURES[posture]
        self.released: str | None = None
        self.persisted: str | None = None
        self.invoked: list[dict[str, Any]] = []
        self._vector = vector
        self._stream = stream
        self._agent: Agent | None = None
        self._task: Any = None
        self._resolver: Any = None
        self._is_bare = False

    def setup(
        self,
        scenario: Scenario,
        interceptors: Sequence[Any],
        resolver: ApprovalResolver | None,
        mode: EnforcementMode,
        composition: CompositionConfig,
        identity_provider: str | None,
        redact_for_approval: Sequence[str] | None = None,
    ) -> None:
        """Make the agent of this vector."""
        rules = Governance(
            mode=mode.value,
            composition=Composition(**composition.to_wire()),
            identity=_provider(identity_provider),
            posture=self.rule,
            redactor=_redactor(redact_for_approval) if redact_for_approval else None,
        )
        self._agent = Agent(
            "ctk-agent",
            model=ScriptedModel([_reply(entry["respond"]) for entry in self._scenario.get("model_script", ())]),
            tools=[self._tool(spec) for spec in scenario.tools.values()],
            interceptors=list(interceptors),
            governance=rules,
            stream=self._stream,
            deny_repeats=None,  # the fold of a vector is exactly its interceptors
            loop_breaker=None,
        )
        self._task = scenario.input["content"]
        self._resolver = resolver
        self._is_bare = not interceptors

    async def run(self) -> RunRecord:
        """Run it to its end and say what happened."""
        from agent_hooks.ctk import RunOutcome, RunRecord

        if self._agent is None:
            raise RuntimeError("setup comes first")
        store = MemoryStore()
        session = begin(self._agent, self._task, store=store, run_id=RUN, resolver=self._resolver)
        if self._is_bare:
            # An agent without policies gets the visible allow-all; the contract's word about nobody at
            # all (§7) is that of the gate, so here the same loop runs over a gate without any.
            session.points.gate = _bare_gate(session)
        events = [event async for event in follow_driven(store, RUN, lambda: drive(session))]
        result = result_of(session)
        self.released, self.persisted = text_shown(events), stored(store)
        records = [thaw(record) for record in result.records]
        return RunRecord(
            outcome=RunOutcome(OUTCOMES.get(result.status, "error")),
            final_output=thaw(result.answer),
            tool_invocations=self.invoked,
            error=_error(result),
            identities=[(record["input_identity"], record["enforced_identity"]) for record in records],
            records=records,
        )

    def teardown(self) -> None:
        """Let everything go; what the run told stays."""
        self._agent = self._resolver = self._task = None

    @property
    def _scenario(self) -> Mapping[str, Any]:
        scenario: Mapping[str, Any] = self._vector["scenario"]
        return scenario

    def _tool(self, spec: Any) -> Tool:
        """A tool that answers from the vector's table, and keeps every call of it."""

        def answer(arguments: dict[str, Any], context: Any) -> Any:
            value, is_error = spec.invoke(arguments)
            self.invoked.append({"name": spec.name, "args": arguments})
            if is_error:
                raise RuntimeError(str(value))
            return value

        properties = {name: {"type": kind} for name, kind in spec.schema.items()}
        return foreign_tool(spec.name, answer, schema={"type": "object", "properties": properties}, effect="pure")


def text_shown(events: Sequence[Event]) -> str:
    """The text that a caller was given, in order."""
    return "".join(event.payload["text"] for event in events if event.kind == "model_delta")


def stored(store: MemoryStore) -> str:
    """Everything a store holds of the run, as one text."""
    entries = [item.entry for item in store.root_entries(RUN)]
    return json.dumps([[entry.kind, entry.payload] for entry in entries], ensure_ascii=False, default=repr)


def _error(result: RunResult) -> str | None:
    return result.error or (result.reason if result.status not in OUTCOMES else None)


def _reply(respond: Mapping[str, Any]) -> Reply:
    """A scripted response, streamed in its pieces; one that is truncated ends without its finish."""
    content = respond["content"]
    pieces = respond.get("stream") or ([content] if content else [])
    deltas = tuple([TextDelta(piece) for piece in pieces])
    if respond.get("stream_truncated"):
        return Reply(deltas, fail(code="stream_cut").failure)
    calls = tuple([Call(each["id"], each["name"], json.dumps(each["args"])) for each in respond["tool_calls"]])
    return Reply((*deltas, ModelResponse(content, calls, respond["finish_reason"])))


def _provider(declared: str | None) -> str | IdentityProvider | None:
    """The vector's identity provider; `ctk-fault` is one that fails each time (HARNESS.md)."""
    if declared != "ctk-fault":
        return declared

    def broken(context: Any) -> str:
        raise RuntimeError("a scripted fault of the provider")

    return IdentityProvider(declared, broken)


def _redactor(paths: Sequence[str]) -> Callable[[Any], Any]:
    """The kit's redaction (§9): what the paths lead to is replaced, what they do not reach stays."""

    def redact(context: Any) -> Any:
        for path in paths:
            *trail, last = parse_path(path)
            node = context["target"]
            try:
                for segment in trail:
                    node = node[segment]
                node[last]  # raises when it is not there
            except (LookupError, TypeError):
                continue
            node[last] = "[redacted]"
        return context

    return redact


def _bare_gate(session: Session) -> Gate:
    rules = session.options.governance
    return Gate((), composition=rules.composition, mode=rules.mode, identity=rules.identity)
