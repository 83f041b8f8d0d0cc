"""HTML: what a reader sees, in order; tables, lists and hidden parts."""

from tests.appliance.parsing.conftest import Read


def test_a_page_becomes_paragraphs_items_and_rows(read: Read) -> None:
    document = read(
        "page.html",
        """<!DOCTYPE html><html><head><title>The  title</title><style>p {}</style></head><body><nav>Home</nav>
        <h1>Heading</h1><p>First <b>bold</b>
        line.<br>Second.</p><ul> <li>one</li>
        <li>two</li></ul><ol><li>uno</li><li>due</li></ol>
        <table><tr><th>a</th><th>b</th></tr> <tr><td>1</td><td>2</td></tr></table>
        <pre>x = 1
    y</pre><script>alert(1)</script><!-- note --></body></html>""",
    )
    assert document.title == "The title"
    assert document.text == (
        "Heading\n\nFirst bold line.\nSecond.\n\n- one\n- two\n\n1. uno\n2. due\n\na | b\n1 | 2\n\nx = 1\n    y"
    )
    assert document.flags == ()


def test_hidden_elements_are_dropped_and_flagged(read: Read) -> None:
    for hidden in ("<p hidden>SECRET</p>", '<p style="display : none">SECRET</p>', '<i style="font-size:0">SECRET</i>'):
        document = read("page.html", f"<p>Seen.</p>{hidden}")
        assert document.text == "Seen."
        assert document.flags == ("hidden_text",)


def test_the_encoding_of_the_page_is_believed(read: Read) -> None:
    page = '<html><head><meta charset="iso-8859-5"></head><body>Москва</body></html>'
    assert read("page.htm", page.encode("iso-8859-5")).text == "Москва"


def test_endless_nesting_is_read(read: Read) -> None:
    assert read("deep.html", "<div>" * 20_000 + "bottom").text == "bottom"
