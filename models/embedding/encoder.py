"""Text encoders of the BERT family, run with plain transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from models.embedding.base import Vectors, WindowSettings
from models.embedding.fingerprint import embedding_fingerprint
from models.embedding.folder import EncoderFolder, read_encoder_folder
from models.embedding.packed import packed_twin
from models.embedding.windows import window_bounds
from models.errors import DeviceUnavailable, ModelRefused
from models.packing import choose_linears


class EmbeddingModel:
    """An `Embedding` (see `base.py`): hidden states pooled over a window's pieces, then made length 1.

    Source of the recipe: Reimers and Gurevych, Sentence-BERT (arXiv 1908.10084).
    Float32 everywhere, but for questions after `pack_questions`.
    """

    def __init__(self, folder: EncoderFolder, model: Any, tokenizer: Any, settings: WindowSettings) -> None:
        """Use `load`. `model` gives `last_hidden_state`; `tokenizer` is a `tokenizers.Tokenizer`."""
        self._model = self._question_model = model
        self._device = torch.device(model.device)
        self._pooling = folder.pooling
        self._tokenizer = _plain(tokenizer)
        probe = self._tokenizer.encode("a", add_special_tokens=True)
        ids, text = list(probe.ids), [place for place, special in enumerate(probe.special_tokens_mask) if not special]
        self._before: list[int] = ids[: text[0]]
        self._after: list[int] = ids[text[-1] + 1 :]
        self._limit_pieces = min(settings.window_pieces, folder.limit_pieces) - len(self._before) - len(self._after)
        self._overlap_pieces = min(settings.overlap_pieces, self._limit_pieces // 4)
        self._batch_pieces = settings.batch_pieces
        self._pad = int(model.config.pad_token_id or 0)
        self._dimensions = int(model.config.hidden_size)
        windows = {"pieces": self._limit_pieces, "overlap": self._overlap_pieces}
        self._fingerprint = embedding_fingerprint(folder.path, {"pooling": folder.pooling, **windows})

    @classmethod
    def load(
        cls, folder: Path, device: str = "cpu", settings: WindowSettings | None = None, linears: str = "plain"
    ) -> Self:
        """Load a folder from this computer; nothing is looked up elsewhere and none of its code is run.

        `linears` (one of models.packing.LINEARS) says whether questions are embedded with the packed twin.
        Raises ModelMissing, ModelRefused (what kind, what pooling, which file) and DeviceUnavailable.
        """
        described = read_encoder_folder(folder)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **local)
            model, report = AutoModel.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="sdpa",
                use_safetensors=True,
                output_loading_info=True,
                **local,
            )
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ModelRefused(f"{folder} cannot be loaded ({reason}): name a complete embedding model") from error
        # transformers would fill a missing tensor with random numbers; only the pooler is never used here.
        missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
        if missing:
            raise ModelRefused(f"{folder} lacks {len(missing)} weights ({missing[0]}, ...): download the model again")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelRefused(f"{folder} has no fast tokenizer: add its tokenizer.json")
        try:
            model = model.to(device).eval()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise DeviceUnavailable(f"{device} cannot hold the embedding model ({reason}): use --device cpu") from error
        loaded = cls(described, model, backend, settings or WindowSettings())
        if choose_linears(linears, torch.device(device), torch.bfloat16, "bf16").name == "packed":
            loaded.pack_questions()
        return loaded

    def pack_questions(self) -> None:
        """From now on embed questions with the packed twin (see packed.py); for processors that pack bfloat16."""
        self._question_model = packed_twin(self._model)

    @property
    def fingerprint(self) -> str:
        """Hex digest of weights, config, tokenizer, pooling and windows."""
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._dimensions

    def embed_question(self, text: str) -> NDArray[np.float32]:
        """`[dimensions]`; the short way: one window, no padding, no batch."""
        pieces = self._tokenizer.encode(_writable(text), add_special_tokens=False).ids[: self._limit_pieces]
        vector: NDArray[np.float32] = self._embed([self._before + pieces + self._after], self._question_model)[0]
        return vector

    def embed_windows(self, texts: Sequence[str]) -> list[Vectors]:
        """One `[windows, dimensions]` a text. Windows of all texts are batched by length, so little is padded."""
        windows: list[list[int]] = []
        counts: list[int] = []
        for encoded in self._tokenizer.encode_batch([_writable(text) for text in texts], add_special_tokens=False):
            bounds = window_bounds(len(encoded.ids), self._limit_pieces, self._overlap_pieces)
            windows += [self._before + encoded.ids[start:end] + self._after for start, end in bounds]
            counts.append(len(bounds))
        vectors = np.empty((len(windows), self._dimensions), dtype=np.float32)
        for batch in self._batches(windows):
            vectors[batch] = self._embed([windows[index] for index in batch], self._model)
        ends = np.cumsum(counts).tolist()
        return [vectors[end - count : end] for end, count in zip(ends, counts, strict=True)]

    def _batches(self, windows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Indices of windows, longest first, in batches of at most `batch_pieces` pieces after padding."""
        order = sorted(range(len(windows)), key=lambda index: (-len(windows[index]), index))
        batches: list[list[int]] = []
        start = 0
        while start < len(order):
            size = max(1, self._batch_pieces // len(windows[order[start]]))
            batches.append(order[start : start + size])
            start += size
        return batches

    def _embed(self, windows: Sequence[Sequence[int]], model: Any) -> Vectors:
        """`[len(windows), dimensions]` float32 unit rows."""
        length = max(map(len, windows))
        ids = torch.full((len(windows), length), self._pad, dtype=torch.long)
        mask = torch.zeros((len(windows), length), dtype=torch.long)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = torch.tensor(window, dtype=torch.long)
            mask[row, : len(window)] = 1
        mask = mask.to(self._device)
        with torch.inference_mode():
            hidden: Tensor = model(input_ids=ids.to(self._device), attention_mask=mask).last_hidden_state
            pooled = hidden[:, 0] if self._pooling == "cls" else _mean(hidden, mask)
            unit = torch.nn.functional.normalize(pooled.float(), dim=-1)
        return np.asarray(unit.cpu().numpy(), dtype=np.float32)


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """`[rows, dimensions]`: mean of `hidden [rows, pieces, dimensions]` where `mask [rows, pieces]` is 1."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def _plain(tokenizer: Any) -> Any:
    """The same tokenizer without truncation and padding, and deaf to control tokens written in a document.

    Set once and never again: a tokenizer whose settings change is not safe to share between threads.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _writable(text: str) -> str:
    """The text with lone surrogates (half a character, as broken JSON carries) replaced: the tokenizer refuses them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
