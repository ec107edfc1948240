"""What a step's batches cost by the model's formula: the numerator of model FLOPs utilisation.

Utilisation is that, over what the devices could have computed in the time that the step took (Chowdhery et al. 2022,
arXiv 2204.02311, appendix B):

    FLOPs of the batches / (seconds * peak FLOPs a second of a device * devices)

Padding, what gradient checkpointing computes again and what an update computes are no work of the model: they lower it.
"""

import torch

from ...modeling.families import Config
from ...modeling.linear_attention import CHUNK_SIZE
from .flops import training_flops

Batch = dict[str, torch.Tensor]


class StepFlops:
    """Model FLOPs of batches, forward and backward: the sum of `training_flops` over rows, each at its own length.

    For rows of T_i tokens (and S_i of a source) that is

        a sum(T_i) + b sum(T_i^2) + c sum(S_i) + d sum(S_i^2) + e sum(T_i S_i)

    whose coefficients are read off `training_flops`. Lengths are those of `attention_mask`, or of what is not padding;
    targets' are those of their labels. So padding does not count, nor what gradient checkpointing computes again.

    It is exact but for what `training_flops` itself says: masked scores count, also those of separate documents in one
    row, and a masked language model predicts `MASKED_SHARE` of its tokens. Of causal linear attention, whose chunks are
    of `CHUNK_SIZE`, the last one counts for the tokens that it has. R-Drop passes each batch through the model twice,
    and this counts one pass.

    A call takes some ten microseconds for a batch in the memory of the CPU, and waits for one that is on a GPU.

    Args:
        config: of any family.
    """

    def __init__(self, config: Config):
        self.is_encoder_decoder = config.is_encoder_decoder
        self.padding = -1 if config.pad_token_id is None else config.pad_token_id

        def cost(targets: int, sources: int) -> float:
            """In units of chunks."""
            return training_flops(config, targets * CHUNK_SIZE, sources * CHUNK_SIZE)

        once = torch.tensor([cost(1, 0), cost(0, 1)], dtype=torch.float64)
        twice = torch.tensor([cost(2, 0), cost(0, 2)], dtype=torch.float64)
        squares = (twice - 2 * once) / 2
        self.linear = (once - squares) / CHUNK_SIZE
        """(a, c), (2,)."""
        self.quadratic = torch.full((2, 2), (cost(1, 1) - cost(1, 0) - cost(0, 1)) / 2, dtype=torch.float64)
        self.quadratic.diagonal().copy_(squares)
        self.quadratic /= CHUNK_SIZE**2
        """((b, e / 2), (e / 2, d)), (2, 2)."""

    def __call__(self, batch: Batch) -> float:
        """The FLOPs of a batch as its task collates it: `input_ids`, `labels` and perhaps `attention_mask`, (B, T)."""
        masks = [batch["labels"] != -100] if self.is_encoder_decoder else []
        masks.append(batch["attention_mask"] if "attention_mask" in batch else batch["input_ids"] != self.padding)
        tokens = torch.stack([mask.sum(1) for mask in masks]).double().cpu()  # (1 or 2, B)
        count = len(tokens)
        linear, quadratic = self.linear[:count], self.quadratic[:count, :count]
        return float(linear @ tokens.sum(1) + (quadratic * (tokens @ tokens.T)).sum())
