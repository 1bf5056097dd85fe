"""Plain values: ids, frozen JSON, canonical bytes, digests and the clock.

Frozen JSON is what makes an emission cheap: a message that stays in a history is checked and
serialised once, however many contexts it appears in (§7, §10.2, §12.3).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from lictor.errors import ValueDomainError

__all__ = [
    "MAX_DEPTH",
    "MAX_SAFE_INTEGER",
    "Clock",
    "FrozenDict",
    "FrozenList",
    "Json",
    "canonical_bytes",
    "canonical_json",
    "digest",
    "freeze",
    "frozen_texts",
    "new_id",
    "thaw",
]

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

MAX_SAFE_INTEGER: Final = 2**53 - 1  # §10.2: beyond it RFC 8785 would round
MAX_DEPTH: Final = 128  # §12.3

_SORTED: Final = orjson.OPT_SORT_KEYS
_FEW: Final = 64  # objects of a list that keep bytes of their own; thousands of rows do not pay for that
_dumps = orjson.dumps


def new_id(prefix: str = "") -> str:
    """Return 128 random bits as 32 lowercase hex digits, with `prefix_` in front if one is given."""
    identifier = os.urandom(16).hex()
    return f"{prefix}_{identifier}" if prefix else identifier


# ---- frozen containers ------------------------------------------------------------------------


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses writes; made by `freeze`, never by hand.

    It is a `dict`, so anything that reads dicts reads it. `copy`, `copy.deepcopy`, `|` and pickle
    give plain mutable dicts. Slots hold what was found out when it was frozen: `_height` (levels of
    nesting), `_plain` (holds no float anywhere), `_canon` (RFC 8785 bytes, made on first use).
    """

    __slots__ = ("_canon", "_height", "_plain")

    _canon: bytes | None
    _height: int
    _plain: bool

    def _refuse(self: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("this JSON value is frozen; change a copy: thaw(value) or dict(value)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: object) -> dict[str, Any]:
        return _thaw_dict(self)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return (dict, (), None, None, iter(self.items()))


class FrozenList(list[Any]):
    """A JSON array that refuses writes; see `FrozenDict`."""

    __slots__ = ("_canon", "_height", "_plain")

    _canon: bytes | None
    _height: int
    _plain: bool

    def _refuse(self: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("this JSON value is frozen; change a copy: thaw(value) or list(value)")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: object) -> list[Any]:
        return _thaw_list(self)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return (list, (), None, iter(self))


def frozen_texts(**members: str) -> FrozenDict:
    """Return a frozen object of texts; cheaper than `freeze`, since texts need no check until bytes are made."""
    frozen = FrozenDict(members)
    frozen._plain, frozen._height, frozen._canon = True, 1, None
    return frozen


class _Outside(Exception):
    """The value is outside the domain; `_explain` then finds out where, off the fast path."""


def freeze(value: Any) -> Any:
    """Return `value` as frozen JSON: checked and copied in one walk (§4.4, §10.2, §12.3).

    Frozen values and scalars are returned as they are; subclasses of `str`, `int`, `float`, `dict`
    and `list` (enum members, for one) become the plain type. Nothing else is normalised.

    Raises:
        ValueDomainError: for sets, bytes, tuples and other types, non-string keys, NaN and
            infinities, integers beyond 2^53-1, more than 128 levels, and cycles. Lone surrogates
            are found when bytes are made (`canonical_json`).
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    try:
        if kind is dict:
            return _freeze_dict(value, MAX_DEPTH)
        if kind is list:
            return _freeze_list(value, MAX_DEPTH)
        if kind is FrozenDict or kind is FrozenList:
            value._height  # noqa: B018 - unset when someone built it by hand, which is refused
            return value
        return _freeze_child(value, kind, MAX_DEPTH)
    except (_Outside, AttributeError, RecursionError):
        raise _explain(value) from None


def _freeze_dict(source: dict[str, Any], room: int) -> FrozenDict:
    plain = True
    height = 0
    changed: dict[str, Any] = {}
    for key in source:
        if type(key) is not str:
            return _freeze_dict(_with_plain_keys(source), room)
        item = source[key]
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is int and -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
            continue
        if kind is float and item - item == 0.0:
            plain = False
            continue
        if kind is not FrozenDict and kind is not FrozenList:
            fresh = kind in _FREEZERS and room > 1
            item = _FREEZERS[kind](item, room - 1) if fresh else _freeze_child(item, kind, room - 1)
            changed[key] = item
            kind = type(item)
        if kind is FrozenDict or kind is FrozenList:
            plain = plain and item._plain
            height = item._height if item._height > height else height
        else:
            plain = plain and kind is not float
    if height >= room:
        raise _Outside
    frozen = FrozenDict({**source, **changed}) if changed else FrozenDict(source)
    frozen._plain = plain
    frozen._height = height + 1
    frozen._canon = None
    return frozen


def _freeze_list(source: list[Any], room: int) -> FrozenList:
    plain = True
    height = 0
    items = source
    for number, item in enumerate(source):
        kind = type(item)
        if kind is not FrozenDict and kind is not FrozenList and kind is not str:
            fresh = kind in _FREEZERS and room > 1
            item = _FREEZERS[kind](item, room - 1) if fresh else _freeze_child(item, kind, room - 1)
            kind = type(item)
            items = [*source] if items is source else items
            items[number] = item
        if kind is FrozenDict or kind is FrozenList:
            plain = plain and item._plain
            height = item._height if item._height > height else height
        elif kind is float:
            plain = False
    if height >= room:
        raise _Outside
    frozen = FrozenList(items)
    frozen._plain = plain
    frozen._height = height + 1
    frozen._canon = None
    return frozen


_FREEZERS: Final[dict[type, Callable[[Any, int], Any]]] = {dict: _freeze_dict, list: _freeze_list}


def _freeze_child(item: Any, kind: type, room: int) -> Any:
    """Freeze one value that is not known to be a leaf in the domain."""
    if issubclass(kind, (dict, list)):
        if room <= 0:
            raise _Outside
        if issubclass(kind, dict):
            return _freeze_dict(item if kind is dict else dict(item), room)
        return _freeze_list(item if kind is list else list(item), room)
    item = _plain_leaf(item)
    if type(item) is float and item - item != 0.0:
        raise _Outside
    if type(item) is int and not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
        raise _Outside
    return item


def _plain_leaf(item: Any) -> Any:
    if item is None or isinstance(item, bool):
        return item
    for kind, convert in _LEAVES:
        if isinstance(item, kind):
            return item if type(item) is kind else convert(item)
    raise _Outside


# The slot wrappers bypass __str__, __int__ and __float__ of subclasses: the stored value counts.
_LEAVES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


def _with_plain_keys(source: dict[Any, Any]) -> dict[str, Any]:
    renamed = {}
    for key, item in source.items():
        if not isinstance(key, str):
            raise _Outside
        renamed[key if type(key) is str else str.__str__(key)] = item
    return renamed


def _explain(value: Any) -> ValueDomainError:
    """Find the first offending value; runs only after a walk failed, without recursion."""
    stack: list[tuple[Any, str, int]] = [(value, "$", 1)]
    while stack:
        item, path, depth = stack.pop()
        problem = _problem(item, depth)
        if problem is not None:
            return ValueDomainError(path, problem)
        if isinstance(item, dict):
            children = [(child, f"{path}.{key}", depth + 1) for key, child in item.items()]
        elif isinstance(item, list):
            children = [(child, f"{path}[{index}]", depth + 1) for index, child in enumerate(item)]
        else:
            children = []
        stack.extend(reversed(children))
    return ValueDomainError("$", "not a JSON value")


def _problem(item: Any, depth: int) -> str | None:
    if isinstance(item, (FrozenDict, FrozenList)) and not hasattr(item, "_height"):
        return f"a {type(item).__name__} made by hand; use freeze(...)"
    if isinstance(item, (dict, list)):
        if depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH} levels, or a cycle"
        odd = [key for key in item if not isinstance(key, str)] if isinstance(item, dict) else []
        return f"a key of type {type(odd[0]).__name__}; JSON keys are strings" if odd else None
    if item is None or isinstance(item, (str, bool)):
        return None
    if isinstance(item, int):
        safe = -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER
        return None if safe else "an integer beyond 2^53-1; pass 64-bit ids as strings"
    if isinstance(item, float):
        return None if item - item == 0.0 else "NaN or an infinity is not JSON"
    return f"{type(item).__name__} is not a JSON type"


def thaw(value: Any) -> Any:
    """Return a deep copy made of plain mutable dicts and lists; `value` is frozen JSON."""
    if isinstance(value, dict):
        return _thaw_dict(value)
    return _thaw_list(value) if isinstance(value, list) else value


def _thaw_dict(value: dict[str, Any]) -> dict[str, Any]:
    copied = dict(value)
    for key, item in value.items():
        if isinstance(item, dict):
            copied[key] = _thaw_dict(item)
        elif isinstance(item, list):
            copied[key] = _thaw_list(item)
    return copied


def _thaw_list(value: list[Any]) -> list[Any]:
    return [
        _thaw_dict(item) if isinstance(item, dict) else _thaw_list(item) if isinstance(item, list) else item
        for item in value
    ]


# ---- canonical bytes --------------------------------------------------------------------------


def canonical_json(value: Any, *, compat: str | None = None) -> bytes:
    """Return the RFC 8785 bytes of `value`.

    Args:
        value: any JSON value; it is frozen first if it is not yet.
        compat: `"agent-hooks-sdk"` writes floats as agent-hooks-sdk 0.1.0b3 does, which departs
            from RFC 8785 for about one full-precision double in nine.

    Raises:
        ValueDomainError: the value is outside the JSON domain (§4.4), lone surrogates included.
    """
    frozen = freeze(value)
    try:
        if compat is not None:
            return _compat_bytes(frozen, compat)
        if isinstance(frozen, (FrozenDict, FrozenList)):
            return canonical_bytes(frozen)
        return _exact(frozen, ecmascript_number)
    except orjson.JSONEncodeError:
        raise ValueDomainError("$", "a string holds a lone surrogate") from None


def canonical_bytes(node: FrozenDict | FrozenList) -> bytes:
    """Return the RFC 8785 bytes of a frozen container, kept on the container.

    Raises `orjson.JSONEncodeError` (a `TypeError`) for lone surrogates.
    """
    if node._canon is not None:
        return node._canon
    if node._plain and type(node) is FrozenList and node and type(node[0]) is FrozenDict and not node[_FEW:]:
        # Each of the objects keeps its own bytes: a history that grew is not written again.
        pieces = [
            item._canon or canonical_bytes(item) if type(item) is FrozenDict else _exact(item, ecmascript_number)
            for item in node
        ]
        node._canon = data = b"[" + b",".join(pieces) + b"]"
        return data
    if node._plain:
        # orjson sorts keys by code point, RFC 8785 by UTF-16 unit: the same order for ASCII keys.
        # Without floats the rest is the same too, which the tests hold against `rfc8785`.
        data = _dumps(node, option=_SORTED)
        if data.isascii() or all(map(str.isascii, _keys(node))):
            node._canon = data
            return data
    node._canon = _exact(node, ecmascript_number)
    return node._canon


def _keys(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from node
        for item in node.values():
            if isinstance(item, (dict, list)):
                yield from _keys(item)
    else:
        for item in node:
            if isinstance(item, (dict, list)):
                yield from _keys(item)


def _exact(value: Any, number: Callable[[float], str]) -> bytes:
    """The slow, complete encoder: floats by `number`, keys by UTF-16 code unit."""
    if isinstance(value, dict):
        keys = sorted(value, key=_utf16)
        return b"{" + b",".join(_dumps(key) + b":" + _exact(value[key], number) for key in keys) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join([_exact(item, number) for item in value]) + b"]"
    return number(value).encode() if type(value) is float else _dumps(value)


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def ecmascript_number(value: float) -> str:
    """Write a finite float as ECMAScript's Number::toString does (RFC 8785 §3.2.2.3).

    Python's `repr` yields the same shortest digits; only the layout differs.
    """
    if value == 0.0:
        return "0"
    text = repr(value)
    if "e" not in text and not text.startswith(("0.0000000", "-0.0000000")):
        return text[:-2] if text.endswith(".0") else text
    sign = "-" if value < 0 else ""
    digits, point = _digits(text.lstrip("-"))
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    mantissa = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{sign}{mantissa}e{point - 1:+d}"


def _digits(text: str) -> tuple[str, int]:
    """Split a positive `repr` into its significant digits and the position of the decimal point."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), point


def _compat_bytes(value: Any, compat: str) -> bytes:
    if compat != "agent-hooks-sdk":
        raise ValueError(f"compat={compat!r} is unknown; use None or 'agent-hooks-sdk'")
    if isinstance(value, (FrozenDict, FrozenList)) and value._plain:
        return canonical_bytes(value)
    return _exact(value, _sdk_number)


def _sdk_number(value: float) -> str:
    """Write a float as agent-hooks-sdk 0.1.0b3 does.

    Its core parses decimal text without correct rounding: the digits become a double, which is then
    scaled by powers of ten, at most 1e308 at a time, and each step may lose the last place.
    """
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    scaled = float(int(whole + fraction))
    power = int(exponent or 0) - len(fraction)
    while power < -308:
        scaled /= 1e308
        power += 308
    scaled = scaled * float(f"1e{power}") if power >= 0 else scaled / float(f"1e{-power}")
    return ecmascript_number(-scaled if value < 0 else scaled)


def digest(value: Any) -> str:
    """Return `sha256:<hex>` over the canonical bytes of `value` (see `canonical_json`)."""
    return "sha256:" + sha256(canonical_json(value)).hexdigest()


# ---- time -------------------------------------------------------------------------------------


class Clock:
    """Where time comes from: the system's here, a virtual one in tests. Everything takes a Clock."""

    def __init__(self) -> None:
        self._last = (-1, "")  # the last millisecond, and as a text; one tuple, so threads see a whole pair
        self.stamped = 0.0
        """When `timestamp` was asked last, in seconds since the epoch."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def timestamp(self) -> str:
        """Return now as RFC 3339 UTC with milliseconds (§4.1), e.g. `2026-06-19T14:03:11.123Z`."""
        now = self.stamped = time.time() if type(self) is Clock else self.now()  # one call on the hot path
        millis = int(now * 1000)
        known, text = self._last
        if known != millis:
            second = millis // 1000
            fresh = known // 1000 != second
            start = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second)) if fresh else text[:20]
            text = f"{start}{millis % 1000:03d}Z"
            self._last = (millis, text)
        return text

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back, for durations and deadlines."""
        return time.monotonic()

    async def sleep(self, seconds: float, *, jump: bool = True) -> None:
        """Wait `seconds` without blocking the event loop. `jump` says whether a virtual clock may skip the wait."""
        await asyncio.sleep(seconds)
