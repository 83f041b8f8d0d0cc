"""The names that are known without loading torch are those of the codecs."""

from storage.codec_names import CODEC_NAMES, is_known
from storage.codec_pair import CodecPair
from storage.codecs import CODECS


def test_the_names_are_those_of_the_codecs() -> None:
    assert set(CODECS) == CODEC_NAMES


def test_both_sides_count() -> None:
    assert is_known(CodecPair.named("int4+int8"))
    assert not any(is_known(CodecPair.named(name)) for name in ("int9", "int8+int9", "int9+int8", "int8+int8+int8", ""))
