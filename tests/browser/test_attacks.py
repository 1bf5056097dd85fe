"""What other pages, other servers and hostile text cannot do in a real browser."""

import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def elsewhere():
    """Serve one page from another port of this host; gives a function of its text, which gives the address."""
    servers = []

    def serve(text):
        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_port

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def request_of(page):
    """Everything that a form of the page holds, its token included."""
    form = page.locator("form[aria-label=approve]")
    names = ("csrf", "digest", "kind", "verb")
    return form.get_attribute("action"), {name: form.locator(f"[name={name}]").get_attribute("value") for name in names}


def test_without_the_token_there_is_nothing_to_see(shop, opened):
    """No token, a wrong one, and one of an earlier server: a clear page, no data."""
    run_id = shop.start()
    token = shop.serve().partition("token=")[2]
    page = opened()
    for path, title in (
        ("/inbox", "A token is needed"),
        (f"/runs/{run_id}", "A token is needed"),
        ("/inbox?token=wrong", "Wrong token"),
        (f"/inbox?token={token[:-1]}", "Wrong token"),
    ):
        page.goto(shop.address + path)
        assert page.get_by_role("heading", name=title).is_visible()
        assert page.get_by_text("lictor serve printed").is_visible()
        assert [word for word in ("clerk", "refund", "4711") if word in page.content()] == []


def test_a_script_cannot_read_the_cookie(shop, opened):
    """The cookie is there, and no script sees it."""
    shop.start()
    page = opened(shop.serve())
    assert page.evaluate("document.cookie") == ""
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_form_on_another_page_decides_nothing(shop, opened, elsewhere, host):
    """Another port of this host gets the cookie sent along, and even with the stolen form token it is refused."""
    shop.start()
    page = opened(shop.serve())
    action, fields = request_of(page)
    hidden = "".join(f'<input name="{name}" value="{html.escape(value)}">' for name, value in fields.items())
    text = f'<form method="post" action="{shop.address}{action}">{hidden}<button>Win a prize</button></form>'
    page.goto(f"http://{host}:{elsewhere(text)}/")
    page.get_by_role("button", name="Win a prize").click()
    page.get_by_text("Another page asked for this").or_(page.get_by_text("A token is needed")).wait_for()
    assert page.url.startswith(shop.address)
    page.goto(shop.address + "/inbox")
    assert page.get_by_role("heading", name="clerk wants to run refund").is_visible()
    assert shop.paid() == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_script_of_another_page_reads_and_decides_nothing(shop, opened, elsewhere, host):
    """fetch in every mode, frames and images: nothing comes back, nothing happens."""
    shop.start()
    url = shop.serve()
    owner = opened(url)
    action, fields = request_of(owner)
    port = elsewhere("<!doctype html><title>other</title>")
    page = owner.context.new_page()  # the same profile: whatever cookies there are go along
    page.goto(f"http://{host}:{port}/")
    told = page.evaluate(
        """async ([address, action, fields]) => {
          const found = [];
          for (const options of [{}, {credentials: "include"}, {mode: "no-cors", credentials: "include"},
              {method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams(fields)}]) {
            try {
              const path = options.method ? action : "/inbox.json";
              const answer = await fetch(address + path, options);
              found.push([answer.type, (await answer.text()).length]);
            } catch (error) { found.push("refused"); }
          }
          for (const kind of ["iframe", "img", "script"]) {
            const element = document.createElement(kind);
            element.src = address + "/inbox";
            const ended = new Promise((done) => {
              element.onload = () => done("loaded");
              element.onerror = () => done("error");
            });
            document.body.append(element);
            const how = await ended;
            let inside = null;
            try { inside = element.contentDocument && element.contentDocument.body.innerText; } catch { inside = null; }
            found.push([kind, how === "loaded" && kind !== "iframe", inside]);
          }
          return found;
        }""",
        [shop.address, action, fields],
    )
    assert [each for each in told[:4] if each != "refused" and each[1] > 0] == []
    assert [each[1:] for each in told[4:]] == [[False, None]] * 3
    owner.reload()
    assert owner.get_by_role("heading", name="clerk wants to run refund").is_visible()
    assert shop.paid() == []


@pytest.mark.parametrize("scripts", [True, False])
def test_hostile_text_stays_text(shop, opened, scripts):
    """Script in arguments, their names, reasons, task, user, feedback, results and the answer: nothing runs."""
    run_id = shop.start("evil", task=shop.evil, user=shop.evil, talk=shop.evil)
    page = opened(shop.serve(), java_script_enabled=scripts)
    assert page.get_by_text(shop.evil).count() >= 3
    page.goto(f"{shop.address}/runs/{run_id}")
    assert page.get_by_text(shop.evil).count() >= 3
    page.get_by_label("Why not?").fill(shop.evil)
    page.get_by_role("button", name="Reject").click()
    for _ in range(100):
        if page.get_by_text("I was told:").count():
            break
        page.reload()
    assert page.get_by_text("I was told:").first.is_visible()
    page.get_by_text("Transcript").click()
    assert page.get_by_text(shop.evil).count() >= 3
    assert page.locator("img, script:not([src]), [onerror], a[href^=javascript]").count() == 0
    page.get_by_role("listitem").get_by_role("link", name="shout").click()
    assert page.get_by_text(shop.evil).count() >= 2
    page.goto(f"{shop.address}/runs")
    assert page.get_by_text(shop.evil).count() == 1
    assert page.locator("img, script:not([src]), [onerror], a[href^=javascript]").count() == 0


def test_an_injected_script_would_not_run_either(shop, opened):
    """The second wall: were something not escaped, the policy of the page would stop it."""
    shop.start()
    page = opened(shop.serve())
    ran = page.evaluate(
        """async () => {
          const seen = [];
          document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
          const markup = "<img src=x onerror='window.ran = 1'><p style='color: red'>x</p>";
          document.body.insertAdjacentHTML("beforeend", markup);
          const script = document.createElement("script");
          script.textContent = "window.ran = 2";
          document.body.append(script);
          const foreign = new Image();
          foreign.src = "http://127.0.0.1:9/x.png";
          document.body.append(foreign);
          await new Promise((done) => setTimeout(done, 300));
          return [window.ran ?? null, [...new Set(seen)].sort()];
        }"""
    )
    assert ran[0] is None
    assert set(ran[1]) >= {"script-src-elem", "style-src-attr", "img-src"}
    assert all("Content Security Policy" in alarm for alarm in opened.alarms)
    opened.alarms.clear()
