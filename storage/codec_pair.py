"""Which codec the keys and which the values of a block are kept in; they may differ (DESIGN.md §3).

Apart from `storage.codecs`, which loads torch: profiles and `appliance status` name codecs and never run them.
"""

from dataclasses import dataclass

SEPARATOR = "+"


@dataclass(frozen=True, order=True)
class CodecPair:
    """`keys` and `values` are names of codecs."""

    keys: str
    values: str

    @property
    def name(self) -> str:
        """`int8`, or `int4+int8` where keys and values differ: the name in file names, rows and options."""
        return self.keys if self.keys == self.values else f"{self.keys}{SEPARATOR}{self.values}"

    @classmethod
    def named(cls, name: str) -> "CodecPair":
        """The pair of such a name; whether its codecs exist is not checked here (`find_codec` does)."""
        keys, _, values = name.partition(SEPARATOR)
        return cls(keys, values or keys)

    def __str__(self) -> str:
        return self.name
