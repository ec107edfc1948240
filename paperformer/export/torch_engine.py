"""Our own models, run by torch: what exports are compared with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..training.data.batches.token_budget import pad
from ..training.evaluation.decoding import generate
from .export_file import ExportFile
from .formats.format import Engine, Ids


class TorchEngine(Engine):
    """A model of any family; see `format.Engine`.

    Args:
        model: one of ours, in evaluation mode.
        facts: of its configuration.
    """

    def __init__(self, model: PreTrainedModel, facts: ExportFile):
        self.model, self.facts = model, facts

    @torch.no_grad()
    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        found = []
        for given, following in zip(inputs, outputs, strict=True):
            logits = self._logits(given, following)
            if self.facts.family != "encoder":
                ends = self.facts.end_ids[:1] if self.facts.family == "seq2seq" else []
                wanted = torch.tensor([*following, *ends])
                logits = logits.log_softmax(-1)[torch.arange(len(wanted)), wanted]
            found.append(logits.numpy())
        return found

    @torch.no_grad()
    def likeliest(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        """The likeliest token at each place whose values `values` has, (T,); nothing of an encoder's states."""
        if self.facts.compared != "logits" and self.facts.family == "encoder":
            return []
        return [self._logits(*texts).argmax(-1).numpy() for texts in zip(inputs, outputs, strict=True)]

    def _logits(self, given: Sequence[int], following: Sequence[int]) -> torch.Tensor:
        """Of each token that follows, and of the end of a translation, (T, V); of an encoder what is compared."""
        model: Any = self.model
        source = torch.tensor([list(given)])
        if self.facts.family == "encoder":
            owner = model if self.facts.compared == "logits" else model.model
            found = owner(input_ids=source)[self.facts.compared][0]
        elif self.facts.family == "seq2seq":
            target = torch.tensor([[self.facts.start_id, *following]])
            found = model(input_ids=source, decoder_input_ids=target).logits[0]
        else:
            found = model(input_ids=torch.tensor([[*given, *following]])).logits[0, len(given) - 1 : -1]
        return found.float()

    @torch.no_grad()
    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        source = pad([list(ids) for ids in inputs], self.facts.pad_id)
        real = torch.zeros_like(source)
        for row, ids in zip(real, inputs, strict=True):
            row[: len(ids)] = 1
        if self.facts.family == "lm":  # what follows has to lie beside its prompt
            shifts = [source.shape[1] - len(ids) for ids in inputs]
            source, real = (torch.stack([r.roll(n) for r, n in zip(t, shifts, strict=True)]) for t in (source, real))
        outputs = generate(
            self.model,
            input_ids=source,
            attention_mask=real,
            num_beams=num_beams,
            length_penalty=length_penalty,
            do_sample=False,
            max_new_tokens=max_new_tokens,
        )
        start = source.shape[1] if self.facts.family == "lm" else 1
        return [self._until_the_end(row[start:].tolist()) for row in outputs]

    def _until_the_end(self, ids: list[int]) -> list[int]:
        return ids[: next((place for place, token in enumerate(ids) if token in self.facts.end_ids), None)]
