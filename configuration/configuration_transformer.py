"""The options that all paperformer families share: one field per design decision of the block.

Every field is documented where it is defined, with the paper that proposed it. A configuration checks itself
when it is made and when it is saved, so that an impossible combination never reaches a model.
"""

import difflib
from typing import Any, ClassVar, Literal, Self

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

PositionScheme = Literal["sinusoidal", "learned", "rope", "alibi", "relative", "none"]

POSITIONS_ENTER: dict[PositionScheme, Literal["embeddings", "rotation", "scores", "nowhere"]] = {
    "sinusoidal": "embeddings",
    "learned": "embeddings",
    "rope": "rotation",
    "alibi": "scores",
    "relative": "scores",
    "none": "nowhere",
}
"""Where each scheme tells the model of positions: by vectors added to the embeddings, by turning queries and keys, by a
bias on the scores of attention. What can be combined with a scheme follows from this."""


@strict
class TransformerConfig(PreTrainedConfig):
    """Options of one Transformer block and of the embeddings around the stack.

    This is the common part of `PaperformerSeq2SeqConfig`, `PaperformerLMConfig` and `PaperformerEncoderConfig`; it is
    not used on its own.

    Raises:
        huggingface_hub.errors.StrictDataclassError: if a field has the wrong type or value, or if fields
            contradict each other (see `validate_architecture`). The message names the field.
    """

    attribute_map = {
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
    }
    keys_to_ignore_at_inference = ["past_key_values", "encoder_last_hidden_state", "pooler_output"]
    """What transformers' Trainer leaves out of predictions, so that they are the logits and nothing beside them."""

    depths: ClassVar[tuple[str, ...]] = ("num_hidden_layers",)
    """The fields that say how many blocks there are."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Published architectures of this family: name -> the fields in which it differs from the defaults."""

    vocab_size: int = 32_000
    """Number of entries of the (joint) vocabulary, V."""

    hidden_size: int = 512
    """Width of the residual stream, E; d_model in Vaswani et al. (2017), section 3.1."""

    intermediate_size: int = 2048
    """Inner width of the feed-forward sub-layer, F; d_ff in Vaswani et al. (2017), section 3.3."""

    num_attention_heads: int = 8
    """Number of query heads, H; h in Vaswani et al. (2017), section 3.2.2."""

    num_key_value_heads: int | None = None
    """Number of key and value heads; fewer than query heads gives grouped-query attention (Ainslie et al. 2023,
    arXiv 2305.13245), one gives multi-query attention (Shazeer 2019, arXiv 1911.02150). None: as many as queries."""

    head_dim: int | None = None
    """Width of a head, D; d_k = d_v in Vaswani et al. (2017). None: hidden_size / num_attention_heads."""

    hidden_act: Literal["relu", "gelu", "gelu_new", "silu", "sigmoid"] = "relu"
    """Non-linearity of the feed-forward sub-layer: relu (Vaswani et al. 2017, equation 2), gelu (exact; Hendrycks
    and Gimpel 2016, arXiv 1606.08415), gelu_new (its tanh approximation, as in GPT-2), silu (same paper), sigmoid
    (for GLU)."""

    gated_mlp: bool = False
    """Multiply the activation by a second linear projection: the GLU variants of Shazeer (2020, arXiv 2002.05202,
    equations 4 and 5). hidden_act names the variant: sigmoid GLU, relu ReGLU, gelu GEGLU, silu SwiGLU."""

    use_bias: bool = True
    """Whether linear layers and LayerNorm have a bias."""

    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Normalisation: layernorm (Ba et al. 2016, arXiv 1607.06450) or rmsnorm (Zhang and Sennrich 2019,
    arXiv 1910.07467)."""

    norm_position: Literal["post", "pre", "peri"] = "post"
    """Where sub-layers are normalised: post, after the residual addition (Vaswani et al. 2017, section 3.1); pre,
    before the sub-layer (Xiong et al. 2020, arXiv 2002.04745); peri, before and after the sub-layer (Kim et al.
    2025, arXiv 2502.02732)."""

    norm_eps: float = 1e-5
    """Added to the variance (or mean square) under the root."""

    embedding_norm: bool = False
    """Normalise the sum of embeddings and positions before the first block, as BERT (Devlin et al. 2019) and BLOOM
    (Le Scao et al. 2022, arXiv 2211.05100, section 3.2.2) do."""

    qk_norm: bool = False
    """Normalise queries and keys, head by head, before their product (Henry et al. 2020, arXiv 2010.04245; with a
    learned scale in place of their temperature: Dehghani et al. 2023, arXiv 2302.05442, section 2)."""

    position_embedding_type: PositionScheme = "sinusoidal"
    """How order enters: sinusoidal (Vaswani et al. 2017, section 3.5; with scale_embedding), learned (Gehring et al.
    2017; GPT-2), rope (Su et al. 2021, arXiv 2104.09864), alibi (Press et al. 2022, arXiv 2108.12409; made for looking
    back: in an encoder it tells how far a token is, not on which side), relative (the learned buckets of T5: Raffel et
    al. 2020, arXiv 1910.10683, section 2.1), or none."""

    rope_parameters: dict[str, Any] | None = None
    """Parameters of RoPE in transformers' form, for example {"rope_theta": 10000.0, "rope_type": "default"}."""

    relative_attention_num_buckets: int = 32
    """Number of distances that relative positions tell apart; half of them for each direction in an encoder."""

    relative_attention_max_distance: int = 128
    """Distance in tokens from which on relative positions make no difference."""

    max_position_embeddings: int = 1024
    """Longest sequence the model is made for, in tokens: the size of the table of learned positions, and the
    length to which inputs are truncated. The other schemes go on beyond it."""

    attention_window: int | None = None
    """Self-attention sees only positions nearer than this many tokens (local attention: Child et al. 2019,
    arXiv 1904.10509; Beltagy et al. 2020, arXiv 2004.05150). None: all. Padding between two tokens counts, here and
    in attention_stride, because caches and flash attention count places: pad a text at its ends, never inside."""

    attention_stride: int | None = None
    """Self-attention sees every position at a distance that is a multiple of this, and with attention_window the
    near ones as well: the strided pattern of Child et al. (2019, section 4.2), both of its parts in every head.
    None: no such pattern."""

    linear_attention: bool = False
    """Replace exp(q k / sqrt(D)) by phi(q) phi(k) with phi(x) = elu(x) + 1, so that time grows linearly with length
    (Katharopoulos et al. 2020, arXiv 2006.16236, section 3.2)."""

    dropout: float | int = 0.1
    """Probability of dropping an element of each sub-layer's output before it is added to the residual stream, and
    of the sum of embeddings and positions (Vaswani et al. 2017, section 5.4)."""

    attention_dropout: float | int = 0.0
    """Probability of dropping an attention weight."""

    activation_dropout: float | int = 0.0
    """Probability of dropping a hidden unit of the feed-forward sub-layer."""

    scale_embedding: bool = True
    """Multiply token embeddings by sqrt(hidden_size) (Vaswani et al. 2017, section 3.4). Sinusoidal positions need it
    in a model that is trained from scratch: without it they are 35 times as large as embeddings of the normal and gpt2
    initialisations, and little is learned of the tokens."""

    tie_word_embeddings: bool = True
    """Use the embedding matrix as the output projection too (Press and Wolf 2017, arXiv 1608.05859)."""

    initialization: Literal["xavier", "normal", "gpt2"] = "xavier"
    """xavier: linear layers Xavier-uniform (Glorot and Bengio 2010), embeddings N(0, 1/hidden_size). normal: all
    N(0, initializer_range^2). gpt2: as normal, with the projections into the residual stream scaled by
    1/sqrt(number of them) (Radford et al. 2019, section 2.3)."""

    initializer_range: float = 0.02
    """Standard deviation of the normal and gpt2 initialisations."""

    label_smoothing: float | int = 0.0
    """Mass of the training target that is spread evenly over all V classes, the correct one included (Szegedy et
    al. 2016; Vaswani et al. 2017, section 5.4). Only in training mode: an evaluation loss is never smoothed."""

    use_cache: bool = True
    """Keep keys and values of earlier positions while generating."""

    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    @property
    def has_position_bias(self) -> bool:
        """Whether order enters as a bias on the scores of attention."""
        return self.positions_enter == "scores"

    @property
    def sinusoids_to_embeddings(self) -> float:
        """How many times as large as the token embeddings of a new model sinusoids are that are added to them.

        Both by their root mean squares; that of sines and cosines is 1 / sqrt(2).
        """
        embeddings = self.hidden_size**-0.5 if self.initialization == "xavier" else self.initializer_range
        return 0.5**0.5 / (embeddings * (self.hidden_size**0.5 if self.scale_embedding else 1.0))

    @property
    def positions_enter(self) -> str:
        """Where the position scheme tells the model of positions (see `POSITIONS_ENTER`)."""
        return POSITIONS_ENTER[self.position_embedding_type]

    @property
    def position_limit(self) -> int | None:
        """How many positions there are, where they come from a table; None where the scheme goes on and on."""
        return self.max_position_embeddings if self.position_embedding_type == "learned" else None

    @property
    def base_model_tp_plan(self) -> dict[str, str] | None:  # it depends on the options
        """How the weights of the stack are split for tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053);
        None: not at all."""
        return self._stack_tp_plan() or None

    @base_model_tp_plan.setter
    def base_model_tp_plan(self, plan: dict[str, str] | None) -> None:
        """Has no effect, as the options decide. transformers before 5.21 adds an entry for tied embeddings here."""

    def _stack_tp_plan(self) -> dict[str, str]:
        """The entries for all blocks of the base model."""
        return self._block_tp_plan("layers.*", "self_attn")

    def _block_tp_plan(self, block: str, *attentions: str) -> dict[str, str]:
        """First projections of a sub-layer by columns, the last by rows, so that each is one exchange in all."""
        if self.has_position_bias:
            return {}  # their bias has all heads, the attention of one process would have some
        columns = [f"{attention}.{name}_proj" for attention in attentions for name in "qkv"]
        columns += ["mlp.gate_proj", "mlp.up_proj"] if self.gated_mlp else ["mlp.up_proj"]
        rows = [*(f"{attention}.o_proj" for attention in attentions), "mlp.down_proj"]
        return {f"{block}.{name}": "colwise" for name in columns} | {f"{block}.{name}": "rowwise" for name in rows}

    def __post_init__(self, **kwargs: Any) -> None:
        for alias in self.attribute_map.keys() & kwargs.keys():  # before anything is derived from the field behind it
            setattr(self, alias, kwargs.pop(alias))
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None and self.hidden_size % max(1, self.num_attention_heads) == 0:
            self.head_dim = self.hidden_size // max(1, self.num_attention_heads)
        super().__post_init__(**kwargs)
        if self.positions_enter != "rotation":
            self.rope_parameters = None  # transformers fills in RoPE's defaults whether or not they are used

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> Self:
        """The configuration of a published architecture.

        Args:
            name: one of `presets`.
            overrides: fields to set differently, such as the vocabulary's size.

        Raises:
            ValueError: if this family has no preset of that name.

        Example:
            >>> PaperformerLMConfig.from_preset("gpt2").num_hidden_layers
            12
        """
        if name not in cls.presets:
            near = difflib.get_close_matches(name, cls.presets, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, cls.presets))}"
            raise ValueError(f"{cls.__name__} has no preset {name!r}; {hint}")
        # An override may be spelt with the paper's alias: d_model=256 replaces the preset's hidden_size.
        overridden = {cls.attribute_map.get(field, field) for field in overrides}
        fields = {field: value for field, value in cls.presets[name].items() if field not in overridden}
        return cls(**fields, **overrides)

    def validate_architecture(self) -> None:
        """Checks that fields agree with each other; run by `@strict` at construction and before saving."""
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "max_position_embeddings",
            "attention_window",
            "attention_stride",
            *self.depths,
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.head_dim is None and self.hidden_size % self.num_attention_heads != 0:
            raise ValueError(
                f"hidden_size is {self.hidden_size}; it must be a multiple of num_attention_heads "
                f"({self.num_attention_heads}), or set head_dim"
            )
        if self.num_key_value_heads is None or self.head_dim is None:  # set to None after __post_init__ derived them
            name = "head_dim" if self.head_dim is None else "num_key_value_heads"
            raise ValueError(f"{name} is None; make a new configuration to derive it from the other fields")
        for name in ("norm_eps", "initializer_range"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        if self.num_attention_heads % self.num_key_value_heads != 0:
            raise ValueError(
                f"num_key_value_heads is {self.num_key_value_heads}; "
                f"it must divide num_attention_heads ({self.num_attention_heads})"
            )
        self._validate_positions(self.head_dim)
        self._validate_linear_attention()
        for name in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and less than 1")

    def _validate_positions(self, head_dim: int) -> None:
        scheme = self.position_embedding_type
        if self.positions_enter == "rotation" and head_dim % 2 != 0:
            raise ValueError(
                f"head_dim is {head_dim}; position_embedding_type {scheme!r} turns pairs, so it must be even"
            )
        if scheme == "sinusoidal" and self.hidden_size % 2 != 0:
            raise ValueError(
                f"hidden_size is {self.hidden_size}; position_embedding_type 'sinusoidal' needs an even one"
            )
        buckets = self.relative_attention_num_buckets
        if buckets < 4 or buckets % 4 != 0:
            raise ValueError(
                f"relative_attention_num_buckets is {buckets}; it must be a multiple of 4: an encoder has half of "
                "them for each direction, and half of those for single distances"
            )
        if self.relative_attention_max_distance <= buckets // 2:
            raise ValueError(
                f"relative_attention_max_distance is {self.relative_attention_max_distance}; it must be greater than "
                f"the {buckets // 2} distances that have a bucket of their own"
            )

    def _validate_linear_attention(self) -> None:
        if not self.linear_attention:
            return
        if self.positions_enter in ("rotation", "scores"):
            *others, last = (name for name, place in POSITIONS_ENTER.items() if place in ("embeddings", "nowhere"))
            raise ValueError(
                f"position_embedding_type is {self.position_embedding_type!r}, which acts on the scores of softmax "
                f"attention; linear_attention has none: use {', '.join(map(repr, others))} or {last!r}"
            )
        for name in ("attention_window", "attention_stride"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; linear_attention sums over all positions at once, so it must "
                    "be None"
                )
        if self.attention_dropout != 0:
            raise ValueError(
                f"attention_dropout is {self.attention_dropout}; linear_attention has no weights to drop, so it must "
                "be 0"
            )
