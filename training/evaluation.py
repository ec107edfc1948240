"""Scores: BLEU, chrF and exact match of translations; loss, perplexity a word and bits a byte of language models.

Sums and counts travel together and are divided once, at the end. A score carries its signature or its denominator.
"""

import math
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .data.batching import Batch, TokenIds, pad, token_budget_batches
from .data.packing import evaluation_windows
from .progress import ProgressBar


@torch.inference_mode()
def loss_per_token(model: PreTrainedModel, batches: Iterable[Batch]) -> dict[str, float | int]:
    """Mean cross-entropy over all labels of all batches, not smoothed, in nats a token.

    Returns:
        `nats_per_token` and `tokens`, the number of labels it is a mean over.
    """
    model.eval()
    total, tokens = 0.0, 0
    for batch in batches:
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        # Divided by 1: the sum. Logits are not wanted, the loss alone is computed in chunks.
        total += model(**batch, num_items_in_batch=1, return_logits=False).loss.item()
        tokens += count_labels(batch, is_shifted=model.config.is_encoder_decoder)
    return {"nats_per_token": total / max(1, tokens), "tokens": tokens}


def count_labels(batch: Batch, *, is_shifted: bool) -> int:
    """How many labels of a batch count for the loss; a language model's first position has none."""
    labels = batch["labels"] if is_shifted else batch["labels"][:, 1:]
    return int((labels != -100).sum())


def generate(model: PreTrainedModel, **arguments: Any) -> torch.Tensor:
    """`model.generate`: every model has it that can generate, and transformers' type hints say so of none."""
    untyped: Any = model
    return untyped.generate(**arguments)


@torch.inference_mode()
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
                max_new_tokens=min(2 * input_ids.shape[1] + 20, model.config.max_position_embeddings - 1),
            )
            texts = decoding_tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for i, text in zip(batch, texts, strict=True):
                translations[i] = text
            bar.update(len(batch))
    return translations


def translation_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """sacreBLEU and chrF with their signatures (Post 2018, Popović 2015), and the share of exact matches in percent.

    The references are raw text: nothing is tokenised, lower-cased or decoded on the way.
    """
    bleu, chrf = BLEU(), CHRF()
    scores = {
        "bleu": {"score": bleu.corpus_score(hypotheses, [references]).score, "signature": str(bleu.get_signature())},
        "chrf": {"score": chrf.corpus_score(hypotheses, [references]).score, "signature": str(chrf.get_signature())},
    }
    matches = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return scores | {"exact_match": 100 * matches / len(references), "sentences": len(references)}


def language_model_scores(
    model: PreTrainedModel, documents: Iterable[TokenIds], texts: Iterable[str], context_length: int
) -> dict[str, Any]:
    """Loss in nats a token, perplexity a word and bits a byte of running text.

    Every token of every document is predicted once, its end mark included, from at least half a context of tokens
    before it (fewer only where the document has no more). Words are what white space separates; bytes are UTF-8.

    Args:
        documents: token ids of each document, each beginning with `<s>`, which is not predicted itself.
        texts: the text of the same documents, for counting words and bytes; pieces that are cut at white space.
        context_length: tokens a window.
    """
    started = time.perf_counter()
    loss = loss_per_token(model, _overlapping_windows(documents, context_length))
    nats = loss["nats_per_token"] * loss["tokens"]
    words = num_bytes = 0
    for text in texts:
        words += len(text.split())
        num_bytes += len(text.encode("utf-8"))
    return {
        "loss": loss,
        "word_perplexity": math.exp(nats / words),
        "words": words,
        "bits_per_byte": nats / math.log(2) / num_bytes,
        "bytes": num_bytes,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _overlapping_windows(documents: Iterable[TokenIds], context_length: int, batch_size: int = 16) -> Iterable[Batch]:
    """Windows of up to context_length tokens; of all but a document's first, only the second half has labels."""
    windows = (
        (document[start:end], scored - start)
        for document in documents
        for start, end, scored in evaluation_windows(len(document), context_length, context_length // 2)
    )
    with ProgressBar(desc="score", unit=" tokens") as bar:
        while batch := list(islice(windows, batch_size)):
            input_ids = pad([ids for ids, _ in batch], 0)
            labels = pad([ids for ids, _ in batch], -100)
            for row, (_, first_scored) in zip(labels, batch, strict=True):
                row[:first_scored] = -100
            yield {
                "input_ids": input_ids,
                "attention_mask": pad([[1] * len(ids) for ids, _ in batch], 0),
                "labels": labels,
            }
            bar.update(count_labels({"labels": labels}, is_shifted=False))
