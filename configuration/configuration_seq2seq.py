"""Configuration of the encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017)."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_transformer import TransformerConfig


@strict
class PaperformerSeq2SeqConfig(TransformerConfig):
    """Configuration of `PaperformerForConditionalGeneration`.

    The defaults are the base model of the paper (Vaswani et al. 2017, table 3): 6 + 6 layers, 512 wide, 8 heads,
    post-norm, sinusoidal positions, ReLU, one embedding matrix for both languages and the output.

    Example:
        >>> config = PaperformerSeq2SeqConfig(vocab_size=8000, d_model=256, d_ff=1024, n_heads=4)
        >>> config.hidden_size
        256
    """

    model_type = "paperformer-seq2seq"
    attribute_map = TransformerConfig.attribute_map | {
        "num_hidden_layers": "encoder_layers",
        "n_layers": "encoder_layers",
    }
    base_model_tp_plan = {
        f"{stack}.layers.*.{projection}": style
        for stack, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "cross_attn")))
        for projection, style in (
            *((f"{attention}.{name}_proj", "colwise") for attention in attentions for name in "qkv"),
            *((f"{attention}.o_proj", "rowwise") for attention in attentions),
            ("mlp.up_proj", "colwise"),
            ("mlp.down_proj", "rowwise"),
        )
    }

    vocab_size: int = 37_000

    encoder_layers: int = 6
    """Number of encoder blocks, N."""

    decoder_layers: int = 6
    """Number of decoder blocks, N."""

    share_embeddings: bool = True
    """One token embedding for encoder and decoder, over a joint vocabulary; with tie_word_embeddings this gives the
    three-way tying of Vaswani et al. (2017, section 3.4)."""

    label_smoothing: float | int = 0.1

    pad_token_id: int = 0

    decoder_start_token_id: int = 1
    """The token from which the decoder starts: `<s>`."""

    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if "n_layers" in kwargs:  # the paper's N is the depth of both stacks
            self.decoder_layers = kwargs["n_layers"]
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        for name in ("encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
