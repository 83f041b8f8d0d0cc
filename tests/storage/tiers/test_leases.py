"""Leases are counted and end, but memory goes only when they are released."""

import pytest

from storage.tiers import Lease, LeaseExpired, Leases
from tests.storage.blocks.builders import make_block


def test_an_expired_lease_refuses_new_use_and_frees_only_on_release() -> None:
    now, released = [100.0], []
    leases = Leases(10, lambda: now[0])
    block = make_block()
    first = leases.issue(Lease(block, "disk", lambda: released.append("first")))
    now[0] = 105
    second = leases.issue(Lease(block, "gpu", lambda: released.append("second")))
    assert (leases.out, leases.expired) == (2, 0)
    assert (first.block, first.tier, second.tier) == (block, "disk", "gpu")
    now[0] = 111
    with pytest.raises(LeaseExpired, match="load the block again") as caught:
        _ = first.block
    assert "\n" not in str(caught.value)
    assert second.block is block
    assert (leases.out, leases.expired, released) == (2, 1, [])
    first.release()
    assert (leases.out, leases.expired, released) == (1, 1, ["first"])
    with pytest.raises(RuntimeError, match="twice"):
        first.release()
    second.release()
    assert (leases.out, leases.expired, released) == (0, 1, ["first", "second"])
