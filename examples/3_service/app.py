"""A company's own service around a Runtime."""
import os
from contextlib import asynccontextmanager

from lictor import Runtime, User
from lictor.errors import DecisionRefused
from shop.team import team
from sse_starlette import EventSourceResponse, JSONServerSentEvent
from starlette.applications import Starlette
from starlette.authentication import requires
from starlette.responses import JSONResponse
from starlette.routing import Route


@asynccontextmanager
async def lifespan(app):
    async with Runtime(os.environ["DATABASE_URL"], definitions={"orders": "shop.team:team"}) as app.state.runtime:
        yield                                             # leaving hands running stints over within `grace`


@requires("authenticated")
async def start(request):
    body = await request.json()
    run = await request.app.state.runtime.start(team, body["question"], key=request.headers["idempotency-key"],
                                                conversation=body["conversation"], user=User(request.user.id))
    return JSONResponse({"run": run.id}, 202, {"Location": f"/runs/{run.id}"})


@requires("authenticated")
async def events(request):
    run = await request.app.state.runtime.run(request.path_params["run"])
    if run.user.id != request.user.id:
        return JSONResponse({"error": "not yours"}, 403)
    after = request.headers.get("last-event-id")
    return EventSourceResponse(JSONServerSentEvent(e.json(), event=e.kind, id=str(e.cursor))
                               async for e in run.events(after=after, follow=True))


@requires("approver")
async def inbox(request):
    pending = await request.app.state.runtime.docket.pending(responder=f"human:{request.user.id}")
    return JSONResponse([r.json() for r in pending])


@requires("approver")
async def decide(request):
    try:
        body = await request.json()      # verb, feedback, arguments, text, digest
        docket, approver = request.app.state.runtime.docket, f"human:{request.user.id}"
        settled = await docket.decide(request.path_params["id"], **body, by=approver)
    except DecisionRefused as error:
        return JSONResponse(error.json(), error.http_status)
    return JSONResponse(settled.json())


@requires("authenticated")
async def cancel(request):
    await request.app.state.runtime.commands.cancel(request.path_params["run"], by=f"human:{request.user.id}")
    return JSONResponse({}, 202)


app = Starlette(lifespan=lifespan, routes=[
    Route("/runs", start, methods=["POST"]), Route("/runs/{run}/events", events),
    Route("/runs/{run}", cancel, methods=["DELETE"]),
    Route("/inbox", inbox), Route("/inbox/{id}", decide, methods=["POST"])])
