"""Searching for translations, with what the search knows of them: scores, several a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar, is_first_process
from ..training.evaluation.decoding import SourceBatch, generate, longest_sequence, source_batches
from ..training.evaluation.perplexity import is_ours
from ..translation.cutting import Notes, Piece, cut_texts
from ..translation.likelihood import log_probabilities, until_end
from .alignment import align_words
from .constrained_search import Ids, constrained_beam_search, rank
from .forced_prefixes import ForcedPrefixes, prefix_ids
from .glossary import Glossary, ids_of, missing_terms
from .minimum_bayes_risk import best_by_mean_chrf, draw_samples
from .n_best import NOTHING, Hypothesis, join_pieces
from .translator import Translator

LOGITS_AT_ONCE = 2**23
"""Of one call of a model: 32 MB in float32."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How translations are searched for, and what is told of them.

    Raises:
        InputError: for a value out of its range, or two that exclude each other.
    """

    num_beams: int = 5
    length_penalty: float = 1.0

    prefix: str = ""
    """What stands before every source."""

    n_best: int = 1
    """How many translations of a text."""

    mbr: int | None = None
    """How many samples minimum-Bayes-risk decoding chooses from; None: beam search."""

    epsilon: float = 0.02
    """The least probability of a token that is sampled (Freitag et al. 2023, arXiv 2305.09860); 0 samples from all."""

    seed: int = 1
    """Of the samples."""

    glossary: Glossary | None = None

    alignment: bool = False
    """Whether it is told which words belong together."""

    alignment_layer: int | None = None
    """As `align_words` takes it."""

    def __post_init__(self) -> None:
        least = {"num_beams": self.num_beams, "n_best": self.n_best, "mbr": 1 if self.mbr is None else self.mbr}
        for name, value in least.items():
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        limit, count = ("num_beams", self.num_beams) if self.mbr is None else ("mbr", self.mbr)
        if self.n_best > count:
            raise InputError(
                f"n_best is {self.n_best} and {limit} is {count}; give --{limit} {self.n_best} or more, since no more "
                "translations are found"
            )
        if not 0 <= self.epsilon < 1:
            raise InputError(f"epsilon is {self.epsilon}; it must be at least 0 and less than 1")
        if self.mbr is not None and self.glossary is not None:
            raise InputError("mbr and glossary are both given; terms need beam search: leave mbr out")


@dataclass(frozen=True)
class Task:
    """A piece, and what its translation has to be like."""

    piece: Piece
    target_prefix: str = ""
    terms: tuple[str, ...] = ()


@torch.no_grad()
def search_texts(
    translator: Translator,
    texts: Sequence[str],
    note: Notes,
    search: Search,
    *,
    target_prefixes: Sequence[str] | None = None,
    show_progress: bool = True,
) -> list[list[Hypothesis]]:
    """The best translations of texts of any length, best first.

    As `streaming.translate_texts` otherwise: a text that is too long is translated in pieces, and a text without
    characters has one translation without any.

    Args:
        note: told of a text that is too long, of one whose translation has not all the terms of the glossary, and of
            one that does not begin as it should, by its place from 0.
        target_prefixes: what the translations of each text are to begin with; None: nothing.

    Raises:
        InputError: if terms are wanted of a model that is not ours; as `align_words` does.
    """
    translator.model.eval()
    if search.glossary is not None and not is_ours(translator.model):
        raise InputError(
            f"the glossary needs one of paperformer's models, not a {translator.model.config.model_type}; paperformer "
            "convert --from makes such of some others"
        )
    prefixes = [""] * len(texts) if target_prefixes is None else [prefix.strip() for prefix in target_prefixes]
    tasks = [
        Task(
            piece,
            prefixes[piece.owner] if piece.is_first else "",
            tuple(search.glossary.wanted(piece.text)) if search.glossary else (),
        )
        for piece in cut_texts(texts, translator.tokenizer, translator.longest, search.prefix, note)
    ]
    found = _search_pieces(translator, tasks, search, show_progress)
    own: list[list[int]] = [[] for _ in texts]
    for place, task in enumerate(tasks):
        own[task.piece.owner].append(place)
    return [
        _of_text(index, [found[place] for place in places], [tasks[place] for place in places], note, search)
        if places
        else [replace(NOTHING, alignment=() if search.alignment else None)]
        for index, places in enumerate(own)
    ]


def _of_text(
    index: int, found: Sequence[Sequence[Hypothesis]], tasks: Sequence[Task], note: Notes, search: Search
) -> list[Hypothesis]:
    """The translations of a text from those of its pieces; says what they are to have and have not."""

    def score(joined: Hypothesis) -> float:
        return joined.score if search.mbr else joined.log_probability / joined.tokens**search.length_penalty

    hypotheses = join_pieces(found, [task.piece.first_word for task in tasks], search.n_best, score)
    if hypotheses[0].missing_terms:
        terms = ", ".join(map(repr, hypotheses[0].missing_terms))
        note(index, f"its translation is without the glossary's {terms}")
    if not hypotheses[0].text.startswith(tasks[0].target_prefix):
        note(index, f"its translation does not begin with {tasks[0].target_prefix!r}, which the model cannot write so")
    return hypotheses


def _search_pieces(
    translator: Translator, tasks: Sequence[Task], search: Search, show_progress: bool
) -> list[list[Hypothesis]]:
    """The translations of each piece: without regard to terms, and where these are missing then, once more with it."""
    found: list[list[Hypothesis]] = [[] for _ in tasks]
    is_shown = show_progress and is_first_process()
    with ProgressBar(total=len(tasks), desc="translate", unit=" sent", disable=not is_shown) as bar:
        for batch in _batches(translator, tasks, search, search.mbr or search.num_beams):
            sequences = (_search_samples if search.mbr else _search_beams)(translator, batch, tasks, search)
            for row, hypotheses in zip(batch.rows, sequences, strict=True):
                found[row] = _with_faults(hypotheses, tasks[row])
            bar.update(len(batch.rows))
        for places, num_beams in _without_terms(translator, tasks, found, search):
            again = [tasks[place] for place in places]
            for batch in _batches(translator, again, search, num_beams, with_terms=True):
                constrained = _search_with_terms(translator, batch, again, replace(search, num_beams=num_beams))
                for row, hypotheses in zip(batch.rows, constrained, strict=True):
                    found[places[row]] = _with_faults(hypotheses, again[row])
    if search.alignment:
        found = _aligned(translator, tasks, found, search)
    return found


def _batches(
    translator: Translator, tasks: Sequence[Task], search: Search, hypotheses: int, *, with_terms: bool = False
) -> Iterator[SourceBatch]:
    """The pieces in batches. A translation may be longer by what it has to begin with, and by its terms.

    What is searched together may be longer by as much.
    """
    forced = [len(prefix_ids(task.target_prefix, translator.writer)) for task in tasks]
    if with_terms:
        of_terms = (sum(map(len, _ids_of_terms(translator, task))) for task in tasks)
        forced = [one + other for one, other in zip(forced, of_terms, strict=True)]
    longest = longest_sequence(translator.model) - 1
    for more in sorted(set(forced)):
        places = np.flatnonzero(np.array(forced) == more)
        for batch in source_batches(
            translator.model,
            translator.tokenizer,
            [search.prefix + tasks[place].piece.text for place in places.tolist()],
            max_length=translator.longest,
            hypotheses=hypotheses,
        ):
            limit = min(batch.max_new_tokens + more, longest)
            yield replace(batch, rows=places[batch.rows], max_new_tokens=limit)


def _with_faults(hypotheses: list[Hypothesis], task: Task) -> list[Hypothesis]:
    return [replace(each, missing_terms=tuple(missing_terms(each.text, task.terms))) for each in hypotheses]


def _without_terms(
    translator: Translator, tasks: Sequence[Task], found: Sequence[Sequence[Hypothesis]], search: Search
) -> Iterator[tuple[list[int], int]]:
    """The pieces that are to be translated once more, and with how many beams: two for each bank at least.

    What is searched together has as many tokens in its terms, and so as many beams as it would have alone.
    """
    groups: dict[int, list[int]] = {}
    for place, hypotheses in enumerate(found):
        if any(each.missing_terms for each in hypotheses):
            tokens = sum(map(len, _ids_of_terms(translator, tasks[place])))
            if tokens:
                groups.setdefault(max(search.num_beams, 2 * (tokens + 1)), []).append(place)
    for num_beams, places in sorted(groups.items()):
        yield places, num_beams


def _ids_of_terms(translator: Translator, task: Task) -> tuple[Ids, ...]:
    return tuple(filter(None, (ids_of(term, translator.writer) for term in task.terms)))


def _processors(translator: Translator, batch: SourceBatch, tasks: Sequence[Task], rows: int) -> LogitsProcessorList:
    """What makes the translations begin as they should; nothing if all are free."""
    prefixes = [prefix_ids(tasks[row].target_prefix, translator.writer) for row in batch.rows]
    return LogitsProcessorList([ForcedPrefixes(prefixes, rows, batch.input_ids.device)] if any(prefixes) else [])


def _search_beams(
    translator: Translator, batch: SourceBatch, tasks: Sequence[Task], search: Search
) -> list[list[Hypothesis]]:
    processors = _processors(translator, batch, tasks, search.num_beams)
    return score_sequences(translator, batch, _generate(translator, batch, search, processors), search)


def _search_with_terms(
    translator: Translator, batch: SourceBatch, tasks: Sequence[Task], search: Search
) -> list[list[Hypothesis]]:
    terms = [_ids_of_terms(translator, tasks[row]) for row in batch.rows]
    strategy = partial(constrained_beam_search, terms=terms, continues_word=translator.word_continuations)
    processors = _processors(translator, batch, tasks, search.num_beams)
    sequences = _generate(translator, batch, search, processors, custom_generate=strategy)
    return score_sequences(translator, batch, sequences, search, terms)


def _generate(
    translator: Translator, batch: SourceBatch, search: Search, processors: LogitsProcessorList, **options: object
) -> Tensor:
    """The ids of the best translations of each source, (B n, T), behind the mark that begins them."""
    return generate(
        translator.model,
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        num_beams=search.num_beams,
        num_return_sequences=search.n_best,
        length_penalty=search.length_penalty,
        do_sample=False,
        logits_processor=processors,
        max_new_tokens=batch.max_new_tokens,
        **options,
    )


def _search_samples(
    translator: Translator, batch: SourceBatch, tasks: Sequence[Task], search: Search
) -> list[list[Hypothesis]]:
    """By minimum Bayes risk."""
    assert search.mbr is not None
    processors = _processors(translator, batch, tasks, search.mbr)
    samples = draw_samples(translator.model, batch, search.mbr, search.epsilon, search.seed, processors)
    texts = translator.writer.batch_decode(samples, skip_special_tokens=True)
    best = [
        best_by_mean_chrf(texts[start : start + search.mbr], search.n_best)
        for start in range(0, len(texts), search.mbr)
    ]
    # Fewer than n_best are different: the last stands in for those that lack.
    rows = [
        start * search.mbr + place
        for start, own in enumerate(best)
        for place, _ in [*own, *[own[-1]] * (search.n_best - len(own))]
    ]
    scored = score_sequences(translator, batch, samples[rows], search)
    return [
        [replace(each, score=mean) for each, (_, mean) in zip(hypotheses, own, strict=False)]
        for hypotheses, own in zip(scored, best, strict=True)
    ]


def score_sequences(
    translator: Translator,
    batch: SourceBatch,
    sequences: Tensor,
    search: Search,
    terms: Sequence[tuple[Ids, ...]] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, in the order of the sequences, with what the model thinks of them.

    Their log-probabilities are computed once more, by teacher forcing: searches of every kind, and loops of every
    version of transformers, so have the same.

    Args:
        sequences: (B n, T).
        terms: of each source, the ids of those that its translation had to have.
    """
    end = translator.model.generation_config.eos_token_id
    counts = until_end(sequences[:, 1:], [end] if isinstance(end, int) else list(end or []))  # (B n, T - 1)
    log_probs = teacher_forced(translator.model, batch, sequences)
    texts = translator.writer.batch_decode(sequences, skip_special_tokens=True)
    pad, each = translator.writer.pad_token_id, len(sequences) // len(batch.rows)
    hypotheses: list[list[Hypothesis]] = [[] for _ in batch.rows]
    for row, text in enumerate(texts):
        ids, own = sequences[row, 1:][counts[row]].tolist(), log_probs[row][counts[row]].tolist()
        source = row // each
        if ids[0] == pad and hypotheses[source]:  # it stands in for one that was not found
            continue
        total = sum(own)
        score = total / len(ids) ** search.length_penalty
        if terms is not None:
            score = rank(ids, own, terms[source], search.length_penalty)
        hypotheses[source].append(Hypothesis(text=text, log_probability=total, tokens=len(ids), score=score))
    return hypotheses


def teacher_forced(model: PreTrainedModel, batch: SourceBatch, sequences: Tensor) -> Tensor:
    """The log-probability of each token, (B n, T - 1), in nats, of sequences (B n, T)."""
    each = len(sequences) // len(batch.input_ids)
    encoder: Any = model.get_encoder()
    states = encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state  # (B, S, E)
    states, masks = (rows.repeat_interleave(each, 0) for rows in (states, batch.attention_mask))
    at_once = max(1, LOGITS_AT_ONCE // (sequences.shape[1] * model.config.vocab_size))
    found = []
    for start in range(0, len(sequences), at_once):
        rows = slice(start, start + at_once)
        read, written = sequences[rows, :-1], sequences[rows, 1:]
        source = BaseModelOutput(last_hidden_state=states[rows])
        logits = model(encoder_outputs=source, attention_mask=masks[rows], decoder_input_ids=read).logits
        found.append(log_probabilities(logits, written))
    return torch.cat(found)


def _aligned(
    translator: Translator, tasks: Sequence[Task], found: Sequence[Sequence[Hypothesis]], search: Search
) -> list[list[Hypothesis]]:
    """The same with their alignments."""
    alignments = iter(
        align_words(
            translator.model,
            translator.tokenizer,
            translator.target_tokenizer,
            [task.piece.text for task, hypotheses in zip(tasks, found, strict=True) for _ in hypotheses],
            [each.text for hypotheses in found for each in hypotheses],
            longest=translator.longest,
            prefix=search.prefix,
            layer=search.alignment_layer,
        )
    )
    return [[replace(each, alignment=next(alignments)) for each in hypotheses] for hypotheses in found]
