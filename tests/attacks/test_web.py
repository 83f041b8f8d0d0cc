"""Attacks on the whole application (guard, FastAPI, Gradio): nothing reaches the facade, nothing is written or read.

`test_the_page_itself_can_ask` is the control: the same request from our own origin does reach it.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance
from ui.app import MAX_UPLOAD_BYTES, build_app

PORT = 7862
HOME = f"http://127.0.0.1:{PORT}"
JOIN = "/gradio_api/queue/join"
EVIL = "https://evil.example"


@dataclass(frozen=True)
class Served:
    client: TestClient
    fake: FakeAppliance
    home: Home
    blocks: Any


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("attacks") / "home")
    home.create()
    fake = FakeAppliance(home)
    fake.add("<script>alert('title')</script>", "text")
    app = build_app(fake.as_appliance(), PORT)
    blocks = app.routes[-1].app.get_blocks()  # type: ignore[attr-defined]
    with TestClient(app, base_url=HOME) as client:
        yield Served(client, fake, home, blocks)


@pytest.fixture(autouse=True)
def _no_calls(served: Served) -> None:
    served.fake.calls.clear()


def page_config(client: TestClient) -> dict[str, Any]:
    config: dict[str, Any] = client.get("/config").json()
    return config


def event(client: TestClient, name: str, data: list[Any]) -> dict[str, Any]:
    """The body that the page sends for the event of this (Python function) name."""
    dependency = next(entry for entry in page_config(client)["dependencies"] if entry["api_name"] == name)
    return {"data": data, "fn_index": dependency["id"], "session_hash": "attacker00", "event_data": None}


def settle(fake: FakeAppliance) -> list[str]:
    """Calls made so far; a queued event gets time to run."""
    deadline_s = time.monotonic() + 1.0
    while not fake.calls and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return fake.calls


def asking(client: TestClient, attached: Any = None) -> dict[str, Any]:
    return event(client, "answer", ["How many days?", [], "default", "auto", attached])


def test_the_page_itself_can_ask(served: Served) -> None:
    answer = served.client.post(JOIN, json=asking(served.client), headers={"origin": HOME})
    assert answer.status_code == 200
    assert settle(served.fake) == ["ask"]


def test_what_is_attached_is_not_taken_from_the_browser(served: Served) -> None:
    """It is kept by the server for each session; what a request says in its place is not looked at."""
    forged = asking(served.client, [{"id": "d0", "name": "x"}])
    assert served.client.post(JOIN, json=forged, headers={"origin": HOME}).status_code == 200
    assert settle(served.fake) == ["ask"]
    assert served.fake.asked_about[-1] == ()


FOREIGN = [
    pytest.param({"host": "evil.example"}, 400, id="foreign host"),
    pytest.param({"host": f"evil.example:{PORT}", "origin": f"http://evil.example:{PORT}"}, 400, id="rebinding"),
    pytest.param({"origin": EVIL}, 403, id="foreign origin"),
    pytest.param({"origin": "null"}, 403, id="null origin"),
    pytest.param({"origin": "http://127.0.0.1:3000"}, 403, id="another port"),
    pytest.param({"origin": HOME, "sec-fetch-site": "cross-site"}, 403, id="cross-site fetch"),
    pytest.param({"origin": HOME, "sec-fetch-site": "same-site"}, 403, id="same-site fetch"),
    pytest.param({}, 403, id="no origin"),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_foreign_requests_do_not_ask(
    served: Served, headers: dict[str, str], status: int, content_type: str | None
) -> None:
    body = json.dumps(asking(served.client))
    typed = headers if content_type is None else {**headers, "content-type": content_type}
    assert served.client.post(JOIN, content=body, headers=typed).status_code == status
    time.sleep(0.05)
    assert served.fake.calls == []


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
def test_foreign_uploads_leave_no_file(served: Served, headers: dict[str, str], status: int) -> None:
    def files() -> set[Path]:
        return {path for path in served.home.root.rglob("*") if path.is_file()}

    before = files()
    answer = served.client.post("/gradio_api/upload", files={"files": ("evil.txt", b"evil")}, headers=headers)
    assert answer.status_code == status
    assert files() == before


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
def test_no_method_serves_a_foreign_origin(served: Served, method: str) -> None:
    headers = {"origin": EVIL, "access-control-request-method": "POST"}
    answer = served.client.request(method, "/", headers=headers)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", [EVIL, "null", HOME])
def test_web_sockets_are_refused(served: Served, origin: str) -> None:
    with pytest.raises(WebSocketDisconnect), served.client.websocket_connect(JOIN, headers={"origin": origin}):
        pass


@pytest.mark.parametrize(
    "path",
    [
        "/openapi.json",
        "/docs",
        "/redoc",
        "/gradio_api/openapi.json",
        "/gradio_api/info",
        "/gradio_api/runs",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=../../../../etc/passwd",
        "/gradio_api/file/etc/passwd",
        f"/gradio_api/file={EVIL}/x.png",
        f"/gradio_api/proxy={EVIL}/x.png",
        "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2f..%2fetc/passwd",
        "/monitoring",
        "/gradio_api/vibe-code",
        "/gradio_api/deep_link",
        "/login",
        "/svelte/x.js",
    ],
)
def test_paths_beside_the_page(served: Served, path: str) -> None:
    answer = served.client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "path", ["run/answer", "api/answer", "call/answer", "call/v2/answer", "vibe-edit", "component_server"]
)
def test_calls_beside_the_queue(served: Served, path: str) -> None:
    answer = served.client.post(f"/gradio_api/{path}", json=asking(served.client), headers={"origin": HOME})
    assert answer.status_code == 404
    assert served.fake.calls == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{cache}/../../../../etc/passwd", "https://evil.example/passwd", 7, None]
)
@pytest.mark.parametrize("name", ["ingest", "attach", "answer", "lambda"])
def test_a_file_of_this_computer_cannot_be_named_as_an_upload(served: Served, name: str, path: Any) -> None:
    if isinstance(path, str):
        path = path.format(cache=served.home.cache)
    reference = {"path": path, "meta": {"_type": "gradio.FileData"}}
    said = [{"role": "user", "content": [{"type": "file", "file": reference}]}]
    data: dict[str, list[Any]] = {
        "ingest": [[reference], "default"],
        "attach": [[reference], "default", None],
        "answer": ["q", said, "default", "auto", None],
        "lambda": [reference],
    }
    answer = served.client.post(JOIN, json=event(served.client, name, data[name]), headers={"origin": HOME})
    assert answer.status_code == 400
    time.sleep(0.05)
    assert served.fake.calls == []
    assert not list(served.home.root.rglob("passwd*"))


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_an_event_that_is_no_json(served: Served, body: bytes) -> None:
    assert served.client.post(JOIN, content=body, headers={"origin": HOME}).status_code == 400


def test_an_event_that_is_too_large(served: Served) -> None:
    body = event(served.client, "answer", ["q" * (9 * 1024 * 1024), [], "default", "auto", None])
    assert served.client.post(JOIN, json=body, headers={"origin": HOME}).status_code == 413


def test_gradio_checks_paths_too(served: Served) -> None:
    assert served.blocks.has_launched


def test_an_upload_that_is_too_large_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert served.blocks.max_file_size == MAX_UPLOAD_BYTES
    monkeypatch.setattr(served.blocks, "max_file_size", 1000)
    headers = {"origin": HOME}
    small, large = (
        served.client.post("/gradio_api/upload", files={"files": ("a.txt", b"x" * size)}, headers=headers).status_code
        for size in (999, 1001)
    )
    assert (small, large) == (200, 413)


def test_the_page_announces_no_endpoint_and_holds_no_document(served: Served) -> None:
    page = served.client.get("/").text
    assert "alert('title')" not in page
    assert "alert(" not in json.dumps(page_config(served.client))
    dependencies = page_config(served.client)["dependencies"]
    named = [entry for entry in dependencies if entry["backend_fn"] and entry["api_visibility"] != "private"]
    assert [entry["targets"] for entry in named if entry["targets"][0][1] != "unload"] == []


def test_policy_of_the_page(served: Served) -> None:
    policy = served.client.get("/").headers["content-security-policy"]
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["img-src"] == "'self' data: blob:"
    assert directives["connect-src"] == "'self'"
    assert "unsafe" not in directives["script-src"]
    assert directives["frame-ancestors"] == "'none'"
    assert served.client.get("/config").headers["cache-control"] == "no-store"
