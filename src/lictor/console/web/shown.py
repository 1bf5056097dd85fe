"""How stored values look on a page: whole, exact, and with every sign that hides made visible."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

__all__ = ["Field", "ago", "brief", "changed_arguments", "fields_of", "kind_of", "moment", "number", "value", "visible"]

KINDS: Mapping[type, str] = {
    str: "text", bool: "yes or no", int: "number", float: "number", list: "list", dict: "object", type(None): "nothing",
}  # fmt: skip
BRIEF = 160
SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def visible(text: object) -> Markup:
    """`text` for a page: escaped, and what has no shape or turns the direction of writing named by its number."""
    pieces = [
        Markup("").join([_named(sign) for sign in signs]) if hidden else escape("".join(signs))
        for hidden, signs in groupby(str(text), _hides)
    ]
    return Markup("").join(pieces)


def _hides(sign: str) -> bool:
    return not (sign.isprintable() or sign == "\n")


def _named(sign: str) -> Markup:
    number = f"U+{ord(sign):04X}"
    return Markup('<span class="sign" title="{}">{}</span>').format(unicodedata.name(sign, "control character"), number)


def value(given: Any) -> Markup:
    """A JSON value, whole: texts in quotes with their line breaks, everything else as JSON."""
    if isinstance(given, str):
        return Markup('<q class="text">{}</q>').format(visible(given))
    return visible(json.dumps(given, ensure_ascii=False, indent=2))


def kind_of(given: Any) -> str:
    """The kind of a JSON value in a word."""
    return KINDS.get(type(given), "value")


def brief(text: object) -> str:
    """The beginning of a text in one line: for what is shown in whole elsewhere."""
    line = " ".join(str(text).split())
    return line if len(line) <= BRIEF else f"{line[:BRIEF]} …"


def number(given: float) -> str:
    """A number for people: thousands parted, no needless zeros."""
    told = f"{given:,.4f}".rstrip("0")
    return told.rstrip(".")


# ---- times ------------------------------------------------------------------------------------


def moment(instant: str) -> str:
    """An RFC 3339 instant to the second, in UTC."""
    return f"{instant[:10]} {instant[11:19]} UTC"


def ago(instant: str, now: float) -> str:
    """How long ago an instant was, or how far ahead it is."""
    seconds = now - datetime.fromisoformat(instant).timestamp()
    size, name = next((span for span in SPANS if abs(seconds) >= span[0]), SPANS[-1])
    count = int(abs(seconds) // size)
    told = f"{count} {name}{'' if count == 1 else 's'}"
    if seconds < 0:
        return f"in {told}"
    return f"{told} ago" if seconds >= 1 else "just now"


# ---- editing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One argument in the form that edits a call.

    `plain` fields hold a text as it is, the others hold JSON; an empty one that is `optional` leaves the argument out.
    """

    name: str
    text: str
    plain: bool
    optional: bool
    hint: str

    @property
    def rows(self) -> int:
        """Lines that the field shows."""
        return min(12, max(1, self.text.count("\n") + 1 + len(self.text) // 70))


def fields_of(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Field]:
    """The fields for the arguments of a call, and for those of its tool that it left out."""
    properties = schema.get("properties", {})
    found = [
        Field(name=name, text=_written(given), plain=_plain(given), optional=False, hint=_hint(properties.get(name)))
        for name, given in arguments.items()
    ]
    for name, declared in properties.items():
        if name not in arguments:
            plain = declared.get("type") == "string"
            found.append(Field(name=name, text="", plain=plain, optional=True, hint=_hint(declared)))
    return found


def _plain(given: Any) -> bool:
    """Whether a text survives a form: no signs that hide; browsers change them or people do not see them."""
    return isinstance(given, str) and given != "" and not any(map(_hides, given))


def _written(given: Any) -> str:
    return given if _plain(given) else json.dumps(given, indent=None if isinstance(given, str) else 2)


def _hint(declared: Any) -> str:
    kind = declared.get("type") if isinstance(declared, Mapping) else None
    return kind if isinstance(kind, str) else ""


def changed_arguments(
    form: Mapping[str, str], arguments: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """All arguments as a form has them, and what is wrong with it, a line each.

    A field that was not touched keeps its value exactly, whatever a browser makes of its text.
    """
    given: dict[str, Any] = {}
    problems: list[str] = []
    for field in fields_of(arguments, schema):
        text = form.get(f"argument:{field.name}", field.text).replace("\r\n", "\n")
        if text == field.text:
            if not field.optional:
                given[field.name] = arguments[field.name]
            continue
        if field.plain:
            given[field.name] = text
            continue
        try:
            given[field.name] = json.loads(text, parse_constant=_no_number)
        except ValueError:
            problems.append(f"{field.name}: {text!r} is no JSON; write a text in quotes, a number, true, false or null")
    if not problems and given == arguments and json.dumps(given) == json.dumps(dict(arguments)):
        problems.append("nothing was changed; approve the call as it is shown")
    return given, problems


def _no_number(word: str) -> Any:
    raise ValueError(word)
