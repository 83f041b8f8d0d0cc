"""Whether this disk can be read past the page cache: tried, not assumed."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from storage.buffers import AlignedBuffers

_PROBE_BYTES = 4096


def probe_direct_reads(folder: Path, wanted: bool) -> tuple[bool, str]:
    """Write a small file into `folder`, read it back with O_DIRECT; the answer and its reason."""
    if not wanted:
        return False, "asked for"
    probe = folder / f"{secrets.token_hex(8)}.probe"
    buffer = AlignedBuffers().take(_PROBE_BYTES)
    content = os.urandom(_PROBE_BYTES)
    try:
        probe.write_bytes(content)
        descriptor = os.open(probe, os.O_RDONLY | os.O_DIRECT)
        try:
            os.preadv(descriptor, [buffer.data], 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "an error")
        return False, f"the file system refuses O_DIRECT ({name})"
    finally:
        with suppress(OSError):
            probe.unlink()
    same = buffer.tobytes() == content
    return same, "the file system takes O_DIRECT" if same else "O_DIRECT read something else than was written"
