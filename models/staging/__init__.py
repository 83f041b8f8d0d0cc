"""Staging: how encoded bytes get from host memory to the device that decodes them."""

from models.staging.base import Lane, Sent, Staging
from models.staging.plain import PlainLane
from models.staging.slots import SLOT_BYTES, SLOTS, SlotStaging


def open_staging(device: str, slots: int = SLOTS, slot_bytes: int = SLOT_BYTES) -> SlotStaging:
    """The staging of a device: page-locked slots and a copy stream for CUDA, the plain twin elsewhere."""
    if not device.startswith("cuda"):
        return SlotStaging(PlainLane(), slots, slot_bytes)
    from models.staging.cuda import CudaLane

    return SlotStaging(CudaLane(device), slots, slot_bytes)


__all__ = ["Lane", "PlainLane", "Sent", "SlotStaging", "Staging", "open_staging"]
