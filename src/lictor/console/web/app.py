"""The application: routes, pages, decisions, errors; and the wall around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from lictor.console.web.access import Keys, Wall
from lictor.console.web.deciding import decider
from lictor.console.web.live import News
from lictor.console.web.pages import Pages
from lictor.console.web.refusals import explain
from lictor.errors import LictorError
from lictor.runtime import Runtime

__all__ = ["application"]

HERE = Path(__file__).parent


def _never() -> bool:
    return False


def application(runtime: Runtime, keys: Keys, *, hosts: Iterable[str], leaving: Callable[[], bool] = _never) -> ASGIApp:
    """The pages over an open Runtime, as an ASGI application.

    Arguments:
        runtime: open; decisions on its docket are driven on by it.
        keys: the tokens, and the actor that decides.
        hosts: what a `Host` header may say, like `127.0.0.1:8321`.
        leaving: whether the server is about to end; open event streams end then.
    """
    pages = Pages(runtime, News(runtime, leaving))

    async def failed(request: Request, error: Exception) -> Response:
        return pages.refusal(request.scope, *_told(error))

    def refuse(scope: Scope, status: int, title: str, text: str) -> Response:
        return pages.refusal(scope, status, title, text)

    app = Starlette(
        routes=[
            Route("/", _home),
            *pages.routes(),
            Route("/requests/{request_id}/decide", decider(runtime, pages), methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        exception_handlers={LictorError: failed, HTTPException: failed, Exception: failed},
    )
    app.router.redirect_slashes = False
    return Wall(app, keys, frozenset(hosts), refuse)


async def _home(request: Request) -> Response:
    return RedirectResponse("/inbox", 307)


def _told(error: Exception) -> tuple[int, str, str]:
    """Only what Lictor says on purpose is shown; everything else goes to the server's log alone."""
    if isinstance(error, LictorError):
        return explain(error)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return 404, "Not found", "There is nothing at this address."
        return error.status_code, "Not possible here", "Nothing was changed."
    return 500, "This failed", "It is a fault of Lictor; the terminal of lictor serve says more."
