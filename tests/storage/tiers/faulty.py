"""Tiers that fail, for the tests of what stands on them. Losing a tier must lose nothing but time."""

from storage.blocks import EncodedBlock
from storage.tiers import Lease, Tier


class Wrapped(Tier):
    """A tier behind another; faults override one method."""

    def __init__(self, inner: Tier) -> None:
        self.inner, self.name = inner, inner.name

    def lease(self, key: str) -> Lease | None:
        return self.inner.lease(key)

    def offer(self, block: EncodedBlock) -> Lease | None:
        return self.inner.offer(block)

    def retire(self, key: str) -> None:
        self.inner.retire(key)

    @property
    def used_bytes(self) -> int:
        return self.inner.used_bytes

    @property
    def blocks(self) -> int:
        return self.inner.blocks


class Forgetful(Wrapped):
    """Keeps blocks and finds none."""

    def lease(self, key: str) -> Lease | None:
        return None


class Full(Wrapped):
    """Never has room."""

    def offer(self, block: EncodedBlock) -> Lease | None:
        return None
