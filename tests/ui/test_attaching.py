"""Files attached to the chat: what is attached by then, what is told, what stays of the copies."""

from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError
from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance
from tests.ui.test_ingesting import arrive
from ui.attach_line import only_what_is_there
from ui.attaching import Attached, AttachedDocument, follow_attach, line_html, still_there


def attach(fake: FakeAppliance, *arrived: Path, before: Attached = ()) -> tuple[list[str], Attached]:
    """Every line told, and what is attached in the end; until then it is what it was."""
    steps = list(follow_attach(fake.as_appliance(), arrived, "default", before))
    assert all(attached == before for _, attached in steps[:-1])
    return [told for told, _ in steps], steps[-1][1]


def test_files_are_attached_and_failures_are_told(fake: FakeAppliance, home: Home) -> None:
    good, bad = arrive(home, "a+b.txt", "text"), arrive(home, "locked.pdf", "%ENCRYPTED")
    told, attached = attach(fake, good, bad)
    assert "Reading <b>a+b.txt</b>" in told[0]
    assert attached == (AttachedDocument("d0", "a+b.txt"),)
    assert told[-1].count('class="chip"') == told[-1].count('class="failure"') == 1
    assert "locked.pdf is encrypted: remove the password" in told[-1]
    assert [path.name for path in home.uploads.rglob("*") if path.is_file()] == ["a+b.txt"]
    assert list(home.cache.iterdir()) == []
    assert fake.calls == ["attach"]


def test_more_files_join_those_before_and_the_same_file_is_one(fake: FakeAppliance, home: Home) -> None:
    _, first = attach(fake, arrive(home, "a.txt", "one"))
    _, both = attach(fake, arrive(home, "b.txt", "two"), before=first)
    _, again = attach(fake, arrive(home, "copy.txt", "one"), before=both)
    assert [document.name for document in both] == ["a.txt", "b.txt"]
    assert [(document.id, document.name) for document in again] == [("d0", "copy.txt"), ("d1", "b.txt")]
    assert sorted(path.name for path in home.uploads.rglob("*") if path.is_file()) == ["a.txt", "b.txt"]


def test_a_path_outside_the_cache_is_refused(fake: FakeAppliance, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    told, attached = attach(fake, secret)
    assert (len(told), attached, fake.calls) == (1, (), [])
    assert "did not arrive whole" in told[0]
    assert secret.read_text() == "secret"


def test_when_nothing_can_go_in_what_was_attached_stays(
    fake: FakeAppliance, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ApplianceError("the disk is full: free 2 GB & try again")

    monkeypatch.setattr(fake, "attach", refuse)
    before = (AttachedDocument("d7", "old.txt"),)
    told, attached = attach(fake, arrive(home, "a.txt", "x"), before=before)
    assert attached == before
    assert "free 2 GB &amp; try again" in told[-1]
    assert "old.txt" in told[-1]
    assert list(home.uploads.iterdir()) == []


def test_what_is_gone_or_elsewhere_is_no_longer_attached(fake: FakeAppliance) -> None:
    here, there = fake.add("here", "x"), fake.add("there", "y", collection="other")
    held = tuple(AttachedDocument(identifier, identifier) for identifier in (here, there, "ghost"))
    appliance = fake.as_appliance()
    assert still_there(appliance, held, "default") == held[:1]
    assert still_there(appliance, held[:1], "default") == held[:1]
    assert only_what_is_there(appliance, held, None)[0] == held[:1]
    assert "there" not in only_what_is_there(appliance, held, None)[2]
    assert only_what_is_there(appliance, held[:1], "default")[0] not in (held, held[:1], ())  # nothing to change


def test_the_line_is_harmless_html() -> None:
    nasty = "<img src=x onerror=alert(1)>"
    told = line_html((AttachedDocument("d", nasty),), [nasty])
    assert "<img" not in told
    assert told.count("&lt;img") == 2
    assert line_html(()) == ""
