"""One agent run while it is driven: what its handlers share, and the one place that assembles it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from lictor.agent.approvals import Approver, StepResolver
from lictor.agent.calls import RUNNING, CallState
from lictor.agent.held import HELD, Held
from lictor.agent.history import History
from lictor.agent.plan import Plan
from lictor.agent.points import Points
from lictor.agent.results import safe_value
from lictor.agent.structured import OutputType
from lictor.agent.toolcontext import ToolContext
from lictor.errors import NotSerializable, StoreError
from lictor.hooks import ContextBuilder, Emission, Governance
from lictor.journal import Entry
from lictor.models import ChatModel
from lictor.runs import DONE, Cause, LiveRun, Performer
from lictor.values import freeze

if TYPE_CHECKING:
    from lictor.agent.definition import Agent
    from lictor.agent.folded import Folding
    from lictor.agent.incremental import Stream
    from lictor.agent.stint import Sources

__all__ = ["NO_GOVERNANCE", "Mediator", "Options", "Session"]


NO_GOVERNANCE = Governance()


@dataclass(slots=True, kw_only=True)  # budget: frozen costs a call for each field, once a run; nobody writes to it
class Options:
    """What a caller gives for one run; nested runs inherit what is not their own.

    `scopes` are the interceptors above the agent (runtime, teams, outer agents), `interceptors`
    the per-run ones; `messages`, `numbered` and `positions` are what the conversation brings.
    """

    task: Any
    scopes: tuple[tuple[str, Any], ...] = ()
    interceptors: Any = ()
    governance: Governance = NO_GOVERNANCE
    resolver: Any = None
    docket: Any = None
    user: Any = None
    context: Mapping[str, Any] | None = None
    deps: Any = None
    conversation: str | None = None
    history: str = "run"
    approval_deadline: float | None = None
    max_steps: int | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    numbered: int = 0
    positions: Mapping[str, int] | None = None
    labels: Mapping[str, tuple[str, ...]] | None = None
    models: Mapping[str, ChatModel] | None = None
    watchers: tuple[Any, ...] = ()


class Mediator(Protocol):
    """What stands between an agent's run and its model, where the agent is the supervisor of a team."""

    @property
    def asks(self) -> str:
        """The kind of request that an external tool opens."""
        ...

    async def prepare(self, session: Session, messages: Sequence[Any]) -> tuple[Sequence[Any], Any, Mapping[str, Any]]:
        """Messages, tools and settings of the next request."""
        ...

    def again(self, session: Session, emission: Emission) -> str | None:
        """What to tell the model after a denied response, if it is asked again instead of ending the run."""
        ...

    def trace(self, session: Session) -> Any:
        """What the run did so far."""
        ...

    def kept(self, session: Session) -> tuple[Mapping[str, Any], ...]:
        """What a conversation keeps of the run, with what it brought."""
        ...

    def fault(self, fault: str | None, problem: str | None, calls: Sequence[Any]) -> tuple[str | None, str | None]:
        """Why a response cannot be used (a word of the closed list), and what to tell the model; else None."""
        ...


@dataclass(slots=True, kw_only=True)  # budget: the volatile side of a run, a shell
class Session:
    """The live parts of one agent run. Volatile: whatever must survive is in the log or the docket."""

    agent: Agent
    live: LiveRun[Any]
    options: Options
    plan: Plan
    points: Points
    max_steps: int
    approver: Approver | None
    builder: ContextBuilder
    steps: Mapping[str, Performer]
    models: tuple[ChatModel, ...]
    tools: Mapping[str, Any]
    output: OutputType | None
    monotonic: Callable[[], float]
    posture: str
    store_each_call: bool
    history: History | None = None
    sources: Sources | None = None
    stream: Stream | None = None
    mediator: Mediator | None = None
    answer: Any = None
    blocked_by: Emission | None = None
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    folding: Folding | None = None
    _slots: asyncio.Semaphore | None = None

    @property
    def slots(self) -> asyncio.Semaphore:
        """Places for tools that run at the same time; made for the first response with more calls than that."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.agent.max_parallel_tools)
        return self._slots

    @property
    def history_window(self) -> int | None:
        """Messages wanted in a request."""
        return self.agent.history_window

    @property
    def has_approver(self) -> bool:
        """Whether a liftable deny can be lifted here at all."""
        rules = self.options
        return self.approver is not None or rules.resolver is not None or rules.governance.resolver is not None

    def block(self, emission: Emission) -> None:
        """Keep the emission that ended the run for its caller, without what it denied."""
        self.blocked_by = emission._replace(target=None, context=None)
        self.answer = None

    @property
    def stored(self) -> tuple[Mapping[str, Any], ...]:
        """The history that a conversation keeps after this run."""
        messages: tuple[Mapping[str, Any], ...] = self.live.state.messages
        return messages if self.mediator is None else self.mediator.kept(self)

    async def collect(self) -> bool:
        """Record the decisions made on requests this run waits for.

        Nothing is in flight here: a call that runs in a run that ends was cancelled before anybody began with it.
        """
        found = self.live.state.cause is not None and any(call.status == RUNNING for call in self.live.state.calls)
        if found:
            self.live.record("stint_started", {})
        if self.approver is None:
            return found
        for request_id in self.live.machine.waiting(self.live.state).values():
            request = self.approver.docket.find(request_id)
            if request.status == "pending":
                continue
            found = True
            self.live.record("request_decided", _decided(request))
        return found

    def end(self, cause: Cause) -> bool:
        """Record why the run ends; the first cause wins."""
        self.live.record("cause", cause.json())
        return DONE

    def record_end(self, kind: str, payload: dict[str, Any], cause: Cause | None) -> bool:
        """Record something together with why it ends the run, if it does: a crash never parts the two."""
        self.live.record(kind, payload if cause is None else {**payload, "ends": cause.json()})
        return DONE if cause is None else self.end(cause)

    def resolver(self, kind: str, step: str, call: CallState | None = None) -> StepResolver | None:
        """The docket's resolver for one emission, or None where the gate's own (or nobody) decides."""
        if self.approver is None:
            return None
        if call is None:
            return StepResolver(approver=self.approver, kind=kind, step=step)
        if kind != "tool_call":
            return StepResolver(approver=self.approver, kind=kind, step=step, call_id=call.id)
        tool = self.tools[call.name]
        return StepResolver(
            approver=self.approver,
            kind=kind,
            step=step,
            call_id=call.id,
            tool=call.name,
            schema=tool.schema,
            tool_digest=self.plan.tool_digest(call.name),
        )

    # results that wait for a decision stay beside the docket, never in the log

    def hold(self, request_id: str, held: Held) -> None:
        """Keep something until its request is decided."""
        self.live.store.table(HELD)[request_id] = held

    def held(self, request_id: str) -> Held | None:
        """What is kept for a request."""
        return self.live.store.table(HELD).get(request_id)

    def kept(self, request_id: str) -> Held:
        """What is kept for a request; raises StoreError when the store lost it."""
        held = self.held(request_id)
        if held is None:
            raise StoreError(f"what request {request_id} is about is not in the store")
        return held

    def let_go(self, request_id: str) -> None:
        """Forget the value kept for a request: it has its verdict."""
        self.live.store.table(HELD).remove(request_id)

    def label(self, source: str, emission: Emission) -> None:
        """Keep result labels (§5.4); they come back as `extensions.<interceptor>.source_labels`."""
        if not emission.labels:
            return
        for name, labels in emission.labels.items():
            known = self.labels.get(name, ())
            self.labels[name] = tuple(dict.fromkeys((*known, *labels)))
            self.live.record("labels", {"source": source, "interceptor": name, "labels": list(labels)})
        self.points.relabel(self.labels)

    def remember(self, entries: Sequence[Entry], before: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Take back from the log what later points resurface; `before` is what a snapshot has of it."""
        self.labels.update(self.options.labels or {} if before is None else before)
        for entry in entries:
            if entry.kind == "labels":
                name = entry.payload["interceptor"]
                known = self.labels.get(name, ())
                self.labels[name] = tuple(dict.fromkeys((*known, *entry.payload["labels"])))
        if self.labels:
            self.points.relabel(self.labels)

    def rewritten(self, call_id: str, args: Mapping[str, Any], note: str) -> Any:
        """The stored assistant message with the arguments that will run, and a note."""
        message = dict(self.live.state.messages[-1])
        calls = []
        for call in message["tool_calls"]:
            if call["id"] == call_id:
                text = orjson.dumps(args).decode()
                call = {**call, "function": {"name": call["function"]["name"], "arguments": text}, "note": note}
            calls.append(call)
        return freeze({**message, "tool_calls": calls})

    def tool_context(self, call: CallState, tool: Any) -> ToolContext:
        """What a tool may know of its run."""
        options, live = self.options, self.live

        def note(what: str, value: Any) -> None:
            if not live.finished and not live.crashed:  # nothing follows the end
                live.record("note", {"call": call.id, "tool": call.name, what: value})

        def emit(progress: Any) -> None:
            try:
                note("progress", safe_value(progress)[0])
            except NotSerializable as exc:  # what a tool reports never fails it
                note("progress", f"[{exc}]")

        def late(how: str) -> None:
            note("late", how)

        return ToolContext(
            user=options.user,
            context=options.context,
            deps=options.deps,
            run_id=live.run_id,
            root_run=live.root,
            path=live.path,
            call_id=call.id,
            idempotency_key=f"{live.run_id}:{call.id}",
            attempt=call.starts,
            workspace=None,
            emit=emit,
            late=late,
        )

    async def run_child(self, call: CallState, tool: Any) -> Any:
        """Run (or go on with) the agent behind a tool; its outcome as a value, or None while it waits."""
        from lictor.agent.children import run_child

        return await run_child(self, call, tool)


def _decided(request: Any) -> dict[str, Any]:
    """The decision as the machine folds it and a reader sees it."""
    done = request.resolution
    verb = "expire" if request.status == "expired" else (done.verb if done is not None else request.status)
    payload: dict[str, Any] = {
        "request": request.id,
        "kind": request.kind,
        "tool": request.tool,
        "call": request.call_id,
        "verb": verb,
        "decided_by": str(done.decided_by) if done is not None else None,
    }
    if done is not None and done.feedback:
        payload["feedback"] = done.feedback
    return payload
