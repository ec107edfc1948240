"""R-Drop: two passes with different dropout are to agree (Liang et al. 2021, arXiv 2106.14448)."""

from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from torch import Tensor, nn

from ..data.batches.token_budget import Batch
from ..evaluation.perplexity import aligned_labels

# How many logits of each pass are worked on at a time: on a CPU what comes of them stays in the cache.
CPU_CHUNK_LOGITS = 2**19
ACCELERATOR_CHUNK_LOGITS = 2**25


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
    plain: Any = extract_model_from_parallel(model)
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    if plain.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = plain.prepare_decoder_input_ids_from_labels(batch["labels"])
    logits = model(**{name: torch.cat((tensor, tensor)) for name, tensor in inputs.items()}).logits  # (2 B, T, V)
    labels = aligned_labels(plain, batch["labels"])  # (B, T) or (B, T - 1)
    labels = nn.functional.pad(labels, (0, logits.shape[1] - labels.shape[1]), value=-100)  # (B, T)
    smoothing = plain.config.label_smoothing if plain.training else 0.0
    total = _RDropSum.apply(logits.flatten(0, 1), labels.flatten(), alpha, smoothing)
    return total / num_items.to(logits.device)


class _RDropSum(torch.autograd.Function):
    """The sum of R-Drop's losses over N tokens; forward computes the gradient as well, in place of the logits.

    With the logits x and z of a token's two passes, p = softmax(x), q = softmax(z), d = log p - log q, and the smoothed
    target t = (1 - epsilon) onehot(label) + epsilon / V, a token has

        loss = - sum_v t (log p + log q) / 2 + alpha / 4 * sum_v (p - q) d
        dloss/dx = (p - t) / 2 + alpha / 4 * (p (d - KL(P || Q)) + p - q)

    and dloss/dz the same with p and q changed for each other. Autograd would make some twenty tensors as large as all
    logits, and read each again: here the tokens go through in chunks that stay in the cache, and nothing of that size
    is made beside the logits themselves. Nothing else may read those afterwards.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, alpha: float, label_smoothing: float) -> Tensor:
        """
        Args:
            logits: (2 N, V), those of the first pass before those of the second.
            labels: (N,), -100 where none counts.
        """
        num_tokens, vocab_size = len(labels), logits.shape[1]
        wide = torch.promote_types(logits.dtype, torch.float32)
        chunk_size = max(1, (CPU_CHUNK_LOGITS if logits.is_cpu else ACCELERATOR_CHUNK_LOGITS) // vocab_size)
        both = logits.detach().unflatten(0, (2, num_tokens))  # (2, N, V), a view: what is written is written there
        total = torch.zeros((), dtype=wide, device=logits.device)
        for start in range(0, num_tokens, chunk_size):
            passes = both[:, start : start + chunk_size]  # (2, n, V)
            label = labels[start : start + chunk_size, None]  # (n, 1)
            counts = label.ne(-100).to(wide)  # (n, 1)
            log_p = passes.log_softmax(-1, dtype=wide)  # (2, n, V), log q the second
            p = log_p.exp()
            d = log_p[0] - log_p[1]  # (n, V)
            divergence = torch.stack(((p[0] * d).sum(-1, keepdim=True), -(p[1] * d).sum(-1, keepdim=True)))  # (2, n, 1)

            label = label.clamp(min=0).expand(2, -1, -1)  # (2, n, 1)
            cross_entropy = -(1 - label_smoothing) * log_p.gather(-1, label)
            if label_smoothing > 0:
                cross_entropy -= label_smoothing * log_p.mean(-1, keepdim=True)
            total += (counts * (cross_entropy / 2 + alpha / 4 * divergence)).sum()

            target = label_smoothing / vocab_size
            gap = p[0] - p[1]
            factor = torch.stack((d, -d)).sub_(divergence).mul_(alpha / 4).add_(0.5)  # (2, n, V)
            gradient = p.mul_(factor)
            gradient.add_(torch.stack((gap, -gap)), alpha=alpha / 4).sub_(target / 2)
            gradient.scatter_add_(-1, label, torch.full_like(cross_entropy, (label_smoothing - 1) / 2))
            passes.copy_(gradient.mul_(counts))
        ctx.save_for_backward(logits.detach())
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("R-Drop's loss has no second derivative")
        (gradient,) = ctx.saved_tensors
        return gradient * grad_total.to(gradient.dtype), None, None, None
