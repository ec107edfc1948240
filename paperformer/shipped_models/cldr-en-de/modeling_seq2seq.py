"""The encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017, figure 1).

Shapes: B batch, S source length, T target length, E hidden size, V vocabulary (the target's, where the source has its
own).
"""

from typing import Any, ClassVar, Self

import torch
from torch import nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_seq2seq import PaperformerSeq2SeqConfig
from .attention import MultiHeadAttention
from .blocks import TransformerBlock
from .beam_search import BeamSearchMixin
from .callers_length import CallersLengthMixin
from .loss import logits_and_loss
from .masks import bidirectional_mask, causal_mask, cross_attention_mask
from .pretrained import PaperformerPreTrainedModel
from .stack import TransformerStack


class PaperformerSeq2SeqPreTrainedModel(PaperformerPreTrainedModel):
    """Base class of the encoder-decoder and of its two stacks."""

    config: PaperformerSeq2SeqConfig
    config_class = PaperformerSeq2SeqConfig

    tp_plan_prefix: ClassVar[str | None] = None
    """In a stack: how the configuration's plan, which names the modules of both, begins for this one."""

    def init_parallel_plans(self) -> None:
        super().init_parallel_plans()
        if (prefix := self.tp_plan_prefix) is not None:
            plan = self.config.base_model_tp_plan or {}
            own = {name.removeprefix(prefix): style for name, style in plan.items() if name.startswith(prefix)}
            self._tp_plan = {name: style for name, style in (self._tp_plan or {}).items() if name not in plan} | own

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resizes all that has a row for each entry of the joint vocabulary, and `config.vocab_size`.

        transformers knows of the encoder's embedding and of the output projection; the decoder's embedding follows
        where it is not the encoder's. See `transformers.PreTrainedModel.resize_token_embeddings` for the arguments.

        Raises:
            ValueError: if source and target have a vocabulary each; the arguments cannot tell which of them is meant.
        """
        if self.config.source_vocab_size is not None:
            raise ValueError(
                f"source_vocab_size is {self.config.source_vocab_size} and vocab_size is {self.config.vocab_size}; "
                "resize_token_embeddings is for one joint vocabulary: make a new model with the sizes that are needed"
            )
        decoder = getattr(self.base_model, "decoder", None)  # a stack on its own has none
        if decoder is not None and not self.config.share_embeddings:
            decoder.resize_token_embeddings(*args, **kwargs)
        return super().resize_token_embeddings(*args, **kwargs)


class PaperformerSeq2SeqEncoder(TransformerStack, PaperformerSeq2SeqPreTrainedModel):
    """Source ids -> hidden states, where every position sees every other."""

    tp_plan_prefix = "encoder."

    def __init__(self, config: PaperformerSeq2SeqConfig):
        super().__init__(config, config.encoder_layers)
        if config.encoder_vocab_size != config.vocab_size:
            self.embed_tokens = nn.Embedding(config.encoder_vocab_size, config.hidden_size)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """
        Args:
            input_ids: source ids, (B, S). Give either these or `inputs_embeds`, (B, S, E), before scaling.
            attention_mask: (B, S), 1 for real tokens and 0 for padding, on either side.

        Returns:
            `last_hidden_state` (B, S, E); on request `hidden_states` and `attentions`.

        Raises:
            ValueError: if not exactly one of `input_ids` and `inputs_embeds` is given.
        """
        embeddings = self.embed(input_ids, inputs_embeds)
        hidden_states = self.run_blocks(
            embeddings,
            padding_mask=attention_mask,
            attention_mask=bidirectional_mask(self.config, embeddings, attention_mask),
            **kwargs,
        )
        return BaseModelOutput(last_hidden_state=hidden_states)


class PaperformerSeq2SeqDecoder(TransformerStack, PaperformerSeq2SeqPreTrainedModel):
    """Target ids and the encoder's hidden states -> hidden states, where no position sees a later one."""

    tp_plan_prefix = "decoder."
    _can_record_outputs = {
        "hidden_states": TransformerBlock,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: PaperformerSeq2SeqConfig):
        super().__init__(config, config.decoder_layers, is_causal=True, cross_attention=True)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids: target ids so far, (B, T). Give either these or `inputs_embeds`, (B, T, E), before scaling.
            attention_mask: (B, past + T), 1 for real tokens; None if nothing before a real token is padding.
            position_ids: (B, T); by default counted from the mask.
            encoder_hidden_states: the encoder's output, (B, S, E). With B / k rows, each is for k target rows in turn,
                as beam search has it.
            encoder_attention_mask: of as many rows and S, 1 for real source tokens and 0 for padding.
            past_key_values: an `EncoderDecoderCache`, extended in place; keys and values of the source are computed
                once.
            use_cache: return `past_key_values`.

        Returns:
            `last_hidden_state` (B, T, E), `past_key_values`; on request `hidden_states`, `attentions` and
            `cross_attentions`.

        Raises:
            ValueError: if not exactly one of `input_ids` and `inputs_embeds` is given, or no encoder states are.
        """
        embeddings = self.embed(input_ids, inputs_embeds, "decoder_")
        if encoder_hidden_states is None:
            raise ValueError("give encoder_hidden_states: this decoder attends to an encoder")
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        own_cache = past_key_values.self_attention_cache if past_key_values is not None else None
        hidden_states = self.run_blocks(
            embeddings,
            encoder_hidden_states,
            position_ids=position_ids,
            padding_mask=attention_mask,
            attention_mask=causal_mask(self.config, embeddings, attention_mask, own_cache),
            encoder_attention_mask=cross_attention_mask(
                self.config,
                embeddings.reshape(len(encoder_hidden_states), -1, embeddings.shape[-1]),
                encoder_hidden_states,
                encoder_attention_mask,
            ),
            past_key_values=past_key_values,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )


class PaperformerSeq2SeqModel(PaperformerSeq2SeqPreTrainedModel):
    """Encoder and decoder, with one token embedding between them when `config.share_embeddings`.

    Otherwise the encoder's embedding has `config.encoder_vocab_size` rows. It is the one that transformers calls the
    model's input embeddings; the decoder's is `get_decoder().get_input_embeddings()`.
    """

    def __init__(self, config: PaperformerSeq2SeqConfig):
        super().__init__(config)
        shared = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self._tied_weights_keys = shared if config.share_embeddings else {}
        self.encoder = PaperformerSeq2SeqEncoder(config)
        self.decoder = PaperformerSeq2SeqDecoder(config)
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        # transformers ties nothing unless `tie_word_embeddings`; sharing between the two languages is apart from it.
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:  # type: ignore[override]
        self.encoder.embed_tokens = value
        if self.config.share_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput:
        """
        Args:
            input_ids: source ids, (B, S), or `inputs_embeds`, (B, S, E), or `encoder_outputs` computed earlier.
            attention_mask: (B, S), 1 for real source tokens and 0 for padding.
            decoder_input_ids: target ids so far, (B, T), or `decoder_inputs_embeds`, (B, T, E).
            decoder_attention_mask: (B, past + T), 1 for real target tokens.
            decoder_position_ids: (B, T); by default counted from the mask.
            past_key_values, use_cache: see `PaperformerSeq2SeqDecoder.forward`.

        Returns:
            The decoder's `last_hidden_state` (B, T, E) and `past_key_values`, the encoder's `encoder_last_hidden_state`
            (B, S, E); on request hidden states and attentions of both.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                return_dict=True,
                **kwargs,
            )
        if not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs[:3])
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class PaperformerForConditionalGeneration(
    CallersLengthMixin, BeamSearchMixin, PaperformerSeq2SeqPreTrainedModel, GenerationMixin
):
    """`PaperformerSeq2SeqModel` with the projection onto the vocabulary: translation and other text-to-text tasks."""

    _tp_plan = {"lm_head": "colwise_gather_output"}

    hub_options: dict[str, Any]
    """Which version of a repository on the Hub `from_pretrained` has read, and through which cache: for reading what
    else lies there, such as the target's tokenizer."""

    def __init__(self, config: PaperformerSeq2SeqConfig):
        super().__init__(config)
        source = "encoder" if config.share_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{source}.embed_tokens.weight"}
        self.model = PaperformerSeq2SeqModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.output_bias)
        self.hub_options = {}
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Self:
        """Loads a model (see `transformers.PreTrainedModel.from_pretrained`), and sets its `hub_options`."""
        loaded: Any = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        options = ("cache_dir", "local_files_only", "revision")  # no token: models get pickled and shared
        model.hub_options = {name: kwargs[name] for name in options if name in kwargs}
        return loaded

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Teacher forcing: the labels shifted right by one, behind `decoder_start_token_id`; -100 becomes padding.

        Used by `transformers.DataCollatorForSeq2Seq`. Shape (B, T) -> (B, T).
        """
        start = labels.new_full((labels.shape[0], 1), self.config.decoder_start_token_id)
        shifted = torch.cat((start, labels[:, :-1]), dim=1)
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Any, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool = True,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """
        Args (beside those of `PaperformerSeq2SeqModel.forward`):
            labels: target ids ending in `</s>`, (B, T), with -100 for padding. The decoder's input is made from them
                unless it is given; they are not shifted again for the loss.
            logits_to_keep: compute logits for the last that many positions only (0: all), or for given positions.
            num_items_in_batch: divide the summed loss by this instead of by the number of labels; for gradient
                accumulation, where it is the number of labels over all micro-batches.
            return_logits: whether to compute logits. Without them the loss is computed in chunks that never hold the
                (B, T, V) logits: training then takes less memory, and is faster.

        Returns:
            `loss` in nats a token (a scalar; smoothed by `config.label_smoothing` in training mode only), `logits`
            (B, T, V), and the outputs of `PaperformerSeq2SeqModel`.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        logits, loss = logits_and_loss(
            self,
            outputs.last_hidden_state,
            labels,
            return_logits=return_logits,
            logits_to_keep=logits_to_keep,
            num_items_in_batch=num_items_in_batch,
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )


from .pipeline_translation import register_pipeline  # noqa: E402

register_pipeline()
