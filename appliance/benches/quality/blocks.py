"""Blocks of a run: each chunk read once behind the head and once behind its neighbours, kept in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from appliance.engine import Engine
from models.neighbour_reader import NeighbourReader
from storage.blocks import BlockHeader, EncodedBlock, block_key, encode_block
from storage.codecs import CodecPair
from storage.contexts import near_context

COLLECTION = "quality"

_Key = tuple[str, str]


@dataclass
class _Kept:
    block: EncodedBlock
    mass: np.ndarray | None = None


class ChunkBlocks:
    """Computes blocks as they are asked for; the longest unused are forgotten first. One thread at a time.

    What is computed is kept in a codec that changes none of the model's own numbers; other codecs are made of that.
    """

    def __init__(self, engine: Engine, most_bytes: int) -> None:
        self._engine = engine
        self._near = NeighbourReader(engine.reader, engine.executor.placers)
        self._most_bytes = most_bytes
        name = "bf16" if engine.model.dtype == torch.bfloat16 else "f32"
        self._lossless = CodecPair(name, name)
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._bytes = 0
        self.computed = 0

    def base(self, ids: np.ndarray, codec: CodecPair) -> EncodedBlock:
        """The chunk's block behind the head alone. Raises BlockRefused where the codec cannot hold it."""
        key = self._engine.block_key(COLLECTION, ids)
        return self._encoded(key, codec, lambda: self._read_base(key, ids)).block

    def near(self, ids: np.ndarray, neighbours: Sequence[np.ndarray], codec: CodecPair) -> EncodedBlock:
        """The chunk's block behind these neighbours, first placed first. Raises BlockRefused, PromptTooLong."""
        return self._near_block(ids, neighbours, codec).block

    def outside_mass(self, ids: np.ndarray, neighbours: Sequence[np.ndarray]) -> np.ndarray:
        """Cache-Craft's record of that reading: float32 `[2, tokens]`, see `NearReading`."""
        mass = self._near_block(ids, neighbours, self._lossless).mass
        if mass is None:
            raise ValueError("a block read behind neighbours has its record")
        return mass

    def room_tokens(self, chunk_tokens: int) -> int:
        """How many tokens of neighbours fit before a chunk."""
        return self._near.room_tokens(chunk_tokens)

    def _near_block(self, ids: np.ndarray, neighbours: Sequence[np.ndarray], codec: CodecPair) -> _Kept:
        keys = tuple(self._engine.block_key(COLLECTION, other) for other in neighbours)
        key = block_key(self._engine.fingerprint, COLLECTION, "self", near_context(keys), ids)
        return self._encoded(key, codec, lambda: self._read_near(key, ids, neighbours, keys))

    def _encoded(self, key: str, codec: CodecPair, read: Callable[[], _Kept]) -> _Kept:
        """What is kept under this key in this codec; read, or encoded again, where it is not there."""
        found = self._find((key, codec.name))
        if found is not None:
            return found
        plain = self._find((key, self._lossless.name))
        if plain is None:
            plain = read()
            self.computed += 1
            self._keep((key, self._lossless.name), plain)
        if codec == self._lossless:
            return plain
        keys, values = plain.block.decode()
        header = replace(plain.block.header, key_codec=codec.keys, value_codec=codec.values, layer_checksums=())
        made = _Kept(encode_block(header, keys, values), plain.mass)
        self._keep((key, codec.name), made)
        return made

    def _find(self, key: _Key) -> _Kept | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _keep(self, key: _Key, kept: _Kept) -> None:
        self._kept[key] = kept
        self._bytes += kept.block.header.layout.data_bytes
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.block.header.layout.data_bytes

    def _read_base(self, key: str, ids: np.ndarray) -> _Kept:
        keys, values = self._engine.reader.read(ids)
        return _Kept(encode_block(self._header(key, self._engine.reader.context, len(ids)), keys, values))

    def _read_near(self, key: str, ids: np.ndarray, neighbours: Sequence[np.ndarray], keys: tuple[str, ...]) -> _Kept:
        reading = self._near.read(ids, [self.base(other, self._lossless) for other in neighbours])
        header = replace(self._header(key, near_context(keys), len(ids)), neighbours=keys)
        return _Kept(encode_block(header, reading.keys, reading.values), reading.outside_mass)

    def _header(self, key: str, context: str, tokens: int) -> BlockHeader:
        return BlockHeader(
            key=key,
            fingerprint=self._engine.fingerprint,
            collection=COLLECTION,
            kind="self",
            context=context,
            key_codec=self._lossless.keys,
            value_codec=self._lossless.values,
            generation=0,
            tokens=tokens,
            geometry=self._engine.model.geometry,
        )
