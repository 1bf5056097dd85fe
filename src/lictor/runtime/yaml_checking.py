"""A read file against the models: problems in one line each, with file, line and path; and the JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lictor.agent import Agent
from lictor.errors import DefinitionError
from lictor.runs import Budget
from lictor.runtime.yaml_models import UNKNOWN, File
from lictor.runtime.yaml_reading import Document, Place
from lictor.team import Team

__all__ = ["check", "file_schema"]

MOST_TOLD = 3
SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def check(document: Document) -> File:
    """The sections of a file. Raises DefinitionError with the first problems."""
    if document.value is None:
        raise DefinitionError(f"{document.name}: the file is empty; it needs version: 1, agents and a team")
    later = [key for key in File.later if isinstance(document.value, dict) and key in document.value]
    if later:
        raise document.error((later[0],), File.later[later[0]])
    if document.unset:
        raise DefinitionError("; ".join(document.unset))
    try:
        return File.model_validate(document.value)
    except ValidationError as exc:
        problems = [_told(document, error) for error in exc.errors(include_url=False)]
        more = f"; and {len(problems) - MOST_TOLD} more" if len(problems) > MOST_TOLD else ""
        raise DefinitionError("; ".join(problems[:MOST_TOLD]) + more) from None


def _told(document: Document, error: ErrorDetails) -> str:
    place = _place(document.value, error["loc"])
    context: Mapping[str, Any] = error.get("ctx") or {}
    kind, given = error["type"], error["input"]
    if kind == UNKNOWN:
        return document.told((*place, context["key"]), context["told"])
    if kind == "missing":
        return document.told(place, f"{error['loc'][-1]!r} is missing")
    if kind == "union_tag_invalid":
        return document.told(place, f"a {context['tag']} cannot stand here; write {context['expected_tags']}")
    if kind == "literal_error":
        return document.told(place, _choice(given, str(context["expected"])))
    if kind.startswith("no_"):
        return document.told(place, error["msg"])
    return document.told(place, f"{error['msg'][0].lower()}{error['msg'][1:]}, not {given!r}")


def _choice(given: Any, expected: str) -> str:
    names = expected.replace(" or ", ", ").replace("'", "").split(", ")
    near = get_close_matches(str(given), names, n=1)
    return f"{given!r} is not one of {', '.join(names)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _place(value: Any, loc: tuple[str | int, ...]) -> Place:
    """The part of an error's location that is in the file; pydantic puts the names of alternatives into it."""
    place: list[str | int] = []
    part: Any
    for part in loc:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            place.append(part)
            value = value[part]
    return tuple(place)


# ---- the schema -------------------------------------------------------------------------------


def file_schema() -> dict[str, Any]:
    """The JSON Schema of a team.yaml, for editors; what a key means is told as the docstrings tell it."""
    schema = File.model_json_schema()
    sections = schema["$defs"]
    for section, made in (
        ("AgentSection", Agent),
        ("TeamSection", Team),
        ("NamedTeam", Team),
        ("BudgetSection", Budget),
    ):
        told = _described(made)
        for name, option in sections[section]["properties"].items():
            if name in told:
                option.setdefault("description", told[name])
    for option in _options(schema):
        option.pop("title", None)
    return {"$schema": SCHEMA, **schema, "title": "team.yaml of Lictor"}


def _described(made: type) -> dict[str, str]:
    from docstring_parser import DocstringStyle, parse

    found = parse(inspect.getdoc(made) or "", style=DocstringStyle.GOOGLE).params
    return {
        name.strip(): " ".join((each.description or "").split()) for each in found for name in each.arg_name.split(",")
    }


def _options(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every property of every section; pydantic gives each a title that says nothing new."""
    sections = [schema, *schema["$defs"].values()]
    return [option for section in sections for option in section.get("properties", {}).values()]
