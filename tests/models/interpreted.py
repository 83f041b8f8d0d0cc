"""Triton's interpreter: a kernel's own code, run by numpy, without a GPU."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

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


def run_interpreted(file: str) -> str:
    """What pytest says of a file's tests in a process of their own.

    Triton decides at import, of itself too, how kernels are run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", file]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
