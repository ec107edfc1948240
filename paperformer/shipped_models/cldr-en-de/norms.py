"""Normalisation layers: `LayerNorm` and `RMSNorm`, chosen by `config.norm_type`."""

from torch import nn
from transformers import PreTrainedConfig


def build_norm(config: PreTrainedConfig, width: int | None = None) -> nn.Module:
    """The normalisation of vectors of one width, by default that of the residual stream: (..., E) -> (..., E).

    layernorm: (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016, arXiv 1607.06450).
    rmsnorm: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, arXiv 1910.07467, equation 4).

    Raises:
        KeyError: if `config.norm_type` is not one of the above (the configuration refuses it earlier).
    """
    width = config.hidden_size if width is None else width
    norms = {
        "layernorm": lambda: nn.LayerNorm(width, eps=config.norm_eps, bias=config.use_bias),
        "rmsnorm": lambda: nn.RMSNorm(width, eps=config.norm_eps),
    }
    return norms[config.norm_type]()
