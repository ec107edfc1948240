"""The task of translation: sentence pairs, joint or separate vocabularies, teacher forcing, scores of beam search."""

import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from ..configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ..modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from ..tokenization import encode_with_bpe_dropout, encode_with_unigram_sampling
from .card import SplitFacts
from .corpora import Splits, cache_folder
from .data.corpus import TextStream
from .data.pair_batches import BatchOptions, PairBatches, Sample, StreamedPairBatches
from .data.tokenizing import Encode, batch_encoder, tokenized_pairs
from .evaluation import loss_per_token, translate, translation_scores
from .input_error import InputError
from .options.data import ParallelData
from .options.tokenizer import TokenizerOptions
from .progress import say
from .recipe import Recipe
from .run_tokenizers import Tokenizers, padded_size


class TranslationTask:
    """Training, validation and test of an encoder-decoder on sentence pairs.

    Args:
        recipe: the run's options.
        splits: the sentence pairs.
        tokenizers: of the sources and of the targets; they end every text with `</s>`.

    Raises:
        InputError: if every training pair is too long.
    """

    def __init__(self, recipe: Recipe[ParallelData], splits: Splits, tokenizers: Tokenizers):
        self.recipe, self.corpora, self.tokenizers = recipe, splits, tokenizers
        self.max_length = recipe.data.max_length
        self.batches = self._training_batches()
        self.pools, self.collate = self.batches.pools, self.batches.collate
        self.longest_batch = self.batches.longest_batch

    def _training_batches(self) -> PairBatches | StreamedPairBatches:
        data, train = self.recipe.data, self.corpora.train
        options = BatchOptions(
            max_length=data.max_length,
            truncate=data.too_long == "truncate",
            tokens_per_batch=self.recipe.optimization.tokens_per_batch,
            seed=self.recipe.run.seed,
            pad_token_id=self.tokenizers.target.pad_token_id,
        )
        samples = [random_segmentation(tokenizer, self.recipe.tokenizer) for tokenizer in self.tokenizers]
        if isinstance(train, TextStream):
            encoders = [
                sample or partial(_ignoring_seed, batch_encoder(tokenizer))
                for sample, tokenizer in zip(samples, self.tokenizers, strict=True)
            ]
            return StreamedPairBatches(train.chunks, (encoders[0], encoders[1]), options, data.shuffle_buffer)
        store = tokenized_pairs(cache_folder(self.recipe), train, self.tokenizers)
        batches = PairBatches(
            train,
            store,
            options,
            weights=self.corpora.weights,
            temperature=data.temperature,
            samples=(samples[0], samples[1]) if samples[0] and samples[1] else None,
        )
        if len(batches.rows) == 0:
            raise InputError(f"data.max_length is {self.max_length} tokens; every training pair is longer")
        if too_long := len(store) - len(batches.rows):
            say(f"{too_long:,} of {len(store):,} training pairs are longer than data.max_length and left out")
        return batches

    @cached_property
    def pairs(self) -> dict[str, list[tuple[str, str]]]:
        """(source, target) of the splits that are scored."""
        corpora = {"validation": self.corpora.validation, "test": self.corpora.test}
        return {split: [(row["source"], row["target"]) for row in corpus.dataset] for split, corpus in corpora.items()}

    def build_model(self) -> PaperformerForConditionalGeneration:
        tokenizer, multiple = self.tokenizers.target, self.recipe.tokenizer.pad_vocab_to_multiple_of
        separate = {}
        if self.tokenizers.are_separate:
            separate["source_vocab_size"] = padded_size(self.tokenizers.source, multiple)
        config = PaperformerSeq2SeqConfig(
            **self.recipe.model | separate,
            vocab_size=padded_size(tokenizer, multiple),
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

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        sides = zip(*pairs, strict=True)
        ids = [batch_encoder(tokenizer)(list(side)) for tokenizer, side in zip(self.tokenizers, sides, strict=True)]
        return list(zip(*ids, strict=True))

    def _loss(self, model: PreTrainedModel, split: str) -> dict[str, float | int]:
        """Loss on a whole split; what is longer than the model is made for is cut off."""
        options = BatchOptions(
            max_length=model.config.max_position_embeddings,
            truncate=True,
            tokens_per_batch=self.recipe.optimization.tokens_per_batch,
            seed=0,
            pad_token_id=self.tokenizers.target.pad_token_id,
        )
        pairs = self._encode(self.pairs[split])
        lengths = np.array([(len(source), len(target)) for source, target in pairs], dtype=np.uint32)
        batches = options.plan(lengths, np.random.default_rng(0))
        return loss_per_token(
            model, (options.tensors(*zip(*(pairs[i] for i in batch), strict=True)) for batch in batches)
        )

    def _translate(self, model: PreTrainedModel, sources: Sequence[str], **decoding: Any) -> list[str]:
        return translate(
            model,
            self.tokenizers.source,
            sources,
            target_tokenizer=self.tokenizers.target,
            max_length=self.max_length,
            **decoding,
        )

    def _scores(self, model: PreTrainedModel, split: str, **decoding: Any) -> tuple[dict[str, Any], list[str]]:
        """Scores of the translations of a split, and the translations."""
        sources, references = map(list, zip(*self.pairs[split], strict=True))
        hypotheses = self._translate(model, sources, **decoding)
        return translation_scores(hypotheses, references), hypotheses

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        scores = {"loss": float(self._loss(model, "validation")["nats_per_token"])}
        if self.recipe.evaluation.select_by != "loss":
            found, _ = self._scores(model, "validation", num_beams=1)
            scores |= {
                "bleu": found["bleu"]["score"],
                "chrf": found["chrf"]["score"],
                "exact_match": found["exact_match"],
            }
        return scores

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(source, reference, output) of the first validation sentences, translated greedily."""
        pairs = self.pairs["validation"][: self.recipe.evaluation.validation_samples]
        outputs = self._translate(model, [source for source, _ in pairs], num_beams=1)
        return [[*pair, output] for pair, output in zip(pairs, outputs, strict=True)]

    def evaluate(self, model: PreTrainedModel, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores and translations of a whole split, by beam search."""
        started = time.perf_counter()
        options = self.recipe.evaluation
        decoding = {"num_beams": options.num_beams, "length_penalty": options.length_penalty}
        found, hypotheses = self._scores(model, split, **decoding)
        scores = {"task": "translation", "split": split, "decoding": decoding}
        scores |= found | {"loss": self._loss(model, split)}
        return scores | {"seconds": round(time.perf_counter() - started, 1)}, hypotheses

    def describe_batches(self) -> str:
        """How many batches an epoch has, and how much of them is padding."""
        budget = f"{self.recipe.optimization.tokens_per_batch:,} tokens a side"
        if not isinstance(self.batches, PairBatches):
            return f"batches of up to {budget}, made while training"
        batches, padding = self.batches.statistics()
        return f"an epoch: {batches:,} batches of up to {budget}, {padding:.1%} of them padding"

    def samples(self, outputs: list[str]) -> list[tuple[str, str, str]]:
        """(source, reference, output) of the first test sentences."""
        pairs = self.pairs["test"][: self.recipe.evaluation.samples]
        return [(source, reference, output) for (source, reference), output in zip(pairs, outputs, strict=False)]

    def splits(self) -> list[SplitFacts]:
        """Sizes of the splits, for the card; those of a stream are not known."""
        facts = []
        if isinstance(self.batches, PairBatches):
            rows = self.batches.rows
            tokens = int(self.batches.store.lengths[rows].sum(dtype=np.int64))
            facts.append(SplitFacts(name="train", examples=len(rows), tokens=tokens))
        else:
            facts.append(SplitFacts(name="train", examples=None))
        for split, pairs in self.pairs.items():
            tokens = sum(len(side) for pair in self._encode(pairs) for side in pair)
            facts.append(SplitFacts(name=split, examples=len(pairs), tokens=tokens))
        return facts


def random_segmentation(tokenizer: PreTrainedTokenizerFast, options: TokenizerOptions) -> Sample | None:
    """The tokenizer as one that segments at random, if that is asked for."""
    if options.bpe_dropout > 0:
        return partial(_with_bpe_dropout, tokenizer, options.bpe_dropout)
    if options.unigram_alpha > 0:
        return partial(_with_unigram_sampling, tokenizer, options.unigram_alpha)
    return None


# Functions of the module, not closures: worker processes get them by name.
def _with_bpe_dropout(
    tokenizer: PreTrainedTokenizerFast, dropout: float, texts: Sequence[str], seed: int
) -> list[list[int]]:
    return encode_with_bpe_dropout(tokenizer, texts, dropout=dropout, seed=seed)


def _with_unigram_sampling(
    tokenizer: PreTrainedTokenizerFast, alpha: float, texts: Sequence[str], seed: int
) -> list[list[int]]:
    return encode_with_unigram_sampling(tokenizer, texts, alpha=alpha, seed=seed)


def _ignoring_seed(encode: Encode, texts: Sequence[str], seed: int) -> list[list[int]]:
    return encode(list(texts))
