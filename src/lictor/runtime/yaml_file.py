"""team.yaml: definitions without Python, for `lictor run team.yaml "task"` and everything that takes a target."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from lictor.agent import Agent
from lictor.errors import DefinitionError
from lictor.runtime.yaml_building import Builder, Load
from lictor.runtime.yaml_checking import check
from lictor.runtime.yaml_reading import read
from lictor.team import Team

__all__ = ["TeamFile"]


class TeamFile:
    """A team.yaml that was read and checked; agents and teams are made when they are asked for.

    Arguments:
        path: the file. Modules that it names are looked up beside it first, then as always.
        load: gives the object of an import path.
        environ: what `${NAME}` stands for; the process's environment by default.

    Raises DefinitionError, which names file, line and path of what is wrong.
    """

    def __init__(self, path: Path, load: Load, environ: Mapping[str, str] | None = None) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DefinitionError(f"there is no file {path} (looked in {Path.cwd()})") from None
        except (OSError, UnicodeDecodeError) as exc:
            raise DefinitionError(f"{path} cannot be read: {exc}") from exc
        folder = path.resolve().parent
        self._name = path.name
        self._document = read(text, path.name, os.environ if environ is None else environ)
        self._file = check(self._document)
        for name in self.names:
            if self.names.count(name) > 1:
                raise DefinitionError(f"{path.name}: two agents or teams are called {name!r}")
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        self._builder = Builder(self._document, self._file, lambda spec: load(_beside(folder, spec)))

    @property
    def store(self) -> str | None:
        """Where the file says that runs are kept."""
        return self._file.store

    @property
    def names(self) -> list[str]:
        """What can be run: teams first, then agents."""
        single = [] if self._file.team is None else [self._file.team.name]
        return [*single, *self._file.teams, *self._file.agents]

    def definition(self, name: str = "") -> Agent | Team:
        """The agent or team of this name; without one the only team, or the only agent.

        Raises DefinitionError: there is none, or several.
        """
        if name and name not in self.names:
            near = get_close_matches(name, self.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(self.names)}"
            raise DefinitionError(f"there is no {name!r} in {self._name}; {hint}")
        return self._builder.definition(name or self._only())

    def _only(self) -> str:
        file = self._file
        if file.team is not None:
            return file.team.name
        several = list(file.teams) or list(file.agents)
        if len(several) != 1:
            choices = f"write {self._name}:NAME; it has {', '.join(self.names)}" if several else "it has no agents"
            raise DefinitionError(f"{self._name} does not say what to run; {choices}")
        return several[0]


def _beside(folder: Path, spec: str) -> str:
    """`file.py:name` means the file beside the YAML, wherever the command is typed."""
    place, _, name = spec.rpartition(":")
    return f"{folder / place}:{name}" if place.endswith(".py") else spec
