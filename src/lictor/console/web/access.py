"""Who may see and decide: the wall around the pages. Nothing behind it is reached without a token.

Cookies know no ports and 127.0.0.1 is one site, so `SameSite` alone does not keep other local
servers out: what a browser says about the origin of a request is checked too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lictor.docket import Actor

__all__ = ["LARGEST", "Keys", "Visitor", "Wall"]

LARGEST = 1_048_576
"""Bytes of a form that are read at most."""

FIELDS = 500
FORM = "application/x-www-form-urlencoded"
SAFE = ("GET", "HEAD")
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With `no-referrer` browsers send `Origin: null` with our own forms too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks: the actor of the server, or one who may only look; and the token of their forms."""

    actor: Actor | None
    csrf: str

    @property
    def decides(self) -> bool:
        """Whether decisions are taken from them."""
        return self.actor is not None


class Keys:
    """The tokens of one server, and what is made of them: new ones each time it starts.

    Arguments:
        actor: who decides with the token `approver`.
        viewer: whether there is also a token `viewer`, that can only look.
    """

    def __init__(self, actor: Actor, *, viewer: bool = False) -> None:
        self.actor = actor
        self.approver = secrets.token_urlsafe(32)
        self.viewer = secrets.token_urlsafe(32) if viewer else None
        self._secret = secrets.token_bytes(32)

    def role_of(self, token: str) -> str | None:
        """The role that a token gives, in constant time."""
        given = token.encode()
        found = None
        for role, known in (("approver", self.approver), ("viewer", self.viewer)):
            if known is not None and hmac.compare_digest(given, known.encode()):
                found = role
        return found

    def cookie(self, role: str) -> str:
        """What a browser keeps instead of the token."""
        return self._sign("cookie", role)

    def visitor(self, cookie: str | None, bearer: str | None) -> Visitor | None:
        """Who sends this cookie, or this token as `Authorization: Bearer`."""
        role = self.role_of(bearer) if bearer else None
        for each in ("approver", "viewer") if cookie else ():
            if hmac.compare_digest((cookie or "").encode(), self.cookie(each).encode()):
                role = role or each
        if role is None or (role == "viewer" and self.viewer is None):
            return None
        return Visitor(self.actor if role == "approver" else None, self._sign("form", role))

    def _sign(self, what: str, role: str) -> str:
        return hmac.new(self._secret, f"{what}:{role}".encode(), hashlib.sha256).hexdigest()


Refuse = Callable[[Scope, int, str, str], Response]


class Wall:
    """Around an application: lets a request through, or answers it with a refusal that shows no data.

    What comes through has `visitor` in its state and, with POST, `form`: the fields of a form that
    this server made.

    Arguments:
        app: what is behind it.
        keys: the tokens.
        hosts: what a `Host` header may say, `127.0.0.1:8321`; foreign names are DNS rebinding.
        refuse: makes the page of a refusal from scope, status, title and text.
    """

    def __init__(self, app: ASGIApp, keys: Keys, hosts: frozenset[str], refuse: Refuse) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return  # nothing here speaks anything else

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = await self._judge(scope, receive)
        if answer is None:
            await self._app(scope, receive, guarded)
        else:
            await answer(scope, receive, guarded)

    async def _judge(self, scope: Scope, receive: Receive) -> Response | None:
        headers = Headers(scope=scope)
        scope["state"] = {}
        for check in (self._foreign, self._method, self._enter, self._known):
            refused = check(scope, headers)
            if refused is not None:
                return refused
        return await self._posted(scope, headers, receive) if scope["method"] == "POST" else None

    def _foreign(self, scope: Scope, headers: Headers) -> Response | None:
        """Other names of this host, and requests that another page makes."""
        if headers.get("host", "") not in self._hosts:
            return self._refuse(scope, 421, "This is not the address", f"Open {min(self._hosts)} itself.")
        followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        link = scope["method"] in SAFE and followed
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not link:
            return self._refuse(scope, 403, "Another page asked for this", "Nothing was shown to it or changed.")
        if headers.get("origin") not in (None, f"http://{headers['host']}"):
            return self._refuse(scope, 403, "Another page asked for this", "Nothing was shown to it or changed.")
        return None

    def _method(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["method"] in (*SAFE, "POST"):
            return None
        return self._refuse(scope, 405, "Not possible here", "These pages know GET and POST.")

    def _enter(self, scope: Scope, headers: Headers) -> Response | None:
        """`?token=…` becomes a cookie, and the token leaves the address."""
        fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in fields if name == "token"]
        if not tokens or scope["method"] != "GET":
            return None
        role = self._keys.role_of(tokens[0])
        if role is None:
            text = "The token in this address is not one of this server. Use the address that lictor serve printed."
            return self._refuse(scope, 403, "Wrong token", text)
        rest = urlencode([each for each in fields if each[0] != "token"])
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(_cookie_name(headers), self._keys.cookie(role), httponly=True, samesite="strict", path="/")
        return answer

    def _known(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"].startswith("/static/") and scope["method"] in SAFE:
            return None  # holds no data; the page of a refusal needs it
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        reads = scheme.lower() == "bearer" and scope["method"] in SAFE
        visitor = self._keys.visitor(_cookie(headers), bearer.strip() if reads else None)
        if visitor is None:
            text = "These pages are for whoever started the server. Open the address that lictor serve printed."
            return self._refuse(scope, 401, "A token is needed", text)
        scope["state"]["visitor"] = visitor
        return None

    async def _posted(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """The form that a person sent: from a page of ours, small enough, and by someone who decides."""
        visitor: Visitor = scope["state"]["visitor"]
        if headers.get("origin") is None:
            return self._refuse(scope, 403, "Where does this come from?", "The request names no origin.")
        if not visitor.decides:
            return self._refuse(scope, 403, "You may only look", "This token decides nothing. Nothing was changed.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            return self._refuse(scope, 415, "Not a form", f"Send {FORM}.")
        body = await _body(headers, receive)
        if body is None:
            return self._refuse(scope, 413, "Too much", f"A form may have {LARGEST} bytes. Nothing was changed.")
        fields = _fields(body)
        if fields is None:
            return self._refuse(scope, 400, "Not a form", "Its fields cannot be read. Nothing was changed.")
        if not hmac.compare_digest(fields.pop("csrf", "").encode(), visitor.csrf.encode()):
            text = "It was not made by this server, or by an earlier one. Nothing was changed; open the page anew."
            return self._refuse(scope, 403, "This form is not valid", text)
        scope["state"]["form"] = fields
        return None


def _cookie_name(headers: Headers) -> str:
    """One for each port: browsers send a cookie to every port of a host."""
    port = headers["host"].rpartition(":")[2]
    return f"lictor_{port if port.isdigit() else 'http'}"


def _cookie(headers: Headers) -> str | None:
    """Taken out by hand: a strange cookie of another server on this host must not hide ours."""
    name = _cookie_name(headers)
    pairs = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
    return next((value for known, _, value in pairs if known == name), None)


async def _body(headers: Headers, receive: Receive) -> bytes | None:
    """The body, or None when it is too large."""
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > LARGEST:
        return None
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST:
            return None
    return bytes(body)


def _fields(body: bytes) -> dict[str, str] | None:
    """The fields of a form, or None when it is malformed or has two of one name."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=FIELDS
        )
    except ValueError:
        return None
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else None
