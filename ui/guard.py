"""The gate before every page: who may ask (host, origin), for what (listed paths), and what the browser may do.

A loopback address protects against other computers, not against other web sites open in the same browser: DNS rebinding
makes a foreign name point at us, and a foreign page can send us forms. Both carry a Host or Origin that is not ours.
"""

import base64
import hashlib
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PAGE = "/"
_READ_PATHS = frozenset(
    {"/", "/config", "/theme.css", "/favicon.ico", "/gradio_api/queue/data", "/gradio_api/upload_progress"}
    | {"/gradio_api/startup-events", "/gradio_api/app_id"}
)
_READ_PREFIXES = ("/assets/", "/static/", "/gradio_api/heartbeat/")
_WRITE_PATHS = frozenset(
    {"/gradio_api/queue/join", "/gradio_api/upload", "/gradio_api/cancel", "/gradio_api/reset"},
)
_OWN_SITE = frozenset({"same-origin", "none"})  # "none": typed, bookmarked or opened by the command line

_FIXED_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), usb=()",
}
_CLOSED_POLICY = "default-src 'none'; frame-ancestors 'none'"
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
_INLINE_SCRIPT = re.compile(rb"<script(?:\s[^>]*)?>(.*?)</script>", re.DOTALL)


class Guard:
    """ASGI middleware around the whole application; `port` is the one we listen on.

    Refuses with 400 (host), 403 (origin, fetch site, web socket), 404 (path) and 405 (method) before any handler runs,
    and sets the security headers on every answer. Source of the rules: OWASP ASVS 5.0, 3.4 and 3.5.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope = _without_forwarded(scope)
        if scope["type"] != "http":  # the page uses no web socket, so none is ever right
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, _with_headers(send, _CLOSED_POLICY))
        elif scope["path"] == _PAGE and scope["method"] == "GET":
            await _send_page(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send, _CLOSED_POLICY, cache=_is_asset(scope["path"])))

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The answer that ends this request here, or None where it may go on."""
        headers = Headers(scope=scope)
        method: str = scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return PlainTextResponse("Open this page by its own address, http://127.0.0.1 and the port.\n", 400)
        origins = headers.getlist("origin")
        foreign = any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins)
        site = headers.get("sec-fetch-site")
        if foreign or (site is not None and site not in _OWN_SITE):
            return PlainTextResponse("Another site asked for this: open the page by its own address.\n", 403)
        if method not in {"GET", "HEAD", "POST"}:
            return PlainTextResponse("Method not allowed.\n", 405)
        if method == "POST" and not origins:  # every browser names the origin of a POST
            return PlainTextResponse("A request that changes something must name its origin.\n", 403)
        if not _is_served(method, scope["path"]):
            return PlainTextResponse("Not found.\n", 404)
        return None


def _is_served(method: str, path: str) -> bool:
    """Gradio also has routes for files, a proxy, its API description, editing and monitoring: the page needs none."""
    if method == "POST":
        return path in _WRITE_PATHS
    return path in _READ_PATHS or (path.startswith(_READ_PREFIXES) and ".." not in path)


def _is_asset(path: str) -> bool:
    return path.startswith("/assets/")


def _without_forwarded(scope: Scope) -> Scope:
    """The request without a proxy's headers: there is none, and Gradio would believe the host they name."""
    kept = [(name, value) for name, value in scope.get("headers", []) if not name.lower().startswith(b"x-forwarded-")]
    return {**scope, "headers": kept}


def _with_headers(send: Send, policy: str, cache: bool = False) -> Send:
    """`send` with our headers in place of whatever the application set."""

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name in [name for name in headers if name.startswith("access-control-")]:
                del headers[name]
            headers.update(_FIXED_HEADERS)
            headers["content-security-policy"] = policy
            headers["cache-control"] = "private, max-age=86400" if cache else "no-store"
        await send(message)

    return guarded


async def _send_page(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the page itself, allowing by digest exactly the inline scripts that it came with.

    So no script that a document or an answer could bring in later runs, and neither does an event-handler attribute.
    The page holds no text of a user at this point: everything is fetched after loading.
    """
    plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
    start: Message = {}
    body = bytearray()

    async def collect(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        if message["type"] != "http.response.body":
            await send(message)
            return
        body.extend(message.get("body", b""))
        if not message.get("more_body", False):
            policy = _PAGE_POLICY.format(scripts=_script_digests(bytes(body)))
            guarded = _with_headers(send, policy)
            await guarded(start)
            await guarded({"type": "http.response.body", "body": bytes(body)})

    await app({**scope, "headers": plain}, receive, collect)


def _script_digests(page: bytes) -> str:
    digests = (hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(page) if script)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
