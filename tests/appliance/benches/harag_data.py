"""A small question set for the HA-RAG bench: documents of one or two chunks, questions that share hot documents."""

import json
from pathlib import Path

from appliance.benches.harag import HaragBenchSettings
from storage.codecs import CodecPair

SUBJECTS = ("bees", "copper", "tunnels", "glass", "violins", "rivers", "salt", "paper", "clocks", "sheep", "wells")
CODECS = tuple(CodecPair.named(name) for name in ("int8", "int8", "int4+int8", "int4"))


def write_questions(file: Path) -> Path:
    """Eleven documents and three questions about each, all of which name bees."""
    lines = [
        {
            "question": f"{word} bees and {subject}?",
            "answers": [subject],
            "documents": [{"title": f"About {subject}", "text": f"Many {subject} come from place {number}. " * 4}],
        }
        for number, subject in enumerate(SUBJECTS)
        for word in ("Where are", "Why do we keep", "Who likes")
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def tiny_bench(file: Path, **changes: object) -> HaragBenchSettings:
    """Six questions over all chunks, two of them answered; codecs by hand, so that nothing is calibrated."""
    chosen: dict[str, object] = {
        "data": (file,),
        "questions": 6,
        "top_k": 3,
        "chunk_tokens": 128,
        "chunks": 11,
        "answers": 2,
        "budget_shares": (10, 10, 20),
        "codecs": CODECS,
    }
    return HaragBenchSettings(**{**chosen, **changes})  # type: ignore[arg-type]
