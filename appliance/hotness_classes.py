"""Which class of hotness each stored block is in, and which blocks wait to be encoded again. Loads no torch."""

from dataclasses import dataclass

from storage.catalog import Catalog, RankedBlock
from storage.profiles import HotnessClass, Profile, classes_of


@dataclass(frozen=True)
class ClassifiedBlock:
    """A block and the class it is in; `refused`: its numbers do not fit the codec of that class."""

    block: RankedBlock
    heat: HotnessClass
    refused: bool

    @property
    def waits(self) -> bool:
        """Whether it is to be encoded again."""
        return self.block.codec != self.heat.codec.name and not self.refused


def classified_blocks(catalog: Catalog, profile: Profile, fingerprint: str, context: str) -> list[ClassifiedBlock]:
    """The ready decoder blocks of one model and context, hottest first. Raises StorageError."""
    blocks = catalog.ranked_blocks(fingerprint, "self", context)
    refused = catalog.refused_codecs()
    classes = classes_of(
        profile,
        [(block.key, block.score) for block in blocks],
        catalog.chunk_count(),
        {block.key: block.codec for block in blocks},
    )
    return [
        ClassifiedBlock(block, classes[block.key], (block.key, classes[block.key].codec.name) in refused)
        for block in blocks
    ]
