"""What a model costs before it is made: parameters, FLOPs and memory, from its configuration alone.

Each figure is a formula, derived in its function's docstring; the tests compare it with what is counted in the model.

Symbols: V vocabulary (the target's, where the source has its own), E hidden size, F intermediate size, H query heads,
G key-value heads, D head width, N blocks of a stack, T length, S length of the source that cross-attention reads, B
sequences of a batch.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..configuration.configuration_encoder import PaperformerEncoderConfig
from ..configuration.configuration_lm import PaperformerLMConfig
from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..modeling.linear_attention import CHUNK_SIZE

Config = PaperformerSeq2SeqConfig | PaperformerLMConfig | PaperformerEncoderConfig
Precision = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal["adamw", "momentum", "sgd"]
Attention = Literal["sdpa", "eager"]

MASKED_SHARE = 0.15
"""Tokens of a text that masked language modelling predicts (Devlin et al. 2019, section 3.1)."""

ELEMENT_SIZE: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of what matrix products read and write; all else is float32 (automatic mixed precision)."""

OPTIMIZER_STATES: dict[Optimizer, int] = {"adamw": 2, "momentum": 1, "sgd": 0}
"""Numbers that an optimizer keeps for each parameter: AdamW its means of gradients and of their squares."""


class Stack(NamedTuple):
    """A stack of blocks: an encoder, a decoder, or a language model."""

    num_layers: int
    is_causal: bool = False
    has_cross_attention: bool = False


def stacks(config: Config) -> list[Stack]:
    """The stacks of a model, an encoder before its decoder."""
    if isinstance(config, PaperformerSeq2SeqConfig):
        return [Stack(config.encoder_layers), Stack(config.decoder_layers, is_causal=True, has_cross_attention=True)]
    return [Stack(config.num_hidden_layers, is_causal=isinstance(config, PaperformerLMConfig))]


def count_parameters(config: Config, *, with_head: bool = True) -> dict[str, int]:
    """Parameters by part of the model; tied ones count once, in the embeddings.

    A linear layer from m to n features has mn + n parameters, a LayerNorm of width m has 2m, an RMSNorm m; without
    biases (`use_bias`) they have mn, m and m. From that,

        embeddings        V E, twice if encoder and decoder have their own (the encoder's V is the source's); and E for
                          each segment type
        positions         learned: E for each position; relative: H for each bucket; in every stack
        attention         N (2 E HD + 2 E GD), and biases N (HD + 2 GD + E)
        cross-attention   the same once more for each block of a decoder
        feed-forward      N (2 E F), gated N (3 E F), and biases N (F + E), gated N (2 F + E)
        norms             one a sub-layer, two with peri-norm; one at the end of a stack unless post-norm; one of the
                          embeddings (`embedding_norm`); two of width D for each attention (`qk_norm`)
        output layer      V E unless tied, a bias of V with `output_bias`; of a masked language model that bias, and
                          before it E^2, a bias and a norm

    Without embeddings, biases and norms, and with F = 4E and HD = GD = E, this is 12 N E^2 (Kaplan et al. 2020, arXiv
    2001.08361, section 2.1).

    Args:
        config: of any family.
        with_head: whether it is the model that is trained; else the base model, whose "output layer" is no more than
            the pooling of a text (`pooling="first"`).
    """
    width, biases = config.hidden_size, int(config.use_bias)
    counts = dict.fromkeys(
        ("embeddings", "positions", "attention", "cross-attention", "feed-forward", "norms", "output layer"), 0
    )
    counts["embeddings"] = config.vocab_size * width
    if isinstance(config, PaperformerSeq2SeqConfig) and not config.share_embeddings:
        counts["embeddings"] += config.encoder_vocab_size * width
    attention_biases = biases * (_query_width(config) + 2 * _key_width(config) + width)
    feed_forward_biases = biases * ((2 if config.gated_mlp else 1) * config.intermediate_size + width)
    for stack in stacks(config):
        attention = _attention_weights(config) + attention_biases
        attentions = 2 if stack.has_cross_attention else 1
        counts["positions"] += _position_parameters(config)
        counts["attention"] += stack.num_layers * attention
        counts["cross-attention"] += stack.num_layers * attention * (attentions - 1)
        counts["feed-forward"] += stack.num_layers * (_feed_forward_weights(config) + feed_forward_biases)
        norms_of_block = (attentions + 1) * _norms_per_sublayer(config) * _norm_parameters(config, width)
        if config.qk_norm:
            norms_of_block += attentions * 2 * _norm_parameters(config, _head_dim(config))
        norms_of_stack = int(config.norm_position != "post") + int(config.embedding_norm)
        counts["norms"] += stack.num_layers * norms_of_block + norms_of_stack * _norm_parameters(config, width)
    if isinstance(config, PaperformerEncoderConfig):
        counts["embeddings"] += config.type_vocab_size * width
        if with_head:
            transform = width * width + biases * width + _norm_parameters(config, width)
            counts["output layer"] = transform + biases * config.vocab_size
        elif config.pooling == "first":
            counts["output layer"] = width * width + width
    if with_head and not config.tie_word_embeddings:
        counts["output layer"] += config.vocab_size * width
    if with_head and isinstance(config, PaperformerSeq2SeqConfig):
        counts["output layer"] += int(config.output_bias) * config.vocab_size
    return counts


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
    attention, feed_forward = _attention_weights(config), _feed_forward_weights(config)
    width, flops = config.hidden_size, dict.fromkeys(("attention", "scores", "cross-attention", "feed-forward"), 0)
    for stack in stacks(config):
        is_encoder = isinstance(config, PaperformerSeq2SeqConfig) and not stack.has_cross_attention
        tokens = source_length if is_encoder else length
        flops["attention"] += 2 * stack.num_layers * attention * tokens
        flops["scores"] += stack.num_layers * _score_flops(config, tokens, tokens, is_causal=stack.is_causal)
        flops["feed-forward"] += 2 * stack.num_layers * feed_forward * tokens
        if stack.has_cross_attention:
            of_target, of_source = 2 * width * _query_width(config), 2 * width * _key_width(config)
            flops["cross-attention"] += 2 * stack.num_layers * (of_target * length + of_source * source_length)
            flops["scores"] += stack.num_layers * _score_flops(config, length, source_length, is_causal=False)
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


def state_bytes(config: Config, optimizer: Optimizer) -> dict[str, int]:
    """Memory of weights, gradients and optimizer states, all in float32: 4 + 4 + 8 bytes a parameter with AdamW.

    Rajbhandari et al. (2020, arXiv 1910.02054, section 3.1) also come to 16 bytes, for weights and gradients in float16
    beside a copy of the weights in float32; automatic mixed precision keeps the weights in float32, and copies in
    half precision only from the forward to the backward pass (see `activation_bytes`). AdamW's count of steps, 4 bytes
    a tensor, is left out.
    """
    parameters = sum(count_parameters(config).values())
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer states": 4 * OPTIMIZER_STATES[optimizer] * parameters,
    }


def cache_bytes(config: Config, length: int, source_length: int = 0, *, precision: Precision = "fp32") -> int:
    """Memory of one sequence's keys and values after `length` tokens of generation: 2 N GD numbers a token.

    A decoder holds those of its source as well, 2 N GD a source token. A language model with a window holds no more
    positions than the window has. An encoder generates nothing.
    """
    if isinstance(config, PaperformerEncoderConfig):
        return 0
    decoder = stacks(config)[-1]
    if isinstance(config, PaperformerLMConfig) and config.sliding_window is not None:
        length = min(length, config.sliding_window)
    positions = length + (source_length if decoder.has_cross_attention else 0)
    return 2 * decoder.num_layers * _key_width(config) * positions * ELEMENT_SIZE[precision]


class ActivationMemory(NamedTuple):
    """Bytes that a batch's forward pass leaves for its backward pass."""

    kept: int
    """Held from the forward pass until the backward pass comes by."""

    recomputed: int
    """The one block that gradient checkpointing computes again at a time; 0 without it."""


def activation_bytes(
    config: Config,
    batch_size: int,
    length: int,
    source_length: int = 0,
    *,
    precision: Precision = "fp32",
    attention: Attention = "sdpa",
    gradient_checkpointing: bool = False,
    fused: bool = True,
) -> ActivationMemory:
    """Memory of what autograd saves in the forward pass of training.

    The method is that of Korthikanti et al. (2022, arXiv 2205.05198, section 4.1): go through a block and add up what
    each operation saves for its gradient. Their 34 E T + 5 H T^2 bytes a block are for half precision throughout and
    attention as written. Here, a token of a block saves, in numbers of which there are b bytes each (4, or 2 in mixed
    precision; r = 4 and the residual stream is always float32),

        attention         its input bE (in mixed precision one copy for each of the three projections that read it),
                          queries b HD, keys and values 2b GD (2b HD where attention is given a mask: batches of
                          translations are padded, batches of a language model are not), output b HD; H log-sum-exps
        feed-forward      its input bE (gated, in mixed precision: two copies), the result of the activation bF, its
                          input where the derivative is a function of it (`_ACTIVATION_INPUTS`), gated 2bF more
        norm              its input rE and one or two statistics; one or two norms a sub-layer
        dropout           a mask of E, one byte each
        cross-attention   as attention, with keys and values, and their input, for each source token instead

    and outside of the blocks the last norm, and the gradient of the output layer, 4 V E, which `linear_cross_entropy`
    computes in the forward pass, with bE a token. PyTorch's fused attention ("sdpa") computes the scores again in the
    backward pass (Dao et al. 2022, arXiv 2205.14135), so nothing is quadratic in T, unless ALiBi or relative positions
    add a bias to them: b H S a token and block. "eager" saves the weights, 4 H S bytes a token and block, their copy in
    half precision, and what dropout makes of them.

    In mixed precision the copies of the weights, b a weight of the blocks, live as long as the activations. Gradient
    checkpointing (Chen et al. 2016, arXiv 1604.06174) keeps the input of each block, rE a token, and holds the rest for
    one block at a time.

    Left out: token ids, cosines and sines of RoPE, masks of padding, the bias of ALiBi or relative positions before it
    is masked, and buffers that live within one operation.

    Args:
        config: of any family.
        batch_size, length, source_length: B, T and S; padding counts.
        fused: whether dropout and RMSNorm are single operations, as on GPUs; on a processor a dropout mask is as large
            as what it masks, and RMSNorm saves what it has normalised before it is scaled.
    """
    saved = _Saved(config, ELEMENT_SIZE[precision], attention, fused)
    kept, blocks = saved.output_layer(batch_size * length), []
    for stack in stacks(config):
        is_encoder = isinstance(config, PaperformerSeq2SeqConfig) and not stack.has_cross_attention
        tokens = source_length if is_encoder else length
        block = batch_size * saved.block(stack, tokens, source_length) + saved.weight_copies(stack)
        blocks.append(block)
        kept += batch_size * tokens * saved.around_stack(tokens)
        kept += stack.num_layers * (4 * config.hidden_size * batch_size * tokens if gradient_checkpointing else block)
        if stack.has_cross_attention:
            source = (
                4 * config.hidden_size
                if gradient_checkpointing
                else saved.read(config.hidden_size, 2 * stack.num_layers)
            )
            kept += batch_size * source_length * source
    return ActivationMemory(kept, max(blocks) if gradient_checkpointing else 0)


_ACTIVATION_INPUTS = {"relu": 0, "sigmoid": 0, "gelu": 1, "silu": 1, "gelu_new": 1}
"""Tensors that an activation saves beside its result, of which the derivatives of relu and sigmoid are functions."""


@dataclass(frozen=True)
class _Saved:
    """What the layers of a model save for the backward pass, in bytes; see `activation_bytes`.

    Args:
        config: of any family.
        size: b, bytes of what matrix products read and write.
        attention, fused: as `activation_bytes` takes them.
    """

    config: Config
    size: int
    attention: Attention
    fused: bool

    def block(self, stack: Stack, tokens: int, source_tokens: int) -> int:
        """One block, for one sequence of `tokens` that reads a source of `source_tokens`."""
        sub_layers = 3 if stack.has_cross_attention else 2
        saved = tokens * (sub_layers * self._residual() + self._feed_forward())
        saved += tokens * self.read(self.config.hidden_size, 3) + self._attention(
            tokens, tokens, is_self=True, is_causal=stack.is_causal
        )
        if stack.has_cross_attention:
            saved += tokens * self.read(self.config.hidden_size, 1) + self._attention(
                tokens, source_tokens, is_self=False, is_causal=False
            )
        return saved

    def around_stack(self, tokens: int) -> int:
        """A token of the embeddings' norm and dropout, of relative distances as int64, and of the norm at the end."""
        norms = int(self.config.norm_position != "post") + int(self.config.embedding_norm)
        distances = 8 * tokens if self.config.position_embedding_type == "relative" else 0
        return norms * self._norm() + self._dropout_mask(4) * self.config.hidden_size + distances

    def output_layer(self, tokens: int) -> int:
        width, vocabulary = self.config.hidden_size, self.config.vocab_size
        if not isinstance(self.config, PaperformerEncoderConfig):
            return 4 * vocabulary * width + self.size * width * tokens
        inputs = _ACTIVATION_INPUTS[self.config.hidden_act] * self.size * width
        transform = self.read(width, 1) + inputs + self._norm()
        gradients = 4 * vocabulary * (width + int(self.config.use_bias))
        predicted = round(MASKED_SHARE * tokens)
        return gradients + tokens * transform + predicted * self.size * width + self._copies(width * width)

    def weight_copies(self, stack: Stack) -> int:
        """A block's weights in half precision."""
        attentions = 2 if stack.has_cross_attention else 1
        return self._copies(attentions * _attention_weights(self.config) + _feed_forward_weights(self.config))

    def read(self, width: int, readers: int) -> int:
        """A token's state that linear layers read: in mixed precision autocast makes a copy for each of them."""
        return self.size * width * readers if self.size < 4 else 4 * width

    def _copies(self, weights: int) -> int:
        return self.size * weights if self.size < 4 else 0

    def _dropout_mask(self, size: int) -> int:
        """An element of the mask for elements of this size, of the residual stream's dropout."""
        return (1 if self.fused else size) if self.config.dropout > 0 else 0

    def _norm(self) -> int:
        width, is_rms = self.config.hidden_size, self.config.norm_type == "rmsnorm"
        statistics = 4 if is_rms else 8
        return 4 * width * (1 if self.fused or not is_rms else 2) + statistics

    def _residual(self) -> int:
        """A token of the norms and the dropout around a sub-layer."""
        return _norms_per_sublayer(self.config) * self._norm() + self._dropout_mask(self.size) * self.config.hidden_size

    def _feed_forward(self) -> int:
        """A token of the feed-forward sub-layer, from its input to what the last projection reads."""
        config, size = self.config, self.size
        inputs = _ACTIVATION_INPUTS[config.hidden_act]
        hidden = size * (inputs + (3 if config.gated_mlp else 1))
        if config.activation_dropout > 0:
            hidden += 1 if self.fused else size
            if inputs == 0 and not config.gated_mlp:  # the result is saved by itself, and what is left of it
                hidden += size
        return self.read(config.hidden_size, 2 if config.gated_mlp else 1) + hidden * config.intermediate_size

    def _attention(self, queries: int, keys: int, *, is_self: bool, is_causal: bool) -> int:
        """Queries, keys, values and output of one sequence."""
        config, size, heads = self.config, self.size, self.config.num_attention_heads
        query_width, key_width = _query_width(config), _key_width(config)
        saved = size * queries * query_width  # the output
        if config.qk_norm:
            is_rms = config.norm_type == "rmsnorm"
            element = size + (4 if is_rms and not self.fused else 0) + (4 if is_rms else 8) / _head_dim(config)
            saved += round(element * (queries * query_width + keys * key_width))
        if config.linear_attention:
            return saved + 4 * self._linear_attention(queries, keys, is_causal=is_causal)
        is_biased = is_self and config.has_position_bias
        if self.attention == "eager" or is_biased or self._is_masked():
            key_width = query_width  # each query head gets its own copy of keys and values
        saved += size * (queries * query_width + 2 * keys * key_width)
        if self.attention == "sdpa":
            bias = size if is_biased else 0
            if bias and config.position_embedding_type == "relative" and not self.fused and size < 4:
                bias += 4  # a processor's fused attention gives a bias no gradient, so torch does without it
            return saved + queries * heads * (4 + bias * keys)
        weights = 4
        if config.attention_dropout > 0:
            weights += size + (1 if self.fused else size)
        elif size < 4:
            weights += size
        return saved + queries * heads * keys * weights

    def _is_masked(self) -> bool:
        """Whether attention is given a mask: always, unless a language model reads a batch full of text."""
        is_local = self.config.attention_window is not None or self.config.attention_stride is not None
        return is_local or not isinstance(self.config, PaperformerLMConfig)

    def _linear_attention(self, queries: int, keys: int, *, is_causal: bool) -> int:
        """Numbers that linear attention saves for one sequence, all float32: what the features are made of, the
        features, the values with a column of ones, sums over positions, and if causal the scores within a chunk."""
        heads, width = self.config.num_attention_heads, _head_dim(self.config)
        sums = width * (width + 1)
        saved = queries * _query_width(self.config) + keys * _key_width(self.config) + queries * heads
        saved += keys * heads * (2 * width + 1)
        if not is_causal:
            return saved + heads * (queries * (2 * width + 1) + sums)
        padded = CHUNK_SIZE * math.ceil(queries / CHUNK_SIZE)
        return saved + heads * (padded * (4 * width + 2 + CHUNK_SIZE) + padded // CHUNK_SIZE * sums)


def _head_dim(config: Config) -> int:
    assert config.head_dim is not None  # derived by the configuration
    return config.head_dim


def _query_width(config: Config) -> int:
    """HD."""
    return config.num_attention_heads * _head_dim(config)


def _key_width(config: Config) -> int:
    """GD."""
    assert config.num_key_value_heads is not None  # derived by the configuration
    return config.num_key_value_heads * _head_dim(config)


def _attention_weights(config: Config) -> int:
    """2 E HD + 2 E GD, the matrices of one attention."""
    return 2 * config.hidden_size * (_query_width(config) + _key_width(config))


def _feed_forward_weights(config: Config) -> int:
    """2 E F, gated 3 E F."""
    return (3 if config.gated_mlp else 2) * config.hidden_size * config.intermediate_size


def _norms_per_sublayer(config: Config) -> int:
    return 2 if config.norm_position == "peri" else 1


def _norm_parameters(config: Config, width: int) -> int:
    return width * (2 if config.norm_type == "layernorm" and config.use_bias else 1)


def _position_parameters(config: Config) -> int:
    """Of one stack; cross-attention has no positions."""
    if config.position_embedding_type == "learned":
        return config.max_position_embeddings * config.hidden_size
    if config.position_embedding_type == "relative":
        return config.relative_attention_num_buckets * config.num_attention_heads
    return 0


def _score_flops(config: Config, queries: int, keys: int, *, is_causal: bool) -> int:
    """Of one attention, without its projections; a column of ones beside the values makes them D + 1 wide if linear."""
    heads, width = config.num_attention_heads, _head_dim(config)
    if not config.linear_attention:
        return 4 * heads * width * queries * keys
    if is_causal and queries > 1:
        positions = CHUNK_SIZE * math.ceil(queries / CHUNK_SIZE)
        between, within = 2 * width * (width + 1), CHUNK_SIZE * (2 * width + 1)
        return 2 * heads * positions * (between + within)
    return 2 * heads * width * (width + 1) * (queries + keys)
