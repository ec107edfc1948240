"""Configuration of the encoder-only model."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_transformer import PositionScheme, TransformerConfig


@strict
class PaperformerEncoderConfig(TransformerConfig):
    """Configuration of `PaperformerForMaskedLM`.

    The defaults are BERT base (Devlin et al. 2019, arXiv 1810.04805, section 3), but for `pooling`.

    With `position_embedding_type="sinusoidal"` give `scale_embedding=True` as well, which is off by default here.

    Example:
        >>> config = PaperformerEncoderConfig(vocab_size=8000, d_model=256, n_heads=4, n_layers=4)
        >>> config.num_hidden_layers
        4
    """

    model_type = "paperformer-encoder"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "bert-base": {"pooling": "first"},  # 109,482,240 parameters; 109,514,298 with the head of masked prediction
    }

    vocab_size: int = 30_522
    hidden_size: int = 768
    intermediate_size: int = 3072

    num_hidden_layers: int = 12
    """Number of blocks, N."""

    num_attention_heads: int = 12
    hidden_act: Literal["relu", "gelu", "gelu_new", "silu", "sigmoid"] = "gelu"
    norm_eps: float = 1e-12
    embedding_norm: bool = True
    position_embedding_type: PositionScheme = "learned"
    max_position_embeddings: int = 512
    attention_dropout: float | int = 0.1
    scale_embedding: bool = False
    initialization: Literal["xavier", "normal", "gpt2"] = "normal"

    type_vocab_size: int = 2
    """Number of segments told apart by an embedding of their own, such as the two sentences of a pair; 0: none."""

    pooling: Literal["first", "mean"] = "mean"
    """How a text becomes one vector: mean, the mean of its tokens' states (Reimers and Gurevych 2019, arXiv
    1908.10084, section 3), which has no parameters; first, tanh(W h + b) of the first token's state, as in BERT,
    which means something only after training on whole texts."""

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.type_vocab_size < 0:
            raise ValueError(f"type_vocab_size is {self.type_vocab_size}; it must be at least 0")
