"""The model card: what a model is, how to use it, how well it does, and how it was made, all from a run's own
records.

The text is in `model_cards/card.md.jinja`; here the facts become the words and figures that fill it. A
sentence is there only if a fact stands behind it.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..atomic_files import replace_file
from ..data.splits import SplitFacts
from ..evaluation.domains import DomainScores
from ..evaluation.evaluation_file import EVALUATION_FILE, read_scores
from ..evaluation.metrics import Score
from ..evaluation.translation_report import Weaknesses
from ..tasks.objective import CardWords
from ..tasks.registry import objective_of_task
from .markdown import fenced, markdown_row

BARS = "▁▂▃▄▅▆▇█"
CURVE_ROWS = 10
"""At most so many points of the validation curve get a row in the table."""


@dataclass(frozen=True, kw_only=True)
class ModelCardFacts:
    """What a card is made of."""

    name: str
    """The model's name, which is its run's."""

    task: str
    """The task, by its name on the Hub: that of an objective."""

    dataset: str
    """What it was trained on: a title to read, or a data set's name on the Hub."""

    hub_datasets: Sequence[str] = ()
    """The names of the data sets that are on the Hub; the card links to them."""

    splits: Sequence[SplitFacts]
    """The parts of the data set that were used, training first."""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """Rows that were left out of the training text before training: reason -> how many."""

    languages: Sequence[str] = ()
    """Language codes; for translation, source and target."""

    license: str | None = None
    """Licence of the model, as the Hub writes it (`apache-2.0`); None if none was given."""

    base: Mapping[str, str] | None = None
    """The model whose weights it began with, if any: its `name`, and the `sha256` of its weights."""

    config: Mapping[str, Any]
    """The model's configuration, `model.config.to_dict()`."""

    parameters: int
    """How many parameters it has, shared ones counted once."""

    recipe: str
    """The run's options, as YAML."""

    command: str
    """The command line of the run."""

    seed: int
    """The run's seed."""

    hardware: str
    """On what it was trained."""

    minutes: float
    """Duration of training."""

    versions: Mapping[str, str]
    """Versions of the software: name -> version."""

    validation_curve: Sequence[tuple[int, float]]
    """(step, loss on the validation split in nats a token), by step."""

    evaluation: Mapping[str, Any]
    """What was written to evaluation.json: the scores of one split, or the name of each split -> its
    scores."""

    samples: Sequence[Sequence[str]]
    """(source, reference, output) of translations, (prompt, continuation) of language models."""

    domains: Sequence[str] = ()
    """What kinds of text the test split has, by name."""

    weaknesses: Weaknesses | None = None
    """Where the model is worst on the test split."""

    joules: float | None = None
    """Energy that training took, where it is known."""

    energy_source: str = ""
    """How that was measured."""


def write_card(folder: str | PathLike[str], facts: ModelCardFacts) -> Path:
    """Writes README.md, the model's card, into its folder, whole or not at all.

    Returns:
        The path of the card.

    Raises:
        ValueError: if the evaluation has no scores, or not the expected form.
    """
    path = Path(folder) / "README.md"
    replace_file(path, f"{build_card(facts)}\n")
    return path


def build_card(facts: ModelCardFacts) -> ModelCard:
    """The card of a model, with the metadata by which the Hub lists and links it.

    Raises:
        ValueError: if the evaluation has no scores, or not the expected form.
    """
    scores = read_scores(facts.evaluation)
    if not scores:
        raise ValueError(f"{EVALUATION_FILE} of {facts.name} has no scores; evaluate the model before writing its card")
    objective = objective_of_task(facts.task)
    words = objective.card
    example = json.dumps(facts.samples[0][0] if facts.samples else "...", ensure_ascii=False)
    best = min(facts.validation_curve, key=lambda point: point[1], default=None)
    return ModelCard.from_template(
        _metadata(facts, scores),
        template_str=resources.files("paperformer.model_cards").joinpath("card.md.jinja").read_text("utf-8"),
        facts=facts,
        words=words,
        auto_class=objective.family.auto_head,
        description=_description(facts, words),
        model_id=json.dumps(facts.name),  # a JSON string is a Python string as well
        example=example,
        use=words.use.format(example=example),
        call=words.call.format(example=example),
        results=[
            markdown_row(score.split, score.metric.label, score.shown, score.basis, score.decoding or "–")
            for score in scores
        ],
        splits=[
            markdown_row(
                split.name, *("–" if count is None else f"{count:,}" for count in (split.examples, split.tokens))
            )
            for split in facts.splits
        ],
        left_out=", ".join(f"{count:,} rows ({reason})" for reason, count in facts.left_out.items() if count),
        sparkline=_sparkline([loss for _, loss in facts.validation_curve]),
        curve=[markdown_row(f"{step:,}", f"{loss:.4f}") for step, loss in _thinned(facts.validation_curve)],
        best=best,
        own_use=words.own_use.format(example=example),
        own_command=words.own_command.format(example=_quoted_for_shell(facts)),
        minutes=f"{facts.minutes:,.1f}",
        cost=_cost(facts),
        lengths=_lengths(facts.weaknesses),
        worst=_worst(facts.weaknesses),
        domains=_domains(facts.weaknesses),
        unseen=_unseen_words(facts.weaknesses),
        versions=", ".join(f"{name} {version}" for name, version in facts.versions.items()),
        samples=_samples(facts, words),
        limits=_limits(facts, words, scores),
        fenced=fenced,
    )


def set_model_id(card: Path, model_id: str) -> None:
    """Makes a card's example code load the model by this name: a folder's path, or `USER/NAME` on the Hub."""
    text = card.read_text("utf-8")
    changed = re.sub(
        r'^(model_id ?= ?)".*"$', lambda match: match[1] + json.dumps(model_id), text, flags=re.MULTILINE
    )  # in Python, and without blanks in a shell
    if changed != text:
        replace_file(card, changed)


def _metadata(facts: ModelCardFacts, scores: Sequence[Score]) -> ModelCardData:
    """The YAML front matter."""
    # The Hub takes ISO 639 codes: of a locale such as de_AT, its language.
    languages = dict.fromkeys(re.split("[-_]", code)[0].lower() for code in facts.languages)
    return ModelCardData(
        model_name=facts.name,
        library_name="transformers",
        pipeline_tag=facts.task,
        language=[code for code in languages if re.fullmatch("[a-z]{2,3}", code)] or None,
        license=facts.license,
        datasets=list(facts.hub_datasets) or None,
        base_model=facts.base["name"] if facts.base and "/" in facts.base["name"] else None,
        metrics=list(dict.fromkeys(score.metric.name for score in scores if score.metric.on_hub)) or None,
        tags=["paperformer"],
        eval_results=[
            EvalResult(
                task_type=facts.task,
                task_name=objective_of_task(facts.task).card.title,
                dataset_type=facts.hub_datasets[0] if facts.hub_datasets else facts.dataset,
                dataset_name=facts.dataset,
                dataset_split=score.split,
                metric_type=score.metric.name,
                metric_name=score.metric.label,
                metric_value=round(score.value, score.metric.digits),
                metric_args={"measured_over": score.basis} | ({"decoding": score.decoding} if score.decoding else {}),
            )
            for score in scores
        ],
    )


def _description(facts: ModelCardFacts, words: CardWords) -> str:
    """One sentence on the architecture, one on what it does."""
    config = facts.config
    kind, purpose = words.describe(config, facts.languages)
    begun = "trained from scratch"
    if facts.base is not None:
        begun = f"trained further from {facts.base['name']} (SHA-256 of its weights: {facts.base['sha256']})"
    return (
        f"{kind}, {config['hidden_size']} wide, with {config['num_attention_heads']} attention heads, "
        f"{config['norm_position']}-norm ({config['norm_type']}), {config['position_embedding_type']} "
        f"positions and {_vocabulary(config)}: {facts.parameters:,} parameters, "
        f"{begun}. {purpose}"
    )


def _vocabulary(config: Mapping[str, Any]) -> str:
    if source := config.get("source_vocab_size"):
        return f"vocabularies of {source:,} (source) and {config['vocab_size']:,} tokens (target)"
    return f"a vocabulary of {config['vocab_size']:,} tokens"


def _quoted_for_shell(facts: ModelCardFacts) -> str:
    return shlex.quote(facts.samples[0][0] if facts.samples else "...")


def _cost(facts: ModelCardFacts) -> str:
    """What training took besides time, in a sentence."""
    if facts.joules is None:
        return "The energy that it took is not known."
    return f"It took {facts.joules / 3.6e6:.3g} kWh, {facts.energy_source}."


def _lengths(weaknesses: Weaknesses | None) -> list[str]:
    """Rows of a table: length of the source, sentences, scores."""
    return [
        markdown_row(
            f"{group.shortest:,} to {group.longest:,}",
            f"{group.scores[0].count:,}",
            *(f"{score.value:.{score.metric.digits}f}" for score in group.scores),
        )
        for group in (weaknesses.by_length if weaknesses else ())
    ]


def _worst(weaknesses: Weaknesses | None) -> list[str]:
    """Rows of a table: source, reference, output, chrF."""
    return [
        markdown_row(source, reference, output, f"{value:.1f}")
        for source, reference, output, value in (weaknesses.worst if weaknesses else ())
    ]


def _domains(weaknesses: Weaknesses | None) -> list[str]:
    """A table of the domains, if there are several."""
    if weaknesses is None or len(weaknesses.by_domain) < 2:
        return []
    return _table_of_parts("Domain", weaknesses.by_domain)


def _unseen_words(weaknesses: Weaknesses | None) -> dict[str, Any] | None:
    """How many words the training text has not, and a table of the sentences with such words and without."""
    if weaknesses is None or weaknesses.unseen_words is None or (share := weaknesses.unseen_words.share()) is None:
        return None
    counts = weaknesses.unseen_words
    table = _table_of_parts("Unseen words", weaknesses.by_unseen_words) if len(weaknesses.by_unseen_words) > 1 else []
    return {
        "share": f"{100 * share:.2f}",
        "unseen": f"{counts.unseen.sum():,}",
        "words": f"{counts.words.sum():,}",
        "table": table,
    }


def _table_of_parts(title: str, parts: Sequence[DomainScores]) -> list[str]:
    """Rows: a part, its size, its scores, and what there is to say of it."""
    metrics = [score.metric for score in parts[0].scores]
    has_words = title == "Domain" and any(part.unseen_words is not None for part in parts)
    titles = [title, metrics[0].over.capitalize(), *(metric.label for metric in metrics)]
    titles += ["Unseen words"] * has_words + ["Against the whole"]
    rows = [f"| {' | '.join(titles)} |", "|---|" + "---:|" * (len(titles) - 2) + "---|"]
    for part in parts:
        cells = [part.name, f"{part.scores[0].count:,}", *(score.shown for score in part.scores)]
        if has_words:
            cells.append("–" if part.unseen_words is None else f"{100 * part.unseen_words:.2f} %")
        rows.append(markdown_row(*cells, _verdict(part)))
    return rows


def _verdict(part: DomainScores) -> str:
    if part.p_worse is None:
        return "too little text to tell"
    return f"worse (p = {part.p_worse:.3f})" if part.is_worse else "not worse"


def _limits(facts: ModelCardFacts, words: CardWords, scores: Sequence[Score]) -> list[str]:
    """What not to expect, as far as the facts tell."""
    limits = []
    if facts.splits:
        examples = facts.splits[0].examples
        amount = f"the {words.unit}" if examples is None else f"{examples:,} {words.unit}"
        limits.append(
            f"All it knows comes from {amount} of {facts.dataset}"
            + (
                ": no other text was used, and no pretrained weights. "
                if facts.base is None
                else f", and from what {facts.base['name']} was trained on. "
            )
            + "Expect errors on other subjects, styles and spellings."
        )
    limits += _limits_of_scores(facts, scores)
    limits += words.limits(facts.config["max_position_embeddings"])
    limits.append("Nobody has examined it for bias or for harmful output.")
    return limits


def _limits_of_scores(facts: ModelCardFacts, scores: Sequence[Score]) -> list[str]:
    """On what it was measured, and on what part of that it is worse than on the whole."""
    splits = " and ".join(dict.fromkeys(score.split for score in scores))
    measured = f"It was scored on the {splits} split "
    weaknesses = facts.weaknesses or Weaknesses()
    names = [domain.name for domain in weaknesses.by_domain] or list(facts.domains)
    if not names:
        return [f"{measured}of the same data only; on other text it will do worse."]
    if len(names) == 1:
        return [f"{measured}only, and that on one domain: {names[0]}. On any other it was not measured."]
    apart = "their scores are above" if weaknesses.by_domain else "they were not scored one by one"
    limits = [f"{measured}only, and the test on {len(names)} domains, {_listed(names)}; {apart}. "
              "On any other it was not measured."]  # fmt: skip
    whole = {score.metric: score for score in scores if score.split == "test"}
    worse = [
        f"{part.name} ({score.metric.label} {score.shown}; of the whole test split {whole[score.metric].shown})"
        for part in weaknesses.by_domain
        if part.is_worse and (score := part.scores[-1]).metric in whole
    ]
    return limits + ([f"It is significantly worse on {_listed(worse)}."] if worse else [])


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _samples(facts: ModelCardFacts, words: CardWords) -> list[dict[str, str]]:
    """Sample outputs, each part ready to be shown."""
    if words.sample_columns:
        return [{"row": markdown_row(*sample)} for sample in facts.samples]
    return [{"prompt": fenced(prompt), "continuation": fenced(continuation)} for prompt, continuation in facts.samples]


def _sparkline(values: Sequence[float]) -> str:
    """The values as a row of bars, the lowest value as the lowest bar."""
    if not values:
        return ""
    lowest, height = min(values), (max(values) - min(values)) or 1.0
    return "".join(BARS[round((value - lowest) / height * (len(BARS) - 1))] for value in values)


def _thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most CURVE_ROWS points of a curve: the first, the last, the best, and others evenly between."""
    if len(curve) <= CURVE_ROWS:
        return list(curve)
    evenly = {round(row * (len(curve) - 1) / (CURVE_ROWS - 2)) for row in range(CURVE_ROWS - 1)}
    best = min(range(len(curve)), key=lambda index: curve[index][1])
    return [curve[index] for index in sorted(evenly | {best})]
