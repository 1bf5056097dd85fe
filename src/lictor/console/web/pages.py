"""The pages and their JSON twins: what `console.query` says, put into templates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from lictor.console import query
from lictor.console.web import shown, words
from lictor.console.web.access import Visitor
from lictor.console.web.live import News
from lictor.console.web.timeline import Group, nested, timeline
from lictor.docket import Request as Asked
from lictor.runtime import Runtime

__all__ = ["Pages"]

MOST = 50
"""Open requests on one page; the others follow when these are decided."""

MOST_RUNS = 200


class JsonResponse(Response):
    """One object, pure ASCII."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return json.dumps(content, indent=2, default=str).encode()


def _templates() -> Environment:
    environment: Any = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": shown.visible,
        "value": shown.value,
        "kind": shown.kind_of,
        "moment": shown.moment,
        "ago": shown.ago,
        "brief": shown.brief,
        "number": shown.number,
    }
    environment.tests["group"] = lambda row: isinstance(row, Group)
    environment.globals |= {
        "headline": words.headline,
        "effect": words.effect,
        "who": words.who,
        "tell": words.statuses,
        "points": words.POINTS,
        "is_moment": words.is_moment,
        "place": words.place,
        "reader": words.reader,
        "subject": words.subject,
        "working": words.working,
    }
    templates: Environment = environment
    return templates


class Pages:
    """Makes the pages of one Runtime."""

    def __init__(self, runtime: Runtime, news: News) -> None:
        self.news = news
        self._runtime = runtime
        self._templates = _templates()

    def routes(self) -> list[Route]:
        """Every page, with its twin."""
        return [
            Route("/inbox.json", self._twin(self._inbox)),
            Route("/inbox", self._inbox_page),
            Route("/runs.json", self._twin(self._runs)),
            Route("/runs", self._runs_page),
            Route("/runs/{run_id}.json", self._twin(self._run)),
            Route("/runs/{run_id}", self._run_page),
            Route("/requests/{request_id}.json", self._twin(self._request)),
            Route("/requests/{request_id}", self._request_page),
            Route("/live", self._live),
        ]

    # what there is to see

    async def _inbox(self, request: Request) -> dict[str, Any]:
        return {"requests": await query.inbox(self._runtime)}

    async def _runs(self, request: Request) -> dict[str, Any]:
        wanted = request.query_params.get("status")
        found = await query.runs(self._runtime)
        return {"runs": [each for each in found if not wanted or each["status"] == wanted]}

    async def _run(self, request: Request) -> dict[str, Any]:
        return await query.run_page(self._runtime, query.find_run(self._runtime, request.path_params["run_id"]))

    async def _request(self, request: Request) -> dict[str, Any]:
        known = query.find_request(self._runtime, request.path_params["request_id"])
        return query.request_view(await self._runtime.docket.get(known))

    def _twin(self, ask: Callable[[Request], Awaitable[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return JsonResponse(await ask(request))

        return answer

    # pages

    async def _inbox_page(self, request: Request) -> Response:
        version = self.news.fresh("inbox")
        found = (await self._inbox(request))["requests"]
        items = [self._item(each) for each in found[:MOST]]
        return self._page(request, "inbox.html", ("inbox", version), items=items, more=len(found) - len(items))

    async def _runs_page(self, request: Request) -> Response:
        version = self.news.fresh("runs")
        found = (await self._runs(request))["runs"][::-1]
        short = query.short_ids([each["run_id"] for each in found])
        more = max(0, len(found) - MOST_RUNS)
        counts = sorted(Counter(each["status"] for each in await query.runs(self._runtime)).items())
        given: dict[str, Any] = {"runs": found[:MOST_RUNS], "short": short, "more": more, "counts": counts}
        return self._page(request, "runs.html", ("runs", version), wanted=request.query_params.get("status"), **given)

    async def _run_page(self, request: Request) -> Response:
        topic = f"run:{query.find_run(self._runtime, request.path_params['run_id'])}"
        version = self.news.fresh(topic)
        told = await self._run(request)
        waiting = [self._item(each) for each in told["requests"] if each["status"] == "pending"]
        rows = nested(timeline(told["events"]))
        return self._page(request, "run.html", (topic, version), told=told, rows=rows, waiting=waiting)

    async def _request_page(self, request: Request) -> Response:
        known = query.find_request(self._runtime, request.path_params["request_id"])
        return await self._request_form(request, known, {}, [])

    async def request_again(
        self, request: Request, asked: Asked, typed: Mapping[str, str], problems: Sequence[str]
    ) -> Response:
        """The page of a request with what somebody typed, and what is wrong with it."""
        return await self._request_form(request, asked.id, typed, problems)

    async def _request_form(
        self, request: Request, known: str, typed: Mapping[str, str], problems: Sequence[str]
    ) -> Response:
        version = self.news.fresh(f"request:{known}")
        asked = query.request_view(await self._runtime.docket.get(known))
        item = self._item(asked) | {"typed": typed, "problems": problems}
        live = (f"request:{known}", version)
        return self._page(request, "request.html", live, item=item, status=422 if problems else 200)

    def _item(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """An open request as the template takes it, with the fields that edit it."""
        stored = self._runtime.docket.find(asked["id"])
        edits = "edit" in asked["verbs"] and stored.arguments is not None
        fields = shown.fields_of(asked["arguments"], stored.schema or {}) if edits else []
        return {"asked": asked, "fields": fields, "typed": {}, "problems": []}

    def _page(
        self, request: Request, template: str, live: tuple[str, str], *, status: int = 200, **given: Any
    ) -> Response:
        visitor: Visitor = request.state.visitor
        context = {
            "visitor": visitor,
            "now": self._runtime.clock.now(),
            "topic": live[0],
            "version": live[1],
            "may": _may(visitor),
            **given,
        }
        return HTMLResponse(self._templates.get_template(template).render(context), status)

    def refusal(self, scope: Scope, status: int, title: str, text: str) -> Response:
        """The page that says why something was not done; JSON for a JSON twin. It shows no data of the store."""
        if scope["path"].endswith(".json"):
            return JsonResponse({"status": status, "error": title, "message": text}, status)
        visitor = scope.get("state", {}).get("visitor")
        asked = scope.get("path_params", {}).get("request_id") if visitor and status != 404 else None
        page = self._templates.get_template("refusal.html")
        context = {"status": status, "title": title, "text": text, "visitor": visitor, "request_id": asked}
        return HTMLResponse(page.render(context), status)

    # changes

    async def _live(self, request: Request) -> Response:
        topic = request.query_params.get("of", "")
        self.news.version(topic)  # an unknown topic is refused before the stream begins
        changes = self.news.changes(topic, request.query_params.get("have", ""))
        return StreamingResponse(changes, media_type="text/event-stream")


def _may(visitor: Visitor) -> Callable[[Mapping[str, Any]], bool]:
    """Whether somebody is one of those who may decide a request; the docket has the last word."""

    def may(asked: Mapping[str, Any]) -> bool:
        actor, parties = visitor.actor, asked["parties"]
        return actor is not None and (not parties or any(actor.matches(party) for party in parties))

    return may
