"""The parser process hangs, dies, eats memory or is taken over: one file fails, the next one goes in."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import ApplianceError, DocumentRejected
from appliance.parsing import DocumentParser, ParserLimits

_ROOT = Path(__file__).resolve().parents[2]
_FORMATS = "tests.attacks.hostile_formats"


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[DocumentParser]:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setenv("A_SECRET", "token")
    with DocumentParser(ParserLimits(wall_seconds=1.0), _FORMATS) as parser:
        yield parser


def order(parser: DocumentParser, folder: Path, what: str) -> str:
    path = folder / "order.txt"
    path.write_text(what)
    return parser.parse(path).text


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("hang", "took longer than 1 s"),
        ("spin", "took longer than 1 s"),
        ("crash", "SIGSEGV"),
        ("exit", "exit 3"),
        ("raise now", "exit 1"),
        ("hog", "needs more than 2 GB of memory"),
        ("recurse", "nested too deeply"),
        ("nonsense", "made the parser fail"),
    ],
)
def test_a_failing_parser_costs_one_file(hostile: DocumentParser, tmp_path: Path, what: str, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(DocumentRejected, match=r"^order\.txt [^\n]+: [^\n]+$") as caught:
        order(hostile, tmp_path, what)
    assert reason in str(caught.value)
    assert order(hostile, tmp_path, "greet") == "obeyed greet "
    assert time.monotonic() - started < 6.0


def test_no_process_is_left_behind(hostile: DocumentParser, tmp_path: Path) -> None:
    before = _children()
    order(hostile, tmp_path, "greet")
    assert len(_children() - before) == 1
    with pytest.raises(DocumentRejected):
        order(hostile, tmp_path, "hang")
    hostile.close()
    assert _children() == before


def test_the_process_ends_when_its_user_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Text.")
    script = (
        "import sys, time, pathlib; from appliance.parsing import DocumentParser; parser = DocumentParser();"
        "parser.parse(pathlib.Path(sys.argv[1])); print(parser._worker._process.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as user:
        assert user.stdout is not None
        worker = int(user.stdout.readline())
        user.send_signal(signal.SIGKILL)
        user.wait()
    deadline = time.monotonic() + 5
    while _runs(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(worker)


def test_a_process_killed_between_two_files_is_replaced(hostile: DocumentParser, tmp_path: Path) -> None:
    before = _children()
    order(hostile, tmp_path, "greet")
    (child,) = _children() - before
    os.kill(child, signal.SIGKILL)
    time.sleep(0.1)
    assert order(hostile, tmp_path, "greet") == "obeyed greet "


def test_a_taken_over_parser_reaches_no_file_no_network_no_program(hostile: DocumentParser, tmp_path: Path) -> None:
    isolation = hostile.isolation()
    canary = tmp_path / "canary.txt"
    order(hostile, tmp_path, f"write {canary}")
    assert not canary.is_file() or canary.read_text() == ""
    if isolation.files_closed:
        secret = tmp_path / "secret.txt"
        secret.write_text("secret")
        for path in (secret, Path("/etc/passwd")):
            assert order(hostile, tmp_path, f"read {path}") == "refused PermissionError"
        assert order(hostile, tmp_path, "run /bin/true") != "done 0"
        assert not canary.exists()
    if isolation.network_closed:
        with socket.create_server(("127.0.0.1", 0)) as server:
            answer = order(hostile, tmp_path, f"connect {server.getsockname()[1]}")
        assert answer.startswith("refused")


def test_the_process_knows_no_secrets_and_loads_no_model_library(hostile: DocumentParser, tmp_path: Path) -> None:
    assert "A_SECRET" not in order(hostile, tmp_path, "environment")
    modules = order(hostile, tmp_path, "modules").split()
    assert not {"torch", "transformers", "numba", "numpy", "appliance.cli"} & set(modules)


def test_several_threads_may_parse(tmp_path: Path) -> None:
    texts = [f"Text number {number}." for number in range(24)]
    results: dict[int, str] = {}
    with DocumentParser() as parser:

        def work(numbers: range) -> None:
            for number in numbers:
                path = tmp_path / f"{number}.txt"
                path.write_text(texts[number])
                results[number] = parser.parse(path).text

        threads = [threading.Thread(target=work, args=(range(start, 24, 4),)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [results[number] for number in range(24)] == texts


def test_a_folder_full_of_modules_is_no_place_to_import_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the user')")
    (tmp_path / "a.txt").write_text("Text.")
    monkeypatch.chdir(tmp_path)
    with DocumentParser() as parser:
        assert parser.parse(Path("a.txt")).text == "Text."


def test_a_process_that_cannot_start_is_no_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Text.")
    with (
        DocumentParser(formats_module="no_such_module") as parser,
        pytest.raises(ApplianceError, match="does not start") as caught,
    ):
        parser.parse(tmp_path / "a.txt")
    assert not isinstance(caught.value, DocumentRejected)


def _children() -> set[int]:
    """The parser processes started by this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(child) for child in children if _runs(int(child))}


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _runs(process: int) -> bool:
    return b"appliance.parsing.worker" in _command(process)
