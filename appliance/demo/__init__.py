"""The demo: a folder of sample documents of an invented company, Brightwater Instruments."""

from pathlib import Path


def sample_folder() -> Path:
    """Return the folder with the sample documents."""
    return Path(__file__).parent / "sample"
