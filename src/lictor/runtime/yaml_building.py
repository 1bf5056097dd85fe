"""From the sections of a team.yaml to agents and teams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from lictor.adapters import MCPServer
from lictor.agent import Agent, DenyRepeats, LoopBreaker, tool
from lictor.errors import DefinitionError
from lictor.hooks import Governance
from lictor.runs import Budget
from lictor.runtime.yaml_models import AgentSection, File, MCPSection, NamedTeam, TeamSection, Use
from lictor.runtime.yaml_reading import Document, Place, settled
from lictor.team import Team

__all__ = ["Builder"]

T = TypeVar("T")
Load = Callable[[str], Any]
MCP, AGENT = "mcp:", "agent:"
PARTS: Mapping[str, Any] = {
    "budget": Budget,
    "loop_breaker": LoopBreaker,
    "deny_repeats": DenyRepeats,
    "governance": Governance,
}
LOADED = ("output_type", "resolver", "record_sink")


class Builder:
    """Makes each agent, team and server of a file once, when it is first needed.

    Arguments:
        load: gives the object of an import path.
    """

    def __init__(self, document: Document, file: File, load: Load) -> None:
        self._document = document
        self._file = file
        self._load = load
        self._made: dict[str, Any] = {}
        self._servers: dict[str, MCPServer] = {}
        self._making: list[str] = []

    def definition(self, name: str) -> Agent | Team:
        """The agent or team of this name. Raises DefinitionError, which names file, line and path."""
        if name not in self._made:
            if name in self._making:
                place = self._place(name)
                raise self._document.error(place, f"{' in '.join([*self._making, name])}: it stands inside itself")
            self._making.append(name)
            self._made[name] = self._agent(name) if name in self._file.agents else self._team(name)
            self._making.pop()
        made: Agent | Team = self._made[name]
        return made

    def _place(self, name: str) -> Place:
        if name in self._file.agents:
            return ("agents", name)
        return ("teams", name) if name in self._file.teams else ("team",)

    # agents and teams

    def _agent(self, name: str) -> Agent:
        section, place = self._file.agents[name], self._place(name)
        options = self._options(section, place)
        options["tools"] = [self._tool(item, (*place, "tools", at)) for at, item in enumerate(section.tools)]
        return self._called(place, Agent, name, **options)

    def _team(self, name: str) -> Team:
        section: NamedTeam = self._file.teams[name] if name in self._file.teams else self._single()
        place = self._place(name)
        options = self._options(section, place)
        options.pop("name", None)
        options["members"] = [self._member(item, (*place, "members", at)) for at, item in enumerate(section.members)]
        if "protocol" in options:
            options["protocol"] = self._protocol(section.protocol, (*place, "protocol"))
        return self._called(place, Team, name, **options)

    def _single(self) -> TeamSection:
        if self._file.team is None:
            raise DefinitionError(f"{self._document.name} has no team")
        return self._file.team

    def _options(self, section: AgentSection | NamedTeam, place: Place) -> dict[str, Any]:
        """What is written, as options of the constructor; what is not written keeps the constructor's default."""
        options: dict[str, Any] = {}
        for name in sorted(section.model_fields_set):
            value, at = getattr(section, name), (*place, name)
            if name in PARTS:
                value = self._part(name, value, at)
            elif name == "interceptors":
                value = {key: self._indexed(item, (*at, key)) for key, item in value.items()}
            elif name == "watchers":
                value = [self._built(item, (*at, number)) for number, item in enumerate(value)]
            elif name == "model" and value is not None:
                value = self._models(value, at)
            elif name in LOADED and value is not None:
                value = self._object(value, at)
            options[name] = settled(value) if name == "settings" else value
        return options

    def _part(self, name: str, section: BaseModel | None, place: Place) -> Any:
        if section is None:
            return None
        options = _written(section)
        for each in LOADED:
            if each in options:
                options[each] = self._object(options[each], (*place, each))
        if "per_member" in options:
            options["per_member"] = self._part(name, options["per_member"], (*place, "per_member"))
        return self._called(place, PARTS[name], **options)

    # members and tools

    def _member(self, item: str, place: Place) -> Any:
        if item in self._names():
            return self.definition(item)
        if ":" in item:
            return self._object(item, place)
        raise self._document.error(place, f"there is no agent or team {item!r}; there is {', '.join(self._names())}")

    def _names(self) -> list[str]:
        single = [] if self._file.team is None else [self._file.team.name]
        return [*self._file.agents, *self._file.teams, *single]

    def _tool(self, item: Any, place: Place) -> Any:
        if not isinstance(item, str):
            options = _written(item)
            function = self._object(options.pop("use"), place)
            return self._called(place, lambda: tool(**options)(function))
        if item.startswith(MCP):
            server, _, name = item.removeprefix(MCP).partition("/")
            return self._server(server, place)[name] if name else self._server(server, place)
        if item.startswith(AGENT):
            name = item.removeprefix(AGENT)
            if name not in self._file.agents:
                raise self._document.error(
                    place, f"there is no agent {name!r}; there is {', '.join(self._file.agents)}"
                )
            return self.definition(name)
        return self._object(item, place)

    def _server(self, name: str, place: Place) -> MCPServer:
        if name not in self._file.mcp:
            known = ", ".join(self._file.mcp) or "none"
            raise self._document.error(place, f"there is no MCP server {name!r} under mcp; there is {known}")
        if name not in self._servers:
            section: MCPSection = self._file.mcp[name]
            options = _written(section)
            options["tools"] = {item: _written(declared) for item, declared in section.tools.items()}
            self._servers[name] = self._called(("mcp", name), MCPServer, name, **options)
        return self._servers[name]

    def _models(self, given: str | Use | Sequence[str | Use], place: Place) -> Any:
        if isinstance(given, str):
            return given
        if isinstance(given, Use):
            return self._built(given, place)
        return [self._models(item, (*place, at)) for at, item in enumerate(given)]

    # import paths

    def _protocol(self, given: Any, place: Place) -> Any:
        return given if isinstance(given, str) and ":" not in given else self._built(given, place)

    def _indexed(self, item: str | Use, place: Place) -> Any:
        built = self._built(item, place)
        return (built, item.index) if isinstance(item, Use) and item.index else built

    def _built(self, item: str | Use, place: Place) -> Any:
        """A class is built with its options; anything else is taken as it is."""
        path = item if isinstance(item, str) else item.use
        options = {} if isinstance(item, str) else settled(dict(item.model_extra or {}))
        found = self._object(path, place)
        if isinstance(found, type):
            return self._called(place, _make, found, options)
        if options:
            raise self._document.error(place, f"{path} is no class, so it takes no options ({', '.join(options)})")
        return found

    def _object(self, path: str, place: Place) -> Any:
        return self._called(place, self._load, path)

    def _called(self, place: Place, fn: Callable[..., T], *args: Any, **options: Any) -> T:
        """What a constructor makes; what it refuses, or does not take, is told with the place."""
        try:
            return fn(*args, **options)
        except (DefinitionError, TypeError) as exc:
            told = str(exc)
            raise (exc if told.startswith(self._document.name) else self._document.error(place, told)) from exc


def _make(kind: type, options: Mapping[str, Any]) -> Any:
    """Build a class with options by name; the one that a `*names` parameter is called takes a list."""
    try:
        several = [
            each.name for each in inspect.signature(kind).parameters.values() if each.kind is each.VAR_POSITIONAL
        ]
    except ValueError:  # some classes in C do not say what they take
        several = []
    named = {name: value for name, value in options.items() if name not in several}
    listed: Sequence[Any] = [item for name in several if name in options for item in options[name]]
    return kind(*listed, **named)


def _written(section: BaseModel) -> dict[str, Any]:
    """The options that are written in a section, and not empty."""
    found = {name: getattr(section, name) for name in section.model_fields_set}
    return {name: value for name, value in found.items() if value is not None}
