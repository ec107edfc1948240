"""BLOOM (Le Scao et al. 2022): ALiBi, a norm after the embeddings, the tanh approximation of GELU."""

from collections.abc import Callable

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.modeling.positions import build_positions

from .batches import PAD, causal_batch
from .comparison import Translation, Weights, compare_generation, randomize, rename

VOCAB_SIZE, HEAD_DIM = 41, 6
NAMES = {
    "transformer.ln_f": "transformer.norm",
    "word_embeddings_layernorm": "embed_norm",
    "word_embeddings": "embed_tokens",
    "transformer.h.": "transformer.layers.",
    "transformer.": "model.",
    "input_layernorm": "self_attn_residual.norm",
    "post_attention_layernorm": "mlp_residual.norm",
    "self_attention.dense": "self_attn.o_proj",
    "dense_h_to_4h": "up_proj",
    "dense_4h_to_h": "down_proj",
}


def build(num_heads: int, attention: str) -> tuple[PaperformerForCausalLM, BloomForCausalLM, Translation]:
    theirs = BloomForCausalLM(
        BloomConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=num_heads * HEAD_DIM,
            n_layer=2,
            n_head=num_heads,
            layer_norm_epsilon=0.01,
            pad_token_id=PAD,
            eos_token_id=None,
        )
    )
    ours = PaperformerForCausalLM(
        PaperformerLMConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=num_heads * HEAD_DIM,
            intermediate_size=4 * num_heads * HEAD_DIM,
            num_hidden_layers=2,
            num_attention_heads=num_heads,
            position_embedding_type="alibi",
            embedding_norm=True,
            norm_type="layernorm",
            norm_eps=0.01,
            use_bias=True,
            hidden_act="gelu_new",
            gated_mlp=False,
            pad_token_id=PAD,
            eos_token_id=None,
            attn_implementation=attention,
        )
    )
    randomize(theirs)

    def translate(weights: Weights) -> Weights:
        """One matrix holds query, key and value of the first head, then those of the second, and so on."""
        translated = {}
        for name, tensor in rename(weights, NAMES).items():
            if "query_key_value" not in name:
                translated[name] = tensor
                continue
            heads = tensor.unflatten(0, (num_heads, 3, HEAD_DIM))  # (H, 3, D, ...)
            for i, projection in enumerate(("q_proj", "k_proj", "v_proj")):
                our_name = name.replace("self_attention.query_key_value", f"self_attn.{projection}")
                translated[our_name] = heads[:, i].flatten(0, 1)
        return translated

    return ours, theirs, translate


@pytest.mark.parametrize("num_heads", [4, 6], ids=["4_heads", "6_heads"])
def test_bloom(num_heads: int, attention: str, side: str, prove: Callable):
    ours, theirs, translate = build(num_heads, attention)
    batch = causal_batch(VOCAB_SIZE, side)
    shows = f"ALiBi with {num_heads} heads, norm after the embeddings, GELU by tanh"
    prove(ours, theirs, translate, batch, batch["attention_mask"].bool(), reference="BloomForCausalLM", shows=shows)


def test_bloom_generates_the_same_tokens(attention: str):
    batch = causal_batch(VOCAB_SIZE, "left")
    del batch["labels"]
    compare_generation(*build(6, attention), batch)


@pytest.mark.parametrize("num_heads", range(1, 34))
def test_any_number_of_heads_has_the_slopes_of_bloom(num_heads: int):
    config = PaperformerLMConfig(num_attention_heads=num_heads, head_dim=4, position_embedding_type="alibi")
    place = torch.arange(9)[None]
    ours = build_positions(config, is_causal=True).attention_bias(torch.empty(1, 1, 1), place, None, None)[
        0
    ]  # (H, T, T)
    theirs = build_alibi_tensor(torch.ones(1, 9), num_heads, torch.float32)  # (H, 1, T): for the last query of any row
    # Theirs differ from ours by what is the same for all keys, to which a softmax is blind.
    torch.testing.assert_close(ours[:, -1:] - ours[:, -1:, :1], theirs, rtol=1e-5, atol=0)
