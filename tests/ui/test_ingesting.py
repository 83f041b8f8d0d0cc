"""Uploads: copied in, named safely, and gone again where no document refers to them."""

import stat
from pathlib import Path

import pytest

from appliance.errors import ApplianceError, DocumentRejected
from appliance.service import DocumentSummary
from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance
from ui.environment import prepare_environment
from ui.ingesting import follow_ingest
from ui.listing import ROWS, list_page
from ui.uploads import discard_upload, safe_name, take_upload


def arrive(home: Home, name: str, text: str) -> Path:
    folder = home.cache / f"hash-{name}"
    folder.mkdir()
    (folder / name).write_text(text)
    return folder / name


def test_files_go_in_and_failures_are_told_by_name(fake: FakeAppliance, home: Home) -> None:
    good, bad = arrive(home, "a b.txt", "text"), arrive(home, "locked.pdf", "%ENCRYPTED")
    told = list(follow_ingest(fake.as_appliance(), [good, bad], "default"))
    assert 'class="progress"' in told[0]
    assert "<b>a b.txt</b> ready, 4 chunks" in told[-1]
    assert "<b>locked.pdf</b> is encrypted: remove the password" in told[-1]
    kept = [path for path in home.uploads.rglob("*") if path.is_file()]
    assert [path.name for path in kept] == ["a b.txt"]
    assert stat.S_IMODE(kept[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(kept[0].parent.stat().st_mode) == 0o700
    assert list(home.cache.iterdir()) == []


def test_when_everything_is_refused_no_copy_stays(
    fake: FakeAppliance, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ApplianceError("the disk is full: free 2 GB & try again")

    monkeypatch.setattr(fake, "ingest", refuse)
    told = list(follow_ingest(fake.as_appliance(), [arrive(home, "a.txt", "x")], "default"))
    assert "free 2 GB &amp; try again" in told[-1]
    assert list(home.uploads.iterdir()) == []


def test_a_path_outside_the_cache_is_refused_and_left_alone(fake: FakeAppliance, home: Home, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    link = home.cache / "link.txt"
    link.symlink_to(secret)
    for path in (secret, link, home.cache / ".." / ".." / "secret.txt", home.cache / "missing.txt"):
        with pytest.raises(DocumentRejected):
            take_upload(path, home.cache, home.uploads)
    told = list(follow_ingest(fake.as_appliance(), [secret], "default"))
    assert "did not arrive whole" in told[-1]
    assert fake.calls == []
    assert secret.read_text() == "secret"
    assert list(home.uploads.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\y.txt", "y.txt"),
        ("...", "document"),
        (".bashrc", "bashrc"),
        ("-rf;$(id)`x`.txt", "-rf(id)x.txt"),
        ("a\x00\n\u202eb.txt", "ab.txt"),
        ("Überblick 2026 (neu).docx", "Überblick 2026 (neu).docx"),
        ("日本.md", "日本.md"),
    ],
)
def test_safe_name(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_long_name_keeps_its_ending() -> None:
    name = safe_name("ü" * 300 + ".pdf")
    assert name.endswith("ü.pdf")
    assert 100 < len(name.encode()) <= 120


def test_discard_touches_uploads_only(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "mine" / "a.txt"
    outside.parent.mkdir()
    outside.write_text("x")
    discard_upload(outside, home.uploads)
    discard_upload(home.uploads / "x" / ".." / ".." / "documents", home.uploads)
    discard_upload(Path("a.txt"), home.uploads)
    assert outside.exists()
    assert home.documents.exists()
    inside = home.uploads / "r" / "a.txt"
    inside.parent.mkdir()
    inside.write_text("x")
    discard_upload(inside, home.uploads)
    assert list(home.uploads.iterdir()) == []


def summaries(number: int) -> list[DocumentSummary]:
    return [
        DocumentSummary(f"d{i}", f"Title {i:03}", f"/p/{i}", "default", "txt", 0, 1, 1, 1, 1) for i in range(number)
    ]


def test_list_is_filtered_by_every_word_and_paged() -> None:
    page = list_page(summaries(25), "", 1)
    assert [row.title for row in page.rows] == [f"Title {i:03}" for i in range(ROWS, 2 * ROWS)]
    assert (page.pages, page.matching) == (3, 25)
    assert [row.title for row in list_page(summaries(25), "title 007 DEFAULT", 0).rows] == ["Title 007"]
    assert list_page(summaries(25), "nothing", 9).rows == ()
    assert list_page(summaries(25), "", 99).number == 2
    assert list_page(summaries(0), "", -1).number == 0


def test_environment_is_closed_and_old_copies_are_deleted(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "True")
    monkeypatch.setenv("GRADIO_TEMP_DIR", "/tmp")  # noqa: S108
    arrive(home, "old.txt", "someone's document")
    (home.cache / "loose.txt").write_text("someone's document")
    (home.cache / "empty").mkdir()
    monkeypatch.chdir(home.cache / "empty")
    prepare_environment(home.cache)
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert os.environ["GRADIO_TEMP_DIR"] == str(home.cache)
    assert [entry.name for entry in home.cache.iterdir()] == ["empty"]
    assert Path.cwd() == home.cache / "empty"
    assert stat.S_IMODE(home.cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["GRADIO_SHARE", "GRADIO_VIBE_MODE", "GRADIO_MCP_SERVER"])
def test_switches_that_open_the_page_are_refused(home: Home, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "True")
    with pytest.raises(ApplianceError, match=f"^{name} is set and .*: unset it"):
        prepare_environment(home.cache)
