"""The decoder-only language model: causal Transformer blocks and a projection onto the vocabulary.

Shapes: B batch, T length, E hidden size, V vocabulary.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_lm import PaperformerLMConfig
from .beam_search import BeamSearchMixin
from .callers_length import CallersLengthMixin
from .continuous_batching import ContinuousBatchingMixin
from .loss import logits_and_loss
from .masks import causal_mask
from .pretrained import PaperformerPreTrainedModel
from .stack import TransformerStack


class PaperformerLMModel(TransformerStack):
    """Token ids -> hidden states, where no position sees a later one."""

    config: PaperformerLMConfig
    config_class = PaperformerLMConfig

    def __init__(self, config: PaperformerLMConfig):
        super().__init__(config, config.num_hidden_layers, is_causal=True)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            input_ids: token ids, (B, T). Give either these or `inputs_embeds`.
            attention_mask: (B, past + T), 1 for real tokens and 0 for padding, on either side; or a prepared 4D mask.
            position_ids: (B, T); by default counted from the mask, so that padding does not move positions.
            past_key_values: keys and values of earlier tokens, extended in place.
            inputs_embeds: embeddings instead of ids, (B, T, E), before scaling.
            use_cache: return `past_key_values`.

        Returns:
            `last_hidden_state` (B, T, E), `past_key_values`; on request `hidden_states` and `attentions`.

        Raises:
            ValueError: if not exactly one of `input_ids` and `inputs_embeds` is given.
        """
        embeddings = self.embed(input_ids, inputs_embeds)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        mask = causal_mask(self.config, embeddings, attention_mask, past_key_values, position_ids)
        hidden_states = self.run_blocks(
            embeddings,
            position_ids=position_ids,
            padding_mask=attention_mask,
            attention_mask=mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )


class PaperformerForCausalLM(
    CallersLengthMixin, BeamSearchMixin, ContinuousBatchingMixin, PaperformerPreTrainedModel, GenerationMixin
):
    """`PaperformerLMModel` with the projection onto the vocabulary, tied to the embedding by default."""

    config: PaperformerLMConfig
    config_class = PaperformerLMConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: PaperformerLMConfig):
        super().__init__(config)
        self.model = PaperformerLMModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def aligned_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """What the logits of each position are compared with, (B, T) -> (B, T - 1): position t predicts token t + 1."""
        return labels[:, 1:]  # the last position predicts nothing that is in the labels

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool = True,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """
        Args (beside those of `PaperformerLMModel.forward`):
            labels: the input ids themselves, (B, T), with -100 where no loss is wanted; they are shifted in here, so
                that position t predicts token t + 1.
            logits_to_keep: compute logits for the last that many positions only (0: all), or for given positions.
            num_items_in_batch: divide the summed loss by this instead of by the number of labels; for gradient
                accumulation, where it is the number of labels over all micro-batches.
            return_logits: whether to compute logits. Without them the loss is computed in chunks that never hold the
                (B, T, V) logits: training then takes less memory, and is faster.
            shift_labels: labels that are already shifted, (B, T), in place of `labels`: where the sequence is split
                over processes, only the whole of it can be shifted, before the split. It is not in the signature, since
                transformers' Trainer would then expect it in every batch (`transformers.utils.find_labels`).

        Returns:
            `loss` in nats a token (a scalar; smoothed by `config.label_smoothing` in training mode only), `logits`
            (B, T, V), `past_key_values`; on request `hidden_states` and `attentions`.
        """
        targets = kwargs.pop("shift_labels", None)
        if targets is None and labels is not None:
            targets = self.aligned_labels(labels)
        if targets is not None:
            use_cache = False
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        logits, loss = logits_and_loss(
            self,
            outputs.last_hidden_state,
            targets,
            return_logits=return_logits,
            logits_to_keep=logits_to_keep,
            num_items_in_batch=num_items_in_batch,
        )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
