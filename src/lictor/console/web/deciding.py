"""A decision that a person sends from a form: bound to what was shown, by the actor of the token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lictor.console.web.access import Visitor
from lictor.console.web.pages import Pages
from lictor.console.web.shown import changed_arguments
from lictor.docket import Request as Asked
from lictor.errors import DigestMismatch, ToolArgumentsInvalid, WrongParty
from lictor.runtime import Runtime

__all__ = ["decider"]

MISSING = {"reject": "write why; the agent is told", "respond": "write the result; the agent is told"}


def decider(runtime: Runtime, pages: Pages) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint that takes the forms of a request. Who decides is never part of the form."""

    async def decide(request: Request) -> Response:
        visitor: Visitor = request.state.visitor
        form: Mapping[str, str] = request.state.form
        asked = await runtime.docket.get(request.path_params["request_id"])
        if visitor.actor is None:
            raise WrongParty("this token decides nothing")
        if "digest" not in form:
            raise DigestMismatch("the form does not say what was shown")
        verb = form.get("verb", "")
        given, problems = _given(verb, form, asked)
        if problems and asked.status == "pending" and asked.digest == form["digest"]:
            return await pages.request_again(request, asked, form, problems)
        try:
            after = await runtime.docket.decide(
                asked.id, verb, digest=form["digest"], kind=form.get("kind", asked.kind), by=visitor.actor, **given
            )
        except ToolArgumentsInvalid as error:
            return await pages.request_again(request, asked, form, list(error.problems))
        pages.news.ring()
        place = f"/requests/{after.id}" if after.status == "pending" else f"/runs/{after.root_run}"
        return RedirectResponse(place, 303)

    return decide


def _given(verb: str, form: Mapping[str, str], asked: Asked) -> tuple[dict[str, Any], list[str]]:
    """What goes with a verb, and what is wrong with it."""
    if verb == "approve":
        scope = "same_arguments" if form.get("scope") == "same_arguments" else "once"
        return {"scope": scope}, []
    if verb == "edit" and asked.arguments is not None:
        arguments, problems = changed_arguments(form, asked.arguments, asked.schema or {})
        return {"arguments": arguments}, problems
    if verb in MISSING:
        text = form.get("text", "").replace("\r\n", "\n").strip()
        problems = [] if text else [MISSING[verb]]
        return ({"feedback": text} if verb == "reject" else {"text": text}), problems
    return {}, []
