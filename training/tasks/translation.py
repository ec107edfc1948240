"""Translation: sentence pairs, joint or separate vocabularies, teacher forcing, scores of beam search."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ...configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from ...modeling.families import FAMILIES
from ...modeling.modeling_seq2seq import PaperformerForConditionalGeneration
from ...tokenization import encode_with_bpe_dropout, encode_with_unigram_sampling
from ..console.input_error import InputError
from ..console.progress import say
from ..data.batches.pair_batches import BatchOptions, PairBatches, Sample, StreamedPairBatches
from ..data.corpus import TextStream
from ..data.splits import SplitFacts, Splits, cache_folder, domains_of_rows, pair_splits
from ..data.tokenizers import TokenizerNeeds, Tokenizers, padded_size
from ..data.tokenizing import Encode, batch_encoder, tokenized_pairs
from ..data.unseen_words import UnseenWords, count_unseen_words
from ..evaluation.confidence import RESAMPLES
from ..evaluation.decoding import translate
from ..evaluation.domains import gather_others
from ..evaluation.evaluation_file import Evaluation
from ..evaluation.metrics import LOSS, Score, score_outputs, scoring_options, validation_metrics
from ..evaluation.perplexity import loss_per_token
from ..recipe.data import ParallelData
from ..recipe.recipe import Recipe
from ..recipe.tokenizer import TokenizerOptions
from .base_model import initial_model, set_generation
from .objective import CardWords, Objective
from .protocols import Task


def translation_task(recipe: Recipe[ParallelData], splits: Splits, tokenizers: Tokenizers) -> Task:
    """Training, validation and test of an encoder-decoder on sentence pairs.

    Args:
        recipe: the run's options.
        splits: the sentence pairs.
        tokenizers: of the sources and of the targets; they end every text with `</s>`.

    Raises:
        InputError: if every training pair is too long.
    """
    return Task(
        build_model=partial(build_translation_model, recipe, tokenizers),
        batches=translation_batches(recipe, splits, tokenizers),
        scoring=TranslationScoring(recipe, splits, tokenizers),
    )


def build_translation_model(
    recipe: Recipe[ParallelData], tokenizers: Tokenizers
) -> PaperformerForConditionalGeneration:
    """An encoder-decoder for the vocabularies."""
    tokenizer, multiple = tokenizers.target, recipe.tokenizer.pad_vocab_to_multiple_of

    def fresh_config() -> PaperformerSeq2SeqConfig:
        separate = {}
        if tokenizers.are_separate:
            separate["source_vocab_size"] = padded_size(tokenizers.source, multiple)
        return PaperformerSeq2SeqConfig(
            **recipe.model | separate,
            vocab_size=padded_size(tokenizer, multiple),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
        )

    model: PaperformerForConditionalGeneration = initial_model(recipe, FAMILIES["seq2seq"], fresh_config)
    longest = min(2 * recipe.data.max_length + 20, model.config.max_position_embeddings - 1)
    set_generation(model, recipe, **recipe.evaluation.beam_search, max_new_tokens=longest)
    return model


def translation_batches(
    recipe: Recipe[ParallelData], splits: Splits, tokenizers: Tokenizers
) -> PairBatches | StreamedPairBatches:
    """Batches of the training pairs, without those that are too long.

    Raises:
        InputError: if none is left.
    """
    data, train = recipe.data, splits.train
    options = BatchOptions(
        max_length=data.max_length,
        truncate=data.too_long == "truncate",
        tokens_per_batch=recipe.optimization.tokens_per_batch,
        seed=recipe.run.seed,
        pad_token_id=tokenizers.target.pad_token_id,
    )
    samples = [random_segmentation(tokenizer, recipe.tokenizer) for tokenizer in tokenizers]
    if isinstance(train, TextStream):
        source, target = (
            sample or partial(_ignoring_seed, batch_encoder(tokenizer))
            for sample, tokenizer in zip(samples, tokenizers, strict=True)
        )
        return StreamedPairBatches(
            chunks=train.chunks, encoders=(source, target), options=options, buffer=data.shuffle_buffer
        )
    store = tokenized_pairs(cache_folder(recipe), train, tokenizers)
    batches = PairBatches(train, store, options, weights=splits.weights, temperature=data.temperature)
    if len(batches.rows) == 0:
        raise InputError(f"data.max_length is {data.max_length} tokens; every training pair is longer")
    if too_long := len(store) - len(batches.rows):
        say(f"{too_long:,} of {len(store):,} training pairs are longer than data.max_length and left out")
    source_sample, target_sample = samples
    if source_sample and target_sample:
        return StreamedPairBatches.resegmenting(batches, (source_sample, target_sample))
    return batches


class TranslationScoring:
    """Scores of translations: BLEU, chrF and others against raw references, and the loss.

    Args:
        recipe, splits, tokenizers: as for `translation_task`.
    """

    def __init__(self, recipe: Recipe[ParallelData], splits: Splits, tokenizers: Tokenizers):
        self.recipe, self.splits, self.tokenizers = recipe, splits, tokenizers
        self._options = scoring_options(recipe.evaluation)

    @cached_property
    def pairs(self) -> dict[str, list[tuple[str, str]]]:
        """(source, target) of the splits that are scored."""
        corpora = {"validation": self.splits.validation, "test": self.splits.test}
        return {split: [(row["source"], row["target"]) for row in corpus.dataset] for split, corpus in corpora.items()}

    def validate(self, model: PreTrainedModel) -> list[Score]:
        """The loss, and if the weights are selected by another score, those of greedy translations."""
        scores = [self._loss(model, "validation")]
        if self.recipe.evaluation.select_by != LOSS.name:
            sources, references = map(list, zip(*self.pairs["validation"], strict=True))
            outputs = self._translate(model, sources, num_beams=1)
            scores += score_outputs(outputs, [references], self._options, validation_metrics())
        return scores

    def validation_samples(self, model: PreTrainedModel) -> list[list[str]]:
        """(source, reference, output) of the first validation sentences, translated greedily."""
        pairs = self.pairs["validation"][: self.recipe.evaluation.validation_samples]
        outputs = self._translate(model, [source for source, _ in pairs], num_beams=1)
        return [[*pair, output] for pair, output in zip(pairs, outputs, strict=True)]

    def evaluate(self, model: PreTrainedModel, split: str) -> Evaluation:
        """Scores and translations of a whole split, by beam search."""
        decoding = self.recipe.evaluation.beam_search
        sources, references = map(list, zip(*self.pairs[split], strict=True))
        outputs = self._translate(model, sources, **decoding)
        scores = score_outputs(outputs, [references], self._options, resamples=RESAMPLES)
        scores.append(self._loss(model, split))
        evaluation = Evaluation(scores=scores, outputs=outputs, decoding=decoding, pairs=self.pairs[split])
        if split != "test":
            return evaluation
        domains = gather_others(domains_of_rows(self.recipe.data, self.splits.test))
        return replace(evaluation, domains=domains, unseen_words=self._unseen_words())

    def _unseen_words(self) -> UnseenWords | None:
        """Of the test split's sources; a stream of training text is not read once more for it."""
        if isinstance(train := self.splits.train, TextStream):
            return None
        sources = pa.chunked_array([chunk.column("source") for chunk in self.splits.test.chunks_without_tags()])
        return count_unseen_words(
            sources.combine_chunks(), (chunk.column("source") for chunk in train.chunks_without_tags())
        )

    def samples(self, outputs: Sequence[str]) -> list[tuple[str, ...]]:
        """(source, reference, output) of the first test sentences."""
        pairs = self.pairs["test"][: self.recipe.evaluation.samples]
        return [(source, reference, output) for (source, reference), output in zip(pairs, outputs, strict=False)]

    def facts(self) -> list[SplitFacts]:
        """Sizes of the splits that are scored."""
        facts = []
        for split, pairs in self.pairs.items():
            tokens = sum(len(side) for pair in self._encode(pairs) for side in pair)
            facts.append(SplitFacts(name=split, examples=len(pairs), tokens=tokens))
        return facts

    def _encode(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        sides = zip(*pairs, strict=True)
        ids = [batch_encoder(tokenizer)(list(side)) for tokenizer, side in zip(self.tokenizers, sides, strict=True)]
        return list(zip(*ids, strict=True))

    def _loss(self, model: PreTrainedModel, split: str) -> Score:
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
            max_length=self.recipe.data.max_length,
            **decoding,
        )


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


def _describe(config: Mapping[str, Any], languages: Sequence[str]) -> tuple[str, str]:
    layers = f"{config['encoder_layers']} + {config['decoder_layers']}"
    return f"An encoder-decoder Transformer of {layers} layers", f"It translates {' to '.join(languages) or 'text'}."


def _limits(longest: int) -> list[str]:
    return [
        "It translates in this one direction, sentence by sentence, without regard to context. "
        f"Inputs are cut off after {longest:,} tokens.",
        "A fluent translation can be wrong. Have someone who knows both languages check what matters.",
    ]


TRANSLATION = Objective(
    name="seq2seq",
    summary="Train a translation model",
    hub_task="translation",
    family=FAMILIES["seq2seq"],
    data=ParallelData,
    open_splits=pair_splits,
    make_task=translation_task,
    tokenizer_needs=lambda recipe: TokenizerNeeds(append_eos=True, max_length=recipe.data.max_length),
    selects_by_outputs=True,
    card=CardWords(
        title="Translation",
        unit="sentence pairs",
        describe=_describe,
        use="""translate = pipeline("translation", model=model_id, trust_remote_code=True)
print(translate({example})[0]["translation_text"])""",
        own_use="print(paperformer.translate(model_id, [{example}])[0])",
        own_command='paperformer translate "$model_id" --input sentences.txt --output translations.txt',
        about_scores="References are the test set's own text, as it was given; scores compare only where their "
        "signatures are the same.",
        sample_columns=("Source", "Reference", "Output"),
        limits=_limits,
    ),
)
