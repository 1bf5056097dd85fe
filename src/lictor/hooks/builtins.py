"""Policies everybody needs: masking, tool lists, call limits. They enter by the public door."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from lictor.errors import DefinitionError
from lictor.hooks.context import Context
from lictor.hooks.interceptor import interceptor
from lictor.hooks.points import POINTS, TRANSFORMABLE
from lictor.hooks.texts import map_texts
from lictor.hooks.verdict import ALLOW, Verdict

__all__ = ["AllowTools", "DenyTools", "Mask", "MaxCalls"]

_SECRET: Final = re.compile(
    r"\bsk-[A-Za-z0-9_-]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    re.DOTALL,
)
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_IBAN: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_DIGITS: Final = re.compile(r"[0-9]+(?:[ -][0-9]+)*")  # groups of digits, parted by one blank or hyphen


def _mask_cards(found: re.Match[str]) -> str:
    """Mask every card number in a run of groups; what stands before and after it may be digits too."""
    groups = re.split("([ -])", found[0])  # digits at even places, separators at odd ones
    shown, start = "", 0
    while start < len(groups):
        end = _card_end(groups, start)
        if end is None:
            shown, start = shown + groups[start], start + 1
        else:
            last = "".join(groups[start:end:2])[-4:]
            shown, start = f"{shown}**** {last}", end
    return shown


def _card_end(groups: list[str], start: int) -> int | None:
    """Return the end of the longest card number that begins with the group at `start`."""
    digits, found = "", None
    for place in range(start, len(groups), 2) if start % 2 == 0 else ():
        digits += groups[place]
        if len(digits) > 19:
            break
        if len(digits) >= 13 and _luhn(digits):
            found = place + 1
    return found


def _mask_all(found: re.Match[str]) -> str:
    return "****"


def _luhn(digits: str) -> bool:
    """Tell card numbers from other long numbers: order ids, timestamps (ISO/IEC 7812-1)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _mask_iban(found: re.Match[str]) -> str:
    compact = found[0].replace(" ", "")
    number = "".join(str(int(char, 36)) for char in compact[4:] + compact[:4])
    return f"{compact[:2]}** **** {compact[-4:]}" if int(number) % 97 == 1 else found[0]


_KINDS: Final[dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]] = {
    "card": (_DIGITS, _mask_cards),
    "email": (_EMAIL, lambda found: "****@" + found[0].rpartition("@")[2]),
    "iban": (_IBAN, _mask_iban),
    "secret": (_SECRET, _mask_all),
}


@interceptor(version="1")
class Mask:
    """Replaces what must not be seen in the strings of a target.

    Args:
        pattern: a kind (`card`, `email`, `iban`, `secret`), or a regular expression (text or
            compiled) whose matches become `****`. Cards and IBANs count only with a right check
            digit; numbers that are not strings are left alone.
        kind: instead of `pattern`, a kind and nothing else: a misspelt one is an error.
        points: where; by default at every point that can be transformed.
        name: its name; by default `mask-<kind>`.

    Raises:
        DefinitionError: an unknown point or a broken expression.
    """

    def __init__(
        self,
        pattern: str | re.Pattern[str] | None = None,
        *,
        kind: str | None = None,
        points: Iterable[str] | None = None,
        name: str | None = None,
    ) -> None:
        if (pattern is None) == (kind is None) or (kind is not None and kind not in _KINDS):
            raise DefinitionError(f"Mask takes a pattern, or kind= one of {', '.join(_KINDS)}")
        pattern = kind or pattern or ""
        kind = pattern if isinstance(pattern, str) and pattern in _KINDS else None
        self._mask: Callable[[re.Match[str]], str]
        try:
            self._pattern, self._mask = _KINDS[kind] if kind else (re.compile(pattern), _mask_all)
        except re.error as error:
            raise DefinitionError(f"Mask({pattern!r}): not a kind and not a regular expression: {error}") from None
        chosen = tuple(TRANSFORMABLE if points is None else points)
        wrong = [point for point in chosen if point not in TRANSFORMABLE]
        if wrong or not chosen:
            allowed = ", ".join(point for point in POINTS if point in TRANSFORMABLE)
            raise DefinitionError(f"Mask cannot change anything at {wrong}; use {allowed}")
        self.points = frozenset(chosen)
        self.name = name or (f"mask-{kind}" if kind else "mask")

    def config(self) -> dict[str, Any]:
        """Return what it is set up to do."""
        return {"pattern": self._pattern.pattern, "points": sorted(self.points)}

    def intercept(self, context: Context) -> Verdict:
        """Transform the whole target if anything in it matches."""
        target = context["target"]
        masked = map_texts(target, lambda text: self._pattern.sub(self._mask, text))
        return ALLOW if masked is target else Verdict.replace(masked, "masked")


@interceptor(points=["pre_tool_call"], version="1")
class DenyTools:
    """Denies calls of the named tools."""

    def __init__(self, *names: str) -> None:
        self._names = _tool_names("DenyTools", names)

    def config(self) -> list[str]:
        """Return the names."""
        return sorted(self._names)

    def intercept(self, context: Context) -> Verdict:
        """Deny a named tool."""
        name = context["tool_call"]["name"]
        return Verdict.deny("tool_denied", "This tool may not be used.") if name in self._names else ALLOW


@interceptor(points=["pre_tool_call"], version="1")
class AllowTools:
    """Denies calls of every tool but the named ones."""

    def __init__(self, *names: str) -> None:
        self._names = _tool_names("AllowTools", names)

    def config(self) -> list[str]:
        """Return the names."""
        return sorted(self._names)

    def intercept(self, context: Context) -> Verdict:
        """Deny an unnamed tool."""
        name = context["tool_call"]["name"]
        return ALLOW if name in self._names else Verdict.deny("tool_not_allowed", "This tool may not be used.")


@interceptor(points=["pre_tool_call", "agent_shutdown"], version="1", always_enforce=True)
class MaxCalls:
    """Denies tool calls of a session beyond a limit: `MaxCalls(20)`, `MaxCalls("search", "fetch", 5)`.

    Counts attempts, in this process; with names, the named tools together. It is a limit, not a
    policy, and binds under `evaluate_only` too.
    """

    def __init__(self, *tools: str | int, limit: int | None = None) -> None:
        *named, last = (*tools, limit) if limit is not None else tools or (None,)
        if type(last) is not int or last < 0:
            raise DefinitionError("MaxCalls needs a limit of at least 0: MaxCalls(20) or MaxCalls('search', 5)")
        self._names = _tool_names("MaxCalls", named) if named else None
        self._limit = last
        self._counts: dict[str, int] = {}

    def config(self) -> dict[str, Any]:
        """Return the limit and the names it is for."""
        return {"limit": self._limit, "tools": sorted(self._names) if self._names else None}

    def intercept(self, context: Context) -> Verdict:
        """Count the call and deny it if there were enough."""
        session = context["session"]["id"]
        if context["interception_point"] == "agent_shutdown":
            self._counts.pop(session, None)
            return ALLOW
        if self._names is not None and context["tool_call"]["name"] not in self._names:
            return ALLOW
        count = self._counts[session] = self._counts.get(session, 0) + 1
        if count > self._limit:
            return Verdict.deny("max_calls", f"No more than {self._limit} calls are allowed.")
        return ALLOW


def _tool_names(what: str, names: Iterable[object]) -> frozenset[str]:
    chosen = tuple(names)
    if not chosen or not all(isinstance(name, str) and name for name in chosen):
        raise DefinitionError(f"{what} takes names of tools, e.g. {what}('refund')")
    return frozenset(str(name) for name in chosen)
