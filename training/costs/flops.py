"""Floating-point operations of a model, from its configuration alone: formulas, which the tests compare with a count.

Symbols: V vocabulary (the target's, where the source has its own), E hidden size, H query heads, D head width, T
length, S length of the source that cross-attention reads.
"""

import math

from ...configuration.configuration_encoder import PaperformerEncoderConfig
from ...configuration.configuration_lm import PaperformerLMConfig
from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...modeling.families import Config
from ...modeling.linear_attention import CHUNK_SIZE

MASKED_SHARE = 0.15
"""Tokens of a text that masked language modelling predicts (Devlin et al. 2019, section 3.1)."""


def forward_flops(config: Config, length: int, source_length: int = 0) -> dict[str, int]:
    """Floating-point operations of one sequence's forward pass, by part of the model.

    A product of matrices (m, k) and (k, n) takes 2 m k n operations, an addition for every multiplication. So a weight
    matrix takes 2 a token and weight, which gives the well-known 2 N a token for N weights, and

        scores            Q K^T and (softmax) V of one attention: 2 · 2 HD T S, every key for every query
        cross-attention   queries and output from T target tokens, keys and values from S source tokens
        output layer      2 E V a token, tied or not; of a masked language model 2 E^2 more

    That is the count of Hoffmann et al. (2022, arXiv 2203.15556, appendix F) without softmax and without the embedding,
    which is a look-up and no product. Masked scores count too: a causal mask or a window spares work only in kernels
    made for it. Kaplan et al. (2020, table 1) count half of the scores, 2 N T HD a token.

    Linear attention has other products in place of the scores (see `modeling/linear_attention.py`).

    Args:
        config: of any family.
        length: T; for an encoder-decoder that of the target.
        source_length: S, for an encoder-decoder.
    """
    assert config.head_dim is not None  # both are derived by the configuration
    assert config.num_key_value_heads is not None
    width = config.hidden_size
    query_width, key_width = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    inner = (3 if config.gated_mlp else 2) * width * config.intermediate_size
    flops = dict.fromkeys(("attention", "scores", "cross-attention", "feed-forward", "output layer"), 0)
    if isinstance(config, PaperformerSeq2SeqConfig):
        stacks = [(config.encoder_layers, source_length, False), (config.decoder_layers, length, True)]
        of_target, of_source = 4 * width * query_width * length, 4 * width * key_width * source_length
        flops["cross-attention"] = config.decoder_layers * (of_target + of_source)
        flops["scores"] = config.decoder_layers * _score_flops(config, length, source_length, is_causal=False)
    else:
        stacks = [(config.num_hidden_layers, length, isinstance(config, PaperformerLMConfig))]
    for blocks, tokens, is_causal in stacks:
        flops["attention"] += blocks * 4 * width * (query_width + key_width) * tokens
        flops["scores"] += blocks * _score_flops(config, tokens, tokens, is_causal=is_causal)
        flops["feed-forward"] += blocks * 2 * inner * tokens
    flops["output layer"] = 2 * width * config.vocab_size * length
    if isinstance(config, PaperformerEncoderConfig):
        flops["output layer"] += 2 * width * width * length
    return flops


def training_flops(
    config: Config, length: int, source_length: int = 0, *, gradient_checkpointing: bool = False
) -> float:
    """Floating-point operations of one sequence's forward and backward pass.

    The backward pass of Y = X W has two products of the forward pass's size, for the gradients of X and of W, so
    training takes 3 times the forward pass (Kaplan et al. 2020, section 2.1; Hoffmann et al. 2022, appendix F), and 4
    times where blocks are computed again (Korthikanti et al. 2022, arXiv 2205.05198, appendix A). A masked language
    model computes logits only for the tokens that it predicts, `MASKED_SHARE` of all.

    Args: as for `forward_flops`, and whether blocks are computed again in the backward pass.
    """
    parts = forward_flops(config, length, source_length)
    output = float(parts.pop("output layer"))
    if isinstance(config, PaperformerEncoderConfig):
        output -= (1 - MASKED_SHARE) * 2 * config.hidden_size * config.vocab_size * length
    return (4 if gradient_checkpointing else 3) * sum(parts.values()) + 3 * output


def _score_flops(config: Config, queries: int, keys: int, *, is_causal: bool) -> int:
    """Of one attention, without its projections; a column of ones beside the values makes them D + 1 wide if linear."""
    heads, width = config.num_attention_heads, config.head_dim
    assert width is not None  # derived by the configuration
    if not config.linear_attention:
        return 4 * heads * width * queries * keys
    if is_causal and queries > 1:
        positions = CHUNK_SIZE * math.ceil(queries / CHUNK_SIZE)
        between, within = 2 * width * (width + 1), CHUNK_SIZE * (2 * width + 1)
        return 2 * heads * positions * (between + within)
    return 2 * heads * width * (width + 1) * (queries + keys)
