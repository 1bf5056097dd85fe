"""A real server on loopback over a real store, and browsers-to-be that talk to it."""

import asyncio
import threading
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import web_agents
from page_forms import forms

from lictor import Runtime
from lictor.console.serving import _bind, _names, _server
from lictor.console.web import Keys, application
from lictor.docket import Actor


class Site:
    """A running server: its address, tokens and Runtime; the loop it lives in is another thread's."""

    def __init__(self, url, definitions):
        self.url, self.definitions = url, definitions
        self.keys = Keys(Actor("human", "ana", ("finance",), "web"), viewer=True)
        self.listening = _bind("127.0.0.1", 0)
        self.port = self.listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.runtime = self.loop = self.server = None
        self.open = threading.Event()

    async def serve(self):
        self.loop = asyncio.get_running_loop()
        async with Runtime(self.url, definitions=self.definitions, grace=2.0) as self.runtime:
            pages = application(
                self.runtime,
                self.keys,
                hosts=_names("127.0.0.1", self.port),
                leaving=lambda: self.server is not None and self.server.should_exit,
            )
            self.server = _server(pages)
            self.open.set()
            with self.listening:
                await self.server.serve([self.listening])

    def do(self, coroutine):
        """Run a coroutine in the loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def start(self, agent, task="do it", **options):
        """Start a run and wait until it waits or ends; gives its id."""

        async def begin():
            run = await self.runtime.start(agent, task, **options)
            await run.result()
            return run.id

        return self.do(begin())

    def requests(self, run_id):
        """The requests of a run."""
        return self.do(self.runtime.docket.requests(run=run_id))

    def result(self, run_id, wait="end"):
        """The outcome of a run."""

        async def end():
            return await (await self.runtime.run(run_id)).result(wait)

        return self.do(end())

    @contextmanager
    def client(self, token=None, **options):
        """A client; with a token it has opened the address that `lictor serve` prints."""
        with httpx.Client(base_url=self.address, follow_redirects=True, timeout=30, **options) as client:
            if token is not None:
                assert client.get("/", params={"token": token}).status_code == 200
            yield client


@pytest.fixture(autouse=True)
def nothing_done():
    """Forget what earlier tests did."""
    web_agents.DONE.clear()


@contextmanager
def running(url, agents, first=None):
    """A site over a store file, until the block ends; `first` is done with the store before."""
    site = Site(url, {agent.name: agent for agent in agents})
    if first is not None:
        asyncio.run(first(site.url, site.definitions))
    thread = threading.Thread(target=asyncio.run, args=(site.serve(),))
    thread.start()
    try:
        assert site.open.wait(30)
        yield site
    finally:
        site.server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def site(tmp_path):
    """Make a site for one test."""
    with ExitStack() as stack:
        yield lambda *agents, first=None: stack.enter_context(
            running(f"sqlite:///{tmp_path / 'store.db'}", agents, first)
        )


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A site with one run that waits, for tests that change nothing; gives the site, the run's id and its request."""
    agent = web_agents.clerk(note="very secret")
    with running(f"sqlite:///{tmp_path_factory.mktemp('waiting') / 'store.db'}", [agent]) as site:
        run_id = site.start(agent, user="customer:4711")
        [request] = site.requests(run_id)
        yield site, run_id, request


@pytest.fixture
def ana():
    """Send the form of a page as a browser does; gives a function of client, page and verb."""

    def send(client, page, verb, **fields):
        form = next(each for each in forms(page.text) if each["verb"] == verb)
        origin = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"
        return client.post(form.pop("action"), data=form | fields, headers={"origin": origin})

    return send
