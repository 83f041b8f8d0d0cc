"""The device's rates on the twin that is here, a CPU: what is counted, not how fast it is."""

import pytest
import torch

from appliance.benches import device_rates
from appliance.benches.device_rates import measure_device_rates, pair_bytes_per_element, sample_block
from storage.codecs import CodecPair
from storage.geometry import Geometry

CPU = torch.device("cpu")
GEOMETRY = Geometry(3, 2, 16)


def test_rates_and_shares_of_every_pair() -> None:
    pairs = [CodecPair("int8", "int8"), CodecPair("int4", "int4h")]
    rates = measure_device_rates(CPU, GEOMETRY, pairs, 1 << 16)
    assert list(rates.decode) == ["int8", "int4+int4h"]
    assert list(rates.copy) == ["pageable"]
    for share in rates.decode.values():
        assert share.share == pytest.approx(share.bytes_per_s / rates.memory_bytes_per_s)
    assert rates.copy["pageable"].share == pytest.approx(rates.copy["pageable"].bytes_per_s / rates.pinned_bytes_per_s)
    assert rates.as_json()["decode"]["int8"]["bytes_per_s"] > 0


def test_bytes_read_and_written_are_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that says one second, the rate is the bytes: int8 reads one an element, bfloat16 writes two."""
    monkeypatch.setattr(device_rates, "_best_seconds", lambda device, action: (action(), 1.0)[1])
    pair, memory = CodecPair("bf16", "bf16"), 1000.0
    share = device_rates.decode_share_of_bandwidth(CPU, GEOMETRY, pair, memory, 96 * 4 * 2 * 100)
    assert share.bytes_per_s == 96 * 4 * 2 * 100
    assert share.share == share.bytes_per_s / memory
    assert device_rates.memory_bytes_per_s(CPU, 4096) == 4096
    assert device_rates.pinned_bytes_per_s(CPU, 4096) == 4096


def test_the_sample_is_a_whole_block() -> None:
    block = sample_block(GEOMETRY, CodecPair("int4", "int8"), 37)
    keys, values = block.decode()
    assert keys.shape == (3, 2, 37, 16)
    for decoded in (keys, values):
        assert torch.equal(decoded[0], decoded[2])
        assert 0.8 < float(decoded.std()) < 1.2


def test_bytes_an_element() -> None:
    assert pair_bytes_per_element(GEOMETRY, CodecPair("bf16", "bf16")) == 2
    assert 1 < pair_bytes_per_element(GEOMETRY, CodecPair("int8", "int8")) < 1.3
