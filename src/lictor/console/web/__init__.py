"""The pages of `lictor serve`: an ASGI application over a Runtime. Needs the extra `web`."""

from __future__ import annotations

from lictor.console.web.access import Keys
from lictor.console.web.app import application

__all__ = ["Keys", "application"]
