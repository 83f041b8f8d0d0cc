"""Questions over stored blocks on a CUDA device: whichever tier a block is in, the answer's logits are the same."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from models.errors import DeviceUnavailable
from models.executor import ComputedSource, Executor
from models.landing import LayerListener
from models.loading import LanguageModel, load_language_model, load_random_model
from models.placing import choose_placers
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import find_strategy
from storage.blocks import EncodedBlock, pack_header
from storage.catalog import BlockRow, Catalog
from storage.durable import publish_bytes
from storage.home import Home
from storage.placement import Placement
from storage.store import BlockStore, StoreSettings, row_of
from storage.tiers import GPU, PAGEABLE, PINNED, Lease, LockedBuffers
from tests.gpu.marks import NEEDS_CUDA
from tests.models.conftest import sample_prompt
from tests.models.tiny import save_tiny_model

pytestmark = NEEDS_CUDA
CUDA = torch.device("cuda")
BUDGET_BYTES = 64 << 20
CODECS = ["int8", "int4+int4h", "gse8+e4m3", "bf16"]


class Everything(Placement):
    """All blocks deserve one tier."""

    def __init__(self, tier: str) -> None:
        self._tier = tier

    def tier_of(self, key: str) -> str:
        return self._tier

    def knows(self, key: str) -> bool:
        return True


@dataclass
class StoredSource:
    """A BlockSource over a store's rows."""

    store: BlockStore
    rows: list[BlockRow]

    def load(self, chunk: int, on_layers: LayerListener) -> Lease:
        return self.store.load(self.rows[chunk], on_layers)

    def compute(self, chunk: int) -> EncodedBlock:
        raise AssertionError("every block is stored")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiers") / "model", "qwen3", "llama3")


def stored(home: Home, reader: ChunkReader, prompt: Prompt) -> list[BlockRow]:
    rows = []
    for number, ids in enumerate(prompt.chunks):
        block = reader.block(ids, f"{number:064x}", "f" * 64, "papers")
        header, checksum = pack_header(block.header)
        row = row_of(block.header, 1, len(header), checksum)
        publish_bytes(home.blocks / row.file, [header, block.data.data], home.temporary)
        rows.append(row)
    return rows


def asked(
    model: LanguageModel, root: Path, codec: str, tier: str, check: Callable[[BlockStore], None]
) -> list[np.ndarray]:
    """The logits of three questions in a row: blocks come from the disk first, then from their tier."""
    prompt = sample_prompt(model, 3)
    reader = ChunkReader(model, prompt.head, "head", codec)
    home = Home(root)
    home.create()
    settings = StoreSettings(BUDGET_BYTES, True, BUDGET_BYTES, BUDGET_BYTES, str(model.device))
    executor = Executor(reader, choose_placers("auto", model.device))
    with Catalog.open(home) as catalog:
        store = BlockStore(home, catalog, settings)
        store.place_by(Everything(tier))
        source = StoredSource(store, stored(home, reader, prompt))
        plan = find_strategy("reuse").plan(prompt)
        try:
            executions = [executor.execute(prompt, plan, source) for _ in range(3)]
        finally:
            executor.close()
        check(store)
        assert store.leases_out == 0
    assert [execution.tiers for execution in executions] == [{"disk": 3}, {tier: 3}, {tier: 3}]
    return [execution.logits.float().cpu().numpy() for execution in executions]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("tier", "kind"), [(GPU, "device"), (PINNED, "page-locked"), (PAGEABLE, "plain RAM")])
def test_every_tier_gives_the_same_logits(folder: Path, tmp_path: Path, codec: str, tier: str, kind: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False

    def check(store: BlockStore) -> None:
        state = store.memory()[tier]
        assert state["kind"] == kind
        assert state["blocks"] == 3
        assert state["refusals"] == 0, state["reason"]

    on_gpu = asked(load_language_model(folder, CUDA), tmp_path / "gpu", codec, tier, check)
    for logits in on_gpu[1:]:
        assert np.array_equal(logits, on_gpu[0])
    on_cpu = asked(load_language_model(folder, torch.device("cpu")), tmp_path / "cpu", codec, tier, lambda store: None)
    # Codes may differ by a step where the devices' float32 differ in the last bit; the logits stay near.
    assert float(np.abs(on_gpu[0] - on_cpu[0]).max()) < 0.1


def test_a_refused_lock_does_not_fail_the_next_kernel() -> None:
    locked = LockedBuffers(spare_bytes=0)
    raw = locked.take(1 << 20)
    with pytest.raises(MemoryError, match="cannot be page-locked"):
        locked.lock(raw)  # it is already
    added = torch.zeros(8, device="cuda") + 1
    torch.cuda.synchronize()
    assert bool((added == 1).all())
    LockedBuffers.unlock(raw.ctypes.data)
    LockedBuffers.unlock(raw.ctypes.data)  # it is not any more
    added = torch.zeros(8, device="cuda") + 1
    torch.cuda.synchronize()
    assert bool((added == 1).all())


def test_a_gpu_is_not_placed_into_by_the_cpus_loops() -> None:
    with pytest.raises(DeviceUnavailable, match="--placer auto"):
        choose_placers("compiled", CUDA)


def test_a_random_shape_is_made_on_the_device_and_answers() -> None:
    model = load_random_model("random:tiny", CUDA)
    prompt = sample_prompt(model, 2)
    reader = ChunkReader(model, prompt.head, "head", "int8")
    executor = Executor(reader, choose_placers("auto", CUDA))
    try:
        source = ComputedSource(reader, prompt.chunks)
        logits = executor.execute(prompt, find_strategy("reuse").plan(prompt), source).logits
    finally:
        executor.close()
    assert next(model.backbone.parameters()).device.type == "cuda"
    assert bool(torch.isfinite(logits).all())
