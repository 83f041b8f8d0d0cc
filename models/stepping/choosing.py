"""Which steps a loaded model decodes by, chosen once for it."""

import threading
import weakref
from dataclasses import dataclass

import torch
from torch import nn

from models.arena import Arena
from models.attention import TRITON_ATTENTION
from models.errors import DeviceUnavailable
from models.loading import LanguageModel
from models.stepping.base import DECODINGS, SMALLEST_BUCKET_SLOTS, LayerPass
from models.stepping.eager import EagerRunner
from models.stepping.graph import GraphRunner
from models.stepping.modules import module_pass
from models.stepping.steps import Steps

_PROBE_TOKENS = (1, 2, 3)
# Of the largest logit: bfloat16 sums in another order, through all the layers, are apart by a few hundredths at most.
_NEAR = 5e-2


@dataclass(frozen=True)
class StepsChoice:
    """How single answers are decoded, and why; `steps` is None for `plain`."""

    steps: Steps | None
    why_plain: str = ""

    @property
    def name(self) -> str:
        """`graph`, `eager` or `plain`; what was a graph may have become eager meanwhile."""
        return "plain" if self.steps is None else self.steps.runner.name

    @property
    def reason(self) -> str:
        """One line."""
        return self.why_plain if self.steps is None else self.steps.runner.reason


# By backbone, which all copies of one loaded model share; no value keeps its key alive.
_chosen: weakref.WeakKeyDictionary[nn.Module, StepsChoice] = weakref.WeakKeyDictionary()
_choosing = threading.Lock()


def steps_of(model: LanguageModel) -> Steps | None:
    """What was chosen for this model, by `auto` where nobody has chosen; None: decode by plain forward passes."""
    choice = _chosen.get(model.backbone)
    return choice.steps if choice is not None else choose_steps("auto", model).steps


def choose_steps(asked: str, model: LanguageModel) -> StepsChoice:
    """`auto`: graphs on a GPU where a few steps can be captured, else eager steps; plain passes on a CPU.

    The other names force a way. From now on this model decodes so. Raises DeviceUnavailable.
    """
    if asked not in DECODINGS:
        raise DeviceUnavailable(f"decoding {asked!r} is unknown: choose one of {', '.join(DECODINGS)}")
    with _choosing:
        choice = _choice(asked, model)
        if asked == "graph" and choice.name != "graph":
            raise DeviceUnavailable(f"decoding 'graph' cannot be used: {choice.reason}; use --decoding auto")
        _chosen[model.backbone] = choice
    return choice


def _choice(asked: str, model: LanguageModel) -> StepsChoice:
    if asked == "plain":
        return StepsChoice(None, "asked for")
    if asked == "eager":
        return StepsChoice(Steps(model, EagerRunner("asked for")))
    if model.device.type != "cuda":
        return StepsChoice(None, "only a GPU is kept waiting by launches")
    from models.stepping.cuda_graph import CudaCapture

    try:
        capture = CudaCapture(model.device)
    except RuntimeError as error:
        return StepsChoice(Steps(model, EagerRunner(f"CUDA graphs cannot be had ({str(error).splitlines()[0][:200]})")))
    why = "asked for" if asked == "graph" else "a step was captured here"
    if model.attention.implementation == TRITON_ATTENTION:
        from models.stepping import kernels

        if kernels.serves(model):
            choice = graphed_choice(model, GraphRunner(capture, f"{why}, Triton between products"), kernels.kernel_pass)
            if choice.name == "graph":
                return choice
    return graphed_choice(model, GraphRunner(capture, f"{why}, transformers' modules"))


def graphed_choice(model: LanguageModel, runner: GraphRunner, layers: LayerPass = module_pass) -> StepsChoice:
    """Steps by this runner where a few of them give what eager ones through transformers' modules give."""
    slots = min(SMALLEST_BUCKET_SLOTS, model.window)
    arenas = [Arena(model.geometry, model.dtype, model.device, slots) for _ in range(2)]
    for arena in arenas:
        arena.reserve(slots)
    runner.probing = True
    steps, twin = Steps(model, runner, layers), Steps(model, EagerRunner("a probe"))
    found, expected = (
        torch.stack([each.logits(model, arena, position, token) for position, token in enumerate(_PROBE_TOKENS)])
        for each, arena in zip((steps, twin), arenas, strict=True)
    )
    runner.probing = False
    near = _NEAR * float(expected.abs().max())
    if runner.name == "graph" and not torch.allclose(found, expected, atol=near, rtol=0):
        return StepsChoice(Steps(model, EagerRunner("a captured step gave other numbers here")))
    return StepsChoice(steps)
