"""One stint of an agent run: driven, with the tool sources it needs open from their first use to its park or end."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lictor.agent.handlers import STEPS
from lictor.agent.results import error_result
from lictor.agent.session import Session
from lictor.agent.sources import Attached
from lictor.agent.tools import Tool
from lictor.agent.toolstep import absent_step
from lictor.runs import Cause, Command, Performer, watched

__all__ = ["SOURCED_STEPS", "Sources", "stint"]


async def stint(session: Session, watchers: Sequence[Any] = ()) -> None:
    """Drive a run from wake to park or end.

    Whatever was opened meanwhile is closed before this returns, also on errors and cancellation.
    """
    sources = session.sources
    if sources is None:
        await watched(session, watchers)
        return
    live = session.live
    while True:
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            sources.begin(group)
            try:
                await watched(session, watchers)
            except BaseException as exc:  # noqa: BLE001 - raised again, as it is, when everything is closed
                failure = exc
            live.wake = asyncio.Event()  # an interrupt that comes now must not cancel the closing
            ending = live.state.cause
            sources.release()
        live.wake = None
        if failure is not None:
            raise failure
        if live.finished or live.state.cause is ending:
            return


class Keeper:
    """Holds one source open, in a task of its own: `open` and `close` are called in one task."""

    def __init__(self, attached: Attached, group: asyncio.TaskGroup) -> None:
        self.attached = attached
        self.tools: tuple[Tool, ...] = ()
        self.failure: Exception | None = None
        self.settled = asyncio.Event()
        self._source = copy.copy(attached.source)
        self._over = asyncio.Event()
        self._task = group.create_task(self._keep())

    async def _keep(self) -> None:
        try:
            self.tools = tuple(await self._source.open())
            self.settled.set()
            await self._over.wait()
        except Exception as exc:  # noqa: BLE001 - a source is foreign code; what it raises is why there are no tools
            self.failure = exc
        finally:
            self.settled.set()
            await self._close()

    async def _close(self) -> None:
        try:
            await self._source.close()
        except Exception as exc:  # noqa: BLE001 - nobody waits for anything of it any more
            self.failure = self.failure or exc

    @property
    def left_out(self) -> Mapping[str, str]:
        """Tools that the source has and does not give, and why."""
        return getattr(self._source, "left_out", {})

    async def listed(self) -> None:
        """Look at the tools again, if the source can."""
        again = getattr(self._source, "listed", None)
        if again is None or self.failure is not None:
            return
        tools = tuple(await again())
        if tools != self.tools:
            self.tools = tools

    def release(self) -> None:
        """Have it closed; one that is still being opened is given up."""
        self._over.set()
        if not self.settled.is_set():
            self._task.cancel()


class Fault(NamedTuple):
    """Why a run cannot begin: a source is not there, or what it has does not fit."""

    text: str
    resumable: bool


class Sources:
    """The tool sources of one run."""

    __slots__ = ("_attached", "_group", "_keepers", "_lock", "_noted", "_shown")

    def __init__(self, attached: Sequence[Attached]) -> None:
        self._attached = attached
        self._group: asyncio.TaskGroup | None = None
        self._keepers: dict[str, Keeper] = {}
        self._lock = asyncio.Lock()
        self._noted: set[str] = set()
        self._shown: list[tuple[Tool, ...]] | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """A stint begins; what it opens lives in `group`."""
        self._group, self._keepers, self._shown = group, {}, None

    def release(self) -> None:
        """The stint is over: close everything."""
        for keeper in self._keepers.values():
            keeper.release()

    async def ready(self, session: Session, again: bool) -> Fault | None:
        """Have everything open, and the session's tools up to date.

        Args:
            session: the run; its plan takes the tools.
            again: before a model call: look at the lists again, and try what could not be opened.

        Before the first model call of a run everything has to be there. Later on a source that cannot be
        opened, or lacks what it had, costs its tools, never the run (30-agent, Tools).
        """
        async with self._lock:
            if self._shown is not None and not again:
                return None
            await self._open()
            if self._shown is not None:
                for keeper in self._keepers.values():
                    await self._relist(session, keeper)
            shown = [keeper.tools for keeper in self._keepers.values()]
            if shown == self._shown:
                return None
            return self._take(session, shown)

    def absent(self, name: str, names: Sequence[str]) -> dict[str, Any]:
        """The result of a call whose tool is not there (any more)."""
        lost = [keeper.attached.source.name for keeper in self._keepers.values() if keeper.failure is not None]
        if lost:
            what = f"{name} was not called: {', '.join(lost)} cannot be reached now"
            return error_result("not_run", "source_lost", what)
        listed = ", ".join(names) or "none"
        return error_result("unknown_tool", name, f"there is no tool {name!r} any more; the tools are: {listed}")

    async def _open(self) -> None:
        """Start a keeper for what has none, or has failed, and wait until each is open or has failed."""
        if self._group is None:
            raise RuntimeError("tool sources are opened inside a stint only")
        for attached in self._attached:
            known = self._keepers.get(attached.source.name)
            if known is None or known.failure is not None:
                self._keepers[attached.source.name] = Keeper(attached, self._group)
        for keeper in self._keepers.values():
            await keeper.settled.wait()

    async def _relist(self, session: Session, keeper: Keeper) -> None:
        try:
            await keeper.listed()
        except Exception as exc:  # noqa: BLE001 - a source is foreign code; what it gave before still stands
            self._note(session, keeper, "not listed again", _told(exc))

    def _take(self, session: Session, shown: list[tuple[Tool, ...]]) -> Fault | None:
        """Give the session the tools there are, or say what keeps its first model call from being made."""
        first = session.live.state.step == 0
        failed = [keeper for keeper in self._keepers.values() if keeper.failure is not None]
        table, problems = self._collect(session)
        if first and failed:
            causes = [f"{keeper.attached.source.name!r} ({_told(keeper.failure)})" for keeper in failed]
            return Fault(f"tool source {' and '.join(causes)} could not be opened", resumable=True)
        if first and problems:
            return Fault("; ".join(text for _, text in problems), resumable=False)
        for keeper in failed:
            self._note(session, keeper, "not open", _told(keeper.failure))
        for keeper, text in problems:
            self._note(session, keeper, "problem", text)
        for keeper in self._keepers.values():
            for name, why in keeper.left_out.items():
                self._note(session, keeper, "left out", f"{name}: {why}")
        session.plan.take(table)
        self._shown = shown
        return None

    def _collect(self, session: Session) -> tuple[dict[str, Tool], list[tuple[Keeper, str]]]:
        """All tools by name, and what is wrong with them; of two with one name the first one stays."""
        table: dict[str, Tool] = dict(session.agent.tool_table)
        owners = dict.fromkeys(table, f"agent {session.agent.name!r}")
        problems: list[tuple[Keeper, str]] = []
        for keeper in self._keepers.values():
            attached, name = keeper.attached, keeper.attached.source.name
            offered = [tool.name for tool in keeper.tools]
            missing = [wanted for wanted in attached.names if wanted not in offered]
            if missing and keeper.failure is None:
                has = ", ".join(offered) or "none"
                problems.append((keeper, f"tool source {name!r} has no tool {', '.join(missing)}; it has: {has}"))
            for tool in keeper.tools:
                if not attached.whole and tool.name not in attached.names:
                    continue
                if tool.name in table:
                    problems.append((keeper, _clash(tool.name, owners[tool.name], name)))
                    continue
                table[tool.name], owners[tool.name] = tool, f"tool source {name!r}"
        return table, problems

    def _note(self, session: Session, keeper: Keeper, what: str, text: str) -> None:
        """Write something about a source into the log, once."""
        name = keeper.attached.source.name
        line = f"tool source {name!r}, {what}: {text}"
        if line not in self._noted:
            self._noted.add(line)
            session.live.record("note", {"source": name, "text": line})


def _clash(tool: str, owner: str, source: str) -> str:
    return (
        f"two tools are named {tool!r}: {owner} and tool source {source!r}; rename one "
        f'(an MCPServer takes prefix="{source}_", or tools={{"{tool}": {{"name": …}}}})'
    )


def _told(exc: Exception | None) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def _sourced(step: Performer, again: bool) -> Performer:
    """A step before which the run's sources have to be open; a call without its tool is answered here."""

    async def performed(session: Session, command: Command) -> bool:
        sources = session.sources
        if sources is None:
            return await step(session, command)
        fault = await sources.ready(session, again)
        if fault is not None:
            return session.end(Cause("failed", "tool_source", error=fault.text, resumable=fault.resumable))
        if not again:
            name = session.live.state.call(command.args).name
            if name not in session.tools:
                return await absent_step(session, command, sources.absent(name, tuple(session.tools)))
        return await step(session, command)

    return performed


SOURCED_STEPS: Mapping[str, Performer] = {
    **STEPS,
    "model": _sourced(STEPS["model"], again=True),
    "judge": _sourced(STEPS["judge"], again=False),
    "tool": _sourced(STEPS["tool"], again=False),
}
