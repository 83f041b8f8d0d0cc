"""Publishing and retiring a file: whole or not at all, whatever system call fails."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from storage.durable import FileOperations, WriteFailed, publish_bytes, retire_file, sync_folder
from storage.errors import DiskFull, StorageError
from tests.storage.faulty import Faults

STEPS = ["open", "preallocate", "write", "write", "fsync", "close", "rename", "open", "fsync", "close"]
PARTS = (b"head", memoryview(np.arange(5, dtype=np.int32).data))
CONTENT = b"head" + np.arange(5, dtype=np.int32).tobytes()


def _folders(root: Path) -> tuple[Path, Path]:
    (root / "store").mkdir()
    (root / "tmp").mkdir()
    return root / "store" / "file", root / "tmp"


def test_a_file_is_published_whole_and_private(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    faults = Faults()
    publish_bytes(target, PARTS, temporary, operations=faults.operations())
    assert target.read_bytes() == CONTENT
    assert target.stat().st_mode & 0o777 == 0o600
    assert faults.calls == STEPS
    assert list(temporary.iterdir()) == []


def test_nothing_to_write_is_an_empty_file(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    publish_bytes(target, [b"", b""], temporary)
    assert target.read_bytes() == b""


def test_a_batch_may_sync_its_folder_once(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    faults = Faults()
    publish_bytes(target, PARTS, temporary, sync_directory=False, operations=faults.operations())
    assert faults.calls == STEPS[:7]
    sync_folder(target.parent, operations=faults.operations())
    assert faults.calls == STEPS


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_failing_step_leaves_the_old_file_or_the_new_one(tmp_path: Path, step: int, error: int) -> None:
    target, temporary = _folders(tmp_path)
    target.write_bytes(b"old")
    faults = Faults(step, error)
    expected = DiskFull if error in (errno.ENOSPC, errno.EDQUOT) else WriteFailed
    with pytest.raises(expected) as caught:
        publish_bytes(target, PARTS, temporary, operations=faults.operations())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert faults.calls.count("fsync") <= 2, "a failed sync is not tried again"
    assert target.read_bytes() == (b"old" if step <= STEPS.index("rename") else CONTENT)
    assert list(temporary.iterdir()) == []


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for step in range(len(STEPS)):
        with pytest.raises(StorageError):
            publish_bytes(target, PARTS, temporary, operations=Faults(step).operations())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
@pytest.mark.parametrize("step", [1, 8])
def test_what_a_file_system_does_not_know_is_let_be(tmp_path: Path, step: int, error: int) -> None:
    target, temporary = _folders(tmp_path)
    publish_bytes(target, PARTS, temporary, operations=Faults(step, error).operations())
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("accepted", [1, 3, 0])
def test_short_writes_are_continued(tmp_path: Path, accepted: int) -> None:
    target, temporary = _folders(tmp_path)

    def write(descriptor: int, view: memoryview) -> int:
        return os.write(descriptor, view[:accepted])

    operations = FileOperations(write=write)
    if accepted:
        publish_bytes(target, PARTS, temporary, operations=operations)
        assert target.read_bytes() == CONTENT
    else:
        with pytest.raises(WriteFailed):
            publish_bytes(target, PARTS, temporary, operations=operations)


def test_a_link_put_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    target.symlink_to(outside)
    publish_bytes(target, PARTS, temporary)
    assert outside.read_bytes() == b"mine"
    assert not target.is_symlink()


def test_retiring_is_durable_and_can_be_repeated(tmp_path: Path) -> None:
    target, temporary = _folders(tmp_path)
    publish_bytes(target, PARTS, temporary)
    faults = Faults()
    retire_file(target, operations=faults.operations())
    assert faults.calls == ["unlink", "open", "fsync", "close"]
    assert not target.exists()
    retire_file(target)
    retire_file(tmp_path / "no folder" / "file")


@pytest.mark.parametrize("step", range(4))
def test_a_retire_that_fails_says_so(tmp_path: Path, step: int) -> None:
    target, temporary = _folders(tmp_path)
    publish_bytes(target, PARTS, temporary)
    with pytest.raises(WriteFailed):
        retire_file(target, operations=Faults(step).operations())
    assert target.exists() == (step == 0)


def test_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match="No such file"):
        publish_bytes(tmp_path / "a" / "b", PARTS, tmp_path / "c")
