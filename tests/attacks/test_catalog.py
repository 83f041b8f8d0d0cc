"""The catalog under hostile names, questions and files."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.catalog import Catalog
from storage.errors import CatalogDamaged, StorageError
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog

NAMES = [
    "x'); DROP TABLE documents; --",
    '"; DELETE FROM chunks; --',
    "%",
    "_",
    "../../etc/passwd",
    "?1",
    ":name",
    "a\nb",
    "\u202etxt.exe",
    "😀" * 20,
    "0x41",
    "NULL",
]
QUESTIONS = [
    '"',
    '""""',
    "' OR 1=1 --",
    "title: secret",
    "{title text}: a",
    "^first",
    "a*",
    "NEAR(a b, 5)",
    "a AND b NOT c OR (d",
    "- + * / \\ : ; ,",
    "\x00",
    "a\x00b",
    "\ud800 lone",
    "\u0301",
    "😀 🏳️‍🌈",
    "\u202e\u200b\ufeff",
    "words MATCH 'x'",
    "rank",
    "½ ² ٣ Ⅷ",
    "x" * 100_000,
    "word " * 10_000,
    " ".join(f"w{n}" for n in range(10_000)),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(tmp_path: Path, name: str) -> None:
    with open_catalog(tmp_path, collection=name) as catalog:
        assert catalog.collection(name).name == name
        catalog.publish_document(new_document("kept"))
        document = replace(
            new_document("a", [name]), id=name, title=name, digest=name, path="/" + name, flags=(name,), kind=name
        )
        catalog.publish_document(document)
        row = catalog.document(name)
        assert (row.title, row.digest, row.flags, row.kind) == (name, name, (name,), name)
        assert catalog.document_by_digest(1, name) == row
        assert catalog.find_document(name) == row
        assert catalog.find_document("/" + name) == row
        assert [chunk.text for chunk in catalog.chunks_of(name)] == [name]
        catalog.attach_source(1, name, name, 1, 1)
        assert len(catalog.sources_of(name)) == 2
        catalog.publish_block(replace(new_block(name), file="f"), [2])
        assert catalog.block(name) is not None
        catalog.begin_block_delete([name])
        catalog.finish_block_delete([name])
        catalog.keep_token_ids(name, {2: [1]})
        assert 2 in catalog.token_ids([2], name)
        assert catalog.chunks_without_block(name, name, name, (name,), 5) == []
        catalog.count(name)
        assert catalog.counters() == {name: 1}
        catalog.begin_delete(name)
        assert catalog.finish_delete(name)
        assert [row.id for row in catalog.documents()] == ["id-kept"]
        assert catalog.faults() == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_only_words(tmp_path: Path, question: str) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["plain words", "secret rank first"]))
        found = catalog.search_words(1, question, 5)
        assert all(chunk_id in (1, 2) for chunk_id, _ in found)
        assert len(catalog.search_words(1, question + " plain", 5)) <= 2


def test_any_text_is_a_safe_question(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["plain words"]))

        @given(st.text(st.characters(exclude_categories=()), max_size=60))
        @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def ask(question: str) -> None:
            catalog.search_words(1, question, 5)
            assert [hit[0] for hit in catalog.search_words(1, f"words {question}", 5)] == [1]

        ask()


def test_text_that_is_not_unicode_is_one_clear_line(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        for document in (
            replace(new_document("a"), path="/caf\udce9.txt"),
            replace(new_document("a"), title="\ud800"),
            new_document("a", ["\udfff"]),
        ):
            with pytest.raises(StorageError, match="not valid Unicode: rename it") as caught:
                catalog.publish_document(document)
            str(caught.value).encode()
        with pytest.raises(StorageError):
            catalog.source(1, "/caf\udce9.txt")
        assert catalog.documents() == []


def test_numbers_without_bound_are_refused(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        with pytest.raises(StorageError):
            catalog.publish_document(replace(new_document("a"), size_bytes=2**80))
        with pytest.raises(StorageError):
            catalog.count("x", 2**80)
        with pytest.raises(StorageError):
            catalog.ensure_collection("x" * 201, "e", 4, 512)
        with pytest.raises(StorageError):
            catalog.ensure_collection("", "e", 4, 512)
        assert catalog.chunks([2**62]) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_the_database_of_another_program_is_left_alone(tmp_path: Path, read_only: bool) -> None:
    home = Home(tmp_path)
    home.create()
    other = sqlite3.connect(home.catalog_file)
    other.executescript("CREATE TABLE documents (id TEXT); INSERT INTO documents VALUES ('theirs')")
    other.close()
    before = home.catalog_file.read_bytes()
    with pytest.raises(CatalogDamaged, match="not a catalog of this application"):
        Catalog.open(home, read_only)
    assert home.catalog_file.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_the_catalog_of_a_newer_version_is_left_alone(tmp_path: Path, read_only: bool) -> None:
    with open_catalog(tmp_path) as catalog, catalog._connection.write() as sqlite:
        sqlite.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('catalog', 'future', 'x')"
        )
    before = (tmp_path / "catalog.db").read_bytes()
    with pytest.raises(StorageError, match=r"newer version.*update this application"):
        Catalog.open(Home(tmp_path), read_only)
    assert (tmp_path / "catalog.db").read_bytes() == before


def test_a_catalog_without_its_tables_is_damaged(tmp_path: Path) -> None:
    open_catalog(tmp_path).close()
    other = sqlite3.connect(tmp_path / "catalog.db")
    other.execute("DROP TABLE token_ids")
    other.commit()
    other.close()
    with Catalog.open(Home(tmp_path)) as catalog, pytest.raises(CatalogDamaged, match="no such table"):
        catalog.token_ids([1], "t")
