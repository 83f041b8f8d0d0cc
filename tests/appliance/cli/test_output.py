"""What is printed cannot steer a terminal, whatever files are called."""

import json
from pathlib import Path

import pytest

from appliance.cli.output import print_json, print_table, printable, printable_line
from tests.appliance.fixtures import Cli

NASTY = "a\x1b]0;owned\x07b\x1b[2Jc\x7fd\x9b31me\u202ef\udce9"


@pytest.mark.parametrize("fit", [printable, printable_line])
def test_what_steers_is_escaped(fit: object) -> None:
    assert callable(fit)
    shown = fit(NASTY)
    assert shown == "a\\x1b]0;owned\\x07b\\x1b[2Jc\\x7fd\\x9b31me\\u202ef\\udce9"
    assert fit("Grüße, 你好 – \\ fine") == "Grüße, 你好 – \\ fine"


def test_line_breaks() -> None:
    assert printable("one\n\ttwo\r") == "one\n\ttwo\\r"
    assert printable_line("one\n\ttwo\u2028") == "one\\n\\ttwo\\u2028"


def test_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [(NASTY + "\nforged row",)])
    shown = capsys.readouterr().out
    assert shown.count("\n") == 2
    assert not set(shown) & set("\x1b\x07\x7f\x9b\u202e")
    print_json({"name": NASTY})
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\x7f\x9b")
    assert json.loads(shown) == {"name": NASTY}


def test_file_names(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("good\x1b[31m.txt", "bad\x1b[31m.txt", "other\x1b[31m\n.png"):
        (folder / name).write_text("" if name.startswith("bad") else "A text that says something about a pump.")
    ran = cli("ingest", folder)
    assert "good\\x1b[31m.txt" in ran.out
    assert "bad\\x1b[31m.txt" in ran.err
    assert "\x1b[31m" not in ran.out + ran.err
    assert "\x1b[31m" not in cli("list").out
    assert "\x1b[31m" not in cli("rm", "good\x1b[31m.txt").err
