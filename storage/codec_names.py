"""The names of all codecs, for who names them without running them: `storage.codecs` loads torch.

A test holds the two together (tests/storage/codecs/test_names.py).
"""

from storage.codec_pair import CodecPair

CODEC_NAMES = frozenset(
    {
        *("f32", "bf16", "int8", "int8t", "e4m3", "e5m2"),
        *("gse8", "gse8r", "gse8-125", "gse8-134", "gse8-125s4", "gse8-134s3", "gse8-143s2"),
        *("int6", "int6h", "int5", "int5h", "int4", "int4f", "int4h", "int3", "int3h"),
    }
)


def is_known(pair: CodecPair) -> bool:
    """Whether there are codecs of both names."""
    return pair.keys in CODEC_NAMES and pair.values in CODEC_NAMES
