"""How the demo looks: one line for each step, a panel for the question, a table for the record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lictor.console.demo import Answer
from lictor.console.keyboard import read_line
from lictor.console.orders import MOST_TOKENS, team
from lictor.docket import Request
from lictor.runs import Event

__all__ = ["Screen", "printable"]

PARKED = "host_error:approval_unresolved"  # the run waits for a decision (§9); no failure
COLOURS: Mapping[str, str] = {"deny": "red", "transform": "yellow"}
WIDEST = 92  # columns of the question
LABEL = 11  # columns for the kind of a step
LONGEST = 400  # characters of a text that a line shows
STYLES: Mapping[str, str] = {
    "gives": "bold blue",
    "skipped": "bold red",
    "denied": "bold red",
    "blocked": "bold red",
    "masked": "bold yellow",
    "changed": "bold yellow",
    "asks you": "bold magenta",
    "asks": "bold magenta",
    "decided": "bold magenta",
    "tool": "green",
    "answer": "bold cyan",
    "failed": "bold red",
}
DECISIONS = frozenset({"assign", "delegate", "finish", "ask_human"})
PARTS: Mapping[str, str] = {
    "input": "the task",
    "pre_model_call": "the request to the model",
    "post_model_call": "the model's response",
    "pre_tool_call": "the arguments",
    "post_tool_call": "the tool's result",
    "output": "the answer",
}
VERBS: Mapping[str, str] = {
    "approve": "run it once, with exactly these arguments",
    "reject": "do not run it; the model is told, with your reason",
    "edit": "change arguments; policies judge them again before it runs",
}
KEYS: Mapping[str, str] = {verb[0]: verb for verb in VERBS}


class Screen:
    """Shows a run as it goes on, and asks about requests.

    Arguments:
        console: where to; without a terminal it writes plain text.
        person: who answers at this terminal, `os:ana`; None when nobody is there to ask.
        why: what to say when the demo answers itself.
        slow: whether the model takes long enough to say that it is being asked.
        elsewhere: the command that decides in another terminal, with `{id}` for the request.
    """

    def __init__(
        self, console: Console, *, person: str | None, why: str = "", slow: bool = False, elsewhere: str = ""
    ) -> None:
        self.console = console
        self.calls = 0
        self._person = person
        self._why = why
        self._slow = slow
        self._elsewhere = elsewhere
        self._asked: dict[str, str] = {}
        self.run_id = ""

    def line(self, label: str, text: str, *, dim: bool = False) -> None:
        """One step: what kind, and what happened."""
        told = Text(printable(text), "dim" if dim else "")
        head = Text(label.ljust(LABEL), STYLES.get(label, "dim"))
        for line in told.wrap(self.console, max(self.console.width - LABEL, 20)):
            line.rstrip()
            self.console.print(Text.assemble(head, line))
            head = Text(" " * LABEL)

    def intro(self, model: str, store: str, customer: str, task: str) -> None:
        """What is about to be shown."""
        self.console.print(Text.assemble(("Lictor demo", "bold"), f": a shop's team, with {model}"))
        self.line("store", store, dim=True)
        self.line(customer, task)

    # the run

    def started(self, run_id: str) -> None:
        """Keep the id, for whoever goes on with the run."""
        self.run_id = run_id

    def event(self, event: Event, detail: Mapping[str, Any]) -> None:
        """Show an event, if it tells something."""
        payload, who = event.payload, event.path[-1].name if event.path else ""
        if event.kind == "model_started" and self._slow:
            self.line("model", f"{who} is asked …", dim=True)
        elif event.kind == "model_retry":
            self.line("failed", f"the model call failed ({payload['error']})")
        elif event.kind == "model_finished":
            self._proposed(who, detail.get("calls", ()))
        elif event.kind == "verdict" and "record" in payload:
            self._verdict(payload, detail)
        elif event.kind == "tool_finished" and payload["tool"] not in DECISIONS:
            self.line("tool", f"{payload['tool']}: {payload['content']}")
        elif event.kind == "request_decided":
            self.line("decided", f"{payload['verb']}, by {payload['decided_by']}")
        elif event.kind == "skipped":
            why = payload.get("message") or payload["reason"]
            self.line("skipped", f"{payload['member']}, by {payload['by']}: {why}")
        elif event.kind == "member_finished":
            value = payload["value"]
            self.line(payload["member"], str(value.get("answer") or value.get("reason") or value["status"]))

    def _proposed(self, who: str, calls: Sequence[Mapping[str, Any]]) -> None:
        for call in calls:
            args = call.get("args") or {}
            if call["name"] in DECISIONS:
                self._decided(call["name"], args)
                continue
            self.calls += 1
            arguments = ", ".join(f"{name}={value!r}" for name, value in args.items())
            self._asked[call["id"]] = f"{call['name']}({arguments})"
            self.line("model", f"{who} wants {self._asked[call['id']]}")

    def _decided(self, name: str, args: Mapping[str, Any]) -> None:
        """A decision of the supervisor."""
        for each in args.get("assignments", [args] if "member" in args else []):
            self.line("gives", f"{each['member']}: {each['instruction']}")
        if name == "ask_human":
            self.line("gives", f"a person: {args.get('reason')}")

    def _verdict(self, payload: Mapping[str, Any], detail: Mapping[str, Any]) -> None:
        by, reason = payload["by"] or "the host", payload["reason"] or "no reason given"
        if payload["decision"] == "transform":
            part = PARTS.get(payload["point"], payload["point"])
            self.line("masked" if reason == "masked" else "changed", f"by {by}: {part}, before anybody sees it")
        if payload["decision"] != "deny" or reason == PARKED:  # then `ask` comes
            return
        if payload["point"] != "pre_tool_call":
            self.line("blocked", f"{payload['point']}: {reason}, says {by}")
            return
        problem = detail.get("problem") or {}
        self.line("denied", f"by {by}: {problem.get('message') or reason} It did not run.")

    # the question

    async def ask(self, request: Request) -> Answer:
        """Show what is asked and wait for a, r or e; answer at once where nobody is there."""
        self.line("asks" if self._person is None else "asks you", "the run waits until somebody decides", dim=True)
        self.console.print(self._question(request))
        if self._person is None:
            self.console.print(Text(f"{self._why}, so the demo answers itself: approve", "bold"))
            return Answer(verb="approve", by="service:demo")
        while True:
            line = await self._input("a, r or e, then Enter › ")
            if line is None:
                return Answer(verb="reject", by=self._person, feedback="Nobody answered.")
            verb = KEYS.get(line.strip().lower()[:1])
            if verb == "edit":
                arguments = await self._edited(request)
                if arguments is not None:
                    return Answer(verb="edit", by=self._person, arguments=arguments)
            elif verb == "reject":
                why = await self._input("why? (the model reads it) › ")
                return Answer(verb="reject", by=self._person, feedback=why or None)
            elif verb is not None:
                return Answer(verb=verb, by=self._person)

    def elsewhere(self) -> None:
        """Leave the question: it was answered in another process."""
        self.console.print()
        self.line("elsewhere", "somebody decided it in another process", dim=True)

    def refused(self, problem: str) -> None:
        """Say why a decision was not taken."""
        self.line("refused", problem)

    def _question(self, request: Request) -> Panel:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row("who", f"the agent {request.requester}, for {request.user}")
        grid.add_row("wants", Text(request.tool or request.kind, "bold"))
        for name, value in (request.arguments or {}).items():
            grid.add_row(
                "", Text.assemble((f"{printable(name)} = ", "dim"), printable(json.dumps(value, ensure_ascii=False)))
            )
        for reason in request.reasons:
            grid.add_row("why", f"{reason.reason}: {reason.message or reason.name}")
        grid.add_row("bound to", f"{request.digest[:19]}… (tool, arguments, call and policy)")
        if self._elsewhere:
            grid.add_row("or", f"in another terminal: {self._elsewhere.format(id=request.id[:8])}")
        grid.add_row()
        for verb, meaning in VERBS.items():
            if verb in request.verbs:
                grid.add_row(Text(f"{verb[0]}  {verb}", "bold not dim"), meaning)
        width = min(self.console.width, WIDEST)
        return Panel(grid, title="an approval", title_align="left", box=ROUNDED, padding=(0, 1), width=width)

    async def _input(self, prompt: str) -> str | None:
        self.console.print(Text(prompt, "bold"), end="")
        return await read_line()

    async def _edited(self, request: Request) -> Mapping[str, Any] | None:
        """The arguments with the changes somebody types as `name=value`; None for no change."""
        arguments = dict(request.arguments or {})
        line = await self._input("name=value, for example " + _example(arguments) + " › ")
        pairs = [part.split("=", 1) for part in (line or "").split() if "=" in part]
        changes = {name: _value(text) for name, text in pairs}
        if not changes:
            self.line("refused", "no change was given")
            return None
        return {**arguments, **changes}

    # the end

    def records(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The audit record: a row for each judgement that was more than an allow, and how many there were."""
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        for name in ("point", "decision", "reason", "by", "identity"):
            table.add_column(name, justify="left", no_wrap=True)
        waited, told = 0, 0
        for record in records:
            verdict = record["verdict"]
            if verdict["decision"] == "allow" and record["decided_by"] is None:
                continue
            told += 1
            waited += verdict.get("reason") == PARKED
            colour = "magenta" if verdict.get("reason") == PARKED else COLOURS.get(verdict["decision"], "")
            slots = {slot["index"]: slot["name"] for slot in record.get("verdicts") or ()}
            decider = str(slots.get(record["decided_by"], "")).rpartition("/")[2]
            identity = str(record.get("input_identity") or "").removeprefix("sha256:")[:8]
            cells = (record["interception_point"], verdict["decision"], verdict.get("reason", ""), decider, identity)
            table.add_row(*cells, style=colour)
        self.console.print(table)
        aside = ", the magenta one while it waited" if waited else ""
        self.line("record", f"{len(records)} judgements, {told} with a word{aside}; hashes instead of content")

    def budget(self, tokens: int, turns: int) -> None:
        """How much of what the team may use it used."""
        width = 20
        full = min(width, round(width * tokens / MOST_TOKENS))
        bar = "█" * full + "░" * (width - full)
        self.line("budget", f"{bar} {tokens:,} of {MOST_TOKENS:,} tokens, {turns} of {team.max_turns} turns")


def printable(text: str) -> str:
    """`text` without what could move a terminal's cursor, and not longer than a few lines."""
    clean = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]} … ({len(clean)} characters)"


def _example(arguments: Mapping[str, Any]) -> str:
    name, value = next(reversed(list(arguments.items())), ("amount", 1))
    return f"{name}={json.dumps(value)}"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
