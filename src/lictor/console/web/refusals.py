"""What a page says when something was not done: the status, what happened, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from lictor.errors import (
    AlreadyDecided,
    DecisionRefused,
    DefinitionError,
    DigestMismatch,
    Expired,
    LictorError,
    NotResumable,
    NotSerializable,
    StaleEpoch,
    StoreError,
    ToolArgumentsInvalid,
    UnknownRequest,
    WrongKind,
    WrongParty,
    WrongVerb,
)

__all__ = ["Told", "explain"]


class Told(NamedTuple):
    """A refusal in words."""

    status: int
    title: str
    text: str


ADVICE: tuple[tuple[type[LictorError], str, str], ...] = (
    (AlreadyDecided, "Already decided", "A decision stands for ever; yours changed nothing."),
    (Expired, "Too late", "The deadline passed before your decision; it changed nothing."),
    (WrongParty, "Not yours to decide", "Nothing was changed. Ask one of those it is for."),
    (DigestMismatch, "Something else is asked now", "Nothing was changed. Look at the request as it is, then decide."),
    (StaleEpoch, "A newer version is asked now", "Nothing was changed. Look at the request as it is, then decide."),
    (WrongKind, "Not that kind of request", "Nothing was changed. Decide it from its own page."),
    (WrongVerb, "Not possible for this request", "Nothing was changed. Its page shows what is possible."),
    (UnknownRequest, "Not found", "It may be in another store, or the address is not whole."),
)
OTHERS: tuple[tuple[type[LictorError], int, str, str], ...] = (
    (ToolArgumentsInvalid, 422, "These arguments do not fit", "Nothing was changed. Correct them and send again."),
    (NotSerializable, 422, "This cannot be stored", "Nothing was changed."),
    (NotResumable, 404, "Not found", "It may be in another store, or the address is not whole."),
    (DefinitionError, 400, "Not understood", "Nothing was changed."),
    (StoreError, 503, "The store cannot be used", "Nothing was changed; try again, and look at lictor doctor."),
)


def explain(error: LictorError) -> Told:
    """The refusal that an error is."""
    if isinstance(error, DecisionRefused):
        for kind, title, advice in ADVICE:
            if isinstance(error, kind):
                return Told(error.http_status, title, f"{_sentence(error)} {advice}")
        return Told(error.http_status, "Not taken", _sentence(error))
    for kind, status, title, advice in OTHERS:
        if isinstance(error, kind):
            return Told(status, title, f"{_sentence(error)} {advice}")
    return Told(500, "This failed", _sentence(error))


def _sentence(error: LictorError) -> str:
    text = " ".join(str(error).split())
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
