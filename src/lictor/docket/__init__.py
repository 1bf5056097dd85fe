"""Everything that waits for somebody, in one state machine."""

from __future__ import annotations

from lictor.docket.actor import Actor
from lictor.docket.docket import REQUESTS, Docket
from lictor.docket.grant import Grant
from lictor.docket.request import (
    KINDS,
    VERBS,
    Decided,
    Decision,
    Reason,
    Request,
    Resolution,
    Shown,
    request_digest,
)
from lictor.docket.told import forged, log_of

__all__ = [
    "KINDS",
    "REQUESTS",
    "VERBS",
    "Actor",
    "Decided",
    "Decision",
    "Docket",
    "Grant",
    "Reason",
    "Request",
    "Resolution",
    "Shown",
    "forged",
    "log_of",
    "request_digest",
]
