"""PDF: pages, paragraphs out of printed lines, running titles, files that cannot be read."""

import pytest

from appliance.errors import DocumentRejected
from tests.appliance.parsing.conftest import Read
from tests.appliance.parsing.documents import ENCRYPTED_PDF, lines, pdf_bytes

_WRAPPED = (
    "The quick brown fox jumps over the lazy dog near the old mill and",
    "then it runs along the river until the sun has gone down. It rests.",
    "A new paragraph begins here although there is no gap above this one.",
)


def test_wrapped_lines_become_paragraphs(read: Read) -> None:
    document = read("a.pdf", pdf_bytes([lines("Short", *_WRAPPED, "", "After the gap.")]))
    assert document.text == (
        "Short\nThe quick brown fox jumps over the lazy dog near the old mill and then it runs along the river until "
        "the sun has gone down. It rests.\nA new paragraph begins here although there is no gap above this one."
        "\n\nAfter the gap."
    )


def test_divided_words_are_put_together(read: Read) -> None:
    text = read("a.pdf", pdf_bytes([lines("This is a long measure-", "ment of a state-of-", "the-art probe.")])).text
    assert text == "This is a long measurement of a state-of-the-art probe."


def test_pages_have_spans_and_lose_their_running_titles(read: Read) -> None:
    pages = [
        [
            (72.0, 770.0, "Manual of the probe"),
            *lines(f"Text of page {number} stands here."),
            (290.0, 30.0, f"Page {number}"),
        ]
        for number in (1, 2, 3)
    ]
    document = read("a.pdf", pdf_bytes(pages, title="Probe manual"))
    assert document.title == "Probe manual"
    assert [page.number for page in document.pages] == [1, 2, 3]
    for page in document.pages:
        assert document.text[page.start : page.end] == f"Text of page {page.number} stands here."


def test_a_page_without_text_is_flagged(read: Read) -> None:
    document = read("a.pdf", pdf_bytes([lines("Some text."), [], lines("More text.")]))
    assert [page.number for page in document.pages] == [1, 3]
    assert document.flags == ("pages_without_text",)


def test_a_scan_needs_ocr(read: Read) -> None:
    with pytest.raises(DocumentRejected, match=r"^scan\.pdf has no text layer, it needs OCR: "):
        read("scan.pdf", pdf_bytes([[], []]))


def test_an_encrypted_file_is_named_as_such(read: Read) -> None:
    with pytest.raises(DocumentRejected, match=r"^locked\.pdf is encrypted: remove the password"):
        read("locked.pdf", ENCRYPTED_PDF.read_bytes())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_off_file_is_rejected_or_whole(read: Read, share: float) -> None:
    whole = pdf_bytes([lines("Some text.")])
    with pytest.raises(DocumentRejected, match=r"^a\.pdf (is damaged or cut off|has no text layer)"):
        read("a.pdf", whole[: int(share * len(whole))])
