"""A damaged block is detected, computed again to the same bytes, warned of once and counted; nothing else changes."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.service import Answer, Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from storage.catalog import BlockRow
from storage.errors import DiskFull
from storage.home import Home
from storage.store import BlockStore
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of, ready_blocks

Damage = Callable[[Path, BlockRow, Path], None]


def truncate(file: Path, row: BlockRow, other: Path) -> None:
    os.truncate(file, row.size_bytes // 2)


def cut_header(file: Path, row: BlockRow, other: Path) -> None:
    os.truncate(file, row.header_bytes // 2)


def grow(file: Path, row: BlockRow, other: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"\0" * 4096)


def empty(file: Path, row: BlockRow, other: Path) -> None:
    file.write_bytes(b"")


def missing(file: Path, row: BlockRow, other: Path) -> None:
    file.unlink()


def swapped(file: Path, row: BlockRow, other: Path) -> None:
    shutil.copy(other, file)


def linked(file: Path, row: BlockRow, other: Path) -> None:
    file.unlink()
    file.symlink_to(other)


def zeros(file: Path, row: BlockRow, other: Path) -> None:
    file.write_bytes(b"\0" * row.size_bytes)


def flip(at: Callable[[BlockRow], int]) -> Damage:
    def damage(file: Path, row: BlockRow, other: Path) -> None:
        data = bytearray(file.read_bytes())
        data[at(row)] ^= 1
        file.write_bytes(data)

    return damage


DAMAGES: dict[str, Damage] = {
    "truncated": truncate,
    "header cut": cut_header,
    "grown": grow,
    "empty": empty,
    "missing": missing,
    "another block": swapped,
    "a link": linked,
    "zeros": zeros,
    "length flipped": flip(lambda _: 0),
    "header flipped": flip(lambda row: row.header_bytes // 3),
    "header's last byte": flip(lambda row: row.header_bytes - 1),
    "first code flipped": flip(lambda row: row.header_bytes),
    "data flipped": flip(lambda row: (row.header_bytes + row.size_bytes) // 2),
}


@pytest.fixture
def stored(settings: Settings, sample_files: Path) -> Settings:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
    return settings


def ask(appliance: Appliance) -> Answer:
    return appliance.answer(QUESTION, strategy="reuse", top_k=4, max_new_tokens=12)


def first_file(appliance: Appliance) -> tuple[Path, BlockRow, Path]:
    """The file of the best chunk's block, its row, and another block's file."""
    question = appliance.answer(QUESTION, strategy="reuse", top_k=1, max_new_tokens=1).sources[0]
    chunk = next(
        chunk
        for document in appliance.catalog.documents()
        for chunk in appliance.catalog.chunks_of(document.id)
        if chunk.text == question.text
    )
    key = appliance.engine.block_key("default", appliance.engine.template.chunk(chunk.title, chunk.text))
    row = appliance.catalog.blocks([key])[key]
    other = next(found for found in appliance.catalog.all_blocks() if found.key != key)
    return appliance.store.path(row), row, appliance.store.path(other)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_on_disk(stored: Settings, reads: list[str], name: str) -> None:
    with Appliance.open(stored) as appliance:
        expected, full = ask(appliance), appliance.answer(QUESTION, strategy="full", max_new_tokens=12)
        file, row, other = first_file(appliance)
    before = files_of(Home(stored.home).blocks)
    DAMAGES[name](file, row, other)
    with Appliance.open(stored) as appliance:
        answer, again = ask(appliance), ask(appliance)
        assert appliance.answer(QUESTION, strategy="full", max_new_tokens=12).answer_ids == full.answer_ids
        assert appliance.status()["blocks_damaged"] == 1
    assert answer.answer_ids == again.answer_ids == expected.answer_ids != ()
    assert answer.tiers == {"disk": 3, "computed": 1}
    assert len(answer.warnings) == 1
    assert file.name in answer.warnings[0]
    assert "\n" not in answer.warnings[0]
    assert again.warnings == ()
    assert "computed" not in again.tiers
    assert reads == [row.key]
    assert files_of(Home(stored.home).blocks) == before
    assert len(list(Home(stored.home).quarantine.iterdir())) == (0 if name == "missing" else 1)
    assert open_and_verify(stored.home).problems == ()


def test_damage_while_a_copy_is_in_memory(stored: Settings, reads: list[str]) -> None:
    """The copy was checked when it was read: it answers; `verify`, or the next process, finds the file."""
    with Appliance.open(stored) as appliance:
        expected = ask(appliance)
        file, row, other = first_file(appliance)
        before = files_of(appliance.home.blocks)
        flip(lambda found: found.size_bytes // 2)(file, row, other)
        answer = ask(appliance)
        assert (answer.tiers, answer.warnings) == ({"pageable": 4}, ())
        assert answer.answer_ids == expected.answer_ids
        appliance.store.quarantine(row)  # as `verify` does in this process: the copy goes too
        repaired = ask(appliance)
        assert repaired.tiers == {"pageable": 3, "computed": 1}
        assert repaired.answer_ids == expected.answer_ids
    assert reads == [row.key]
    assert files_of(Home(stored.home).blocks) == before


def test_every_block_is_damaged(stored: Settings, reads: list[str]) -> None:
    with Appliance.open(stored) as appliance:
        expected = ask(appliance)
    home = Home(stored.home)
    before = files_of(home.blocks)
    for file in home.blocks.iterdir():
        os.truncate(file, 100)
    with Appliance.open(stored) as appliance:
        answer = ask(appliance)
        assert (answer.tiers, len(answer.warnings)) == ({"computed": 4}, 4)
        assert answer.answer_ids == expected.answer_ids
        assert appliance.status()["blocks_damaged"] == 4
        assert ask(appliance).answer_ids == expected.answer_ids
    report = open_and_verify(stored.home)
    assert report.blocks_damaged == len(before) - 4
    with Appliance.open(replace(stored, neighbours=0)) as appliance:
        appliance.start_idle_work()  # computes the rest
        end = time.monotonic() + 20
        while appliance.status()["chunks_without_kv"] and time.monotonic() < end:
            time.sleep(0.01)
    assert files_of(home.blocks) == before
    assert len(reads) == len(set(reads)) == len(before)


def test_two_chunks_share_a_damaged_block(appliance: Appliance, tmp_path: Path, reads: list[str]) -> None:
    """One block, one warning, counted once."""
    shared = "The first page is the same in both of these files, word for word, and fills one chunk by itself. " * 2
    for name, ending in (("one", "The end of one."), ("two", "Another end.")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.txt").write_text(f"{shared}\n\n{ending}")
    report = appliance.ingest([tmp_path / "one", tmp_path / "two"])
    appliance.close()
    blocks = ready_blocks(appliance.settings.home)
    assert len(blocks) < report.chunks
    for row in blocks:
        os.truncate(appliance.home.blocks / row.file, 4096)
    with Appliance.open(appliance.settings) as opened:
        answer = opened.answer("Which page is the same?", strategy="reuse", top_k=20, max_new_tokens=4)
        assert answer.tiers == {"computed": report.chunks}
        assert len(answer.warnings) == len(blocks)
        assert opened.status()["blocks_damaged"] == len(blocks)
    assert {row.key for row in ready_blocks(appliance.settings.home)} == {row.key for row in blocks}


def test_a_reader_beside_another_process_does_not_repair(stored: Settings) -> None:
    with Appliance.open(stored) as holder:
        file, row, other = first_file(holder)
        expected = ask(holder)
        DAMAGES["data flipped"](file, row, other)
        damaged = files_of(holder.home.blocks)
        with Appliance.open(stored, read_only_if_busy=True) as reader:
            for _ in range(2):
                answer = ask(reader)
                assert answer.answer_ids == expected.answer_ids
                assert len(answer.warnings) == 1
        assert files_of(holder.home.blocks) == damaged


def test_damage_on_a_full_disk_still_answers(stored: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with Appliance.open(stored) as appliance:
        expected = ask(appliance)
        file, row, other = first_file(appliance)
    DAMAGES["data flipped"](file, row, other)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise DiskFull("no room left to write here: free some")

    with Appliance.open(stored) as appliance:
        with monkeypatch.context() as full:
            full.setattr(BlockStore, "quarantine", refuse)
            full.setattr(BlockStore, "publish", refuse)
            answer = ask(appliance)
        assert answer.answer_ids == expected.answer_ids
        assert [warning.split(":")[0] for warning in answer.warnings] == [
            "damaged block",
            "a damaged block was not set aside",
            "a computed block was not kept",
        ]
        assert ask(appliance).answer_ids == expected.answer_ids  # repairs it now
        assert ask(appliance).warnings == ()
