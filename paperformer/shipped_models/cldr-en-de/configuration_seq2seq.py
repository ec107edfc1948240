"""Configuration of the encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017)."""

from typing import Any, ClassVar

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

    depths = ("encoder_layers", "decoder_layers")

    target_tokenizer_folder: ClassVar[str] = "target_tokenizer"
    """Where in a model's folder the tokenizer of the target lies, if source and target have a vocabulary each. The one
    in the folder itself, which `AutoTokenizer` loads, is then the source's."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "transformer-base": {},  # about 65 million parameters with 37,000 subwords (Vaswani et al. 2017, table 3)
        "transformer-big": {  # 213 million (table 3)
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "dropout": 0.3,
        },
        "transformer-iwslt": {  # for 100,000 to 200,000 sentence pairs, as fairseq's recipe for IWSLT'14
            "vocab_size": 10_000,
            "intermediate_size": 1024,
            "num_attention_heads": 4,
            "dropout": 0.3,
        },
        "transformer-tiny": {  # for tens of thousands of sentence pairs, and for trying things out on a CPU
            "vocab_size": 8_000,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_attention_heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "norm_position": "pre",
            "dropout": 0.3,
        },
    }

    vocab_size: int = 37_000
    """Number of entries of the target's vocabulary, V, over which the model has its logits; of the joint vocabulary
    where source and target have one between them. The ids below are tokens of this one."""

    source_vocab_size: int | None = None
    """Number of entries of the source's vocabulary, where it is not the target's; such a model has two tokenizers, and
    `share_embeddings` is off. None: vocab_size, for one joint vocabulary (Vaswani et al. 2017, section 5.1), which
    generate()'s encoder_repetition_penalty and encoder_no_repeat_ngram_size presume."""

    encoder_layers: int = 6
    """Number of encoder blocks, N."""

    decoder_layers: int = 6
    """Number of decoder blocks, N."""

    share_embeddings: bool = True
    """One token embedding for encoder and decoder, over a joint vocabulary; with tie_word_embeddings this gives the
    three-way tying of Vaswani et al. (2017, section 3.4)."""

    output_bias: bool = False
    """Whether the projection onto the vocabulary has a bias, as in Marian."""

    label_smoothing: float | int = 0.1

    pad_token_id: int = 0
    """The token with which sources and targets are padded: the same id in both vocabularies."""

    decoder_start_token_id: int = 1
    """The token from which the decoder starts: `<s>`."""

    is_encoder_decoder: bool = True

    @property
    def encoder_vocab_size(self) -> int:
        """Number of rows of the encoder's embedding."""
        return self.vocab_size if self.source_vocab_size is None else self.source_vocab_size

    def _stack_tp_plan(self) -> dict[str, str]:
        encoder = self._block_tp_plan("encoder.layers.*", "self_attn")
        return encoder | self._block_tp_plan("decoder.layers.*", "self_attn", "cross_attn")

    def __post_init__(self, **kwargs: Any) -> None:
        if "n_layers" in kwargs:  # the paper's N is the depth of both stacks
            self.decoder_layers = kwargs["n_layers"]
        super().__post_init__(**kwargs)
        if self.share_embeddings and self.source_vocab_size == self.vocab_size:
            self.source_vocab_size = None  # one embedding is of one vocabulary

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.source_vocab_size is not None:
            self._validate_source_vocabulary(self.source_vocab_size)

    def _validate_source_vocabulary(self, source_vocab_size: int) -> None:
        if source_vocab_size < 1:
            raise ValueError(f"source_vocab_size is {source_vocab_size}; it must be at least 1")
        if self.share_embeddings and source_vocab_size != self.vocab_size:
            raise ValueError(
                f"source_vocab_size is {source_vocab_size} and vocab_size is {self.vocab_size}, but share_embeddings "
                "is True; one embedding is of one vocabulary: set it to False, or leave source_vocab_size out"
            )
        smaller = min(source_vocab_size, self.vocab_size)
        if not 0 <= self.pad_token_id < smaller:
            raise ValueError(
                f"pad_token_id is {self.pad_token_id}; it pads sources and targets, so it must be less than "
                f"{smaller}, the smaller of source_vocab_size and vocab_size"
            )
