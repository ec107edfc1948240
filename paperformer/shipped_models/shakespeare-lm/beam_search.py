"""Beam search for `generate()`, with transformers' results and fewer operations.

What transformers' own loop pays for, and this one does not:

- It writes the logits of all beams several times over, as float32, as log-probabilities, and once more with the scores
  of the beams added, and looks for the best in that. Here a few beams' logits at a time, which stay in the cache of the
  CPU, become their best tokens.
- It goes on with every sentence of a batch until the last is finished. Here a sentence leaves the batch when its
  translations are final.
- It keeps and reorders the encoder's keys and values once a beam. Here they are there once a sentence, and a
  sentence's beams look at them together.
- It puts a prompt through a language model once a beam.

Shapes: B sentences, k beams each, T length so far, V vocabulary, K candidates a sentence.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache
from transformers.generation import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

# As in `loss`: how many logits are worked on at a time.
CPU_CHUNK_LOGITS = 2**20
ACCELERATOR_CHUNK_LOGITS = 2**26

NEVER = -1.0e9  # transformers' score of what cannot be chosen, which stays comparable where -inf would not
UNDERSTOOD = {"attention_mask", "encoder_outputs", "logits_to_keep", "past_key_values", "position_ids", "use_cache"}
"""Inputs of a model that `Beams` passes on from step to step."""


class BeamSearchMixin:
    """Lets `generate(num_beams=...)` of a model search with `beam_search` where that can do what is asked for.

    Where it cannot (sampling, scores or attentions wanted, a static or quantised cache, inputs of another kind, sharded
    weights, several GPUs that have to keep step) transformers' own loop runs. Put it before `GenerationMixin`.
    """

    def _beam_search(
        self,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """transformers' hook: `generate()` calls it for beam search, with everything prepared."""
        model: Any = self
        # The weights of a model that is sharded are gathered when the model is called, not when its parts are.
        is_sharded = any(hasattr(weight, "full_tensor") for weight in model.parameters())
        if synced_gpus or is_sharded or not _is_understood(generation_config, model_kwargs):
            inherited: Any = super()
            return inherited._beam_search(
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                synced_gpus=synced_gpus,
                **model_kwargs,
            )
        beams = Beams(self, input_ids, generation_config.num_beams, model_kwargs)
        return beam_search(beams, input_ids, logits_processor, stopping_criteria, generation_config)


def _is_understood(generation_config: GenerationConfig, model_kwargs: dict[str, Any]) -> bool:
    """Whether `beam_search` does what is asked for."""
    cache = model_kwargs.get("past_key_values")
    caches = [cache.self_attention_cache] if isinstance(cache, EncoderDecoderCache) else [cache]
    grows = all(
        isinstance(each, Cache)
        and each.get_seq_length() == 0
        and all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in each.layers)
        for each in caches
    )
    mask = model_kwargs.get("attention_mask")
    return (
        grows
        and model_kwargs.get("use_cache") is True
        and not generation_config.do_sample
        and not generation_config.low_memory
        and not generation_config.return_dict_in_generate
        and generation_config.prefill_chunk_size is None
        and (mask is None or mask.ndim == 2)
        and all(value is None or name in UNDERSTOOD for name, value in model_kwargs.items())
    )


class Beams:
    """What a model needs for the next token of each beam: its cache and masks, of sentences that may leave.

    Args:
        model: one with `model` (or `model.decoder`) and `lm_head`.
        input_ids: the prompts, (B k, P), each as often as there are beams.
        model_kwargs: what `generate()` has prepared for the model, of B k rows.
    """

    def __init__(self, model: Any, input_ids: Tensor, num_beams: int, model_kwargs: dict[str, Any]):
        self.lm_head, self.num_beams = model.lm_head, num_beams
        self.cache: Any = model_kwargs["past_key_values"]
        self.new_ids, self.source = input_ids, None
        self.mask, self.position_ids = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
        self.model = model.model
        if model.config.is_encoder_decoder:
            self.model = model.model.decoder
            states, mask = model_kwargs["encoder_outputs"][0], self.mask  # (B k, S, E), (B k, S)
            self.source = (states[::num_beams], None if mask is None else mask[::num_beams])
            self.mask = self.position_ids = None
        per_call = CPU_CHUNK_LOGITS if input_ids.device.type == "cpu" else ACCELERATOR_CHUNK_LOGITS
        self.vocab_size = model.config.vocab_size
        self.rows_at_a_time = max(1, per_call // self.vocab_size)

    def hidden_states(self) -> Tensor:
        """What the model makes of the newest tokens, for the next ones: (B k, E)."""
        inputs = {"input_ids": self.new_ids, "attention_mask": self.mask, "position_ids": self.position_ids}
        is_prompt = self.cache.get_seq_length() == 0
        if is_prompt:  # the same for all beams of a sentence
            inputs = {name: None if rows is None else rows[:: self.num_beams] for name, rows in inputs.items()}
        if self.source is not None:
            inputs |= {"encoder_hidden_states": self.source[0], "encoder_attention_mask": self.source[1]}
        states = self.model(**inputs, past_key_values=self.cache, use_cache=True).last_hidden_state[:, -1]
        if is_prompt:
            own = self.cache.self_attention_cache if self.source is not None else self.cache
            own.batch_repeat_interleave(self.num_beams)
            states = states.repeat_interleave(self.num_beams, dim=0)
        return states

    def best_tokens(self, sequences: Any, count: int, logits_processor: LogitsProcessorList) -> tuple[Tensor, Tensor]:
        """Log-probabilities and ids of the `count` likeliest next tokens of each beam, (B k, count) both."""
        states, count = self.hidden_states(), min(count, self.vocab_size)
        if logits_processor:  # which may look at any token, and at all rows
            log_probs = logits_processor(sequences, F.log_softmax(self.lm_head(states).float(), dim=-1))
            values, ids = log_probs.topk(count)
            return values, ids
        found = [
            F.log_softmax(self.lm_head(rows).float(), dim=-1).topk(count) for rows in states.split(self.rows_at_a_time)
        ]
        return torch.cat([best.values for best in found]), torch.cat([best.indices for best in found])

    def follow(self, rows: Tensor, new_ids: Tensor, kept: Tensor | None) -> None:
        """Goes on from other beams.

        Args:
            rows: the beam that each comes from, (B' k,).
            new_ids: their newest tokens, (B' k, 1).
            kept: the sentences that stay, (B',); None: all do.
        """
        self.new_ids = new_ids
        if self.mask is not None:
            self.mask = F.pad(self.mask[rows], (0, 1), value=1)
        if self.position_ids is not None:
            self.position_ids = self.position_ids[rows, -1:] + 1
        if self.source is None:
            self.cache.reorder_cache(rows)
            return
        self.cache.self_attention_cache.reorder_cache(rows)
        if kept is not None:
            self.cache.cross_attention_cache.reorder_cache(kept)
            states, mask = self.source
            self.source = (states[kept], None if mask is None else mask[kept])


def beam_search(
    beams: Beams,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
) -> Tensor:
    """The sequences of the highest log-probability over length to the power of `length_penalty`.

    The search for a sentence ends as transformers' does for it alone: when all its candidates are finished; or when k
    are, and that is enough (`early_stopping` is True), or no beam is better than the worst of them at its present
    length (False) or at the longest that it may become ("never").

    Args:
        input_ids: the prompts, (B k, P).
        logits_processor: changes log-probabilities. Where there is any, all sentences stay in the batch, because it may
            tell them by their places.
        stopping_criteria: say which candidates are finished.

    Returns:
        (B num_return_sequences, up to max_length), a sentence's best first, filled up behind their ends.
    """
    k, prompt_length, max_length = generation_config.num_beams, input_ids.shape[1], generation_config.max_length
    eos, pad = generation_config._eos_token_tensor, generation_config._pad_token_tensor
    num_candidates = max(2, 1 + (0 if eos is None else len(eos))) * k
    fill = -1 if eos is None else int(pad or eos[0])  # as transformers has it
    penalty, early_stopping = generation_config.length_penalty, generation_config.early_stopping
    to_the_end = early_stopping == "never" and penalty > 0.0

    running = input_ids.view(-1, k, prompt_length)  # (B, k, T)
    running_scores = torch.full(running.shape[:2], NEVER, device=input_ids.device)
    running_scores[:, 0] = 0.0  # the beams of a prompt are the same: one begins
    finished = FinishedSequences.of_prompts(running, max_length, fill)
    results = FinishedSequences.of_prompts(running, max_length, fill)
    places = torch.arange(len(running), device=input_ids.device)  # in the results, of the sentences in the batch
    is_open = torch.ones_like(places, dtype=torch.bool)  # which of them are still searched for

    while True:
        size, length = len(running), running.shape[-1] + 1
        scores, ids = beams.best_tokens(running.flatten(0, 1), num_candidates, logits_processor)
        scores = (running_scores[..., None] + scores.view(size, k, -1)).flatten(1)
        scores, picked = scores.topk(num_candidates)  # (B, K)
        parents = picked // ids.shape[-1]
        candidates = torch.cat((_choose(running, parents), ids.view(size, -1).gather(1, picked)[..., None]), -1)
        ends = stopping_criteria(candidates.flatten(0, 1), None).view(size, -1)
        finished.add(candidates[:, :k], scores[:, :k] / (length - prompt_length) ** penalty, ends[:, :k])

        running_scores, chosen = (scores + ends * NEVER).topk(k)
        running, parents = _choose(candidates, chosen), parents.gather(1, chosen)  # (B, k, T + 1), (B, k)

        reach = (max_length if to_the_end else length) - prompt_length
        is_final = ends.all(1) | ~(running_scores[:, 0] / reach**penalty > finished.scores.amin(1))
        if early_stopping is True:
            is_final |= finished.is_real.all(1)
        results.put(places[is_open & is_final], finished.select(is_open & is_final))
        is_open &= ~is_final
        if not is_open.any():
            return results.best(generation_config.num_return_sequences)

        rows, kept = parents + k * torch.arange(size, device=parents.device)[:, None], None
        if not logits_processor and not is_open.all():
            kept = is_open.nonzero().squeeze(1)
            rows, running, running_scores = rows[kept], running[kept], running_scores[kept]
            finished, places, is_open = finished.select(kept), places[kept], is_open[kept]
        beams.follow(rows.flatten(), running[..., -1:].flatten(0, 1), kept)


@dataclass
class FinishedSequences:
    """The best k finished sequences of each sentence, best first; where there are fewer, prompts stand in for them."""

    sequences: Tensor
    """(B, k, max_length)."""
    scores: Tensor
    """(B, k): log-probability over length to the power of the penalty."""
    lengths: Tensor
    """(B, k), in tokens, the prompt's included."""
    is_real: Tensor
    """(B, k): whether it is a finished sequence."""

    @classmethod
    def of_prompts(cls, prompts: Tensor, max_length: int, fill: int) -> "FinishedSequences":
        """None finished yet: prompts, (B, k, P), filled up."""
        places = prompts.new_full(prompts.shape[:2], prompts.shape[-1])
        sequences = F.pad(prompts, (0, max_length - prompts.shape[-1]), value=fill)
        scores = torch.full(places.shape, NEVER, device=prompts.device)
        return cls(sequences, scores, places, torch.zeros_like(places, dtype=torch.bool))

    def add(self, candidates: Tensor, scores: Tensor, ends: Tensor) -> None:
        """Keeps the best of those that there are and the candidates, (B, k, T), that have ended, (B, k)."""
        if not ends.any():
            return
        num_beams, length = ends.shape[1], candidates.shape[-1]
        self.scores, chosen = torch.cat((self.scores, torch.where(ends, scores, NEVER)), 1).topk(num_beams)
        filled = torch.cat((candidates, self.sequences[..., length:]), -1)
        self.sequences = _choose(torch.cat((self.sequences, filled), 1), chosen)
        self.lengths = torch.cat((self.lengths, torch.full_like(self.lengths, length)), 1).gather(1, chosen)
        self.is_real = torch.cat((self.is_real, ends), 1).gather(1, chosen)

    def select(self, sentences: Tensor) -> "FinishedSequences":
        """Those of some sentences."""
        return FinishedSequences(
            self.sequences[sentences], self.scores[sentences], self.lengths[sentences], self.is_real[sentences]
        )

    def put(self, places: Tensor, other: "FinishedSequences") -> None:
        """Takes over another's, at these places."""
        self.sequences[places], self.scores[places] = other.sequences, other.scores
        self.lengths[places], self.is_real[places] = other.lengths, other.is_real

    def best(self, count: int) -> Tensor:
        """The best of each sentence, (B count, longest of them)."""
        return self.sequences[:, :count].flatten(0, 1)[:, : int(self.lengths[:, :count].max())]


def _choose(tensor: Tensor, indices: Tensor) -> Tensor:
    """tensor[b, indices[b]]: (B, N, T), (B, M) -> (B, M, T)."""
    return tensor.gather(1, indices[..., None].expand(-1, -1, tensor.shape[-1]))
