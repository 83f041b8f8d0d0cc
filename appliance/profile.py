"""Which profile a process works with: what was asked for, and for `measured` what `appliance calibrate` found."""

from appliance.calibration import measured_choice
from storage.codecs import CODECS, CodecPair
from storage.errors import StorageError
from storage.home import Home
from storage.profiles import Profile, fixed_profile, paper_profile

PROFILES = ("measured", "paper")


def choose_profile(asked: str, home: Home, fingerprint: str) -> Profile:
    """`measured`, `paper`, or the name of a codec pair for all. Raises StorageError naming what there is."""
    if asked == "paper":
        return paper_profile()
    if asked == "measured":
        return measured_choice(home, fingerprint)[0]
    pair = CodecPair.named(asked)
    for name in (pair.keys, pair.values):
        if name not in CODECS:
            raise StorageError(
                f"profile {asked!r} is unknown: choose {', '.join(PROFILES)}, a codec ({', '.join(CODECS)}),"
                " or one for keys and one for values (int4+int8)"
            )
    return fixed_profile(pair)
