"""One-token steps over an arena, their inputs and outputs at fixed places."""

import threading
import weakref
from typing import Any

import torch

from models.arena import Arena
from models.attention import TRITON_ATTENTION
from models.forward import next_token_logits
from models.loading import LanguageModel
from models.stepping.base import LayerPass, Pending, Runner, bucket_slots
from models.stepping.modules import module_pass


class Steps:
    """The steps of one loaded model. Any thread may ask; one step is queued after another.

    It keeps no reference to the model, so that it goes when the model goes.
    """

    def __init__(self, model: LanguageModel, runner: Runner, layers: LayerPass = module_pass) -> None:
        backbone: Any = model.backbone
        self.runner = runner
        self._layers = layers
        self._lock = threading.Lock()
        self._turn = 0
        self._last: tuple[weakref.ref[torch.Tensor], int] | None = None
        self._token, self._position, self._chosen = (
            torch.zeros(1, dtype=torch.int64, device=model.device) for _ in range(3)
        )
        rows = int(backbone.embed_tokens.num_embeddings)
        self._logits = torch.zeros(rows, dtype=torch.float32, device=model.device)

    def logits(self, model: LanguageModel, arena: Arena, position: int, token: int) -> torch.Tensor:
        """Logits float32 `[vocabulary]` after `token` at `position`; all slots below are placed. Raises ValueError."""
        with self._lock:
            self._run(model, arena, position, token)
            return self._logits.clone()

    def launch(self, model: LanguageModel, arena: Arena, position: int, token: int | Pending) -> Pending:
        """Queue the step of `token` at `position`; the likeliest token after it, which nobody has to wait for.

        A pending token that the step before this one chose is taken where it lies, in the device's memory. Raises
        ValueError where the arena has no such slot.
        """
        with self._lock:
            self._run(model, arena, position, token)
            return Pending(self._turn, self._chosen)

    def _run(self, model: LanguageModel, arena: Arena, position: int, token: int | Pending) -> None:
        slots = bucket_slots(position, arena.capacity)
        tables = model.rotary.upto(arena.capacity)
        with torch.inference_mode():
            if not isinstance(token, Pending):
                self._token.fill_(token)
            elif token.turn == self._turn:
                self._token.copy_(self._chosen)
            else:  # another answer's step came between
                self._token.fill_(token.read())
            self._position.fill_(position)
            if model.attention.implementation != TRITON_ATTENTION:
                self._clear(arena, position)
            self.runner.run(lambda: self._step(model, arena, slots), arena, slots, tables)
        self._turn += 1

    def _clear(self, arena: Arena, position: int) -> None:
        """Where an answer begins: a mask multiplies by 0 what an earlier question left, and that may be no number."""
        last, self._last = self._last, (weakref.ref(arena.keys), position)
        if last is None or last[0]() is not arena.keys or last[1] + 1 != position:
            arena.keys[:, :, position:].zero_()
            arena.values[:, :, position:].zero_()

    def _step(self, model: LanguageModel, arena: Arena, slots: int) -> None:
        """What is captured: no shape and no address may depend on token or position, and nothing may be waited for.

        Done twice it leaves the same.
        """
        backbone: Any = model.backbone
        with torch.inference_mode():
            hidden = self._layers(model, arena, slots, backbone.embed_tokens(self._token), self._position)
            logits = next_token_logits(model, hidden)
            self._logits.copy_(logits)
            self._chosen.copy_(logits.argmax(dim=0, keepdim=True))
