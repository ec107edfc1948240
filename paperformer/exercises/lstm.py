"""LSTMs to compare a Transformer with, trained by the same engine on the same batches. No models of the package.

They are of the size of the Transformer that a recipe describes: as many layers, unless told otherwise, and the even
width that comes closest to its number of parameters. The language model has what is plain in the AWD-LSTM (Merity et
al. 2018, arXiv 1708.02182, sections 4 and 5): tied weights, one dropout mask for all steps of a sequence, its
initialisation; it has no DropConnect and no averaged SGD, and begins every context with an empty state, as the batches
are those of the Transformer.

The encoder-decoder has the bidirectional encoder of Bahdanau et al. (2015, arXiv 1409.0473, section 3.2) and the global
attention of Luong et al. (2015, arXiv 1508.04025, section 3.1, score "general", without input feeding).

Shapes: B batch, S source length, T length, L layers, H width.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutput, ModelOutput, Seq2SeqLMOutput

from ..modeling.loss import logits_and_loss
from ..training.data.batches.token_budget import Batch
from ..training.data.splits import Splits
from ..training.data.tokenizers import Tokenizers
from ..training.recipe.recipe import Recipe
from ..training.tasks.base_model import set_generation
from ..training.tasks.objective import Objective
from ..training.tasks.protocols import Task

WIDEST = 8192


@strict
class LSTMConfig(PreTrainedConfig):
    """Size of an LSTM; an encoder-decoder has `num_hidden_layers` of each kind."""

    model_type = "exercise-lstm"
    vocab_size: int = 1000
    hidden_size: int = 128
    num_hidden_layers: int = 2
    dropout: float | int = 0.0
    label_smoothing: float | int = 0.0
    max_position_embeddings: int = 512
    tie_word_embeddings: bool = True
    decoder_start_token_id: int | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    @property
    def position_limit(self) -> None:
        """It has no table of positions."""


class _PreTrainedLSTM(PreTrainedModel):
    config: LSTMConfig
    config_class = LSTMConfig
    base_model_prefix = "lstm"
    _tied_weights_keys = {"lm_head.weight": "embed_tokens.weight"}
    embedding_bound = 0.1
    output_bias = False

    def __init__(self, config: LSTMConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=self.output_bias)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Uniform, as in Merity et al. (2018), section 5."""
        bound = self.embedding_bound if isinstance(module, nn.Embedding) else self.config.hidden_size**-0.5
        if isinstance(module, nn.Embedding | nn.LSTM | nn.Linear):
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)
        if module is self.lm_head and module.bias is not None:
            init.zeros_(module.bias)


class LSTMForCausalLM(_PreTrainedLSTM, GenerationMixin):
    """A language model: `num_hidden_layers` LSTMs, one above the other."""

    output_bias = True  # as theirs: how frequent each token is needs no LSTM

    def __init__(self, config: LSTMConfig):
        super().__init__(config)
        width = config.hidden_size
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(config.num_hidden_layers))
        self.post_init()

    def aligned_labels(self, labels: Tensor) -> Tensor:
        """(B, T) -> (B, T - 1): position t predicts token t + 1."""
        return labels[:, 1:]

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        num_items_in_batch: int | Tensor | None = None,
        return_logits: bool = True,
        **ignored: Any,
    ) -> CausalLMOutput:
        """Loss and logits, with the meaning that they have for `PaperformerForCausalLM`; padding is on the right."""
        # Scaled as in Vaswani et al. (2017), 3.4: of embeddings as small as the output layer wants them, an LSTM learns
        # nothing but frequencies for hundreds of steps of Adam.
        hidden = self._drop(self.embed_tokens(input_ids) * self.config.hidden_size**0.5)  # (B, T, H)
        for layer in self.layers:
            hidden = self._drop(layer(hidden)[0])
        targets = None if labels is None else self.aligned_labels(labels)
        logits, loss = logits_and_loss(
            self, hidden, targets, return_logits=return_logits, num_items_in_batch=num_items_in_batch
        )
        return CausalLMOutput(loss=loss, logits=logits)

    def _drop(self, hidden: Tensor) -> Tensor:
        """Dropout with one mask for all positions (Gal and Ghahramani 2016, arXiv 1512.05287), (B, T, H)."""
        if not self.training or self.config.dropout == 0:
            return hidden
        mask = nn.functional.dropout(hidden.new_ones(hidden.shape[0], 1, hidden.shape[2]), self.config.dropout)
        return hidden * mask


@dataclass
class EncodedSource(ModelOutput):
    """What an encoder hands to its decoder; every tensor begins with the batch, so that `generate()` can copy rows."""

    last_hidden_state: Tensor | None = None  # (B, S, H)
    states: Tensor | None = None  # (B, L, H)
    cells: Tensor | None = None  # (B, L, H)


class _Encoder(nn.Module):
    """A bidirectional LSTM; half of the width is of each direction."""

    main_input_name = "input_ids"

    def __init__(self, config: LSTMConfig, embed_tokens: nn.Embedding):
        super().__init__()
        self.embed_tokens = embed_tokens
        self.layers = nn.LSTM(
            config.hidden_size,
            config.hidden_size // 2,
            config.num_hidden_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout,
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **ignored: Any) -> EncodedSource:
        embeddings = self.dropout(self.embed_tokens(input_ids))
        lengths = attention_mask.sum(1).cpu()
        packed = pack_padded_sequence(embeddings, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.layers(packed)
        hidden, _ = pad_packed_sequence(outputs, batch_first=True, total_length=input_ids.shape[1])
        states, cells = (_join_directions(state) for state in last)
        return EncodedSource(last_hidden_state=hidden, states=states, cells=cells)


def _join_directions(state: Tensor) -> Tensor:
    """The last states of both directions of each layer side by side: (2 L, B, H / 2) -> (B, L, H)."""
    directions, batch, half = state.shape
    return state.view(directions // 2, 2, batch, half).permute(2, 0, 1, 3).reshape(batch, directions // 2, 2 * half)


class LSTMForConditionalGeneration(_PreTrainedLSTM, GenerationMixin):
    """An encoder-decoder with attention; the decoder begins with the last states of the encoder."""

    _tied_weights_keys = {
        "lm_head.weight": "embed_tokens.weight",
        "encoder.embed_tokens.weight": "embed_tokens.weight",
    }
    # With 0.1 all states of the source are so alike at first that attention learns nothing in a thousand steps.
    embedding_bound = 1.0

    def __init__(self, config: LSTMConfig):
        config.is_encoder_decoder = True
        super().__init__(config)
        width = config.hidden_size
        self.encoder = _Encoder(config, self.embed_tokens)
        self.decoder = nn.LSTM(width, width, config.num_hidden_layers, batch_first=True, dropout=config.dropout)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def get_encoder(self, *ignored: Any) -> nn.Module:
        return self.encoder

    def aligned_labels(self, labels: Tensor) -> Tensor:
        """The labels themselves."""
        return labels

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: EncodedSource | None = None,
        num_items_in_batch: int | Tensor | None = None,
        return_logits: bool = True,
        **ignored: Any,
    ) -> Seq2SeqLMOutput:
        """Loss and logits, with the meaning that they have for `PaperformerForConditionalGeneration`."""
        encoded: Any = self.encoder(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs
        if decoder_input_ids is None:
            assert labels is not None  # one of the two is given
            start = labels.new_full((len(labels), 1), self.config.decoder_start_token_id or 0)
            decoder_input_ids = torch.cat([start, labels[:, :-1].clamp(min=0)], 1)
        state = tuple(part.transpose(0, 1).contiguous() for part in (encoded.states, encoded.cells))
        hidden, _ = self.decoder(self.dropout(self.embed_tokens(decoder_input_ids)), state)  # (B, T, H)
        source, mask = encoded.last_hidden_state, attention_mask
        assert mask is not None
        scores = hidden @ self.score(source).transpose(1, 2)  # (B, T, S): h_t W_a h_s, equation 8 of Luong et al.
        scores = scores.masked_fill(mask[:, None] == 0, -torch.inf)
        context = scores.softmax(-1) @ source  # (B, T, H)
        attentional = torch.tanh(self.combine(torch.cat([context, hidden], -1)))  # equation 5
        logits, loss = logits_and_loss(
            self,
            self.dropout(attentional),
            labels,
            return_logits=return_logits,
            num_items_in_batch=num_items_in_batch,
        )
        return Seq2SeqLMOutput(loss=loss, logits=logits)


LSTM = type[LSTMForCausalLM] | type[LSTMForConditionalGeneration]


def lstm_objective(objective: Objective, layers: int | None = None) -> Objective:
    """The same objective, data and batches, with an LSTM of the size of the Transformer that a recipe describes.

    Args:
        objective: whose task it is.
        layers: of the LSTM (of an encoder-decoder, of each side); None: as many as the Transformer has.
    """

    def make_task(recipe: Recipe[Any], splits: Splits, tokenizers: Tokenizers) -> Task:
        task = objective.make_task(recipe, splits, tokenizers)
        build = partial(_build, recipe, task.build_model, layers)
        with torch.device("meta"):
            weights = build().num_parameters()
        # Every weight is used once a token, the tied one as the output layer: 2 operations, and twice that backward.
        return replace(task, build_model=build, flops_of=lambda batch: 6.0 * weights * _count_tokens(batch))

    return replace(objective, make_task=make_task, has_card=False)


def _count_tokens(batch: Batch) -> int:
    return int((batch["labels"] != -100).sum())


def _build(
    recipe: Recipe[Any], build_transformer: Callable[[], PreTrainedModel], layers: int | None
) -> PreTrainedModel:
    """An LSTM of the size of a Transformer; the random numbers that are drawn are those for its own weights."""
    with torch.device("meta"):
        transformer = build_transformer()
    config: Any = transformer.config
    kind: LSTM = LSTMForConditionalGeneration if config.is_encoder_decoder else LSTMForCausalLM
    layers = layers or (config.decoder_layers if config.is_encoder_decoder else config.num_hidden_layers)
    shared = ["vocab_size", "dropout", "label_smoothing", "max_position_embeddings"]
    shared += ["pad_token_id", "bos_token_id", "eos_token_id"]
    shared += ["decoder_start_token_id"] if config.is_encoder_decoder else []

    def make(width: int) -> PreTrainedModel:
        fields = {name: getattr(config, name) for name in shared}
        return kind(LSTMConfig(hidden_size=width, num_hidden_layers=layers, **fields))

    model = make(matching_width(transformer.num_parameters(), make))
    settings = transformer.generation_config.to_diff_dict()
    own = {name: value for name, value in settings.items() if not name.endswith(("token_id", "version"))}
    set_generation(model, recipe, **own | {"use_cache": False})  # the whole prefix is read again for every token
    return model


def matching_width(parameters: int, make: Callable[[int], PreTrainedModel]) -> int:
    """The even width with which a model comes closest to a number of parameters.

    Args:
        parameters: what to come close to.
        make: makes a model of a width; the wider, the more parameters.
    """

    def count(width: int) -> int:
        with torch.device("meta"):
            return make(width).num_parameters()

    widths = range(2, WIDEST, 2)
    above = min(bisect_left(widths, parameters, key=count), len(widths) - 1)
    return min(widths[max(0, above - 1) : above + 1], key=lambda width: abs(count(width) - parameters))
