"""Word: order of the body, tracked changes, hidden text, damaged files."""

import docx
import pytest

from appliance.errors import DocumentRejected
from tests.appliance.parsing.conftest import Read
from tests.appliance.parsing.documents import docx_bytes, member, saved, with_members


def test_paragraphs_lists_and_tables_keep_their_order(read: Read) -> None:
    document = docx.Document()
    document.add_heading("The contract", 0)
    document.add_paragraph("Before.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), "abcd", strict=True):
        cell.text = text
    document.add_paragraph("After.")
    parsed = read("some_contract.docx", saved(document))
    assert parsed.text == "The contract\n\nBefore.\n\n- one\n- two\n\na | b\nc | d\n\nAfter."
    assert (parsed.title, parsed.kind, parsed.flags) == ("The contract", "docx", ())


def test_the_title_of_the_properties_comes_first(read: Read) -> None:
    assert read("a.docx", docx_bytes("Text.", title="Lease of the mill")).title == "Lease of the mill"


def test_inserted_text_counts_and_deleted_text_does_not(read: Read) -> None:
    base = docx_bytes("MARK")
    change = (
        b'<w:r><w:t>Rent: </w:t></w:r><w:del w:id="1"><w:r><w:delText>100</w:delText></w:r></w:del>'
        b'<w:ins w:id="2"><w:r><w:t>200</w:t></w:r></w:ins>'
        b"<w:sdt><w:sdtContent><w:r><w:tab/><w:t>euros</w:t></w:r></w:sdtContent></w:sdt>"
    )
    xml = member(base, "word/document.xml").replace(b"<w:r><w:t>MARK</w:t></w:r>", change)
    assert read("a.docx", with_members(base, {"word/document.xml": xml})).text == "Rent: 200 euros"


def test_hidden_runs_are_dropped_and_flagged(read: Read) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Seen.")
    paragraph.add_run(" SECRET").font.hidden = True
    paragraph.add_run(" Also seen.").font.hidden = False
    parsed = read("a.docx", saved(document))
    assert parsed.text == "Seen. Also seen."
    assert parsed.flags == ("hidden_text",)


@pytest.mark.parametrize("cut", [100, -100])
def test_a_cut_off_file_is_rejected(read: Read, cut: int) -> None:
    with pytest.raises(DocumentRejected, match=r"^a\.docx is (cut off|damaged): "):
        read("a.docx", docx_bytes("Text.")[:cut])


def test_another_archive_is_no_word_document(read: Read) -> None:
    archive = with_members(docx_bytes("Text."), {})
    other = archive.replace(b"word/document.xml", b"word/dokument.xml")
    with pytest.raises(DocumentRejected, match=r"without a Word document in it"):
        read("a.docx", other)
