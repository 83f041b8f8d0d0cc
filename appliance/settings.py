"""Settings: what can be chosen, its defaults, and where the appliance keeps things. Imports nothing heavy."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from appliance.budgets import TierBudgets
from models.resolve import settled_name

MOST_NEIGHBOURS = 64
EMBEDDED_MODEL = "smollm2-135m-instruct"
EMBEDDED_EMBEDDING = "all-minilm-l6-v2"
DEFAULT_COLLECTION = "default"
DEFAULT_TOP_K = 4
DEFAULT_MAX_NEW_TOKENS = 96
LARGEST_TOP_K = 64
KV_POLICIES = ("now", "idle", "off")


def default_home() -> Path:
    """`$APPLIANCE_HOME`, else the platform's data folder."""
    named = os.environ.get("APPLIANCE_HOME")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "appliance"
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "appliance"


def models_folder() -> Path:
    """`$APPLIANCE_MODELS`, else `share/appliance/models` inside the environment: set up once, apart from data."""
    named = os.environ.get("APPLIANCE_MODELS")
    return Path(named).expanduser() if named else Path(sys.prefix) / "share" / "appliance" / "models"


@dataclass(frozen=True)
class Settings:
    """One process's choices. `model` and `embedding` are a folder, or a hub name the user asked for.

    `budgets` are those of the memory tiers; None means from what is free (appliance/budgets.py), of which
    `pageable_bytes` replaces the pageable part. `placer`, `linears`, `attention`, `decoding`, `scheduling` and
    `direct_reads` force the slow twins (`plain` and False). `context`: of new blocks.
    `profile` says which codec a block gets by how hot it is: `measured`, `paper`, or a codec pair for all
    (`int8`, `int4+int8`). `disk_bytes` is the most that KV may take on disk; None means half of what is free.
    So many `neighbours` stand before a chunk when it is read once more for `fusion` (0: it is not).
    `answers_at_once` questions are answered together, each with memory for a whole prompt, and `questions_waiting`
    more may wait.
    """

    home: Path
    model: str
    embedding: str
    device: str = "auto"
    weights: str = "bf16"
    placer: str = "auto"
    linears: str = "auto"
    attention: str = "auto"
    decoding: str = "auto"
    scheduling: str = "auto"
    direct_reads: bool = True
    pageable_bytes: int | None = None
    budgets: TierBudgets | None = None
    context: str = "head"
    profile: str = "measured"
    disk_bytes: int | None = None
    chunk_tokens: int = 256
    neighbours: int = 10
    answers_at_once: int = 4
    questions_waiting: int = 32

    def __post_init__(self) -> None:
        if not 32 <= self.chunk_tokens <= 512:
            raise ValueError(f"chunk_tokens is {self.chunk_tokens}: choose 32 to 512")
        if not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise ValueError(f"neighbours is {self.neighbours}: choose 0 (off) to {MOST_NEIGHBOURS}")
        if self.answers_at_once < 1 or self.questions_waiting < 1:
            raise ValueError("at least one question is answered and one may wait")


def settings_from(home: Path | None = None, model: str | None = None, embedding: str | None = None) -> Settings:
    """Settings with every default filled in; pass what the user chose through `dataclasses.replace`."""
    return Settings(
        home=(home or default_home()).expanduser().absolute(),
        model=settled_name(model or str(models_folder() / EMBEDDED_MODEL)),
        embedding=settled_name(embedding or str(models_folder() / EMBEDDED_EMBEDDING)),
    )
