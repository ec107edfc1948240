"""Cross-entropy of a linear output layer, computed without ever holding the logits of the whole batch.

The logits are by far the largest tensor of a small translation model: 4,096 tokens over 9,700 subwords are
160 MB, and `F.cross_entropy(F.linear(h, W), labels)` writes several tensors of that size and reads them back.
Here the tokens go through in chunks that share one small buffer. A chunk's logits become its loss and then,
in the same buffer, its gradient, which goes at once into the gradients of the hidden states and of the
weight. The backward pass only multiplies those by the incoming gradient.

The idea is that of Liger Kernel's fused linear cross-entropy (Hsu et al. 2024, arXiv 2410.10989), which is
written for GPUs in Triton. This one is plain torch and runs on any device.

torch's own `F.linear_cross_entropy` (since 2.13; the package begins with 2.11) does the same, but smooths no
labels in its chunks, takes no notice of autocast, and with vocabularies of thousands takes 1.7 to 3.9 times as
long on a CPU (benchmarks/results/linear_cross_entropy.md).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

# How many logits the buffer holds when the caller does not say. On a CPU, 16 MB of float32 stay in its
# last-level cache; on an accelerator, larger chunks keep the matrix units busy and the launches few.
CPU_CHUNK_LOGITS = 2**22
ACCELERATOR_CHUNK_LOGITS = 2**26


def logits_and_loss(
    model: PreTrainedModel,
    hidden_states: Tensor,
    labels: Tensor | None,
    *,
    return_logits: bool,
    logits_to_keep: int | Tensor = 0,
    num_items_in_batch: int | Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """What a model with a projection onto the vocabulary returns.

    Where all logits are wanted the loss is computed from them, so that it depends on them; else by
    `linear_cross_entropy`, which holds none.

    Args:
        model: whose `lm_head` is the projection, E -> V. Its `config.label_smoothing` counts in training mode only.
        hidden_states: what goes into the projection, (B, T, E).
        labels: class indices of the first positions, (B, T) or shorter; -100 where none counts. None: no loss.
        return_logits: whether logits are wanted.
        logits_to_keep: only those of the last that many positions (0: all), or of given positions.
        num_items_in_batch: as for `linear_cross_entropy`.

    Returns:
        Logits, (B, T, V), and the loss, a scalar; None for what is not wanted.
    """
    logits = loss = None
    output_layer: Any = model.lm_head
    label_smoothing = model.config.label_smoothing if model.training else 0.0
    if return_logits:
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = output_layer(hidden_states[:, kept])
    if labels is not None and logits is not None and isinstance(logits_to_keep, int) and logits_to_keep == 0:
        wide = torch.promote_types(logits.dtype, torch.float32)
        classes = logits[:, : labels.shape[1]].flatten(0, 1).to(wide)  # (B*T, V)
        total = F.cross_entropy(classes, labels.flatten(), label_smoothing=label_smoothing, reduction="sum")
        loss = _per_item(
            total, labels.ne(-100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        )
    elif labels is not None:
        weight, bias = output_layer.weight, output_layer.bias
        if hasattr(weight, "full_tensor"):  # a DTensor, of several processes
            weight, bias = weight.full_tensor(), None if bias is None else bias.full_tensor()
        loss = linear_cross_entropy(
            hidden_states[:, : labels.shape[1]],
            weight,
            labels,
            bias=bias,
            label_smoothing=label_smoothing,
            num_items_in_batch=num_items_in_batch,
        )
    return logits, loss


def _per_item(total: Tensor, num_items: int | Tensor) -> Tensor:
    """The sum of losses over their number, which may lie on another device."""
    return total / (num_items.to(total.device) if isinstance(num_items, Tensor) else num_items)


def linear_cross_entropy(
    hidden_states: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    num_items_in_batch: int | Tensor | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """`F.cross_entropy(F.linear(hidden_states, weight, bias), labels)`, without the full logits.

    Label smoothing is torch's (and Szegedy et al. 2015, arXiv 1512.00567): epsilon is spread evenly over all
    V classes, the correct one included. Ignored positions are dropped before the first matrix product, so
    padding costs nothing. Under autocast the matrix products run in autocast's type; losses and the weight's
    gradient are summed in float32 at least. There is no second derivative, and under torch.compile this
    function is a graph break, because the number of labels that count is known only at run time.

    Args:
        hidden_states: (..., E), what goes into the output layer.
        weight: (V, E), the output layer's weight.
        labels: (...), class indices.
        bias: (V,), the output layer's bias if it has one.
        label_smoothing: epsilon, from 0 to 1.
        ignore_index: the label of positions that do not count.
        num_items_in_batch: what to divide the summed loss by, instead of the number of labels that count
            here. With gradient accumulation it is the number over ALL batches of the step: a mean over
            tokens, not a mean of means.
        chunk_size: tokens a chunk; by default as many as fit a buffer that suits the device.

    Returns:
        The loss, a scalar in float32 (float64 for float64 input); 0 where no label counts.
    """
    hidden_states, labels = hidden_states.reshape(-1, hidden_states.shape[-1]), labels.reshape(-1)
    counts = labels.ne(ignore_index)
    if not counts.all():
        hidden_states, labels = hidden_states[counts], labels[counts]
    if chunk_size is None:
        on_cpu = hidden_states.device.type == "cpu"
        chunk_size = max(1, (CPU_CHUNK_LOGITS if on_cpu else ACCELERATOR_CHUNK_LOGITS) // weight.shape[0])

    # Asked here because inside an autograd.Function the answer is always no.
    wants_gradients = torch.is_grad_enabled()
    total = _LinearCrossEntropySum.apply(
        hidden_states, weight, bias, labels, label_smoothing, chunk_size, wants_gradients
    )
    return _per_item(total, max(1, labels.numel()) if num_items_in_batch is None else num_items_in_batch)


class _LinearCrossEntropySum(torch.autograd.Function):
    """The sum of the losses; forward computes the gradients as well, backward scales them.

    With logits z = W h + b, p = softmax(z) and the target distribution q, a token has

        loss = log(sum_v exp z_v) - sum_v q_v z_v        dloss/dz = p - q
        dloss/dh = (p - q) W        dloss/dW = (p - q) h^T        dloss/db = p - q

    where q = (1 - epsilon) onehot(label) + epsilon / V. The one-hot part touches one logit a token. The
    uniform part is the same for all tokens, hence takes no pass over the logits: it comes down to the mean
    row of W.

    Shapes below: N tokens, n tokens of one chunk, E hidden size, V vocabulary size.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        label_smoothing: float,
        chunk_size: int,
        wants_gradients: bool,
    ) -> Tensor:
        num_tokens, vocab_size, device = len(hidden_states), len(weight), hidden_states.device
        # Matrix products run in `dtype`; whatever is exponentiated or summed over many tokens, in `wide`.
        autocast = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type) if autocast else hidden_states.dtype
        wide = torch.promote_types(dtype, torch.float32)
        hidden_states, weight = hidden_states.to(dtype), weight.to(dtype)  # (N, E), (V, E)
        bias = None if bias is None else bias.to(dtype)  # (V,)

        for_hidden, for_weight, for_bias = (wants_gradients and need for need in ctx.needs_input_grad[:3])
        grad_hidden = torch.empty_like(hidden_states) if for_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if for_weight else None
        grad_bias = weight.new_zeros(vocab_size, dtype=wide) if for_bias else None
        total = torch.zeros((), dtype=wide, device=device)

        narrow_buffer = weight.new_empty(min(chunk_size, num_tokens), vocab_size)
        wide_buffer = narrow_buffer if wide == dtype else torch.empty_like(narrow_buffer, dtype=wide)
        for start in range(0, num_tokens, chunk_size):
            chunk = slice(start, start + chunk_size)
            hidden, label = hidden_states[chunk], labels[chunk, None]  # (n, E), (n, 1)
            narrow, logits = narrow_buffer[: len(hidden)], wide_buffer[: len(hidden)]  # (n, V)
            if bias is None:
                torch.mm(hidden, weight.t(), out=narrow)
            else:
                torch.addmm(bias, hidden, weight.t(), out=narrow)
            if logits is not narrow:
                logits.copy_(narrow)

            label_logit, max_logit = logits.gather(1, label), logits.amax(1, keepdim=True)  # (n, 1)
            exponentials = logits.sub_(max_logit).exp_()  # in place: from here on the logits are gone
            normalizer = exponentials.sum(1, keepdim=True)  # (n, 1)
            total += (max_logit + normalizer.log() - (1 - label_smoothing) * label_logit).sum()
            if not (for_hidden or for_weight or for_bias):
                continue

            grad_logits = exponentials.div_(normalizer)  # p - q, but for the uniform part of q
            grad_logits.scatter_add_(1, label, torch.full_like(label_logit, label_smoothing - 1))
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
            if grad_logits is not narrow:
                grad_logits = narrow.copy_(grad_logits)
            if grad_hidden is not None:
                torch.mm(grad_logits, weight, out=grad_hidden[chunk])
            if grad_weight is not None and dtype == wide:
                grad_weight.addmm_(grad_logits.t(), hidden)
            elif grad_weight is not None:
                grad_weight += grad_logits.t() @ hidden

        if label_smoothing > 0:  # the uniform part of q, for all tokens at once
            mean_weight, sum_hidden = weight.mean(0, dtype=wide), hidden_states.sum(0, dtype=wide)  # (E,)
            mean_logits = (sum_hidden * mean_weight).sum()
            if bias is not None:
                mean_logits += num_tokens * bias.mean(dtype=wide)
            total -= label_smoothing * mean_logits
            if grad_hidden is not None:
                grad_hidden -= (label_smoothing * mean_weight).to(dtype)
            if grad_weight is not None:
                grad_weight -= label_smoothing / vocab_size * sum_hidden
            if grad_bias is not None:
                grad_bias -= label_smoothing / vocab_size * num_tokens

        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; a gradient penalty would silently be 0
            raise RuntimeError("linear_cross_entropy has no second derivative; use F.cross_entropy instead")
        gradients = [None if gradient is None else gradient * grad_total for gradient in ctx.saved_tensors]
        return (*gradients, None, None, None, None)
