"""Parameters of a model that has not been made."""

import torch

from ...modeling.families import Config, family_of

PARTS = {
    "embeddings": ("embed_tokens.", "embed_token_types."),
    "positions": ("positions.",),
    "attention": (".self_attn.",),
    "cross-attention": (".cross_attn.",),
    "feed-forward": (".mlp.",),
    "norms": ("norm",),
    "output layer": ("lm_head", "transform.", "pooler."),
}
"""Part of a model -> what the names of its parameters contain, and those of later parts do not."""


def count_parameters(config: Config, *, with_head: bool = True) -> dict[str, int]:
    """Parameters by part of the model, counted in one without content; tied ones count once, in the embeddings.

    Without embeddings, biases and norms, and with an inner layer four times as wide as the width E, N blocks come to
    12 N E^2 (Kaplan et al. 2020, arXiv 2001.08361, section 2.1).

    Args:
        config: of any family.
        with_head: whether it is the model that is trained; else the base model, whose "output layer" is no more than
            the pooling of a text (`pooling="first"`).
    """
    family = family_of(config.model_type)
    with torch.device("meta"):
        model = (family.head if with_head else family.base)(config)
    counts = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():  # names a tied one once, where it comes first
        part = next(part for part in reversed(PARTS) if any(mark in name for mark in PARTS[part]))
        counts[part] += parameter.numel()
    return counts
