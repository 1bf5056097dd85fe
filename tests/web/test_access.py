"""The wall around the pages: tokens, cookies, origins, forms, headers; and what a form makes of arguments."""

import json
from http.client import HTTPConnection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_agents import DONE, clerk

from lictor.console.web.access import HEADERS, LARGEST
from lictor.console.web.shown import changed_arguments, fields_of, visible

PATHS = ("/", "/inbox", "/inbox.json", "/runs", "/runs.json", "/runs/{run}", "/runs/{run}.json", "/requests/{request}",
         "/requests/{request}.json", "/live?of=inbox", "/nothing", "/docs", "/openapi.json")  # fmt: skip


ROLES = ("approver", "viewer")


def still_open(shop, run_id):
    """Nothing was decided, and nothing ran."""
    return [each.status for each in shop.requests(run_id)] == ["pending"] and DONE == []


# ---- tokens -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_without_a_token_nothing_is_shown(waiting, path):
    """Every address answers 401, with a clear page or JSON, the headers, and no data."""
    shop, run_id, request = waiting
    with shop.client() as client:
        answered = client.get(path.format(run=run_id, request=request.id))
    assert answered.status_code == 401
    assert "Open the address that lictor serve printed" in answered.text
    assert [word for word in ("secret", "clerk", "refund", "4711", request.digest) if word in answered.text] == []
    assert {name: answered.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "set-cookie" not in answered.headers


@pytest.mark.parametrize("given", ["wrong", "-", "é☃", "x" * 5000])
def test_a_wrong_token_is_refused_and_leaves_no_cookie(waiting, given):
    """403 for a wrong token in the address, 401 for wrong cookies and bearers."""
    shop, _, _ = waiting
    with shop.client() as client:
        answered = client.get("/inbox", params={"token": given})
        assert (answered.status_code, "set-cookie" in answered.headers) == (403, False)
        assert "secret" not in answered.text
        for headers in (
            {"authorization": f"Bearer {given}.".encode()},
            {"authorization": b"Basic " + shop.keys.approver.encode()},
            {"cookie": f"lictor_{shop.port}={given}".encode()},
            {"cookie": f"lictor_{shop.port}={shop.keys.approver}"},
        ):
            assert client.get("/inbox", headers=headers).status_code == 401


def test_the_token_leaves_the_address_and_becomes_a_strict_cookie(waiting):
    """The redirect keeps the page and its other parameters; scripts and other sites never get the cookie."""
    shop, _, _ = waiting
    with shop.client() as client:
        client.follow_redirects = False
        answered = client.get("/runs", params={"token": shop.keys.approver, "page": "2 3"})
        assert (answered.status_code, answered.headers["location"]) == (303, "/runs?page=2+3")
        cookie = answered.headers["set-cookie"]
        assert cookie.startswith(f"lictor_{shop.port}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert shop.keys.approver not in cookie
        assert client.get("/runs").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/%5Cevil.example", "///evil.example", "/%2Fevil.example"])
def test_the_redirect_stays_on_this_server(waiting, path):
    """An address that looks like another server is one of ours."""
    shop, _, _ = waiting
    connection = HTTPConnection("127.0.0.1", shop.port)
    connection.request("GET", f"{path}?token={shop.keys.approver}")
    location = connection.getresponse().headers["location"]
    connection.close()
    assert location.startswith("/")
    assert location[1] not in "/\\"


def test_tokens_and_cookies_differ_for_each_server_and_role(waiting):
    """A restarted server knows nobody; a viewer's cookie is not an approver's."""
    from lictor.console.web import Keys

    keys = waiting[0].keys
    other = Keys(keys.actor, viewer=True)
    found = [
        keys.approver,
        keys.viewer,
        other.approver,
        *(each.cookie(role) for each in (keys, other) for role in "av"),
    ]
    assert len(set(found)) == 7
    assert min(map(len, found)) >= 43
    assert Keys(keys.actor).visitor(Keys(keys.actor).cookie("viewer"), None) is None
    alone = Keys(keys.actor)
    assert alone.visitor(alone.cookie("viewer"), None) is None


def test_a_viewer_sees_and_decides_nothing(waiting, ana):
    """The second token shows the request and what a decision would do, has no forms, and its posts are refused."""
    shop, run_id, request = waiting
    with shop.client(shop.keys.viewer) as client:
        page = client.get("/inbox").text
        assert "very secret" in page
        assert "refund runs once, with exactly these arguments." in page
        assert "<form" not in page
        for visitor in (shop.keys.visitor(shop.keys.cookie(role), None) for role in ("viewer", "approver")):
            form = {"csrf": visitor.csrf, "digest": request.digest, "verb": "approve"}
            answered = client.post(f"/requests/{request.id}/decide", data=form, headers={"origin": shop.address})
            assert (answered.status_code, "You may only look" in answered.text) == (403, True)
    assert still_open(shop, run_id)


# ---- where a request comes from ---------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "0:{port}"])
def test_another_name_of_this_host_is_refused(waiting, host):
    """DNS rebinding: a page of evil.example that resolves to 127.0.0.1 gets nothing, cookie or not."""
    shop, _, _ = waiting
    with shop.client(shop.keys.approver) as client:
        for path in ("/inbox.json", "/static/lictor.css", f"/inbox?token={shop.keys.approver}"):
            answered = client.get(path, headers={"host": host.format(port=shop.port)})
            assert (answered.status_code, "secret" in answered.text) == (421, False)
            assert "set-cookie" not in answered.headers


def test_localhost_is_a_name_of_ours(waiting):
    """Both usual names of the loopback work."""
    shop, _, _ = waiting
    with shop.client(headers={"host": f"localhost:{shop.port}"}) as client:
        answered = client.get("/inbox.json", headers={"authorization": f"Bearer {shop.keys.approver}"})
    assert answered.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
        {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "same-site"},
        {},
    ],
)
def test_a_form_of_another_page_is_refused(waiting, headers):
    """Even with cookie and form token: other sites, other ports of this host, and posts without an origin."""
    shop, run_id, request = waiting
    csrf = shop.keys.visitor(shop.keys.cookie("approver"), None).csrf
    form = {"csrf": csrf, "digest": request.digest, "verb": "approve"}
    given = {name: value.format(port=shop.port) for name, value in headers.items()}
    with shop.client(shop.keys.approver) as client:
        answered = client.post(f"/requests/{request.id}/decide", data=form, headers=given)
    assert answered.status_code == 403
    assert still_open(shop, run_id)


@pytest.mark.parametrize("site_of", ["same-site", "cross-site"])
def test_another_page_may_link_here_and_read_nothing(waiting, site_of):
    """A link is followed; frames, images and fetches of another origin are refused, also of another port."""
    shop, _, _ = waiting
    with shop.client(shop.keys.approver) as client:
        link = {"sec-fetch-site": site_of, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert client.get("/inbox", headers=link).status_code == 200
        for more in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"sec-fetch-dest": "image"}):
            answered = client.get("/inbox.json", headers=link | more)
            assert (answered.status_code, "secret" in answered.text) == (403, False)


@pytest.mark.parametrize("token", [None, "", "wrong", "é", "viewer"])
def test_a_form_without_its_token_is_refused(waiting, token):
    """The CSRF token is that of this server and this role."""
    shop, run_id, request = waiting
    given = shop.keys.visitor(shop.keys.cookie("viewer"), None).csrf if token == "viewer" else token
    form = {"digest": request.digest, "verb": "approve"} | ({} if given is None else {"csrf": given})
    with shop.client(shop.keys.approver) as client:
        answered = client.post(f"/requests/{request.id}/decide", data=form, headers={"origin": shop.address})
    assert (answered.status_code, "This form is not valid" in answered.text) == (403, True)
    assert still_open(shop, run_id)


def test_a_bearer_reads_and_does_not_decide(waiting):
    """Only a browser that opened the address decides; a token in a header is for reading."""
    shop, run_id, request = waiting
    form = {"csrf": shop.keys.visitor(None, shop.keys.approver).csrf, "digest": request.digest, "verb": "approve"}
    with shop.client() as client:
        headers = {"origin": shop.address, "authorization": f"Bearer {shop.keys.approver}"}
        assert client.post(f"/requests/{request.id}/decide", data=form, headers=headers).status_code == 401
    assert still_open(shop, run_id)


def test_nobody_can_say_who_decides(site):
    """Fields that name an actor are ignored: the actor is that of the token."""
    shop = site(clerk(name="other"))
    run_id = shop.start(shop.definitions["other"])
    [request] = shop.requests(run_id)
    csrf = shop.keys.visitor(shop.keys.cookie("approver"), None).csrf
    form = {"csrf": csrf, "digest": request.digest, "verb": "approve"}
    claims = {"by": "human:boss", "actor": "human:boss", "as": "human:boss", "via": "library"}
    with shop.client(shop.keys.approver, headers={"x-forwarded-user": "boss"}) as client:
        answered = client.post(
            f"/requests/{request.id}/decide?by=human:boss", data=form | claims, headers={"origin": shop.address}
        )
        assert answered.status_code == 200
    shop.result(run_id)
    by = shop.requests(run_id)[0].resolution.decided_by
    assert (str(by), by.via) == ("human:ana", "web")


# ---- forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"x", "multipart/form-data; boundary=x", 415),
        (b"csrf=a&csrf=b", None, 400),
        (b"csrf=%FF", None, 400),
        (b"no equals sign", None, 400),
        (b"", None, 403),
        (b"&".join(b"f%d=1" % number for number in range(600)), None, 400),
        (b"a=" + b"x" * LARGEST, None, 413),
    ],
)
def test_a_strange_body_is_refused(waiting, body, kind, status):
    """Wrong types, double fields, broken encodings, too many fields, too many bytes; nothing happens."""
    shop, run_id, request = waiting
    headers = {"origin": shop.address, "content-type": kind or "application/x-www-form-urlencoded"}
    with shop.client(shop.keys.approver) as client:
        assert client.post(f"/requests/{request.id}/decide", content=body, headers=headers).status_code == status
    assert still_open(shop, run_id)


def test_a_body_without_an_end_is_cut_off(waiting):
    """A form that is sent in pieces, with no length, is read up to the limit and no further."""
    shop, run_id, request = waiting
    headers = {"origin": shop.address, "content-type": "application/x-www-form-urlencoded"}
    pieces = (b"x" * 65_536 for _ in range(LARGEST // 65_536 + 1))
    with shop.client(shop.keys.approver) as client:
        answered = client.post(f"/requests/{request.id}/decide", content=pieces, headers=headers)
    assert answered.status_code == 413
    assert still_open(shop, run_id)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_nothing(waiting, method):
    """Pages know GET, HEAD and POST."""
    shop, run_id, request = waiting
    with shop.client(shop.keys.approver) as client:
        assert client.request(method, f"/requests/{request.id}/decide").status_code == 405
        assert client.request(method, "/inbox").status_code == 405
        assert client.head("/inbox").status_code == 200
        assert client.post("/inbox", headers={"origin": shop.address}).status_code in (400, 403, 415)
    assert still_open(shop, run_id)


def test_static_files_hold_no_data_and_nothing_else_is_served(waiting):
    """Style and script are there without a token; no path leads out of their folder."""
    shop, _, _ = waiting
    for path, status in (
        ("/static/lictor.css", 200),
        ("/static/lictor.js", 200),
        ("/static/lictor.svg", 200),
        ("/static/", 404),
        ("/static/../pages.py", 404),
        ("/static/%2e%2e/pages.py", 404),
        ("/static/..%2fpages.py", 404),
        ("/static//etc/passwd", 404),
    ):
        connection = HTTPConnection("127.0.0.1", shop.port)
        connection.request("GET", path)
        answered = connection.getresponse()
        text = answered.read().decode()
        connection.close()
        assert (answered.status, "starlette" in text) == (status, False), path
        assert answered.headers["x-content-type-options"] == "nosniff"


def test_every_page_keeps_scripts_out(waiting):
    """The policy allows files of ours alone; no page holds a script, a style or a handler of its own."""
    shop, run_id, request = waiting
    with shop.client(shop.keys.approver) as client:
        for path in ("/inbox", "/runs", f"/runs/{run_id}", f"/requests/{request.id}", "/runs/nope"):
            answered = client.get(path)
            assert {name: answered.headers[name] for name in HEADERS} == dict(HEADERS)
            assert "<style" not in answered.text
            assert " style=" not in answered.text
            assert " onclick=" not in answered.text
            assert "<script>" not in answered.text
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


# ---- values in pages and forms ----------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.text())
def test_text_on_a_page_is_escaped_and_whole(text):
    """What is printable stands there as it is; nothing becomes markup, nothing that hides is left."""
    shown = visible(text)
    plain = shown.striptags() if "\n" not in text and "  " not in text else None
    assert "<script" not in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)
    assert plain is None or all(sign in shown.unescape() for sign in text if sign.isprintable())


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4), st.booleans())
def test_a_form_sent_untouched_changes_no_argument(arguments, windows):
    """Whatever browsers make of line ends, every value keeps type and signs, and the edit is refused as none."""
    form = {}
    for field in fields_of(arguments, {}):
        text = field.text.replace("\n", "\r\n") if windows else field.text
        form[f"argument:{field.name}"] = text
    after, problems = changed_arguments(form, arguments, {})
    assert json.dumps(after) == json.dumps(arguments)
    assert problems == ["nothing was changed; approve the call as it is shown"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_changed_text_arrives_as_it_was_typed(text):
    """In the field of a text people type text, not JSON."""
    typed = text.replace("\r\n", "\n").replace("\r", "")
    after, _ = changed_arguments({"argument:a": typed.replace("\n", "\r\n")}, {"a": "before"}, {})
    assert after == {"a": typed}
