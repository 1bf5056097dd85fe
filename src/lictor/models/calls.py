"""Tool calls put together from the pieces of a stream, without ever gluing two into one.

The API says: `index` tells calls apart, the first piece of a call is its head (id and name), the others
carry text. Gateways break each of these rules. Here an index is a hint; where two readings of the
pieces are possible, the response is refused, because running the wrong call is worse than asking again.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from lictor.errors import ModelError
from lictor.models.messages import well_formed
from lictor.models.protocol import Call
from lictor.models.untrusted import fields, is_object, text

__all__ = ["MOST_CALLS", "CallAssembly"]

MOST_CALLS = 1000
"""Calls that one response may have."""

STRUCTURE = re.compile(r'\\(?:.|\Z)|["{}\[\]]', re.DOTALL)


class _Open:
    """A call that is still coming in."""

    __slots__ = ("_depth", "_in_escape", "_in_string", "_whole", "_written", "id", "name", "pieces")

    def __init__(self, id: str | None, name: str) -> None:
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self._depth = 0
        self._in_string = self._in_escape = False
        self._whole: bool | None = None  # None: not known; False: it can never be
        self._written = ""  # what is whole, in one way of writing it

    def take(self, piece: str) -> None:
        """Add to the arguments, and follow where in them we are: to parse at each piece would take quadratic time."""
        if not piece:
            return
        self.pieces.append(piece)
        if self._whole and piece.strip():
            self._whole = False
        rest = piece[1:] if self._in_escape else piece
        self._in_escape = False
        for mark in STRUCTURE.findall(rest):
            self._in_escape = mark == "\\"
            if mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += (mark in "{[") - (mark in "}]")

    def is_whole(self) -> bool:
        """Whether its arguments are a JSON object, to which nothing can be added."""
        if self._whole is None and self._depth <= 0 and not self._in_string and any(map(str.strip, self.pieces)):
            self._written = _written("".join(self.pieces))
            self._whole = self._written.startswith("{")
        return bool(self._whole)

    def says(self, arguments: str) -> bool:
        """Whether it is whole, with just these arguments."""
        return self.is_whole() and _written(arguments) == self._written


class CallAssembly:
    """Collects the `tool_calls` pieces of one response.

    A piece belongs to the call with its index. An id or a name that differs from that call's begins
    another call at the same index, and so does a repeated one after whole arguments, unless it says the
    same call again. From then on a piece without id and name goes to the newest call if the older ones
    were whole, else it is refused.
    """

    __slots__ = ("_by_index", "_calls", "_contested", "size")

    def __init__(self) -> None:
        self.size = 0  # characters
        self._calls: list[_Open] = []
        self._by_index: dict[int | None, list[_Open]] = {}
        self._contested: set[int | None] = set()

    def add(self, piece: object) -> None:
        """Take one piece of `tool_calls`.

        Raises ModelError: `ambiguous_calls`, the piece may belong to more than one call;
        `bad_response`, it is no object; `too_large`, more than MOST_CALLS calls.
        """
        if not is_object(piece):
            raise ModelError("bad_response", f"a tool call is a {type(piece).__name__}", retryable=True)
        given = fields(piece)
        function = fields(given.get("function"))
        id = given.get("id")
        id = id if id is None or isinstance(id, str) else str(id)
        name = text(function.get("name"))
        arguments = _raw(function.get("arguments"))
        index = given.get("index")
        index = index if isinstance(index, int) else None
        if id or name or arguments:
            owner = self._owner(index, id, name, arguments)
            self.size += len(arguments) + len(name) + len(id or "")
            if owner is not None:
                owner.take(arguments)

    def calls(self) -> tuple[Call, ...]:
        """The calls so far, in the order of their beginnings; ids and arguments as they were given."""
        return tuple(Call(each.id, each.name, well_formed("".join(each.pieces))) for each in self._calls)

    def _owner(self, index: int | None, id: str | None, name: str, arguments: str) -> _Open | None:
        """The call that a piece belongs to; None if it only says again what a whole call has said."""
        here = self._by_index.get(index)
        if not here:
            return self._begin(index, id, name) if id or name else self._refuse("a piece without id and name", index)
        if id:
            return self._by_id(index, id, name, arguments)
        if name:
            return self._by_name(index, id, name, arguments)
        if index in self._contested or (arguments.lstrip().startswith("{") and here[-1].is_whole()):
            self._refuse("a piece that fits two calls", index)
        return here[-1]

    def _by_id(self, index: int | None, id: str, name: str, arguments: str) -> _Open | None:
        same = [each for each in self._by_index[index] if each.id == id]
        if not same:
            return self._by_new_id(index, id, name)
        call = same[0]
        renamed = bool(name and call.name and name != call.name)
        if len(same) == 1 and not renamed and not (arguments.strip() and call.is_whole()):
            call.name = call.name or name
            return call
        if len(same) == 1 and not renamed and call.says(arguments):
            return None  # a gateway that ends with its calls once more: an echo, and no second call
        # The id is used a second time: clear only if the first call has all it can have.
        is_clear = len(same) == 1 and name and call.is_whole()
        return self._begin(index, id, name) if is_clear else self._refuse(f"the id {id!r} twice", index)

    def _by_new_id(self, index: int | None, id: str, name: str) -> _Open:
        here = self._by_index[index]
        last = here[-1]
        if not last.id and not last.is_whole() and name in ("", last.name):
            if name or len(here) > 1:
                self._refuse(f"the id {id!r} after a call without one", index)
            last.id = id  # the head came in two pieces
            return last
        return self._begin(index, id, name) if name else self._refuse(f"the id {id!r} without a name", index)

    def _by_name(self, index: int | None, id: str | None, name: str, arguments: str) -> _Open:
        here = self._by_index[index]
        last = here[-1]
        if not last.name and len(here) == 1 and not last.is_whole():  # the head came in two pieces
            last.name = name
            return last
        if last.name and (name != last.name or (arguments.strip() and last.is_whole())):
            return self._begin(index, id, name)
        return self._refuse(f"the name {name!r} twice", index)

    def _begin(self, index: int | None, id: str | None, name: str) -> _Open:
        if len(self._calls) >= MOST_CALLS:
            raise ModelError("too_large", f"the response has more than {MOST_CALLS} tool calls")
        here = self._by_index.setdefault(index, [])
        if here and not here[-1].is_whole():  # of the ones before it this was asked when it began
            self._contested.add(index)
        call = _Open(id, name)
        here.append(call)
        self._calls.append(call)
        return call

    def _refuse(self, what: str, index: int | None) -> NoReturn:
        told = f"the tool calls at index {index} cannot be told apart: {what}"
        raise ModelError("ambiguous_calls", told, retryable=True)


def _written(arguments: str) -> str:
    """JSON in one way of writing it, where 1, 1.0 and true stay apart; `""` if it is none."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return ""


def _raw(arguments: object) -> str:
    """The JSON text of `arguments`; gateways that send the object itself get it written out."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
