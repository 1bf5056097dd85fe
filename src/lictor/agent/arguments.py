"""What a model sent as arguments, read strictly: what cannot be read exactly is an error, never repaired."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from lictor.agent.results import MAX_DEPTH, whole_text
from lictor.errors import ToolArgumentsInvalid, ValueDomainError
from lictor.values import MAX_SAFE_INTEGER

__all__ = ["parse_arguments", "plain", "shortened"]

ECHO = 80  # characters of what the model sent that go back to it

_type: Callable[[Any], Any] = type  # a checker knows too little of `type(value)` here


class _Rejected(ValueError):
    """The reader met something JSON allows or Python accepts, and we do not."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Rejected(f"the key {shortened(twice)} appears twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Rejected(f"the number {text[:ECHO]} is too large")
    return value


def _constant(text: str) -> NoReturn:
    raise _Rejected(f"{text} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_finite, parse_constant=_constant)
_scan = cast("Callable[[Any, int], tuple[Any, int]]", cast("Any", _decoder).scan_once)

_long_number = re.compile(r"[0-9]{16}").search


def parse_arguments(
    text: str | Mapping[str, Any], tool: str = "", reads: Callable[[bytes], Any] | None = None
) -> dict[str, Any]:
    """Read the arguments of a tool call as a model sent them.

    One JSON object, without duplicate keys, NaN and numbers beyond a double. An integer beyond 2^53-1
    becomes a decimal string, exact to the digit: the one form that every reader of JSON shares (§4.4).
    A parameter of type `int` takes it; the function gets the integer. Where `reads` shows that the
    function would get the string instead, the integer stays: nothing is silently rewritten, and the gate
    refuses it. `""` is `{}`: the tool's schema then says whether something is missing. A mapping is taken
    as it is, by the same rules. An escaped surrogate pair is one character, a lone surrogate an error.
    Whether the arguments fit the tool is not looked at: that is `Tool.parse`.

    Args:
        text: the JSON text, or a mapping from a provider that parses itself.
        tool: the tool's name, for the error.
        reads: how the tool reads JSON bytes (`Binding.validate`).

    Raises:
        ToolArgumentsInvalid: with one line a model can act on; what was sent is echoed in part only.
    """
    try:
        value, end = _scan(text, 0)
        if _type(value) is dict and end == len(text) and _harmless(text, end):
            read: dict[str, Any] = value
            return read
    except Exception:  # noqa: BLE001, S110 - whatever it was, the careful way below names it
        pass
    try:
        sent = text if isinstance(text, Mapping) else _careful(text)
        spelled = plain(sent, spelled=True)
        return dict(spelled if reads is None or _restores(reads, spelled, plain(sent)) else plain(sent))
    except _Rejected as error:
        problem = f"not valid arguments: {error}"
    except ValueDomainError as error:
        problem = f"{error.path[:ECHO]}: {error.problem}"
    except RecursionError:
        problem = "not valid arguments: nested too deep"
    raise ToolArgumentsInvalid(tool, [problem])


def _restores(reads: Callable[[bytes], Any], spelled: Any, exact: Any) -> bool:
    """Whether a tool reads the same from digits in a string as from the integers that were sent."""
    if spelled == exact:
        return True
    try:
        return bool(reads(json.dumps(spelled).encode()) == reads(json.dumps(exact).encode()))
    except Exception:  # noqa: BLE001 - they do not fit the tool in one form; `Tool.parse` says what is wrong
        return True


def _harmless(text: Any, length: int) -> bool:
    """Whether the text can hold neither a lone surrogate, a long integer nor too many levels."""
    if "\\ud" in text or "\\uD" in text or _long_number(text):
        return False
    if length > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
        return False
    return bool(text.isascii() or text.encode())  # encode raises on a lone surrogate


def _careful(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise _Rejected(f"expected a JSON object, got {_kind(text)}")
    whole, lone = whole_text(text)
    if lone:
        raise _Rejected("a lone surrogate is not a character")
    if not whole.strip():
        return {}
    try:
        value = _decoder.decode(whole)
    except json.JSONDecodeError as error:
        near = shortened(whole[max(0, error.pos - ECHO // 4) : error.pos + ECHO])
        raise _Rejected(f"not JSON: {error.msg} at character {error.pos}, near {near}") from error
    except _Rejected:
        raise
    except ValueError as error:  # more digits than Python converts
        raise _Rejected("a number has too many digits") from error
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        raise _Rejected("the object was encoded twice: send the object itself, not a string that holds it")
    raise _Rejected(f"expected a JSON object such as {{}}, got {_kind(value)}: {shortened(whole)}")


def plain(value: Any, path: str = "$", depth: int = 0, *, spelled: bool = False) -> Any:
    """Copy JSON, or say where it is none.

    Args:
        value: the data.
        path: where it sits, for errors.
        depth: how deep it sits.
        spelled: whether integers beyond 2^53-1 become decimal strings, so that every reader of the
            copy sees the same number (§4.4).

    Raises:
        ValueDomainError: a value that JSON cannot say, or nested deeper than 100.
    """
    kind = _type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return str(value) if spelled and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else value
    if kind is float:
        if not math.isfinite(value):
            raise ValueDomainError(path, "not a finite number")
        return value
    if isinstance(value, str):
        return _string(value, path)
    if depth >= MAX_DEPTH:
        raise ValueDomainError(path, f"nested deeper than {MAX_DEPTH} levels")
    if issubclass(kind, Mapping):
        copy = {
            _key(key, path): plain(item, f"{path}.{str(key)[:40]}", depth + 1, spelled=spelled)
            for key, item in value.items()
        }
        if len(copy) != len(value):
            raise ValueDomainError(path, "two keys are the same")
        return copy
    if issubclass(kind, list):
        return [plain(item, f"{path}[{index}]", depth + 1, spelled=spelled) for index, item in enumerate(value)]
    raise ValueDomainError(path, f"a value of type {kind.__name__} is not JSON")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise ValueDomainError(path, f"a key of type {type(key).__name__} is not JSON")
    return _string(key, path)


def _string(value: str, path: str) -> str:
    text, lone = whole_text(value)
    if lone:
        raise ValueDomainError(path, "a lone surrogate is not a character")
    return text


def shortened(value: object) -> str:
    """Quote a value of a model, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= ECHO else f"{text[:ECHO]}… ({len(text)} characters)"


def _kind(value: object) -> str:
    names: dict[type[Any], str] = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
    }
    return names.get(type(value), f"a value of type {type(value).__name__}")
