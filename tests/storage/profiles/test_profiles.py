"""Profiles: what each class gets, why, and back from JSON."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from storage.codec_pair import CodecPair
from storage.errors import StorageError
from storage.profiles import (
    DEFAULT_SHARES,
    CodecMeasurement,
    HotnessClass,
    Profile,
    fixed_profile,
    measured_profile,
    paper_profile,
    profile_from_json,
)

BF16_KL = 0.00137
# research/measurements.md, on the embedded model; bytes a token are 2 * 30 layers * 3 heads * 64 times bytes an element
TABLE = {
    "bf16": (2, BF16_KL),
    "int8": (1, 0.00139),
    "e4m3": (1, 0.00315),
    "e5m2": (1, 0.00824),
    "gse8r": (1, 0.00777),
    "gse8": (1, 0.03889),
    "int4+int8": (0.78, 0.00590),
    "int4": (0.58, 0.00651),
    "int4+int4h": (0.55, 0.00629),
    "int4+int3": (0.52, 0.00804),
    "int3+int4": (0.52, 0.02118),
}


def measured(name: str, size: float, kl: float) -> CodecMeasurement:
    return CodecMeasurement(CodecPair.named(name), size * 11520, kl, BF16_KL, 0.98, 24)


MEASUREMENTS = [measured(name, *numbers) for name, numbers in TABLE.items()]


def codecs(profile: Profile) -> list[str]:
    return [each.codec.name for each in profile.classes]


def test_the_table_of_the_research_gives_the_profile_it_should() -> None:
    profile = measured_profile(MEASUREMENTS)
    assert profile.name == "measured"
    assert codecs(profile) == ["int8", "int8", "int4+int4h", "int4+int3"]
    assert tuple(each.share for each in profile.classes) == DEFAULT_SHARES
    assert profile.coldest == CodecPair("int4", "int3")
    reason = profile.classes[2].reason
    assert reason == "int4+int4h, 6336 bytes a token: KL +0.00492 above bf16, within 0.005 (top-1 0.980, n 24)"
    assert all("\n" not in each.reason for each in profile.classes)


def test_a_bound_that_nothing_meets_falls_back_and_says_so() -> None:
    profile = measured_profile(MEASUREMENTS, (0.00001, 0.0001, 0.0001, 0.0001))
    assert codecs(profile) == ["bf16", "int8", "int8", "int8"]
    assert profile.classes[0].reason.startswith("bf16: nothing smaller stays within 1e-05 (closest: int8, KL +0.00002")
    only = measured_profile(MEASUREMENTS[:1])
    assert codecs(only) == ["bf16"] * 4
    assert "nothing smaller was measured" in only.classes[3].reason


def test_a_colder_class_never_gets_a_larger_pair() -> None:
    profile = measured_profile(MEASUREMENTS, (0.005, 0.001, 0.00001, 0.02))
    assert codecs(profile) == ["int4+int4h", "int4+int4h", "int4+int4h", "int4+int3"]
    assert "never a larger pair" in profile.classes[1].reason
    assert "never a larger pair" in profile.classes[2].reason


def test_of_two_pairs_of_one_size_the_better_is_chosen() -> None:
    two = [measured("e5m2", 1, 0.002), measured("int8", 1, 0.0015), measured("e4m3", 1, 0.0019)]
    assert codecs(measured_profile(two)) == ["int8"] * 4


def test_before_any_calibration() -> None:
    profile = measured_profile([])
    assert (profile.name, codecs(profile)) == ("measured", ["int8"] * 4)
    assert {each.reason for each in profile.classes} == {"not calibrated yet: run `appliance calibrate`"}


def test_the_papers_choice() -> None:
    profile = paper_profile()
    assert codecs(profile) == ["int8t", "e4m3", "e5m2", "gse8"]
    assert [each.share for each in profile.classes] == [0.1, 0.1, 0.1, 0.7]


@pytest.mark.parametrize(
    "profile",
    [
        paper_profile((0.05, 0.05, 0.2, 0.7)),
        measured_profile(MEASUREMENTS),
        fixed_profile(CodecPair.named("int4+int8")),
    ],
)
def test_a_profile_survives_json(profile: Profile) -> None:
    assert profile_from_json(json.loads(json.dumps(profile.as_json()))) == profile


GOOD = paper_profile().as_json()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"name": "x", "classes": []},
        {"name": "x", "classes": [1]},
        {"name": "x", "classes": GOOD["classes"][:3]},
        {"name": "x", "classes": [{**GOOD["classes"][0], "share": "much"}]},
        {"name": "x", "classes": [{**GOOD["classes"][0], "share": float("nan")}]},
        {"name": "x", "classes": [{**GOOD["classes"][0], "share": 1, "codec": ""}]},
        {"name": "x", "classes": [{**GOOD["classes"][0], "share": 1, "codec": 7}]},
    ],
)
def test_what_is_no_profile_is_refused(value: object) -> None:
    with pytest.raises(StorageError, match="choose a profile again"):
        profile_from_json(value)


def test_shares_and_names_are_checked() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        paper_profile((0.1, 0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="add up to 1"):
        paper_profile((-0.1, 0.4, 0.1, 0.6))
    with pytest.raises(ValueError, match="zip"):
        paper_profile((0.5, 0.5))
    half = HotnessClass("same", 0.5, CodecPair("int8", "int8"), "")
    with pytest.raises(ValueError, match="alike"):
        Profile("p", (half, half))


def test_profiles_load_no_torch() -> None:
    root = Path(__file__).resolve().parents[3]
    code = "import sys, storage.profiles; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
