"""What a tool returns, made safe for storing, judging and showing to a model.

Order of use: `safe_value` (JSON, or an error), then the gate judges the whole value, then `render`
and `cut` make the text of the tool message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias, get_args

import orjson

from lictor.errors import NotSerializable
from lictor.values import MAX_SAFE_INTEGER, Json

__all__ = ["MAX_DEPTH", "ErrorKind", "cut", "error_result", "render", "safe_value", "whole_text"]

MAX_DEPTH = 100  # the contract allows 128 for a whole context; a result sits a few levels deep in one
MAX_VALUES = 1_000_000  # a shared list in a list in a list … has no end otherwise
MAX_NOTES = 20

ErrorKind: TypeAlias = Literal[
    "denied",
    "interrupted",
    "cancelled",
    "unknown",
    "host_error",
    "not_run",
    "unknown_tool",
    "invalid_arguments",
    "cut",
    "tool_failed",
]
_KINDS = frozenset(get_args(ErrorKind))

_type: Callable[[Any], Any] = type  # a checker knows too little of `type(value)` here

# Nothing but plain JSON passes unseen: subclasses, dataclasses and dates go the long way.
_PLAIN = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)


def safe_value(value: object) -> tuple[Json, tuple[str, ...]]:
    """Turn what a tool returned into JSON that reads back as written.

    Strings stay; surrogate pairs are joined and lone surrogates become U+FFFD. NaN and infinities
    become null, integers beyond 2^53-1 decimal strings, bytes text or `{"base64": …}`. Tuples, sets,
    dataclasses, pydantic models, enums, decimals, dates, UUIDs, paths and numpy values take their
    JSON form. The result shares nothing with `value`.

    Returns:
        The JSON value, and a note of each change that lost something (at most 20), for the record.

    Raises:
        NotSerializable: the value is cyclic, too deep (100), too large, or has no JSON form; `path`
            says where.
    """
    if type(value) is str and value.isascii():
        return value, ()
    try:
        data = orjson.dumps(value, option=_PLAIN)
        if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
            plain: Json = orjson.loads(data)
            if plain == value:  # NaN, tuples and enums differ from what they were written as
                return plain, ()
    except Exception:  # noqa: BLE001, S110 - `==` may be anybody's; the walk below says what is wrong, and where
        pass
    walk = _Walk()
    try:
        result = walk.convert(value, "$", 0)
    except NotSerializable:
        raise
    except Exception as error:  # items and attributes may be anybody's code
        raise NotSerializable("$", f"reading it raised {type(error).__name__}") from error
    if orjson.loads(orjson.dumps(result, option=_PLAIN)) != result:
        raise NotSerializable("$", "what was written does not read back the same")
    return result, tuple(walk.notes)


def render(value: Json | Mapping[str, Any]) -> str:
    """Give the text a model reads: strings as they are (`""` too), everything else as compact JSON."""
    if type(value) is str:
        return value
    return orjson.dumps(value).decode()


def cut(text: str, limit: int = 65536) -> str:
    """Shorten `text` to `limit` UTF-8 bytes: head, a marker `[cut: N bytes]`, tail.

    N is the number of bytes left out; characters stay whole.

    Raises:
        ValueError: `limit` leaves no room for the marker (64 bytes).
    """
    if limit < 64:
        raise ValueError(f"limit={limit}: at least 64 bytes are needed for the marker")
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    room = limit - len(f"\n[cut: {len(data)} bytes]\n")
    head = data[: room - room // 2].decode("utf-8", "ignore")
    tail = data[len(data) - room // 2 :].decode("utf-8", "ignore")
    missing = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[cut: {missing} bytes]\n{tail}"


def error_result(kind: ErrorKind, reason: str, message: str, **more: Json) -> dict[str, Json]:
    """Build the result of a call that has none of its own.

    Args:
        kind: why there is no result; a closed set.
        reason: a short stable word (a policy's reason, an exception's name).
        message: a sentence for the model. Never holds a denied value.
        **more: further fields, such as `tools` (the valid names).

    Raises:
        ValueError: `kind` is not one of the set.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind={kind!r}: use one of {', '.join(sorted(_KINDS))}")
    if "error" in more:
        raise ValueError("more: 'error' is taken by kind")
    return {"error": kind, "reason": reason, "message": message, **more}


def whole_text(text: str) -> tuple[str, bool]:
    """Join surrogate pairs and replace lone surrogates; the flag says whether any was lone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        fixed = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return fixed, fixed.count("\ufffd") > text.count("\ufffd")
    return text, False


class _Walk:
    """One conversion: where it is, what it changed."""

    __slots__ = ("_left", "_open", "notes")

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._open: set[int] = set()
        self._left = MAX_VALUES

    def note(self, path: str, text: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(f"{path}: {text}")

    def convert(self, value: object, path: str, depth: int) -> Json:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            return self.convert(value.value, path, depth)
        for kind, leaf in _LEAVES:
            if isinstance(value, kind):
                return leaf(self, value, path)
        return self._container(value, path, depth)

    def _container(self, value: Any, path: str, depth: int) -> Json:
        self._left -= 1
        if self._left < 0:
            raise NotSerializable(path, f"more than {MAX_VALUES:,} values")
        if depth >= MAX_DEPTH:
            raise NotSerializable(path, f"nested deeper than {MAX_DEPTH} levels")
        if id(value) in self._open:
            raise NotSerializable(path, "it contains itself")
        self._open.add(id(value))
        try:
            kind = _type(value)
            if issubclass(kind, Mapping):
                return self._mapping(value.items(), path, depth)
            if issubclass(kind, AbstractSet):
                items = [self.convert(item, f"{path}[*]", depth + 1) for item in value]
                return sorted(items, key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
            if issubclass(kind, Sequence):
                return [self.convert(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
            if is_dataclass(kind):
                pairs = ((field.name, getattr(value, field.name)) for field in fields(kind))
                return self._mapping(pairs, path, depth)
            return self._foreign(value, path, depth)
        finally:
            self._open.discard(id(value))

    def _mapping(self, pairs: Any, path: str, depth: int) -> Json:
        result: dict[str, Json] = {}
        for key, item in pairs:
            name = self._key(key, path)
            if name in result:
                raise NotSerializable(path, f"two keys become {name!r}")
            result[name] = self.convert(item, f"{path}.{name[:40]}", depth + 1)
        return result

    def _key(self, key: object, path: str) -> str:
        if isinstance(key, str) and not isinstance(key, Enum):
            name, lone = whole_text(str(key))
            if lone:
                self.note(path, "a key held a lone surrogate")
            return name
        form = self.convert(key, path, 0)
        if isinstance(form, (list, dict)):
            raise NotSerializable(path, f"a key is {_a(key)}")
        name = render(form)
        if not isinstance(key, str):
            self.note(path, f"the key {name[:40]!r} was {_a(key)}")
        return name

    def _foreign(self, value: Any, path: str, depth: int) -> Json:
        """Read values of other libraries through the forms they offer."""
        if hasattr(value, "__next__"):
            raise NotSerializable(path, f"{_a(value)} yields its values once: return a list")
        try:
            form = _other_form(value)
        except Exception as error:  # a serializer of the tool's author may raise anything
            raise NotSerializable(path, f"{_a(value)} has no JSON form ({type(error).__name__})") from error
        return self.convert(form, path, depth + 1)


def _other_form(value: Any) -> object:
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # numpy and what follows its protocol
        return value.tolist()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True)


def _a(value: Any) -> str:
    """Name the type of a value, never its content."""
    return f"a value of type {type(value).__name__}"


def _text(walk: _Walk, value: str, path: str) -> Json:
    text, lone = whole_text(str.__str__(value))
    if lone:
        walk.note(path, "lone surrogates became U+FFFD")
    return text


def _integer(walk: _Walk, value: int, path: str) -> Json:
    if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return int(value)
    walk.note(path, "an integer beyond 2^53-1 became a decimal string")
    try:
        return int.__repr__(value)
    except ValueError as error:  # more digits than Python converts
        raise NotSerializable(path, "an integer with too many digits") from error


def _number(walk: _Walk, value: float, path: str) -> Json:
    if math.isfinite(value):
        return float(value)
    walk.note(path, f"{float(value)} became null")
    return None


def _bytes(walk: _Walk, value: Any, path: str) -> Json:
    data = bytes(value)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        walk.note(path, "bytes became base64")
        return {"base64": b64encode(data).decode()}
    walk.note(path, "bytes became text (UTF-8)")
    return text


_LEAVES: tuple[tuple[Any, Callable[[_Walk, Any, str], Json]], ...] = (
    (str, _text),
    (int, _integer),
    (float, _number),
    ((bytes, bytearray, memoryview), _bytes),
)
