"""One parser process for all tests of this folder: starting one costs more than most tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from appliance.parsing import DocumentParser, ParsedDocument


class Read(Protocol):
    def __call__(self, name: str, data: bytes | str) -> ParsedDocument: ...


@pytest.fixture(scope="session")
def parser() -> Iterator[DocumentParser]:
    with DocumentParser() as running:
        yield running


@pytest.fixture
def read(parser: DocumentParser, tmp_path: Path) -> Read:
    """Write a file and parse it."""

    def write_and_parse(name: str, data: bytes | str) -> ParsedDocument:
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return parser.parse(path)

    return write_and_parse
