"""Reading a chunk behind its neighbours: against transformers' own attention, and what it must not depend on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from models.errors import PromptTooLong
from models.loading import LanguageModel
from models.neighbour_reader import NeighbourReader
from models.placing import choose_placers
from models.reader import ChunkReader
from models.rotary import rotate
from storage.blocks import EncodedBlock
from storage.errors import BlockRefused
from tests.models.conftest import load, sample_prompt
from tests.models.reference import Layers, Reference
from tests.models.test_exactness import close
from tests.models.tiny import WINDOW


def readers(model: LanguageModel, head: np.ndarray, codec: str = "f32") -> tuple[ChunkReader, NeighbourReader]:
    reader = ChunkReader(model, head, "head", codec)
    return reader, NeighbourReader(reader, choose_placers("plain"))


def block(reader: ChunkReader, ids: np.ndarray) -> EncodedBlock:
    return reader.block(ids, "a" * 64, "f" * 64, "papers")


@torch.inference_mode()
def kv_after(reference: Reference, past: Layers, ids: np.ndarray) -> Layers:
    """Rotated keys and values of the tokens after a composed past, `[1, kv_heads, tokens, head_dim]` a layer."""
    cache: Any = DynamicCache()
    for index, (keys, values) in enumerate(past):
        cache.update(keys, values, index)
    first = past[0][0].shape[2]
    tokens = torch.as_tensor(ids, dtype=torch.int64)[None]
    positions = torch.arange(first, first + tokens.shape[1])[None]
    reference.model(input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True)
    return [(layer.keys[:, :, first:], layer.values[:, :, first:]) for layer in cache.layers]


def test_behind_one_neighbour_it_equals_transformers(tiny_folder: Path) -> None:
    """A first neighbour has seen all that is before it, so the chunk's KV is that of one pass over everything."""
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 2)
    before, chunk = prompt.chunks
    reader, near = readers(model, prompt.head)
    reading = near.read(chunk, [block(reader, before)])
    ids = np.concatenate([prompt.head, before, chunk])
    first, head = len(prompt.head) + len(before), len(prompt.head)
    cos, sin = model.rotary.upto(len(ids))
    for layer, (keys, values) in enumerate(reference.kv(ids)):
        close(rotate(reading.keys[layer], cos[first : len(ids)], sin[first : len(ids)]), keys[0, :, first:])
        close(reading.values[layer], values[0, :, first:])
    tokens = torch.as_tensor(ids, dtype=torch.int64)[None]
    with torch.inference_mode():
        weights = reference.model(input_ids=tokens, output_attentions=True).attentions[-1][0]
    rows = weights[:, first:]
    close(torch.from_numpy(reading.outside_mass[0]), rows[:, :, :first].sum(dim=(0, 2)))
    close(torch.from_numpy(reading.outside_mass[1]), rows[:, :, head:first].sum(dim=(0, 2)))
    assert reading.outside_mass[1].min() > 0


def test_neighbours_stand_in_order_behind_the_head(tiny_folder: Path) -> None:
    """Two neighbours: the second was computed without the first, and is moved behind it."""
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 3)
    *before, chunk = prompt.chunks
    reader, near = readers(model, prompt.head)
    blocks = [block(reader, ids) for ids in before]
    reading = near.read(chunk, blocks)
    head, start = len(prompt.head), len(prompt.head)
    past = reference.kv(prompt.head)
    for ids in before:
        for layer, (keys, values) in enumerate(reference.kv(np.concatenate([prompt.head, ids]))):
            moved = reference.moved(keys[:, :, head:], head, start)
            past[layer] = (torch.cat((past[layer][0], moved), 2), torch.cat((past[layer][1], values[:, :, head:]), 2))
        start += len(ids)
    cos, sin = model.rotary.upto(start + len(chunk))
    where = slice(start, start + len(chunk))
    for layer, (keys, values) in enumerate(kv_after(reference, past, chunk)):
        close(rotate(reading.keys[layer], cos[where], sin[where]), keys[0])
        close(reading.values[layer], values[0])
    swapped = near.read(chunk, blocks[::-1])
    assert float((swapped.keys - reading.keys).abs().max()) > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_neighbours_it_is_the_chunk_behind_the_head(llama_folder: Path, dtype: str, tmp_path: Path) -> None:
    folder = llama_folder
    if dtype == "bfloat16":
        folder = tmp_path / "model"
        folder.mkdir()
        for file in llama_folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"float32"', '"bfloat16"'))
    model = load(folder)
    prompt = sample_prompt(model, 2)
    reader, near = readers(model, prompt.head)
    other = block(reader, prompt.chunks[0])
    near.read(prompt.chunks[1], [other])  # leaves no trace in the scratch memory they share
    reading = near.read(prompt.chunks[1], [])
    keys, values = reader.read(prompt.chunks[1])
    assert torch.equal(reading.keys, keys)
    assert torch.equal(reading.values, values)
    assert not reading.outside_mass[1].any()
    assert reading.outside_mass[0].min() > 0
    again = near.read(prompt.chunks[1], [other])
    fresh = readers(model, prompt.head)[1].read(prompt.chunks[1], [other])
    assert torch.equal(again.keys, fresh.keys)
    assert np.array_equal(again.outside_mass, fresh.outside_mass)


def test_mass_of_all_keys_is_one_a_head(llama_folder: Path) -> None:
    """A chunk of one token has its own key alone inside: outside and inside add up to the number of heads."""
    model = load(llama_folder)
    prompt = sample_prompt(model, 2)
    reader, near = readers(model, prompt.head)
    mass = near.read(prompt.chunks[1][:1], [block(reader, prompt.chunks[0])]).outside_mass
    assert 0 < mass[1, 0] < mass[0, 0] < model.heads


def test_what_cannot_be_read_is_refused(llama_folder: Path) -> None:
    model = load(llama_folder)
    prompt = sample_prompt(model, 2)
    reader, near = readers(model, prompt.head)
    other, chunk = block(reader, prompt.chunks[0]), prompt.chunks[1]
    assert near.room_tokens(len(chunk)) == WINDOW - len(prompt.head) - len(chunk)
    fitting = near.room_tokens(len(chunk)) // len(prompt.chunks[0])
    near.read(chunk, [other] * fitting)
    with pytest.raises(PromptTooLong):
        near.read(chunk, [other] * (fitting + 1))
    with pytest.raises(BlockRefused):
        near.read(chunk[:0], [other])
    with pytest.raises(ValueError, match="alone"):
        NeighbourReader(ChunkReader(model, prompt.head, "alone", "f32"), choose_placers("plain"))
