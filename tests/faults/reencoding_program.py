"""As killing.py, but the children encode stored blocks again: `CODEC HOME MODEL EMBEDDING`; a program of its own."""

import sys
from dataclasses import replace
from pathlib import Path

from appliance.reencoding import Reencoding
from appliance.service import Appliance
from appliance.settings import Settings
from storage.codecs import CodecPair
from storage.profiles import fixed_profile
from tests.faults.killing import serve


def settings_of(home: Path, model: Path, embedding: Path) -> Settings:
    return Settings(home, str(model), str(embedding), device="cpu", placer="plain", pageable_bytes=0)


def reencode() -> None:
    """In the place of the command line's `main`."""
    codec, home, model, embedding = sys.argv[1:]
    settings = replace(settings_of(Path(home), Path(model), Path(embedding)), profile=codec)
    with Appliance.open(settings) as opened:
        profile = fixed_profile(CodecPair.named(codec))
        work = Reencoding(opened.catalog, opened.store, opened.engine, opened.turns, profile).run()
    sys.exit(work.error)


if __name__ == "__main__":
    serve(reencode)
