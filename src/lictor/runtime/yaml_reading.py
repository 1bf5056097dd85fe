"""The text of a YAML file as plain values, each with its line; nothing in it makes an object of Python.

Scalars are read as YAML 1.2 reads them, so that `on`, `no` and `12:30` stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from lictor.errors import DefinitionError

__all__ = ["Document", "Place", "Unquoted", "read", "settled"]

Place = tuple[str | int, ...]
MOST_VALUES: Final = 20_000  # aliases may multiply a small file
ENV: Final = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
NAMED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
INT: Final = re.compile(r"[-+]?[0-9]+")
FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
PLAIN: Final = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"})


class Unquoted(str):
    """The value of a variable that stood without quotes: a text where one is wanted, else what YAML reads in it."""

    __slots__ = ()


class Document(NamedTuple):
    """What a file holds, the line of every place in it, and a line about each variable that is not set."""

    name: str
    value: Any
    lines: Mapping[Place, int]
    unset: Sequence[str] = ()

    def error(self, place: Place, problem: str) -> DefinitionError:
        """An error about a place: file, line, path, and what is wrong."""
        return DefinitionError(self.told(place, problem))

    def told(self, place: Place, problem: str) -> str:
        """The line about a place."""
        known = place
        while known not in self.lines:
            known = known[:-1]
        path = ".".join(map(str, place))
        return f"{self.name}:{self.lines[known]}: {path}: {problem}" if path else f"{self.name}: {problem}"


def read(text: str, name: str, environ: Mapping[str, str]) -> Document:
    """The values of a YAML text.

    Arguments:
        name: the file, for messages.
        environ: the variables that `${NAME}` stands for; `${NAME:-text}` has a default, `$${` is no variable.

    Raises DefinitionError, which names the line: no YAML, a tag, a key that is there twice.
    """
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark is not None else 1
        around = text.splitlines()[max(0, line - 2) : line]
        hint = "; inside { } and [ ], put ${NAME} in quotes" if any("${" in each for each in around) else ""
        raise DefinitionError(f"{name}:{line}: this is no YAML: {exc.problem or exc.context}{hint}") from None
    except yaml.YAMLError as exc:
        raise DefinitionError(f"{name}: this is no YAML: {' '.join(str(exc).split())}") from None
    except RecursionError:
        raise DefinitionError(f"{name}: it is nested too deeply") from None
    reader = _Reader(name, environ)
    value = None if root is None else reader.value(root, ())
    return Document(name, value, {(): 1, **reader.lines}, reader.unset)


def settled(value: Any) -> Any:
    """A free-form value (options, settings) with what variables gave read as YAML reads it."""
    if isinstance(value, Unquoted):
        return _scalar(value)
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    return [settled(item) for item in value] if isinstance(value, list) else value


class _Reader:
    """Turns nodes into values and keeps the lines."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self.lines: dict[Place, int] = {}
        self.unset: list[str] = []
        self._name = name
        self._environ = environ
        self._above: list[yaml.Node] = []
        self._count = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        """The value of a node, and of everything in it."""
        self._count += 1
        if node.tag not in PLAIN:
            raise self._wrong(node, f"the tag {node.tag} is not used here")
        if self._count > MOST_VALUES or node in self._above:
            raise self._wrong(node, "it is too large, or an alias stands inside itself")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._text(node)
        self._above.append(node)
        made: Any
        if isinstance(node, yaml.MappingNode):
            made = self._mapping(node, place)
        else:
            made = [self.value(item, (*place, at)) for at, item in enumerate(node.value)]
        self._above.pop()
        return made

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(key, "a key must be a word")
            if key.value == "<<":
                raise self._wrong(key, "merge keys (<<) are not read; repeat the lines, or use an alias for a value")
            if key.value in found:
                raise self._wrong(key, f"the key {key.value!r} is there twice")
            self.lines[(*place, key.value)] = key.start_mark.line + 1
            found[key.value] = self.value(item, (*place, key.value))
        return found

    def _text(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        plain = node.style is None
        if "${" not in text:
            return _scalar(text) if plain else text
        filled = ENV.sub(self._variable(node), text)
        return Unquoted(filled) if plain else filled

    def _variable(self, node: yaml.Node) -> Callable[[re.Match[str]], str]:
        def value(found: re.Match[str]) -> str:
            if found[1]:
                return found[1]
            named = NAMED.fullmatch(found[2])
            if named is None:
                raise self._wrong(node, f"{found[0]} is no variable; write ${{NAME}}, or $${{ for the signs themselves")
            if named[1] in self._environ:
                return self._environ[named[1]]
            if named[2] is None:
                self.unset.append(str(self._wrong(node, f"the environment variable {named[1]} is not set")))
            return named[2] or ""

        return value

    def _wrong(self, node: yaml.Node, problem: str) -> DefinitionError:
        return DefinitionError(f"{self._name}:{node.start_mark.line + 1}: {problem}")


def _scalar(text: str) -> Any:
    """A plain scalar, by the core schema of YAML 1.2."""
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text) and len(text) < 20:
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else str(text)
