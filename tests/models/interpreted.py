"""The Triton placer through Triton's interpreter: the kernel's own code, run by numpy, without a GPU."""

import importlib
import sys

import pytest

from models.placing import PlacerChoice, choose_placers

_MODULES = [f"models.placing.triton_{name}" for name in ("decoding", "kernels", "sides", "placing", "probe")]


def interpreted_triton() -> PlacerChoice:
    """`choose_placers("triton")` over modules of its own: Triton decides at import how a kernel will be run."""
    kept = {name: sys.modules.pop(name, None) for name in _MODULES}
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            for name in _MODULES:
                importlib.import_module(name)
            return choose_placers("triton", device=None)
    finally:
        for name, module in kept.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
