"""The gate alone, around an application that counts what reaches it."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.guard import Guard

PORT = 7861
HOME = f"http://127.0.0.1:{PORT}"
PAGE = "<html><script>one()</script><script src='/x.js'></script><script data-a>two()</script></html>"


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def client(reached: list[str]) -> TestClient:
    async def anything(request: Request) -> Response:
        reached.append(request.url.path)
        if request.url.path == "/":
            return HTMLResponse(PAGE)
        return PlainTextResponse("ok", headers={"access-control-allow-origin": "*", "cache-control": "public"})

    inner = Starlette(routes=[Route("/{path:path}", anything, methods=["GET", "POST", "PUT", "OPTIONS"])])
    return TestClient(Guard(inner, PORT), base_url=HOME)


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"])
def test_our_own_addresses_pass(client: TestClient, reached: list[str], host: str) -> None:
    assert client.get("/config", headers={"host": host}).status_code == 200
    assert reached == ["/config"]


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil.example:{PORT}", ""]
)
def test_other_hosts_get_400(client: TestClient, reached: list[str], host: str) -> None:
    assert client.get("/config", headers={"host": host}).status_code == 400
    assert reached == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", ["null", "https://evil.example", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:3000"]
)
def test_other_origins_get_403_on_every_method(
    client: TestClient, reached: list[str], method: str, origin: str
) -> None:
    assert client.request(method, "/gradio_api/queue/join", headers={"origin": origin}).status_code == 403
    assert reached == []


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_fetch_site(client: TestClient, site: str, status: int) -> None:
    assert client.get("/config", headers={"sec-fetch-site": site}).status_code == status


def test_a_post_must_name_its_origin(client: TestClient, reached: list[str]) -> None:
    assert client.post("/gradio_api/queue/join").status_code == 403
    assert reached == []
    assert client.post("/gradio_api/queue/join", headers={"origin": HOME}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/openapi.json", "/docs", "/gradio_api/info", "/assets/../config", "/gradio_api/file=/x"]
)
def test_paths_that_the_page_does_not_need(client: TestClient, reached: list[str], path: str) -> None:
    assert client.get(path.replace("..", "%2e%2e")).status_code == 404
    assert reached == []


def test_methods(client: TestClient) -> None:
    assert client.put("/config", headers={"origin": HOME}).status_code == 405


def test_headers(client: TestClient) -> None:
    answer = client.get("/config")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers
    refused = client.get("/docs")
    assert refused.headers["x-content-type-options"] == "nosniff"


def test_the_page_may_run_only_the_scripts_that_it_came_with(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert scripts.count("'sha256-") == 2
    assert "unsafe" not in scripts
    # openssl dgst -sha256 -binary, base64, of "one()"
    assert "'sha256-HR7iaask9daLMRRskMI++QeJtjWDOjyPA6lGzYGzKW4='" in scripts
    assert "img-src 'self' data: blob:" in policy
    assert "http:" not in policy
    assert "https:" not in policy


def test_a_proxy_that_is_not_there_is_not_believed() -> None:
    seen: list[str] = []

    async def record(request: Request) -> Response:
        seen.extend(request.headers)
        return PlainTextResponse("ok")

    client = TestClient(Guard(Starlette(routes=[Route("/config", record)]), PORT), base_url=HOME)
    client.get("/config", headers={"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"})
    assert "host" in seen
    assert not any(name.startswith("x-forwarded") for name in seen)
