"""Models of true shapes and random weights: for timing alone, and never by mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from models.errors import DeviceUnavailable, ModelMissing, ModelRefused
from models.loading import SHAPES, LanguageModel, load_random_model, resolve_model
from models.loading.random_tokenizer import random_tokenizer
from models.prompt import PromptTemplate
from models.resolve import looks_like_hub_name, settled_name
from tests.models.conftest import run, sample_prompt

CPU = torch.device("cpu")
MERGED = ("Ġt", "he", "Ġthe", "in", "Ġin", "er", "an")
CHAT_TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}"


def save_tokenizer(folder: Path, kind: str = "BPE") -> Path:
    """Two control tokens, the bytes, then seven merged tokens, as the embedded model has them."""
    alphabet = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *MERGED])}
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ġ", "in"), ("e", "r"), ("a", "n")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = wrapped(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    if kind != "BPE":
        file = folder / "tokenizer.json"
        description = json.loads(file.read_text())
        description["model"]["type"] = kind
        file.write_text(json.dumps(description))
    return folder


@pytest.fixture(scope="module")
def tiny() -> LanguageModel:
    return load_random_model("random:tiny", CPU)


def test_a_random_model_reads_and_reuses(tiny: LanguageModel) -> None:
    for chunks in (1, 3):
        logits = run(tiny, sample_prompt(tiny, chunks), "reuse").logits
        assert logits.shape == (320,)
        assert bool(torch.isfinite(logits).all())
    one = sample_prompt(tiny, 1)
    assert float((run(tiny, one, "reuse").logits - run(tiny, one, "full").logits).abs().max()) < 0.1


def test_the_seed_makes_the_weights_and_the_identity(tiny: LanguageModel) -> None:
    again, other = load_random_model("random:tiny", CPU), load_random_model("random:tiny", CPU, seed=1)
    weight = "embed_tokens.weight"
    assert torch.equal(tiny.backbone.get_parameter(weight), again.backbone.get_parameter(weight))
    assert not torch.equal(tiny.backbone.get_parameter(weight), other.backbone.get_parameter(weight))
    assert tiny.identity == again.identity != other.identity
    assert tiny.name == "random:tiny"
    assert tiny.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("shape", "parameters", "kv_bytes_a_token", "window"),
    [
        ("llama-2-7b", 6_738_415_616, 2 * 32 * 32 * 128 * 2, 4096),
        ("mistral-7b", 7_248_023_552, 2 * 32 * 8 * 128 * 2, 32768),
        ("llama-3.1-8b", 8_030_261_248, 2 * 32 * 8 * 128 * 2, 131072),
    ],
)
def test_the_shapes_are_the_published_ones(shape: str, parameters: int, kv_bytes_a_token: int, window: int) -> None:
    options = dict(SHAPES[shape])
    config = AutoConfig.for_model(options.pop("model_type"), **options, tie_word_embeddings=False)
    maker: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = maker.from_config(config, dtype=torch.bfloat16)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    heads = config.num_key_value_heads * config.head_dim
    assert 2 * 2 * config.num_hidden_layers * heads == kv_bytes_a_token
    assert config.max_position_embeddings == window


def test_a_large_shape_is_refused_on_a_cpu() -> None:
    with pytest.raises(DeviceUnavailable, match=r"random:llama-2-7b: too large .* --device cuda"):
        load_random_model("random:llama-2-7b", CPU)


def test_what_cannot_be_made_is_named() -> None:
    with pytest.raises(ModelRefused, match=r"random:mistral-7b, random:llama-3\.1-8b"):
        load_random_model("random:llama-9", CPU)
    with pytest.raises(ModelRefused, match="bf16 alone"):
        load_random_model("random:tiny", CPU, "int4")


def test_nothing_that_answers_documents_opens_it() -> None:
    with pytest.raises(ModelRefused, match="random:tiny has random weights, for timing alone"):
        resolve_model(settled_name("random:tiny"))
    assert settled_name("random:llama-2-7b") == "random:llama-2-7b"
    assert not looks_like_hub_name("random:llama-2-7b")


def test_a_real_tokenizer_is_cut_to_the_vocabulary(tmp_path: Path) -> None:
    folder = save_tokenizer(tmp_path)
    text = "<s> the hinterland and the other"
    whole, cut = random_tokenizer(1000, folder), random_tokenizer(2 + 256 + 3, folder)
    assert len(whole) == 2 + 256 + 7
    assert len(cut) == 2 + 256 + 3
    ids = cut.encode(text)
    assert max(ids) < len(cut)
    assert cut.decode(ids) == text
    assert ids.count(whole.convert_tokens_to_ids("Ġthe")) == 2, "merges below the cut are kept"
    assert len(ids) > len(whole.encode(text)), "merges above it are not"
    assert cut.chat_template == CHAT_TEMPLATE
    assert (cut.bos_token_id, cut.eos_token_id) == (0, 1)
    assert len(PromptTemplate(cut, "cut").head) > 0


def test_bytes_where_there_is_no_tokenizer_or_no_room_for_it(tmp_path: Path) -> None:
    for tokenizer in (random_tokenizer(320, None), random_tokenizer(257, save_tokenizer(tmp_path))):
        assert len(tokenizer.encode("thé")) == 4
        assert tokenizer.decode(tokenizer.encode("thé")) == "thé"


def test_a_tokenizer_that_cannot_be_cut_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"no tokenizer\.json"):
        random_tokenizer(1000, tmp_path)
    with pytest.raises(ModelRefused, match="no byte-pair encoding"):
        random_tokenizer(1000, save_tokenizer(tmp_path, "WordPiece"))
