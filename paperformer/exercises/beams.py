"""Greedy search beside beam search, sentence by sentence: what differs, what it is worth, and which is likelier."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics import BLEU, CHRF
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..api.given_models import check_beams, place_of
from ..api.recipes import objective_of, read_recipe
from ..commands.loading import load, load_target_tokenizer, model_name
from ..training.console.input_error import InputError
from ..training.console.progress import ProgressBar
from ..training.data.batches.token_budget import pad
from ..training.data.readers.parallel_files import ParallelFiles
from ..training.data.text.bad_lines import BadLines
from ..training.evaluation.decoding import generate
from ..training.reporting.markdown import markdown_table
from ..translation.likelihood import log_probabilities, until_end
from .card import Card, write_card

EPSILON = 1e-4  # log-probabilities of one text, computed in two batches, differ by less


@dataclass(frozen=True)
class Hypothesis:
    """A translation, and what it is worth."""

    text: str
    log_probability: float
    """Of all its tokens and the end mark, in nats, by the model itself."""

    tokens: int
    bleu: float
    chrf: float


@torch.no_grad()
def search(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    source: str,
    reference: str,
    num_beams: int,
) -> Hypothesis:
    """Translates a sentence; with one beam, greedily."""
    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 512))
    ids = pad([tokenizer(source, truncation=True, max_length=longest).input_ids], 0).to(model.device)  # (1, S)
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    most = min(2 * ids.shape[1] + 20, longest - 1)
    output = generate(
        model, **given, num_beams=num_beams, length_penalty=1.0, do_sample=False, max_new_tokens=most
    )  # (1, 1 + T)
    written = output[:, 1:]
    logits = model(**given, decoder_input_ids=output[:, :-1]).logits  # (1, T, V)
    end: Any = model.generation_config.eos_token_id
    counts = until_end(written, end if isinstance(end, list) else [end])
    (text,) = target_tokenizer.batch_decode(output, skip_special_tokens=True)
    return Hypothesis(
        text=text,
        log_probability=float(log_probabilities(logits, written)[counts].sum()),
        tokens=int(counts.sum()),
        bleu=BLEU(effective_order=True).sentence_score(text, [reference]).score,
        chrf=CHRF().sentence_score(text, [reference]).score,
    )


def compare_searches(
    folder: Path,
    command: str,
    *,
    model: str,
    source: str | None,
    reference: str | None,
    sentences: int,
    num_beams: int,
    trust_remote_code: bool,
) -> Path:
    """Translates sentences greedily and by beam search, and writes the card.

    Args:
        folder: of the exercise.
        command: for the card.
        model: a translation model: its folder, its run's, or its name on the Hub.
        source, reference: files, line by line; without them, the test split of the model's run.
        sentences: how many, evenly spread over the text.
        num_beams: beam size, at least 2.
        trust_remote_code: as `load` takes it.

    Returns:
        The path of the card.

    Raises:
        InputError: if the model is none for translation or cannot be loaded, or if there are too few sentences.
    """
    started = time.perf_counter()
    check_beams(num_beams)
    if num_beams < 2:
        raise InputError("--num_beams is 1, which is greedy search itself; it must be at least 2")
    if sentences < 1:
        raise InputError(f"--sentences is {sentences}; it must be at least 1")
    place = place_of(model)
    loaded, tokenizer = load(place, "translation", trust_remote_code=trust_remote_code)
    pairs = spread(_read_pairs(place, source, reference), sentences)
    target_tokenizer = load_target_tokenizer(loaded) or tokenizer
    rows = []
    for text, answer in ProgressBar(pairs, desc="translate", unit=" sentences"):
        greedy, beam = (search(loaded, tokenizer, target_tokenizer, text, answer, beams) for beams in (1, num_beams))
        rows.append((text, answer, greedy, beam))
    figures = _figures(rows)
    card = Card(
        title=f"Greedy search against {num_beams} beams",
        summary=f"{len(rows)} sentences, translated by {model_name(place)} greedily and by beam search with "
        f"{num_beams} beams, where a finished hypothesis counts by its log-probability over its length.",
        sections=["## Results", *_in_words(figures, num_beams), "## Sentence by sentence", _table(rows)],
        figures=figures | {"sentences": _records(rows)},
        command=command,
        seed=None,
        minutes=(time.perf_counter() - started) / 60,
        software=("paperformer", "torch", "transformers", "sacrebleu"),
    )
    return write_card(folder, card)


def _read_pairs(model: str, source: str | None, reference: str | None) -> list[tuple[str, str]]:
    """(source, reference) of the files, or of the test split that the model's run was scored on."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference are two files that belong together; give both, or none")
    if source is not None and reference is not None:
        chunks = ParallelFiles(source=Path(source), target=Path(reference)).chunks(BadLines())
        return [(row["source"], row["target"]) for chunk in chunks for row in chunk.to_pylist()]
    recipe_path = Path(model).parent / "recipe.yaml"
    if not recipe_path.is_file():
        raise InputError(
            f"{model} does not lie in its run's folder, with test sentences; give --source and --reference"
        )
    recipe = read_recipe(recipe_path, output_dir=recipe_path.parent.parent)
    return [(row["source"], row["target"]) for row in
            objective_of(recipe).open_splits(recipe).test.dataset]  # fmt: skip


def spread(pairs: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """So many of the pairs, evenly spread, beginning with the first."""
    if len(pairs) < count:
        raise InputError(f"there are {len(pairs):,} sentences; --sentences {count} needs more, or give fewer")
    return [pairs[index * len(pairs) // count] for index in range(count)]


Row = tuple[str, str, Hypothesis, Hypothesis]
"""Source, reference, and what the two searches found."""


def _records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {"source": source, "reference": reference, "greedy": asdict(greedy), "beam": asdict(beam)}
        for source, reference, greedy, beam in rows
    ]


def _figures(rows: Sequence[Row]) -> dict[str, Any]:
    differ = [(greedy, beam) for _, _, greedy, beam in rows if greedy.text != beam.text]
    references = [[reference for _, reference, _, _ in rows]]
    corpus = {}
    found = {"greedy": [greedy.text for _, _, greedy, _ in rows], "beam": [beam.text for _, _, _, beam in rows]}
    for name, texts in found.items():
        bleu, chrf = BLEU(), CHRF()
        corpus[name] = {
            "bleu": bleu.corpus_score(texts, references).score,
            "chrf": chrf.corpus_score(texts, references).score,
        }
        signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
    return {
        "compared": len(rows),
        "differ": len(differ),
        "beam_better_chrf": sum(beam.chrf > greedy.chrf for greedy, beam in differ),
        "beam_worse_chrf": sum(beam.chrf < greedy.chrf for greedy, beam in differ),
        "beam_better_bleu": sum(beam.bleu > greedy.bleu for greedy, beam in differ),
        "beam_worse_bleu": sum(beam.bleu < greedy.bleu for greedy, beam in differ),
        "beam_likelier": sum(beam.log_probability > greedy.log_probability + EPSILON for greedy, beam in differ),
        "beam_less_likely": sum(beam.log_probability < greedy.log_probability - EPSILON for greedy, beam in differ),
        "corpus": corpus,
        "signatures": signatures,
    }


def _in_words(figures: dict[str, Any], num_beams: int) -> list[str]:
    rows = [
        [name, f"{of['bleu']:.2f}", f"{of['chrf']:.2f}"]
        for name, of in zip(("greedy", f"{num_beams} beams"), figures["corpus"].values(), strict=True)
    ]
    return [
        markdown_table(["Search", "BLEU", "chrF"], rows, right=(1, 2)),
        f"BLEU: {figures['signatures']['bleu']}. chrF: {figures['signatures']['chrf']}. Of so few sentences they tell "
        "little about the model. BLEU of a sentence is of as many orders as it has n-grams (eff:yes).",
        f"{figures['differ']} of {figures['compared']} translations differ. Of these, the one by beam search is better "
        f"in {figures['beam_better_chrf']} and worse in {figures['beam_worse_chrf']} by sentence chrF; better in "
        f"{figures['beam_better_bleu']} and worse in {figures['beam_worse_bleu']} by sentence BLEU; likelier to the "
        f"model in {figures['beam_likelier']}, and less likely in {figures['beam_less_likely']}.",
    ]


def _table(rows: Sequence[Row]) -> str:
    titles = ["Source", "Reference", "Greedy", "Beam", "log p, greedy", "log p, beam", "chrF, greedy", "chrF, beam",
              "BLEU, greedy", "BLEU, beam"]  # fmt: skip
    cells = [
        [
            source,
            reference,
            greedy.text,
            beam.text if beam.text != greedy.text else "the same",
            f"{greedy.log_probability:.3f}",
            f"{beam.log_probability:.3f}",
            f"{greedy.chrf:.1f}",
            f"{beam.chrf:.1f}",
            f"{greedy.bleu:.1f}",
            f"{beam.bleu:.1f}",
        ]
        for source, reference, greedy, beam in rows
    ]
    return markdown_table(titles, cells, right=range(4, len(titles)))
