"""Decoding several answers in one pass on a GPU: each as if it were alone."""

from dataclasses import replace
from pathlib import Path

import torch

from models.decoding import decode_each, decode_rows
from models.loading import load_language_model
from tests.gpu.marks import NEEDS_CUDA
from tests.models.test_decoding import STEPS, read
from tests.models.tiny import save_tiny_model

pytestmark = NEEDS_CUDA


def test_batched_equals_single_on_a_gpu(tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    folder = save_tiny_model(tmp_path / "model", "qwen3", "llama3")
    model = replace(load_language_model(folder, torch.device("cuda")), stop_ids=frozenset())
    together, alone = read(model), read(model)
    for greedy, logits, _, _ in [*together, *alone]:
        greedy.take(logits)
    for _ in range(STEPS - 1):
        batched = decode_rows(model, [greedy.row for greedy, *_ in together])
        single = decode_each(model, [greedy.row for greedy, *_ in alone])
        torch.testing.assert_close(batched, single, atol=1e-3, rtol=0)
        for (first, *_), (second, *_), its, own in zip(together, alone, batched, single, strict=True):
            assert first.take(its) == second.take(own)
