"""R-Drop: two passes with different dropout are to agree (Liang et al. 2021, arXiv 2106.14448)."""

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn

from ..data.batches.token_budget import Batch
from ..evaluation.perplexity import aligned_labels


def r_drop_loss(model: nn.Module, batch: Batch, alpha: float, num_items: Tensor) -> Tensor:
    """The loss of a batch by the paper's algorithm 1, which puts the batch through the model twice, side by side.

        (CE_1 + CE_2) / 2 + alpha / 2 * (KL(P_1 || P_2) + KL(P_2 || P_1)) / 2

    That is half of equation 4, so that without dropout it is the plain loss; alpha is the paper's.

    Args:
        model: a model for generation, in training mode, perhaps wrapped for several processes.
        batch: (B, ...) each; positions whose label is -100 do not count.
        alpha: weight of the divergence.
        num_items: labels of the whole update, by which both sums are divided: those of all its batches and processes,
            each counted once.

    Returns:
        A scalar in nats a token, in float32 at least. Cross-entropies are smoothed as the model smooths them.
    """
    outputs = model(
        **{name: torch.cat((tensor, tensor)) for name, tensor in batch.items()},
        num_items_in_batch=2 * num_items,
        return_logits=True,
    )
    labels = aligned_labels(extract_model_from_parallel(model), batch["labels"])  # (B, T) or (B, T - 1)
    logits = outputs.logits[:, : labels.shape[1]]  # (2 B, T, V) or (2 B, T - 1, V)
    first, second = (half[labels != -100] for half in logits.chunk(2))  # (N, V) each
    return outputs.loss + alpha / 4 * symmetric_divergence(first, second) / num_items.to(logits.device)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """KL(P || Q) + KL(Q || P), summed over N distributions that are given by their logits, (N, V) each.

    Both together are sum_v (p_v - q_v) (log p_v - log q_v).
    """
    wide = torch.promote_types(first.dtype, torch.float32)
    log_p, log_q = first.log_softmax(-1, dtype=wide), second.log_softmax(-1, dtype=wide)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
