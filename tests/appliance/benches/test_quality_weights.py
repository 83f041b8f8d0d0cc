"""The quality lab over weights of 8 bits, against the same model in bfloat16."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.benches.base import BenchRefused
from appliance.benches.quality import QualityBenchSettings, run_quality_bench
from appliance.settings import Settings
from models.packing import choose_linears
from storage.codecs import CodecPair
from tests.models.tiny import save_tiny_model

packs = choose_linears("auto", torch.device("cpu"), torch.bfloat16, "bf16").name == "packed"


@pytest.fixture
def bench(tmp_path: Path) -> QualityBenchSettings:
    path = tmp_path / "asked.jsonl"
    kinds = ("bees", "violins", "bells")
    texts = [{"title": "Town", "text": f"Many {what} come from place {n}."} for n, what in enumerate(kinds)]
    lines = [
        {"question": f"Where are {what} from?", "answers": [f"place {n}"], "ctxs": texts}
        for n, what in enumerate(kinds)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    f32 = CodecPair("f32", "f32")
    options = {"questions": 2, "answer_tokens": 5, "chooser": "none", "strategies": (), "codecs": (f32,)}
    return QualityBenchSettings((path,), **options, against="bf16")  # type: ignore[arg-type]


@pytest.mark.skipif(not packs, reason="this processor or torch cannot pack bfloat16 weights")
def test_weights_are_measured_against_other_weights(
    settings: Settings, bench: QualityBenchSettings, tmp_path: Path
) -> None:
    """Weights of 8 bits need a model in bfloat16."""
    model = save_tiny_model(tmp_path / "bf16")
    config = model / "config.json"
    config.write_text(config.read_text().replace("float32", "bfloat16"))
    settings = replace(settings, model=str(model))
    rows = {}
    for weights in ("bf16", "int8"):
        result = run_quality_bench(replace(settings, weights=weights), bench)
        assert (result.facts["weights"], result.facts["against"]) == (weights, "bf16")
        rows[weights] = {row["name"]: row for row in result.as_json()["rows"]}
    plain, coded = (rows[weights]["full"] for weights in ("bf16", "int8"))
    assert (plain["kl"], plain["top1"]) == (pytest.approx(0, abs=1e-9), 1.0)
    assert 1e-6 < coded["kl"] < rows["int8"]["reuse"]["kl"]
    with pytest.raises(BenchRefused, match="--against"):
        replace(bench, against="int2")
