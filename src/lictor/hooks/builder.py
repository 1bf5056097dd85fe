"""ContextBuilder: the host's side of §4, one method per point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from lictor.errors import ValueDomainError
from lictor.hooks.context import REASONS, Context, Head, check_messages, check_name, check_response, make_head
from lictor.hooks.points import SPEC
from lictor.values import (
    MAX_DEPTH,
    Clock,
    FrozenDict,
    FrozenList,
    canonical_bytes,
    canonical_json,
    freeze,
    frozen_texts,
)

__all__ = ["ContextBuilder"]

_TARGET_DEPTH: Final = MAX_DEPTH - 2  # a target sits at most two levels down (§12.3 counts the whole)
_SUMMARIES: Final = {reason: frozen_texts(reason=reason) for reason in REASONS}


class ContextBuilder:
    """Builds the contexts of one hook session.

    What stays the same is frozen once, and messages that were frozen before keep their bytes, so a
    long history costs its new messages only. Builders raise `ValueDomainError` for values outside
    the JSON domain (§4.4) and then leave `sequence` alone: take it with `take_sequence()` for the
    record of the failure (`Gate.record_host_failure`).

    Args:
        agent_id: stable identifier of the agent's definition.
        session_id: identifier of the run.
        framework: lowercase name of the host.
        agent_name: for people.
        clock: where timestamps come from.
        sequence: number of the next context; a resumed run goes on with its stored one.
        started_at: RFC 3339 instant of the session's start.
        extensions: namespaces that go on every context (§4.6), unless a method is given others.
    """

    __slots__ = (
        "_agent",
        "_head",
        "_known_init",
        "_known_messages",
        "_known_model",
        "_session",
        "_timestamp",
        "_turn",
        "extensions",
        "sequence",
    )

    extensions: FrozenDict | None
    """What goes on every context from now on, unless a method is given others."""

    sequence: int

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        *,
        agent_id: str,
        session_id: str,
        framework: str = "lictor",
        agent_name: str | None = None,
        clock: Clock | None = None,
        sequence: int = 0,
        started_at: str | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        check_name("$.agent.id", agent_id)
        check_name("$.session.id", session_id)
        agent = {"id": agent_id, "framework": framework, "name": agent_name}
        session = {"id": session_id, "started_at": started_at}
        self._agent: FrozenDict = freeze({key: text for key, text in agent.items() if text is not None})
        self._session: FrozenDict = freeze({key: text for key, text in session.items() if text is not None})
        canonical_json([self._agent, self._session])  # lone surrogates are found here, once
        self._head = make_head(self._agent, self._session)
        self._timestamp = (clock if clock is not None else Clock()).timestamp
        self._known_init: FrozenDict | None = None
        self._known_model: FrozenDict | None = None
        self._known_messages: FrozenList | None = None
        self.extensions = None if extensions is None else _extra(extensions)
        self._turn: tuple[int, FrozenDict] | None = None
        self.sequence = sequence

    def for_session(self, session_id: str, clock: Clock | None = None) -> ContextBuilder:
        """Return a builder for another session of the same agent; what does not differ is not made again."""
        twin = object.__new__(ContextBuilder)
        twin._agent, twin.extensions = self._agent, self.extensions
        twin._known_init, twin._known_model = self._known_init, self._known_model
        twin._session, session = _session(session_id)
        twin._head = Head(self._head.agent, session)
        twin._timestamp = self._timestamp if clock is None else clock.timestamp
        twin._known_messages = twin._turn = None
        twin.sequence = 0
        return twin

    def take_sequence(self) -> int:
        """Return the next number and consume it, for a context that could not be built (§10.3)."""
        sequence = self.sequence
        self.sequence = sequence + 1
        return sequence

    def agent_startup(
        self, tools_registered: Sequence[str], *, extensions: Mapping[str, Any] | None = None, turn: int | None = None
    ) -> Context:
        """Build `agent_startup`; `tools_registered` is a snapshot of names."""
        init = self._known_init
        if init is None or init["tools_registered"] is not tools_registered:
            names = tools_registered if type(tools_registered) is FrozenList else list(tools_registered)
            init = self._known_init = freeze({"tools_registered": names})
        return self._context("agent_startup", {"agent_init": init}, init, extensions, turn)

    def input(
        self,
        content: Any,
        role: str = "user",
        *,
        extensions: Mapping[str, Any] | None = None,
        turn: int | None = None,
    ) -> Context:
        """Build `input`; `role` is `user`, `system` or `external`."""
        if role not in ("user", "system", "external"):
            raise ValueDomainError("$.input.role", "must be user, system or external")
        given = (
            frozen_texts(content=content, role=role)
            if type(content) is str
            else freeze({"content": content, "role": role})
        )
        return self._context("input", {"input": given}, given, extensions, turn)

    def pre_model_call(
        self,
        model: str | Mapping[str, Any],
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        request_id: str | None = None,
        extensions: Mapping[str, Any] | None = None,
        turn: int | None = None,
    ) -> Context:
        """Build `pre_model_call`.

        Args:
            model: an id, or a frozen mapping with `id` and what else is known (`vendor`, `params`).
            messages: dicts with `role` and `content`; frozen ones are kept as they are.
            tools: `{name, description?, schema?}` of the tools sent with this call.
            request_id: pairs the two points of one call.
            extensions: namespaces for this context, a frozen mapping.
            turn: number of the session's turn.
        """
        frozen = self._messages(messages)
        fields: dict[str, Any] = {
            "model": model if model is self._known_model else self._model(model),
            "messages": frozen,
        }
        if tools is not None:
            known = type(tools) is FrozenList and tools._canon is not None
            fields["tools"] = tools if known else _extra(tools if isinstance(tools, list) else list(tools))
        if request_id is not None:
            fields["request_id"] = _text(request_id)
        return self._context("pre_model_call", fields, frozen, extensions, turn)

    def post_model_call(
        self,
        model: str | Mapping[str, Any],
        response: Mapping[str, Any],
        *,
        request_id: str | None = None,
        usage: Mapping[str, Any] | None = None,
        extensions: Mapping[str, Any] | None = None,
        turn: int | None = None,
    ) -> Context:
        """Build `post_model_call`; `response` has `content`, `tool_calls` (maybe empty), `finish_reason`."""
        frozen: FrozenDict = freeze(response)
        exact = check_response(frozen)
        fields: dict[str, Any] = {
            "model": model if model is self._known_model else self._model(model),
            "response": frozen,
        }
        if request_id is not None:
            fields["request_id"] = _text(request_id)
        if usage is not None:
            fields["usage"] = _extra(usage)
        return self._context("post_model_call", fields, frozen, extensions, turn, exact)

    def pre_tool_call(
        self,
        id: str,
        name: str,
        args: Mapping[str, Any],
        *,
        extensions: Mapping[str, Any] | None = None,
        turn: int | None = None,
    ) -> Context:
        """Build `pre_tool_call`; `args` is the object of arguments, `id` is not empty."""
        call = _call(id, name, args)
        return self._context("pre_tool_call", {"tool_call": call}, call["args"], extensions, turn)

    def post_tool_call(  # noqa: PLR0913 - the members of the two fields of this point
        self,
        id: str,
        name: str,
        args: Mapping[str, Any],
        value: Any,
        is_error: bool,
        *,
        duration_ms: float | None = None,
        extensions: Mapping[str, Any] | None = None,
        turn: int | None = None,
    ) -> Context:
        """Build `post_tool_call`; `args` are the ones the tool was really called with (§4.2)."""
        target = freeze(value)
        result = {"value": target, "is_error": bool(is_error)}
        if duration_ms is not None:
            result["duration_ms"] = duration_ms
        fields = {"tool_call": _call(id, name, args), "tool_result": freeze(result)}
        return self._context("post_tool_call", fields, target, extensions, turn)

    def output(self, content: Any, *, extensions: Mapping[str, Any] | None = None, turn: int | None = None) -> Context:
        """Build `output`; `content` is the final answer, text or typed parts."""
        given = frozen_texts(content=content) if type(content) is str else freeze({"content": content})
        return self._context("output", {"output": given}, given, extensions, turn)

    def agent_shutdown(
        self, reason: str, *, extensions: Mapping[str, Any] | None = None, turn: int | None = None
    ) -> Context:
        """Build `agent_shutdown`; `reason` is `completed`, `error` or `cancelled`."""
        if reason not in REASONS:
            raise ValueDomainError("$.summary.reason", "must be completed, error or cancelled")
        summary = _SUMMARIES[reason]
        return self._context("agent_shutdown", {"summary": summary}, summary, extensions, turn)

    def _context(
        self,
        point: str,
        fields: dict[str, Any],
        target: Any,
        extensions: Mapping[str, Any] | None,
        turn: int | None,
        exact: bool = True,
    ) -> Context:
        kind = type(target)
        if (kind is FrozenDict or kind is FrozenList) and target._height > _TARGET_DEPTH:
            raise ValueDomainError("$.target", f"nested deeper than {_TARGET_DEPTH} levels")
        extra: Any = self.extensions if extensions is None else extensions
        if extra is not None and (type(extra) is not FrozenDict or extra._canon is None):
            extra = _extra(extra)
        session = self._session if turn is None else self._session_at(turn)
        sequence = self.sequence
        self.sequence = sequence + 1
        members = {
            "spec": SPEC,
            "interception_point": point,
            "timestamp": self._timestamp(),
            "sequence": sequence,
            "agent": self._agent,
            "session": session,
            "target": target,
            **fields,
        }
        if extra is not None:
            members["extensions"] = extra
        context = Context(members)
        context._exact = exact
        context._head = self._head
        context._jcs = None
        return context

    def _model(self, model: str | Mapping[str, Any]) -> FrozenDict:
        """Check a model's description; the same object in the next call is known."""
        known: FrozenDict = _extra({"id": model} if isinstance(model, str) else model)
        check_name("$.model.id", known.get("id"))
        self._known_model = known
        return known

    def _messages(self, messages: Sequence[Any]) -> FrozenList:
        """Freeze messages; those that the last call showed already are not checked again."""
        frozen: FrozenList = freeze(messages if type(messages) is list else [*messages])
        seen: Sequence[Any] = self._known_messages or ()
        for new, old in zip(frozen, seen, strict=False):
            if new is not old:
                seen = ()
                break
        check_messages(frozen[len(seen) :] if seen else frozen)
        self._known_messages = frozen
        return frozen

    def _session_at(self, turn: int) -> FrozenDict:
        known = self._turn
        if known is None or known[0] != turn:
            known = self._turn = (turn, freeze({**self._session, "turn": turn}))
        return known[1]


def _extra(value: Any) -> Any:
    """Freeze an optional member and make its bytes once: that is where lone surrogates show (§4.4)."""
    frozen = freeze(value)
    if frozen._canon is None:
        try:
            canonical_bytes(frozen)
        except orjson.JSONEncodeError:
            raise ValueDomainError("$", "a string holds a lone surrogate") from None
        if frozen._height >= MAX_DEPTH:
            raise ValueDomainError("$", f"nested deeper than {MAX_DEPTH - 1} levels")
    return frozen


def _session(session_id: str) -> tuple[FrozenDict, bytes]:
    """Return `session` with nothing but its id, and its bytes."""
    if type(session_id) is not str or not session_id:
        raise ValueDomainError("$.session.id", "must be a string that is not empty")
    session = FrozenDict(id=session_id)
    session._plain, session._height = True, 1
    try:
        session._canon = data = orjson.dumps({"id": session_id})
    except orjson.JSONEncodeError:
        raise ValueDomainError("$.session.id", "a string holds a lone surrogate") from None
    return session, data


def _text(value: str) -> str:
    canonical_json(value)
    return value


def _call(id: str, name: str, args: Any) -> FrozenDict:
    args = freeze(args)
    if type(id) is not str or not id or type(name) is not str:
        raise ValueDomainError("$.tool_call", "needs `id` and `name` as strings, `id` not empty")
    if type(args) is not FrozenDict:
        raise ValueDomainError("$.tool_call.args", "must be an object")
    call = FrozenDict(id=id, name=name, args=args)
    call._plain = args._plain
    call._height = args._height + 1
    call._canon = None
    return call
