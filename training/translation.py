"""The task of translation: sentence pairs, a joint vocabulary, teacher forcing, and scores of beam search."""

import time
from typing import Any

import numpy as np
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from ..tokenization import encode_with_bpe_dropout
from .batching import Batch, pad, token_budget_batches
from .card import SplitFacts
from .corpora import Pair
from .evaluation import loss_per_token, translate, translation_scores
from .input_error import InputError
from .progress import ProgressBar
from .recipe import ParallelData, Recipe

PAIRS_AT_ONCE = 10_000  # between two looks at the progress bar


class TranslationTask:
    """Training, validation and test of an encoder-decoder on sentence pairs.

    Args:
        recipe: the run's options.
        pairs: (source, target) of the splits train, validation and test.
        tokenizer: a tokenizer that ends every text with `</s>`.
    """

    def __init__(self, recipe: Recipe[ParallelData], pairs: dict[str, list[Pair]], tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.max_length = recipe.data.max_length
        self.pairs = dict(pairs)
        train_ids = self._encode(pairs["train"])
        fits = [max(len(source), len(target)) <= self.max_length for source, target in train_ids]
        self.pairs["train"] = [pair for pair, fit in zip(pairs["train"], fits, strict=True) if fit]
        self._train_ids = [pair for pair, fit in zip(train_ids, fits, strict=True) if fit]
        self._epoch: int | None = None  # whose segmentation _train_ids holds, under BPE-dropout
        if not self._train_ids:
            raise InputError(f"data.max_length is {self.max_length} tokens; every training pair is longer")

    def _encode(self, pairs: list[Pair]) -> list[tuple[list[int], list[int]]]:
        encoded: list[tuple[list[int], list[int]]] = []
        for first in ProgressBar(range(0, len(pairs), PAIRS_AT_ONCE), desc="tokenize", unit=" batch"):
            sources, targets = zip(*pairs[first : first + PAIRS_AT_ONCE], strict=True)
            encoded += zip(self.tokenizer(sources).input_ids, self.tokenizer(targets).input_ids, strict=True)
        return encoded

    def build_model(self) -> PaperformerForConditionalGeneration:
        tokenizer = self.tokenizer
        config = PaperformerSeq2SeqConfig(
            **self.recipe.model,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )
        model = PaperformerForConditionalGeneration(config)
        model.generation_config = GenerationConfig(
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
            num_beams=self.recipe.evaluation.num_beams,
            length_penalty=self.recipe.evaluation.length_penalty,
            max_new_tokens=min(2 * self.max_length + 20, config.max_position_embeddings - 1),
        )
        return model

    def epoch_batches(self, epoch: int) -> list[np.ndarray]:
        rng = np.random.default_rng((self.recipe.run.seed, epoch))
        if self.recipe.tokenizer.bpe_dropout > 0 and self._epoch != epoch:
            self._train_ids = self._encode_with_dropout(seed=int(rng.integers(2**31)))
            self._epoch = epoch
        lengths = np.array([(len(source), len(target)) for source, target in self._train_ids])
        return token_budget_batches(lengths, self.recipe.optimization.tokens_per_batch, rng)

    def _encode_with_dropout(self, seed: int) -> list[tuple[list[int], list[int]]]:
        sides = []
        for side, texts in enumerate(zip(*self.pairs["train"], strict=True)):
            ids = encode_with_bpe_dropout(
                self.tokenizer, texts, dropout=self.recipe.tokenizer.bpe_dropout, seed=seed + side
            )
            sides.append([sequence[: self.max_length] for sequence in ids])
        return list(zip(*sides, strict=True))

    def collate(self, batch: np.ndarray) -> Batch:
        return self._tensors([self._train_ids[i] for i in batch])

    def _tensors(self, pairs: list[tuple[list[int], list[int]]]) -> Batch:
        sources, targets = zip(*pairs, strict=True)
        return {
            "input_ids": pad(sources, self.tokenizer.pad_token_id),  # (B, S)
            "attention_mask": pad([[1] * len(source) for source in sources], 0),  # (B, S)
            "labels": pad(targets, -100),  # (B, T)
        }

    def _loss(self, model: PreTrainedModel, split: str) -> dict[str, float | int]:
        """Loss on a whole split; what is longer than the model is made for is cut off."""
        longest = model.config.max_position_embeddings
        pairs = [(source[:longest], target[:longest]) for source, target in self._encode(self.pairs[split])]
        lengths = np.array([(len(source), len(target)) for source, target in pairs])
        budget = self.recipe.optimization.tokens_per_batch
        batches = token_budget_batches(lengths, budget, np.random.default_rng(0))
        return loss_per_token(model, (self._tensors([pairs[i] for i in batch]) for batch in batches))

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        scores = {"loss": float(self._loss(model, "validation")["nats_per_token"])}
        if self.recipe.evaluation.select_by != "loss":
            sources, references = zip(*self.pairs["validation"], strict=True)
            hypotheses = translate(model, self.tokenizer, sources, num_beams=1, max_length=self.max_length)
            found = translation_scores(hypotheses, references)
            scores |= {
                "bleu": found["bleu"]["score"],
                "chrf": found["chrf"]["score"],
                "exact_match": found["exact_match"],
            }
        return scores

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores and translations of a whole split, by beam search."""
        started = time.perf_counter()
        options = self.recipe.evaluation
        sources, references = zip(*self.pairs[split], strict=True)
        hypotheses = translate(
            model,
            self.tokenizer,
            sources,
            num_beams=options.num_beams,
            length_penalty=options.length_penalty,
            max_length=self.max_length,
        )
        decoding = {"num_beams": options.num_beams, "length_penalty": options.length_penalty}
        scores = {"task": "translation", "split": split, "decoding": decoding}
        scores |= translation_scores(hypotheses, references) | {"loss": self._loss(model, split)}
        return scores | {"seconds": round(time.perf_counter() - started, 1)}, hypotheses

    def samples(self, outputs: list[str]) -> list[tuple[str, str, str]]:
        """(source, reference, output) of the first test sentences."""
        pairs = self.pairs["test"][: self.recipe.evaluation.samples]
        return [(source, reference, output) for (source, reference), output in zip(pairs, outputs, strict=False)]

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card."""
        return [
            SplitFacts(
                name=split,
                examples=len(pairs),
                tokens=sum(len(side) for pair in self._encode(pairs) for side in pair),
            )
            for split, pairs in self.pairs.items()
        ]
