"""What one file may cost. The values follow OWASP ASVS 5.2 and our own measurements of archive bombs."""

from dataclasses import dataclass

from appliance.errors import DocumentRejected


@dataclass(frozen=True)
class ParserLimits:
    """Limits of one file and of the process that parses it."""

    file_bytes: int = 200_000_000
    text_bytes: int = 20_000_000  # of the extracted text, as UTF-8
    pages: int = 5_000
    archive_entries: int = 5_000
    archive_bytes: int = 500_000_000  # unpacked, counted while unpacking
    archive_ratio: int = 100  # unpacked : packed
    wall_seconds: float = 60.0
    memory_bytes: int = 2_000_000_000  # address space of the parser process
    open_files: int = 64

    @property
    def reply_bytes(self) -> int:
        """What the parser process may send back: the text with every character escaped, and the pages."""
        return 2 * self.text_bytes + 64 * self.pages + 65_536


def megabytes(size_bytes: int) -> str:
    """A size for a message: "200 MB", "2 GB"."""
    return f"{size_bytes / 1e9:.3g} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.3g} MB"


def check_file_size(name: str, size_bytes: int, limits: ParserLimits) -> None:
    """Refuse a file that is empty or above the limit, before a byte of it is read."""
    if size_bytes == 0:
        raise DocumentRejected(f"{name} is empty: put text into it and ingest it again")
    if size_bytes > limits.file_bytes:
        size, limit = megabytes(size_bytes), megabytes(limits.file_bytes)
        raise DocumentRejected(f"{name} is {size}, the limit is {limit}: split it into smaller files")


def check_text_size(name: str, text: str, limits: ParserLimits) -> None:
    """Refuse extracted text that is blank or above the limit."""
    if not text or text.isspace():
        raise DocumentRejected(f"{name} holds no text: put text into it and ingest it again")
    # A character has at most four bytes, so most texts need not be encoded to be measured.
    if len(text) * 4 > limits.text_bytes and len(text.encode()) > limits.text_bytes:
        raise text_too_long(name, limits)


def text_too_long(name: str, limits: ParserLimits) -> DocumentRejected:
    """The error for a file whose text alone is above the limit."""
    limit = megabytes(limits.text_bytes)
    return DocumentRejected(f"{name} holds more than {limit} of text: split it into smaller files")
