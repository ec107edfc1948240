"""The encoder-only model: bidirectional Transformer blocks that learn by filling in masked tokens (BERT).

Shapes: B batch, T length, E hidden size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ..configuration.configuration_encoder import PaperformerEncoderConfig
from .feed_forward import build_activation
from .loss import logits_and_loss
from .masks import bidirectional_mask
from .norms import build_norm
from .pretrained import PaperformerPreTrainedModel
from .stack import TransformerStack


class FirstTokenPooling(nn.Module):
    """tanh(W h_1 + b) of the first real token's state, (B, T, E) -> (B, E) (Devlin et al. 2019, section 3.1)."""

    def __init__(self, config: PaperformerEncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        if attention_mask is None:
            return self.dense(hidden_states[:, 0]).tanh()
        rows = torch.arange(len(hidden_states), device=hidden_states.device)
        return self.dense(hidden_states[rows, attention_mask.long().argmax(-1)]).tanh()


class MeanPooling(nn.Module):
    """The mean of the real tokens' states, (B, T, E) -> (B, E) (Reimers and Gurevych 2019, section 3)."""

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        if attention_mask is None:
            return hidden_states.mean(1)
        real = attention_mask.unsqueeze(-1).to(hidden_states.dtype)  # (B, T, 1)
        return (hidden_states * real).sum(1) / real.sum(1).clamp(min=1)


def build_pooling(config: PaperformerEncoderConfig) -> nn.Module:
    """The way from the states of all tokens to one vector that `config.pooling` names."""
    return FirstTokenPooling(config) if config.pooling == "first" else MeanPooling()


class PaperformerEncoderModel(TransformerStack):
    """Token ids -> hidden states, where every position sees every other, and one vector for the whole text.

    Args:
        config: the model's configuration.
        add_pooling_layer: whether to make a vector of the whole text, as `config.pooling` says.
    """

    config: PaperformerEncoderConfig
    config_class = PaperformerEncoderConfig

    def __init__(self, config: PaperformerEncoderConfig, add_pooling_layer: bool = True):
        super().__init__(config, config.num_hidden_layers)
        types = config.type_vocab_size
        self.embed_token_types = nn.Embedding(types, config.hidden_size) if types > 0 else None
        self.pooler = build_pooling(config) if add_pooling_layer else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: token ids, (B, T). Give either these or `inputs_embeds`.
            attention_mask: (B, T), 1 for real tokens and 0 for padding, on either side.
            token_type_ids: the segment of each token, (B, T); by default all are of the first.
            position_ids: (B, T); by default counted from the mask, so that padding does not move positions.
            inputs_embeds: embeddings instead of ids, (B, T, E), before scaling.

        Returns:
            `last_hidden_state` (B, T, E), `pooler_output` (B, E); on request `hidden_states` and `attentions`.

        Raises:
            ValueError: if not exactly one of `input_ids` and `inputs_embeds` is given; if segments are given to a
                model that has none.
        """
        embeddings = self.embed(input_ids, inputs_embeds)
        if self.embed_token_types is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(embeddings.shape[:2], dtype=torch.long, device=embeddings.device)
            embeddings = embeddings + self.embed_token_types(token_type_ids)
        elif token_type_ids is not None:
            raise ValueError("token_type_ids are given, but type_vocab_size is 0; leave them out")
        hidden_states = self.run_blocks(
            embeddings,
            position_ids=position_ids,
            padding_mask=attention_mask,
            attention_mask=bidirectional_mask(self.config, embeddings, attention_mask),
            **kwargs,
        )
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states,
            pooler_output=None if self.pooler is None else self.pooler(hidden_states, attention_mask),
        )


class MaskedLMHead(nn.Module):
    """What comes before the projection onto the vocabulary: Norm(act(x W + b)), (B, T, E) -> (B, T, E).

    As in BERT's code; Devlin et al. (2019) do not mention it.
    """

    def __init__(self, config: PaperformerEncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.use_bias)
        self.activation = build_activation(config)
        self.norm = build_norm(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(self.activation(self.dense(hidden_states)))


@dataclass
class PooledMaskedLMOutput(MaskedLMOutput):
    """`MaskedLMOutput` with the vector of the whole text, `pooler_output` (B, E)."""

    pooler_output: torch.Tensor | None = None


class PaperformerForMaskedLM(PaperformerPreTrainedModel):
    """`PaperformerEncoderModel` with the prediction of masked tokens (Devlin et al. 2019, section 3.1)."""

    config: PaperformerEncoderConfig
    config_class = PaperformerEncoderConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}

    def __init__(self, config: PaperformerEncoderConfig):
        super().__init__(config)
        # Filling in tokens teaches a pooling layer nothing, so there is none here unless it has nothing to learn.
        self.model = PaperformerEncoderModel(config, add_pooling_layer=config.pooling == "mean")
        self.transform = MaskedLMHead(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.use_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        return_logits: bool = True,
        **kwargs: Any,
    ) -> PooledMaskedLMOutput:
        """
        Args (beside those of `PaperformerEncoderModel.forward`):
            labels: the original ids of the tokens to predict, (B, T), and -100 elsewhere.
            num_items_in_batch: divide the summed loss by this instead of by the number of labels; for gradient
                accumulation, where it is the number of labels over all micro-batches.
            return_logits: whether to compute logits. Without them the loss is computed in chunks that never hold the
                (B, T, V) logits: training then takes less memory, and is faster.

        Returns:
            `loss` in nats a masked token (a scalar; smoothed by `config.label_smoothing` in training mode only),
            `logits` (B, T, V), `pooler_output` (B, E) where `config.pooling` is mean; on request `hidden_states` and
            `attentions`.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits, loss = logits_and_loss(
            self,
            self.transform(outputs.last_hidden_state),
            labels,
            return_logits=return_logits,
            num_items_in_batch=num_items_in_batch,
        )
        return PooledMaskedLMOutput(
            loss=loss,
            logits=logits,
            pooler_output=outputs.pooler_output,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
