"""Several translation models that write together.

The probability of a token is the mean of its probabilities under the models, as in fairseq (Ott et al. 2019, arXiv
1904.01038), computed from the logarithms. Marian's ensembles add up the logarithms themselves: a geometric mean.

Shapes: B sentences, S source length, T target length, V vocabulary, N models.
"""

import copy
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions, Seq2SeqLMOutput

from ..modeling.decoding.beam_search import BeamSearchMixin
from ..modeling.decoding.callers_length import CallersLengthMixin
from ..modeling.modeling_seq2seq import PaperformerForConditionalGeneration, PaperformerSeq2SeqPreTrainedModel
from ..training.console.input_error import InputError

Tokenizers = tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]
"""Of the sources, and of the translations where there is another."""


class EnsembleCache(EncoderDecoderCache):
    """The caches of all models, which are reordered as one: its layers are theirs."""

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        self.caches = [
            EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
            for model in models
        ]
        own, cross = DynamicCache(), DynamicCache()
        own.layers = [layer for cache in self.caches for layer in cache.self_attention_cache.layers]
        cross.layers = [layer for cache in self.caches for layer in cache.cross_attention_cache.layers]
        super().__init__(own, cross)


class EnsembleEncoder(nn.Module):
    """Source ids -> the states of all encoders beside each other, (B, S, sum of the hidden sizes)."""

    main_input_name = "input_ids"

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        super().__init__()
        self.encoders = nn.ModuleList(model.model.encoder for model in models)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        states = [encoder(input_ids, attention_mask).last_hidden_state for encoder in self.encoders]
        return BaseModelOutput(last_hidden_state=torch.cat(states, -1))


class EnsembleDecoder(nn.Module):
    """Target ids and the encoders' states -> the states of all decoders beside each other."""

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        super().__init__()
        self.decoders = nn.ModuleList(model.model.decoder for model in models)
        self.widths = [model.config.hidden_size for model in models]

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        past_key_values: EnsembleCache | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        sources = encoder_hidden_states.split(self.widths, -1)
        caches = [None] * len(sources) if past_key_values is None else past_key_values.caches
        states = [
            decoder(input_ids, encoder_hidden_states=source, past_key_values=cache, **kwargs).last_hidden_state
            for decoder, source, cache in zip(self.decoders, sources, caches, strict=True)
        ]
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=torch.cat(states, -1))


class EnsembleStack(nn.Module):
    """Encoders and decoders."""

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        super().__init__()
        self.encoder, self.decoder = EnsembleEncoder(models), EnsembleDecoder(models)


class MeanOfProbabilities(nn.Module):
    """The states of all decoders -> log of the mean of the models' probabilities, (..., V)."""

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        super().__init__()
        self.heads = nn.ModuleList(model.lm_head for model in models)
        self.widths = [model.config.hidden_size for model in models]

    def forward(self, states: Tensor) -> Tensor:
        log_probs = [
            head(own).float().log_softmax(-1)
            for head, own in zip(self.heads, states.split(self.widths, -1), strict=True)
        ]
        return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))


class Ensemble(CallersLengthMixin, BeamSearchMixin, PaperformerSeq2SeqPreTrainedModel, GenerationMixin):
    """Models that translate as one: for `generate()`, for teacher forcing, and for our beam search.

    Its logits are log-probabilities. The configuration, and what the first model was saved with for generation, are the
    first's; sources and targets may be as long as every model takes them.

    Args:
        models: two or more, of any sizes, with the same vocabulary.
    """

    def __init__(self, models: Sequence[PaperformerForConditionalGeneration]):
        config = copy.deepcopy(models[0].config)
        config.max_position_embeddings = min(model.config.max_position_embeddings for model in models)
        super().__init__(config)
        self.members = list(models)  # not modules once more: their parts are
        self.model, self.lm_head = EnsembleStack(models), MeanOfProbabilities(models)
        self.generation_config = models[0].generation_config
        self.name_or_path, self.hub_options = models[0].name_or_path, models[0].hub_options

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self.model.encoder

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """As `transformers.GenerationMixin.generate`, with a cache for each model."""
        inherited: Any = super()
        return inherited.generate(*args, past_key_values=EnsembleCache(self.members), **kwargs)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        past_key_values: EnsembleCache | None = None,
        logits_to_keep: int = 0,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, attention_mask: (B, S); or `encoder_outputs`.
            decoder_input_ids: (B, T).
            past_key_values: extended in place.
            logits_to_keep: of the last so many places; 0: of all.

        Returns:
            `logits`, log-probabilities, (B, T, V).
        """
        if encoder_outputs is None:
            encoder_outputs = self.model.encoder(input_ids, attention_mask)
        states = self.model.decoder(
            decoder_input_ids,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=past_key_values is not None,
        ).last_hidden_state
        return Seq2SeqLMOutput(logits=self.lm_head(states[:, -logits_to_keep:]), past_key_values=past_key_values)


def make_ensemble(models: Sequence[tuple[str, PreTrainedModel, Tokenizers]]) -> Ensemble:
    """Models as one.

    Args:
        models: what errors call each, itself and its tokenizers.

    Raises:
        InputError: if one is none of our encoder-decoders, or not all have the same vocabulary.
    """
    (first, _, tokenizers), *others = models
    for name, model, _ in models:
        if not isinstance(model, PaperformerForConditionalGeneration):
            raise InputError(
                f"{name} holds a {model.config.model_type}; an ensemble is of paperformer's models, which paperformer "
                "convert --from makes of some others"
            )
    expected = [_hash(tokenizer) for tokenizer in tokenizers]
    for name, _, own in others:
        if [_hash(tokenizer) for tokenizer in own] != expected:
            raise InputError(
                f"{name} has another vocabulary than {first}; the models of an ensemble must have been trained with "
                "the same tokenizer"
            )
    return Ensemble([model for _, model, _ in models])  # type: ignore[misc]


def _hash(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Of all that decides about the ids of a text."""
    if tokenizer is None:
        return ""
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        # How the last texts happened to be cut and filled up.
        content = {name: part for name, part in content.items() if name not in ("truncation", "padding")}
    else:
        content = tokenizer.get_vocab()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
