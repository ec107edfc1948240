"""What a model writes: `generate`, and translations in batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..console.progress import ProgressBar
from ..data.batches.token_budget import pad, token_budget_batches


def generate(model: PreTrainedModel, **arguments: Any) -> torch.Tensor:
    """`model.generate`: every model has it that can generate, and transformers' type hints say so of none."""
    untyped: Any = model
    return untyped.generate(**arguments)


def longest_sequence(model: PreTrainedModel) -> int:
    """How many tokens a model is made for, by its configuration; 512 where that does not say, as of T5."""
    return int(getattr(model.config, "max_position_embeddings", None) or 512)


@torch.no_grad()  # not inference_mode: sharded weights that are gathered in it could not be trained
def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    max_length: int = 128,
    tokens_per_batch: int = 4096,
) -> list[str]:
    """Translates texts by beam search (greedily with one beam), in the order given.

    Args:
        tokenizer: of the sources, and of the translations where there is no other.
        sources: raw texts; longer ones than `max_length` tokens are truncated.
        target_tokenizer: of the translations, for a model with two vocabularies.
        num_beams: beam size.
        length_penalty: a hypothesis' log-probability is divided by its length to this power.
        max_length: longest source; a target may be up to twice as long as its batch's longest source, plus 20 tokens.
        tokens_per_batch: budget of a batch, counting every beam.
    """
    model.eval()
    if not sources:
        return []
    decoding_tokenizer = tokenizer if target_tokenizer is None else target_tokenizer
    ids = tokenizer(list(sources), truncation=True, max_length=max_length).input_ids
    lengths = np.array([len(sequence) for sequence in ids])
    batches = token_budget_batches(lengths, max(1, tokens_per_batch // num_beams), np.random.default_rng(0))
    batches.sort(key=lambda batch: -lengths[batch].max())  # a batch too large for memory fails first
    translations = [""] * len(ids)
    with ProgressBar(total=len(ids), desc=f"translate, beam {num_beams}", unit=" sent") as bar:
        for batch in batches:
            input_ids = pad([ids[i] for i in batch], tokenizer.pad_token_id).to(model.device)
            outputs = generate(
                model,
                input_ids=input_ids,
                attention_mask=(input_ids != tokenizer.pad_token_id).long(),
                num_beams=num_beams,
                length_penalty=length_penalty,
                do_sample=False,
                max_new_tokens=min(2 * input_ids.shape[1] + 20, longest_sequence(model) - 1),
            )
            texts = decoding_tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for i, text in zip(batch, texts, strict=True):
                translations[i] = text
            bar.update(len(batch))
    return translations
