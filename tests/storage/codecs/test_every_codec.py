"""Every codec of `CODECS`: what comes back, how far off it is at most, what is refused. A new one is taken up."""

import pytest
import torch

from storage.codecs import CODECS, DEFAULT_CODEC, Codec, Parts, PartSpec, find_codec
from storage.codecs.base import TORCH_DTYPES
from storage.errors import BlockRefused, StorageError
from storage.geometry import Geometry
from tests.storage.codecs.bounds import bound, may_refuse

SIDES = ("keys", "values")
TOKENS = (1, 3, 64, 129)
GEOMETRY = Geometry(layers=2, kv_heads=3, head_dim=24)

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
each_side = pytest.mark.parametrize("side", SIDES)


def encode(codec: Codec, side: str, tensor: torch.Tensor) -> Parts:
    return codec.encode_keys(tensor) if side == "keys" else codec.encode_values(tensor)


def decode(codec: Codec, side: str, parts: Parts) -> torch.Tensor:
    return codec.decode_keys(parts, GEOMETRY) if side == "keys" else codec.decode_values(parts, GEOMETRY)


def specs(codec: Codec, side: str, tokens: int) -> tuple[PartSpec, ...]:
    return codec.key_parts(GEOMETRY, tokens) if side == "keys" else codec.value_parts(GEOMETRY, tokens)


def tensor_of(tokens: int, kind: str = "normal") -> torch.Tensor:
    """`[layers, kv_heads, tokens, head_dim]` float32 of a nasty or a plain kind."""
    shape = (GEOMETRY.layers, GEOMETRY.kv_heads, tokens, GEOMETRY.head_dim)
    normal = torch.randn(shape, generator=torch.Generator().manual_seed(tokens))
    if kind == "outliers":
        normal[..., 5] *= 1e4
        normal[:, :, 0] *= 300
    if kind == "zero channels":
        normal[..., ::3] = 0
        normal[:, :, ::2] = 0
    return {
        "zeros": torch.zeros(shape),
        "denormal": normal * 1e-42,
        "huge": normal / normal.abs().max() * 3.3e38,
        "constant": torch.full(shape, -0.3),
    }.get(kind, normal)


@each_codec
@each_side
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("kind", ["normal", "outliers", "zero channels", "zeros", "denormal", "huge", "constant"])
def test_what_comes_back_is_within_the_bound(codec: Codec, side: str, tokens: int, kind: str) -> None:
    tensor = tensor_of(tokens, kind)
    kept = tensor.clone()
    try:
        found = decode(codec, side, encode(codec, side, tensor))
    except BlockRefused as refused:
        assert may_refuse(codec, tensor), refused  # noqa: PT017 - either is right for the largest numbers
        return
    assert found.dtype == torch.float32
    assert found.shape == tensor.shape
    assert bool(((found - tensor).abs() <= bound(codec, side, tensor)).all())
    assert torch.equal(tensor, kept), "encoding changed its input"


@each_codec
@each_side
def test_a_lossy_codec_is_no_better_than_it_says(codec: Codec, side: str) -> None:
    """So that the bounds above are known to be near the truth."""
    tensor = tensor_of(129)
    worst = float(((decode(codec, side, encode(codec, side, tensor)) - tensor).abs()).max())
    assert worst > 0.5 * float(bound(codec, side, tensor).min()) or codec.name == "f32"
    assert float(bound(codec, side, tensor).max()) < 40 * worst or codec.name == "f32", "a bound that bounds nothing"


@each_codec
@each_side
@pytest.mark.parametrize("tokens", TOKENS)
def test_parts_are_what_was_declared(codec: Codec, side: str, tokens: int) -> None:
    parts = encode(codec, side, tensor_of(tokens))
    declared = specs(codec, side, tokens)
    assert [spec.name for spec in declared if spec.name in parts] == [spec.name for spec in declared]
    assert set(parts) == {spec.name for spec in declared}
    for spec in declared:
        part = parts[spec.name]
        assert part.shape == (GEOMETRY.layers, *spec.shape)
        assert part.dtype == TORCH_DTYPES[spec.dtype]
        assert part.is_contiguous()
        assert part[0].numel() * part.element_size() == spec.size_bytes


@each_codec
@each_side
def test_the_same_input_gives_the_same_bytes(codec: Codec, side: str) -> None:
    tensor = tensor_of(31)
    strided = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    first = encode(codec, side, tensor)
    for again in (encode(codec, side, tensor.clone()), encode(codec, side, strided)):
        for name, part in first.items():
            assert part.view(torch.uint8).numpy().tobytes() == again[name].view(torch.uint8).numpy().tobytes()


@each_codec
@each_side
def test_layers_do_not_touch_each_other(codec: Codec, side: str) -> None:
    tensor = tensor_of(9)
    changed = tensor.clone()
    changed[1] *= 50
    before, after = (encode(codec, side, t) for t in (tensor, changed))
    assert all(torch.equal(before[name][0], after[name][0]) for name in before)


@each_codec
@each_side
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types_are_taken(codec: Codec, side: str, dtype: torch.dtype) -> None:
    tensor = tensor_of(5).to(dtype)
    expected = decode(codec, side, encode(codec, side, tensor.to(torch.float32)))
    assert torch.equal(decode(codec, side, encode(codec, side, tensor)), expected)


@each_codec
@each_side
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(codec: Codec, side: str, bad: float) -> None:
    tensor = tensor_of(5)
    tensor[1, 2, 4, 23] = bad
    with pytest.raises(BlockRefused, match=side):
        encode(codec, side, tensor)


@each_codec
@each_side
@pytest.mark.parametrize("shape", [(2, 3, 0, 24), (0, 3, 4, 24), (3, 4, 24), (1, 2, 3, 4, 8), (24,)])
def test_what_is_empty_or_has_other_axes_is_refused(codec: Codec, side: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(BlockRefused, match=side) as caught:
        encode(codec, side, torch.ones(shape))
    assert "\n" not in str(caught.value)


@each_codec
@each_side
def test_float32s_largest_numbers_are_kept_or_refused_but_never_infinite(codec: Codec, side: str) -> None:
    tensor = torch.full((1, 1, 3, 8), torch.finfo(torch.float32).max)
    try:
        parts = encode(codec, side, tensor)
    except BlockRefused as refused:
        assert side in str(refused)  # noqa: PT017 - either is right, silence about infinity is not
    else:
        geometry = Geometry(1, 1, 8)
        decoded = codec.decode_keys(parts, geometry) if side == "keys" else codec.decode_values(parts, geometry)
        assert bool(torch.isfinite(decoded).all())


def test_names() -> None:
    """Files carry them: none may ever go."""
    assert set(CODECS) >= {"f32", "bf16", "int8", "int8t", "e4m3", "e5m2", "gse8", "gse8r", "gse8-125", "gse8-134"}
    assert set(CODECS) >= {"gse8-125s4", "gse8-134s3", "gse8-143s2", "int4", "int4f", "int4h", "int3", "int3h"}
    assert set(CODECS) >= {"int6", "int6h", "int5", "int5h"}
    assert all(CODECS[name].name == name for name in CODECS)
    assert DEFAULT_CODEC == "int8"
    with pytest.raises(StorageError, match="f32, bf16, int8"):
        find_codec("zip")
