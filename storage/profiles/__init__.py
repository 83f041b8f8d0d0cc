"""Profiles: which codec a block deserves by how hot it is (see `base`). Loads no torch."""

from storage.profiles.assignment import DEFAULT_MARGIN, classes_of
from storage.profiles.base import (
    CLASS_NAMES,
    DEFAULT_SHARES,
    CodecMeasurement,
    HotnessClass,
    Profile,
    profile_from_json,
)
from storage.profiles.fixed import fixed_profile
from storage.profiles.measured import DEFAULT_BOUNDS, measured_profile
from storage.profiles.paper import paper_profile

__all__ = [
    "CLASS_NAMES",
    "DEFAULT_BOUNDS",
    "DEFAULT_MARGIN",
    "DEFAULT_SHARES",
    "CodecMeasurement",
    "HotnessClass",
    "Profile",
    "classes_of",
    "fixed_profile",
    "measured_profile",
    "paper_profile",
    "profile_from_json",
]
