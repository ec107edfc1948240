"""torch.nn.Transformer, with the embeddings, positions and output of Vaswani et al. (2017) around it."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paperformer import PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig

from .batches import PAD, seq2seq_batch
from .comparison import Translation, Weights, randomize, rename

VOCAB_SIZE, HIDDEN_SIZE, HEADS, INNER, ENCODER_LAYERS, DECODER_LAYERS = 41, 20, 5, 28, 2, 3
NORM_EPS, LABEL_SMOOTHING = 0.01, 0.1
NAMES = {
    "transformer.": "model.",
    "multihead_attn": "cross_attn",
    "out_proj": "o_proj",
    "linear1": "mlp.up_proj",
    "linear2": "mlp.down_proj",
    "norm1": "self_attn_residual.norm",
}
LATER_NORMS = {
    "encoder": {"norm2": "mlp_residual.norm"},
    "decoder": {"norm2": "cross_attn_residual.norm", "norm3": "mlp_residual.norm"},
}


class TorchTransformer(nn.Module):
    """The whole model of the paper, as one would write it with PyTorch's own layers.

    Args:
        pre_norm: norm before the sub-layers and after the stacks; else after the sub-layers only, as in the paper.
            (PyTorch's default stacks have the last norms in both cases.)
        activation: relu or gelu.
    """

    def __init__(self, *, pre_norm: bool, activation: str):
        super().__init__()
        self.embed = nn.Embedding(VOCAB_SIZE, HIDDEN_SIZE)
        layer = {
            "d_model": HIDDEN_SIZE,
            "nhead": HEADS,
            "dim_feedforward": INNER,
            "dropout": 0.0,
            "activation": activation,
            "layer_norm_eps": NORM_EPS,
            "batch_first": True,
            "norm_first": pre_norm,
        }
        last_norms = [nn.LayerNorm(HIDDEN_SIZE, eps=NORM_EPS) if pre_norm else None for _ in range(2)]
        self.transformer = nn.Transformer(
            HIDDEN_SIZE,
            HEADS,
            custom_encoder=nn.TransformerEncoder(
                nn.TransformerEncoderLayer(**layer), ENCODER_LAYERS, last_norms[0], enable_nested_tensor=False
            ),
            custom_decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), DECODER_LAYERS, last_norms[1]),
            batch_first=True,
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        decoder_input_ids: Tensor,
        decoder_attention_mask: Tensor,
        labels: Tensor,
    ) -> SimpleNamespace:
        length = decoder_input_ids.shape[1]
        hidden_states = self.transformer(
            self.embed_and_place(input_ids, attention_mask),
            self.embed_and_place(decoder_input_ids, decoder_attention_mask),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
            tgt_key_padding_mask=decoder_attention_mask == 0,
        )
        logits = hidden_states @ self.embed.weight.T
        smoothing = LABEL_SMOOTHING if self.training else 0.0
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
        return SimpleNamespace(logits=logits, loss=loss)

    def embed_and_place(self, ids: Tensor, mask: Tensor) -> Tensor:
        """sqrt(E) times the embedding, plus the sinusoid of the position, which padding does not advance."""
        waves = torch.tensor([sinusoid(i) for i in range(ids.shape[1])], dtype=self.embed.weight.dtype)
        return math.sqrt(HIDDEN_SIZE) * self.embed(ids) + waves[(mask.cumsum(-1) - 1).clamp(min=0)]


def sinusoid(position: int) -> list[float]:
    """PE(position, .), number by number (section 3.5)."""
    angles = [position / 10_000 ** (2 * i / HIDDEN_SIZE) for i in range(HIDDEN_SIZE // 2)]
    return [wave for angle in angles for wave in (math.sin(angle), math.cos(angle))]


def translate(weights: Weights) -> Weights:
    """They keep the projections of query, key and value in one matrix, one after the other."""
    translated = {"model.encoder.embed_tokens.weight": weights["embed.weight"]}
    for name, tensor in weights.items():
        if name == "embed.weight":
            continue
        names = NAMES | LATER_NORMS["decoder" if "decoder" in name else "encoder"]
        parts = {name: tensor}
        if "in_proj_" in name:
            parts = {
                name.replace("in_proj_", f"{projection}_proj."): part
                for projection, part in zip("qkv", tensor.chunk(3), strict=True)
            }
        translated |= rename(parts, names)
    return translated


def build(norm_position: str, activation: str, attention: str) -> tuple[nn.Module, nn.Module, Translation]:
    theirs = TorchTransformer(pre_norm=norm_position == "pre", activation=activation)
    ours = PaperformerForConditionalGeneration(
        PaperformerSeq2SeqConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=HIDDEN_SIZE,
            intermediate_size=INNER,
            encoder_layers=ENCODER_LAYERS,
            decoder_layers=DECODER_LAYERS,
            num_attention_heads=HEADS,
            norm_position=norm_position,
            norm_eps=NORM_EPS,
            hidden_act=activation,
            dropout=0.0,
            label_smoothing=LABEL_SMOOTHING,
            pad_token_id=PAD,
            attn_implementation=attention,
        )
    )
    randomize(theirs)
    return ours.double(), theirs.double(), translate


@pytest.mark.parametrize(("norm_position", "activation"), [("post", "relu"), ("pre", "gelu")])
@pytest.mark.parametrize("source_side", ["right", "left"])
def test_torch_transformer(norm_position: str, activation: str, source_side: str, attention: str, prove: Callable):
    # A target is padded on the right: a row of padding that sees nothing but padding is nan in PyTorch's attention.
    batch = seq2seq_batch(VOCAB_SIZE, source_side)
    shows = (
        f"{norm_position}-norm, {activation}, sinusoids, scaled embeddings, three-way tying, cross-attention, "
        "label smoothing"
    )
    real = batch["decoder_attention_mask"].bool()
    reference = "torch.nn.Transformer"
    prove(*build(norm_position, activation, attention), batch, real, reference=reference, shows=shows)
