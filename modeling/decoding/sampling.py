"""Greedy decoding and sampling for `generate()`, with transformers' results and fewer operations.

transformers' own loop prepares the inputs of every step anew, calls the whole model, and goes on with every row of a
batch until the last is finished. Here a step is the decoder and the output layer, and with greedy decoding a row leaves
the batch when it is finished.

Shapes: B rows, T length so far, V vocabulary.
"""

from functools import wraps
from typing import Any

import torch
from torch import Tensor
from transformers.generation import (
    EosTokenCriteria,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
)

from .beam_search import Beams, is_sharded, is_understood
from .growing_cache import make_room
from .packed_weights import packed_weights, project

BY_ROWS_THEMSELVES = {EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria}
"""What says whether a row is finished, wherever in the batch it is."""


class SamplingMixin:
    """Lets `generate()` of a model decode from its packed weights, and, on a CPU, with `sample`.

    Where `sample` cannot do what is asked for (see `is_understood`), or a caller's cache has to hold every row,
    transformers' own loop runs. Put it before `GenerationMixin`.
    """

    @wraps(GenerationMixin.generate)  # whose signature and description it has
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        model: Any = self
        inherited: Any = super()
        with torch.no_grad(), packed_weights(model):
            return inherited.generate(*args, **kwargs)

    def _sample(
        self,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """transformers' hook: `generate()` calls it for greedy decoding and sampling, with everything prepared."""
        own_cache = not getattr(model_kwargs.get("past_key_values"), "_is_user_defined", False)
        is_ours = input_ids.device.type == "cpu" and own_cache and not synced_gpus and not is_sharded(self)
        if not is_ours or not is_understood(generation_config, model_kwargs):
            inherited: Any = super()
            return inherited._sample(
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                synced_gpus=synced_gpus,
                streamer=streamer,
                **model_kwargs,
            )
        make_room(model_kwargs["past_key_values"])
        rows = Beams(self, input_ids, 1, model_kwargs)
        return sample(rows, input_ids, logits_processor, stopping_criteria, generation_config, streamer)


def sample(
    rows: Beams,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    streamer: Any = None,
) -> Tensor:
    """Continues each prompt, (B, T), by the likeliest token or, with `do_sample`, by one drawn: (B, longest).

    Rows stay in the batch to the end where tokens are drawn, so that the draws are transformers', and where something
    else may tell rows by their places.
    """
    pad: Any = generation_config._pad_token_tensor
    has_eos = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria)
    is_plain = all(type(criterion) in BY_ROWS_THEMSELVES for criterion in stopping_criteria)
    may_leave = has_eos and is_plain and not (generation_config.do_sample or logits_processor or streamer is not None)
    sequences: Any = input_ids  # of the rows in the batch
    columns = [input_ids]  # of all
    places = torch.arange(len(input_ids))  # of the rows in the batch
    is_open = torch.ones(len(input_ids), dtype=torch.bool)

    while True:
        logits = project(rows.hidden_states(), rows.lm_head)[0].float()  # (B, V)
        scores = logits_processor(sequences, logits)
        if generation_config.do_sample:
            next_ids = torch.multinomial(scores.softmax(dim=-1), num_samples=1)  # (B, 1)
        else:
            next_ids = scores.argmax(dim=-1, keepdim=True)
        if has_eos and not may_leave:
            next_ids = torch.where(is_open[:, None], next_ids, pad)
        if streamer is not None:
            streamer.put(next_ids.squeeze(1))
        sequences = torch.cat((sequences, next_ids), dim=-1)
        column = next_ids
        if len(places) < len(input_ids):
            column = torch.full_like(input_ids[:, :1], int(pad)).index_copy_(0, places, next_ids)
        columns.append(column)
        is_open &= ~stopping_criteria(sequences, None)
        if not is_open.any():
            break
        if may_leave and not is_open.all():
            kept = is_open.nonzero().squeeze(1)
            rows.follow(kept, next_ids[kept], kept)
            sequences, places, is_open = sequences[kept], places[kept], is_open[kept]
        else:
            rows.advance(next_ids)
    if streamer is not None:
        streamer.end()
    return torch.cat(columns, dim=-1)
