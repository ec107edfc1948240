"""Masked tokens filled in by torch."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...training.data.batches.token_budget import pad
from ...training.evaluation.decoding import longest_sequence
from .engine import Task
from .masks import Filling, MaskEngine


class TorchMasks(MaskEngine):
    """A masked language model of transformers, ours or another.

    Args:
        model: in evaluation mode.
        tokenizer: its own, with a mask.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        super().__init__(tokenizer, longest_sequence(model))
        self.model = model

    @torch.no_grad()
    def run(self, tasks: Sequence[Task]) -> None:
        """Finishes each task with lists of `Filling`, one a mask, the likeliest first."""
        rows = [list(task.work.ids) for task in tasks]
        input_ids = pad(rows, self.tokenizer.pad_token_id).to(self.model.device)  # (B, T)
        mask = pad([[1] * len(row) for row in rows], 0).to(input_ids)
        logits = self.model(input_ids=input_ids, attention_mask=mask).logits  # (B, T, V)
        for row, task in enumerate(tasks):
            places = input_ids[row] == self.tokenizer.mask_token_id
            probabilities = logits[row, places].float().softmax(-1)  # (masks, V)
            best = probabilities.topk(min(task.work.top_k, probabilities.shape[-1]))
            words = [self.tokens(ids) for ids in best.indices.tolist()]
            task.finish(
                [
                    [Filling(*each) for each in zip(tokens, values, strict=True)]
                    for tokens, values in zip(words, best.values.tolist(), strict=True)
                ]
            )
