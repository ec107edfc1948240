"""Configuration of the decoder-only language model."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_transformer import PositionScheme, TransformerConfig

_GPT2: dict[str, Any] = {
    "vocab_size": 50_257,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu_new",
    "gated_mlp": False,
    "use_bias": True,
    "norm_type": "layernorm",
    "position_embedding_type": "learned",
    "max_position_embeddings": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "bos_token_id": 50_256,
    "eos_token_id": 50_256,
    "pad_token_id": None,
}


@strict
class PaperformerLMConfig(TransformerConfig):
    """Configuration of `PaperformerForCausalLM`.

    The defaults are today's usual choices at the size of GPT-2 small: pre-norm, RMSNorm, RoPE, SwiGLU, no biases
    (Touvron et al. 2023, arXiv 2302.13971, section 2.2).

    With `position_embedding_type="sinusoidal"` give `scale_embedding=True` as well, which is off by default here.

    Example:
        >>> config = PaperformerLMConfig(vocab_size=8000, d_model=256, n_heads=4, n_layers=4)
        >>> config.num_hidden_layers
        4
    """

    model_type = "paperformer-lm"

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "gpt2": _GPT2,  # 124,439,808 parameters (Radford et al. 2019, table 2, as published)
        "gpt2-medium": _GPT2  # 354,823,168 parameters
        | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        "llama-160m": {  # 162,417,408 parameters: the block of Touvron et al. (2023) at the width of GPT-2 small
            "intermediate_size": 3072,
            "max_position_embeddings": 2048,
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "initialization": "normal",
        },
        "nano": {  # about 10 million parameters: characters of Shakespeare, after nanoGPT's recipe for them
            "vocab_size": 65,
            "hidden_size": 384,
            "intermediate_size": 1024,
            "num_hidden_layers": 6,
            "num_attention_heads": 6,
            "max_position_embeddings": 256,
            "dropout": 0.2,
            "attention_dropout": 0.2,
        },
    }

    hidden_size: int = 768

    num_hidden_layers: int = 12
    """Number of blocks, N."""

    num_attention_heads: int = 12
    hidden_act: Literal["relu", "gelu", "gelu_new", "silu", "sigmoid"] = "silu"
    gated_mlp: bool = True
    use_bias: bool = False
    norm_type: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norm_position: Literal["post", "pre", "peri"] = "pre"
    position_embedding_type: PositionScheme = "rope"
    dropout: float | int = 0.0
    scale_embedding: bool = False
    initialization: Literal["xavier", "normal", "gpt2"] = "gpt2"

    @property
    def sliding_window(self) -> int | None:
        """Under this name transformers' caches look for the window, to keep no more keys and values than it sees.

        A window of 1 keeps nothing, which those caches cannot do: they get None, keep all, and the mask hides it.
        """
        return self.attention_window if self.attention_stride is None and self.attention_window != 1 else None

    @sliding_window.setter
    def sliding_window(self, value: int | None) -> None:
        self.attention_window = value
