"""Configuration of the decoder-only language model."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_transformer import TransformerConfig


@strict
class PaperformerLMConfig(TransformerConfig):
    """Configuration of `PaperformerForCausalLM`.

    The defaults are today's usual choices at the size of GPT-2 small: pre-norm, RMSNorm, RoPE, SwiGLU, no biases
    (Touvron et al. 2023, arXiv 2302.13971, section 2.2).

    Example:
        >>> config = PaperformerLMConfig(vocab_size=8000, d_model=256, n_heads=4, n_layers=4)
        >>> config.num_hidden_layers
        4
    """

    model_type = "paperformer-lm"
    base_model_tp_plan = {
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }

    hidden_size: int = 768

    num_hidden_layers: int = 12
    """Number of blocks, N."""

    num_attention_heads: int = 12
    hidden_act: Literal["relu", "gelu", "gelu_new", "silu"] = "silu"
    gated_mlp: bool = True
    use_bias: bool = False
    norm_type: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norm_position: Literal["post", "pre", "peri"] = "pre"
    position_embedding_type: Literal["sinusoidal", "learned", "rope", "none"] = "rope"
    dropout: float | int = 0.0
    scale_embedding: bool = False
    initialization: Literal["xavier", "normal", "gpt2"] = "gpt2"

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.num_hidden_layers < 1:
            raise ValueError(f"num_hidden_layers is {self.num_hidden_layers}; it must be at least 1")
