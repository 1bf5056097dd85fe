"""`lictor serve`: the pages, in the process that also drives what they decide."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Generator, Iterable
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lictor.console.cli import FAILED, USAGE, app
from lictor.console.opening import As, Json, Store, actor_of, existing, fail, go, line_of, print_json
from lictor.errors import DefinitionError, LictorError

if TYPE_CHECKING:
    import uvicorn

    from lictor.docket import Actor

__all__: list[str] = []

GRACE = 5.0  # seconds that leaving waits for a step under way
HOST = "127.0.0.1"
NEEDED = {"starlette", "jinja2", "uvicorn", "markupsafe"}


@app.command()
def serve(
    store: Store = None,
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="Where it listens; 0 takes a free one.")] = 8321,
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Listen on another address than this machine's own."),
    ] = HOST,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="A group that the actor belongs to; repeatable.")
    ] = None,
    viewer: Annotated[bool, typer.Option("--viewer", help="Print a second address too, that can only look.")] = False,
    actor: As = None,
    as_json: Json = False,
) -> None:
    """Serve the inbox and the runs of a store as web pages.

    Prints the address with its token; whoever has it decides as the actor. It drives every run of the store that has
    something to do and no driver, from the file it was started from, so that a decision on a page is carried out at
    once. Ctrl-C ends it; runs are not lost.
    """
    url = existing(store)
    try:
        _import_web()
        decider = _web_actor(actor, group or ())
        listening = _bind(host, port)
    except LictorError as error:
        fail(USAGE, line_of(error))
    with listening:
        go(_serve(url, listening, decider, viewer=viewer, as_json=as_json))


def _import_web() -> None:
    try:
        import_module("uvicorn")
        import_module("lictor.console.web")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        fail(USAGE, f"lictor serve needs {missing}: pip install 'lictor[web]'")


def _web_actor(actor: str | None, groups: Iterable[str]) -> Actor:
    from dataclasses import replace

    return replace(actor_of(actor), groups=tuple(groups), via="web")


def _bind(host: str, port: int) -> socket.socket:
    """A socket that listens there, so that the address is known before it is printed."""
    try:
        address = ip_address(host)
    except ValueError:
        raise DefinitionError(f"--host {host!r}: {host} is no address; write one like 127.0.0.1") from None
    if address.is_unspecified:
        raise DefinitionError(f"--host {host!r} is every address of this machine; name the one that is to be reached")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        fail(FAILED, f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}; try another --port")
    return listening


async def _serve(url: str, listening: socket.socket, actor: Actor, *, viewer: bool, as_json: bool) -> None:

    from lictor.console.web import Keys, application
    from lictor.runtime import Runtime, definition_of

    keys = Keys(actor, viewer=viewer)
    host, port = listening.getsockname()[:2]
    async with Runtime(url, load=definition_of, grace=GRACE) as runtime:
        stopping: list[uvicorn.Server] = []
        pages = application(
            runtime, keys, hosts=_names(host, port), leaving=lambda: any(each.should_exit for each in stopping)
        )
        server = _server(pages)
        stopping.append(server)
        _announce(url, host, port, keys, as_json)
        await server.serve(sockets=[listening])
    if not as_json:
        typer.echo("stopped; runs that were under way go on with the next driver")


def _names(host: str, port: int) -> list[str]:
    """What browsers may call this server. A name that merely resolves to it may be somebody else's page."""
    shown = f"[{host}]" if ":" in host else host
    local = [f"127.0.0.1:{port}", f"localhost:{port}"]
    return [f"{shown}:{port}", *(local if ip_address(host).is_loopback else [])]


def _announce(url: str, host: str, port: int, keys: Any, as_json: bool) -> None:
    shown = f"[{host}]" if ":" in host else host
    place = f"http://{shown}:{port}/"
    viewer = None if keys.viewer is None else f"{place}?token={keys.viewer}"
    found = {"url": f"{place}?token={keys.approver}", "viewer": viewer, "actor": str(keys.actor), "store": url}
    if not ip_address(host).is_loopback:
        typer.echo(
            f"lictor: warning: {host} can be reached from other machines, without encryption: whoever reads the "
            f"traffic can decide as {keys.actor}; better leave --host out and use ssh -L {port}:127.0.0.1:{port}",
            err=True,
        )
    if as_json:
        print_json(found)
        return
    typer.echo(f"serving {url}; whoever opens this decides as {keys.actor}:")
    typer.echo(f"  {found['url']}")
    if viewer is not None:
        typer.echo(f"to look only:\n  {viewer}")
    typer.echo("Ctrl-C ends it")


def _server(pages: Any) -> uvicorn.Server:
    """A server that Ctrl-C ends as an ordinary return: what is around it is left in order."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            if threading.current_thread() is not threading.main_thread():  # only there signals can be taken
                yield
                return
            before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

    return Server(
        uvicorn.Config(
            pages,
            log_config=None,
            access_log=False,  # it would print the token
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            timeout_graceful_shutdown=5,
        )
    )
