"""Issue item 1: what is placed equals what a plain pass computes, for every architecture and rotary kind."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from models.arena import Arena
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.reader import ChunkReader
from models.rotary import rotate, unrotate
from models.strategies import Plan, find_strategy
from tests.models.conftest import load, run, sample_prompt
from tests.models.reference import Reference, block_diagonal_mask

TOLERANCE = 1e-4


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert float((found - expected).abs().max()) < TOLERANCE


def test_full_equals_transformers(tiny_folder: Path) -> None:
    model = load(tiny_folder)
    prompt = sample_prompt(model, 3)
    close(run(model, prompt, "full").logits, Reference(tiny_folder).logits(prompt.ids()))


def test_alone_equals_a_block_diagonal_pass_in_any_order(tiny_folder: Path) -> None:
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 3)
    for order in permutations(range(3)):
        shuffled = replace(prompt, chunks=tuple(prompt.chunks[i] for i in order))
        lengths = [len(shuffled.head), *(len(chunk) for chunk in shuffled.chunks)]
        mask = block_diagonal_mask(lengths, len(shuffled.tail))
        close(run(model, shuffled, "reuse", context="alone").logits, reference.logits(shuffled.ids(), mask))


def test_head_equals_the_reference_composition(tiny_folder: Path) -> None:
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 3)
    head = len(prompt.head)
    past = reference.kv(prompt.head)
    start = head
    for chunk in prompt.chunks:
        read = reference.kv(np.concatenate([prompt.head, chunk]))
        for layer, (keys, values) in enumerate(read):
            moved = reference.moved(keys[:, :, head:], head, start)
            past[layer] = (
                torch.cat((past[layer][0], moved), 2),
                torch.cat((past[layer][1], values[:, :, head:]), 2),
            )
        start += len(chunk)
    close(run(model, prompt, "reuse").logits, reference.tail_logits(past, prompt.tail))


def test_head_with_one_chunk_equals_full(tiny_folder: Path) -> None:
    model = load(tiny_folder)
    prompt = sample_prompt(model, 1)
    close(run(model, prompt, "reuse").logits, run(model, prompt, "full").logits)


def test_a_block_placed_at_p_equals_one_computed_at_p(tiny_folder: Path) -> None:
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 1)
    reader = ChunkReader(model, prompt.head, "alone", "f32")
    keys, values = reader.read(prompt.chunks[0])
    first, tokens = 137, len(prompt.chunks[0])
    cos, sin = model.rotary.upto(first + tokens)
    placed = rotate(keys, cos[first : first + tokens], sin[first : first + tokens])
    for layer, (expected_keys, expected_values) in enumerate(reference.kv(prompt.chunks[0], first)):
        close(placed[layer], expected_keys[0])
        close(values[layer], expected_values[0])
    off_by_one = rotate(keys, cos[first + 1 : first + 1 + tokens], sin[first + 1 : first + 1 + tokens])
    assert float((off_by_one - placed).abs().max()) > 100 * TOLERANCE


def test_keys_captured_before_rotary_equal_keys_unrotated(tiny_folder: Path) -> None:
    model, reference = load(tiny_folder), Reference(tiny_folder)
    prompt = sample_prompt(model, 1)
    keys, _ = ChunkReader(model, prompt.head, "alone", "f32").read(prompt.chunks[0])
    tokens = len(prompt.chunks[0])
    cos, sin = model.rotary.upto(tokens)
    for layer, (rotated, _) in enumerate(reference.kv(prompt.chunks[0])):
        close(keys[layer], unrotate(rotated[0], cos[:tokens], sin[:tokens]))


@pytest.mark.parametrize("placer", ["compiled", "plain"])
def test_a_key_one_position_off_fails(llama_folder: Path, placer: str) -> None:
    """The tolerance is sharp: the same composition with one block a slot late is far outside it."""
    model = load(llama_folder)
    prompt = sample_prompt(model, 2)
    right = run(model, prompt, "reuse", placer=placer).logits
    reader = ChunkReader(model, prompt.head, "head", "f32")
    arena = Arena(model.geometry, model.dtype, model.device, model.window)
    arena.reserve(prompt.tokens)
    head = len(prompt.head)
    arena.keys[:, :, :head], arena.values[:, :, :head] = reader.head_keys, reader.head_values
    start = head
    for number, chunk in enumerate(prompt.chunks):
        keys, values = reader.read(chunk)
        late = start + number  # the second block's keys are rotated one position too far
        cos, sin = model.rotary.upto(late + len(chunk))
        arena.keys[:, :, start : start + len(chunk)] = rotate(keys, cos[late:][: len(chunk)], sin[late:][: len(chunk)])
        arena.values[:, :, start : start + len(chunk)] = values
        start += len(chunk)
    hidden = run_rows(model, arena, prompt.tail, contiguous_rows(start, len(prompt.tail), model.device), prompt.tokens)
    assert float((next_token_logits(model, hidden) - right).abs().max()) > 10 * TOLERANCE


def test_recomputing_every_chunk_token_equals_full(tiny_folder: Path) -> None:
    """The executor's sparse pass: rows at given positions, masked by where they stand."""
    model = load(tiny_folder)
    prompt = sample_prompt(model, 3)
    reader = ChunkReader(model, prompt.head, "head", "f32")
    from models.executor import ComputedSource, Executor
    from models.placing import choose_placers

    plan = find_strategy("reuse").plan(prompt)
    chunk_rows = np.arange(len(prompt.head), prompt.tokens - len(prompt.tail))
    executor = Executor(reader, choose_placers())
    source = ComputedSource(reader, prompt.chunks)
    everything = executor.execute(prompt, Plan("test", plan.segments, chunk_rows), source).logits
    close(everything, run(model, prompt, "full").logits)
    rng = np.random.default_rng(3)
    some = np.sort(rng.choice(chunk_rows, len(chunk_rows) // 3, replace=False))
    partial = executor.execute(prompt, Plan("test", plan.segments, some), source).logits
    executor.close()
    assert float((partial - everything).abs().max()) > TOLERANCE
