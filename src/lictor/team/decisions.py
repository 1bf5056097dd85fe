"""Typed decisions of a supervisor: the tools it decides with, and what a plain text may mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import orjson

from lictor.agent import Tool, ToolContext, foreign_tool, tool
from lictor.models import Call, ModelResponse

__all__ = ["Decision", "decision_of", "decision_tools", "read_text", "unroutable"]

Results: TypeAlias = Callable[[str], Any]
Check: TypeAlias = Callable[[dict[str, Any]], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a supervisor decided.

    Arguments:
        kind: `assign`, `delegate`, `finish` or `ask_human`.
        member, instruction: of `assign`.
        answer: of `finish`.
        text: the reason of `ask_human`, or the decision in one line.
        assignments: of `delegate`, (member, instruction).
    """

    kind: str
    member: str | None = None
    instruction: str | None = None
    answer: str | None = None
    text: str = ""
    assignments: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> dict[str, Any]:
        """As the arguments of the call that it is."""
        if self.kind == "assign":
            return {"member": self.member, "instruction": self.instruction or ""}
        if self.kind == "delegate":
            return {"assignments": [{"member": name, "instruction": text} for name, text in self.assignments]}
        return {"answer": self.answer or ""} if self.kind == "finish" else {"reason": self.text}


def decision_of(name: str, args: Any) -> Decision:
    """The decision that a call is."""
    if name == "assign":
        member, instruction = args["member"], args["instruction"]
        return Decision(kind=name, member=member, instruction=instruction, text=f"{member}: {instruction}")
    if name == "delegate":
        pairs = tuple([(each["member"], each["instruction"]) for each in args["assignments"]])
        return Decision(kind=name, assignments=pairs, text=", ".join(member for member, _ in pairs))
    if name == "finish":
        return Decision(kind=name, answer=args["answer"], text="finish")
    return Decision(kind=name, text=args["reason"])


def decision_tools(members: Sequence[tuple[str, str]], results: Results, feedback: bool) -> list[Tool]:
    """`assign`, `delegate`, `finish`, and `ask_human` where people may be asked.

    Arguments:
        members: (name, description).
        results: gives what the members of a call came to, when they are done.
    """
    names = [name for name, _ in members]
    listed = "; ".join(f"{name}: {about}" if about else name for name, about in members)
    member = {"type": "string", "enum": names}
    instruction = {"type": "string", "description": "What it is to do, with everything it needs to know."}
    one = {"member": member, "instruction": instruction}
    many = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "properties": one, "required": list(one), "additionalProperties": False},
    }

    def work(arguments: Any, context: ToolContext) -> Any:
        return results(context.call_id)

    def done(arguments: Any, context: ToolContext) -> str:
        return "the answer is being checked"

    def problems(work: Any) -> list[str]:
        if not isinstance(work, dict) or work.keys() != one.keys():
            return ["give a member and an instruction"]
        known = [] if work["member"] in names else [f"member: there is no {work['member']!r}; use {', '.join(names)}"]
        return known if isinstance(work["instruction"], str) else [*known, "instruction: give a text"]

    def several(arguments: dict[str, Any]) -> list[str]:
        given = arguments.get("assignments")
        if arguments.keys() != {"assignments"} or not isinstance(given, list) or not given:
            return ["assignments: give a list of members with instructions"]
        return [line for each in given for line in problems(each)]

    def text(arguments: dict[str, Any]) -> list[str]:
        return [] if isinstance(arguments.get("answer"), str) and len(arguments) == 1 else ["answer: give a text"]

    tools = [
        _made("assign", work, one, f"Give a member work and wait for its result. The members are {listed}.", problems),
        _made("delegate", work, {"assignments": many}, "Give several members work at the same time.", several),
        _made("finish", done, {"answer": {"type": "string"}}, "End the work with the answer for the user.", text),
    ]
    return [*tools, _ask_human()] if feedback else tools


def _made(name: str, fn: Any, properties: dict[str, Any], about: str, check: Check) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return foreign_tool(name, fn, schema=schema, description=about, check=check, effect="pure")


def _ask_human() -> Tool:
    """Made when it is needed: reading a signature brings pydantic in."""

    @tool(external=True, effect="pure")
    def ask_human(reason: str) -> str:  # type: ignore[empty-body] # it never runs: a person answers
        """Ask a person, when the work cannot go on without one; says what has to be known or decided."""

    return ask_human


def read_text(response: ModelResponse, members: Sequence[str], marker: str) -> ModelResponse:
    """A response without calls whose text is a decision, as that call: a member's exact name, or the finish marker.

    Anything else stays as it is: it is never guessed from the words (40-team).
    """
    text = response.content
    if response.calls or not isinstance(text, str) or response.refusal is not None:
        return response
    said = text.strip()
    if said in members:
        return _called(response, "assign", {"member": said, "instruction": ""})
    for number, line in enumerate(said.splitlines()):
        if begins(line.lstrip(), marker):
            rest = line.lstrip()[len(marker) :].lstrip(" :")
            after = "\n".join([rest, *said.splitlines()[number + 1 :]]).strip()
            before = "\n".join(said.splitlines()[:number]).strip()
            return _called(response, "finish", {"answer": after or before})
    return response


def begins(line: str, marker: str) -> bool:
    """Whether a line begins with the marker as a word of its own."""
    after = line[len(marker) : len(marker) + 1]
    return line.startswith(marker) and not (after.isalnum() or after == "_")


def _called(response: ModelResponse, name: str, arguments: dict[str, Any]) -> ModelResponse:
    call = Call(id=None, name=name, arguments=orjson.dumps(arguments).decode())
    return replace(response, content=None, calls=(call,), finish="tool_calls")


def unroutable(members: Sequence[str]) -> str:
    """What the supervisor is told after a response that decides nothing."""
    return (
        f"That is no decision. Call assign with one of the members ({', '.join(members)}) and an instruction, "
        "or call finish, alone, with the final answer."
    )
