"""Which codec the keys and which the values of a block are kept in (see `storage.codec_pair`)."""

from storage.codec_pair import SEPARATOR, CodecPair

__all__ = ["SEPARATOR", "CodecPair"]
