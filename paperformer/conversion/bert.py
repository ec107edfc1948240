"""BERT (Devlin et al. 2019, arXiv 1810.04805) with its head for masked tokens: post-norm, learned positions."""

from collections.abc import Iterator

from transformers import BertForMaskedLM

from ..configuration.configuration_encoder import PaperformerEncoderConfig
from ..modeling.modeling_encoder import PaperformerForMaskedLM
from .architecture import COMMON_FIELDS, PLAIN_BLOCK, Architecture, Fixed, Side, Weight, alike, same

_SEGMENTS = Fixed(lambda config: max(1, config.type_vocab_size), "every token has a segment")


def bert_weights(config: PaperformerEncoderConfig) -> Iterator[Weight]:
    """Every tensor of a BERT model; it has no pooling layer, which filling in tokens does not need."""
    yield from same("model.embed_tokens", "bert.embeddings.word_embeddings", "weight")
    yield from same("model.embed_token_types", "bert.embeddings.token_type_embeddings", "weight")
    yield from same("model.positions.table", "bert.embeddings.position_embeddings", "weight")
    yield from same("model.embed_norm", "bert.embeddings.LayerNorm")
    for i in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{i}", f"bert.encoder.layer.{i}"
        yield from same(f"{ours}.self_attn.q_proj", f"{theirs}.attention.self.query")
        yield from same(f"{ours}.self_attn.k_proj", f"{theirs}.attention.self.key")
        yield from same(f"{ours}.self_attn.v_proj", f"{theirs}.attention.self.value")
        yield from same(f"{ours}.self_attn.o_proj", f"{theirs}.attention.output.dense")
        yield from same(f"{ours}.self_attn_residual.norm", f"{theirs}.attention.output.LayerNorm")
        yield from same(f"{ours}.mlp.up_proj", f"{theirs}.intermediate.dense")
        yield from same(f"{ours}.mlp.down_proj", f"{theirs}.output.dense")
        yield from same(f"{ours}.mlp_residual.norm", f"{theirs}.output.LayerNorm")
    yield from same("transform.dense", "cls.predictions.transform.dense")
    yield from same("transform.norm", "cls.predictions.transform.LayerNorm")
    if config.tie_word_embeddings:  # then the two biases of theirs are one tensor as well, of this name
        yield from same("lm_head", "cls.predictions", "bias")
    else:
        yield from same("lm_head", "cls.predictions.decoder")


BERT = Architecture(
    ours=Side.of_ours(
        PaperformerForMaskedLM,
        PLAIN_BLOCK
        | {
            "norm_position": Fixed("post", "it normalises after each residual addition"),
            "position_embedding_type": Fixed("learned", "it has no other positions"),
            "embedding_norm": Fixed(True, "its embeddings are normalised"),
            "scale_embedding": Fixed(False, "its embeddings are not scaled"),
            "type_vocab_size": _SEGMENTS,
        },
        # Of pooling: the class of theirs for masked tokens makes no vector of the whole text.
        incidental=frozenset({"pooling"}),
        presumed={"initialization": "normal"},
    ),
    theirs=Side(
        model=BertForMaskedLM,
        fixed={
            "type_vocab_size": _SEGMENTS,
            "is_decoder": Fixed(False, "its encoder looks both ways"),
            "add_cross_attention": Fixed(False, "its encoder has nothing else to attend to"),
            "position_embedding_type": Fixed("absolute", "transformers itself does not know others any more"),
        },
        incidental=frozenset({"classifier_dropout"}),  # of other heads
        unused_weights=frozenset({"cls.predictions.bias"}),
    ),
    fields=(
        *alike("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        *alike("hidden_act", "max_position_embeddings", "type_vocab_size", "initializer_range", *COMMON_FIELDS),
        ("dropout", "hidden_dropout_prob"),
        ("attention_dropout", "attention_probs_dropout_prob"),
        ("norm_eps", "layer_norm_eps"),
    ),
    weights=bert_weights,
)
