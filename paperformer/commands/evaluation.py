"""Commands that say how good a model is, or finished outputs are."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from ..api.given_models import check_beams
from ..training.console.input_error import InputError
from ..training.recipe.evaluation import BleuTokenizer
from .loading import Dtype, check_task, load_config, model_name
from .text.in_shards import SHARD_LINES, Cluster, whole_path, work_in_shards

if TYPE_CHECKING:
    from ..training.evaluation.translation_report import TranslationReport
    from ..translation.checking import Window
    from ..translation.line_source import Line


class Scoring(TypedDict, total=False):
    """How translations are scored and what is written.

    Args:
        metrics: Which scores: bleu, chrf, chrf++, ter, exact_match, by default all; or metrics of the evaluate library,
            by their names on the Hub or the paths of their scripts. Example: '[bleu,meteor]'.
        bleu_tokenizer: How BLEU divides text into words: 13a (the default), zh, ja-mecab, ko-mecab, char or flores200
            where words are not separated, intl, or none for text that is tokenised already.
        lowercase: Score without regard to case.
        test: Of significance, against another system: bootstrap (the default; Koehn 2004) or randomisation (Riezler and
            Maxwell 2005).
        resamples: How many bootstrap resamples intervals are estimated from, by default 1000; 0 leaves them out.
        comet: Program of unbabel-comet that scores files, such as comet-score. It has to be in an environment of its
            own, since it wants older libraries.
        format: What is printed: table (the default), json, or markdown for a card.
        output_dir: Folder to write: evaluation.json, report.md, sentences.jsonl (a line for each sentence, with its
            scores), hypotheses.txt, and sentences.html, where two systems lie side by side.
    """

    metrics: list[str]
    bleu_tokenizer: BleuTokenizer
    lowercase: bool
    test: Literal["bootstrap", "randomisation"]
    resamples: int
    comet: str
    format: Literal["table", "json", "markdown"]
    output_dir: str


def score(
    hypotheses: str,
    reference: str | list[str],
    source: str | None = None,
    against: str | None = None,
    **scoring: Unpack[Scoring],
) -> None:
    """Score finished translations, without a model: intervals, n-grams, lengths, sentences; or against another system.

    Args:
        hypotheses: File of translations, one a line, or - for standard input; or .jsonl with a string a line, as runs
            leave them (runs/NAME/evaluation/test.outputs.jsonl).
        reference: File of raw reference translations, line by line; or several, '[one.de,two.de]'.
        source: File of the sources, by whose length scores are grouped, and which tables then show.
        against: File of another system's translations, to compare with.
    """
    from ..training.data.text.lines import read_lines
    from .aligned_files import check_same_count, read_outputs, read_references, system_name

    outputs = read_outputs(Path(hypotheses))
    references = read_references(reference, (Path(hypotheses), outputs))
    sources = None
    if source is not None:
        sources = [line or "" for line in read_lines(Path(source))]
        check_same_count((Path(source), sources), (Path(hypotheses), outputs))
    baseline = None
    if against is not None:
        baseline = system_name(against), read_outputs(Path(against))
        check_same_count((Path(against), baseline[1]), (Path(hypotheses), outputs))
    _report(outputs, references, sources, system_name(hypotheses), baseline, scoring)


def evaluate(
    model: str,
    text: str,
    reference: str | list[str] | None = None,
    against: str | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    prefix: str = "",
    processes: int = 1,
    engine: Literal["torch", "ctranslate2", "onnx"] = "torch",
    src_lang: str = "",
    tgt_lang: str = "",
    context_length: int | None = None,
    stride: int | None = None,
    documents: Literal["joined", "each", "blank_line"] | None = None,
    end_marks: bool = True,
    dtype: Dtype | None = None,
    trust_remote_code: bool = False,
    **scoring: Unpack[Scoring],
) -> None:
    """Score a model: its translations against references, also beside another model's, or how likely a text is to it.

    Args:
        model: A model of any kind: its folder, a run's folder, or its name (on the Hub, or cldr-en-de, shakespeare).
        text: File to translate, one sentence a line; for a language model or masked model, running text.
        reference: File of raw reference translations, line by line those of the text; or several, '[one.de,two.de]'.
            Without it, the text is a file of pairs, such as .tsv, source first.
        against: Another system to compare with: a file of its translations, or a model.
        num_beams: Beam size; by default each model's own, or 5.
        length_penalty: Exponent of the length by which a beam's score is divided; by default each model's own, or 1.
        prefix: Text to put before every sentence: a language tag, or what T5 is told to do.
        processes: How many processes translate, each a part of the text; on several GPUs each on one of its own.
        engine: What translates, as for paperformer translate: MODEL may be what paperformer export has written for it.
        src_lang: Of a model of many languages, the code of the one that it translates, as for paperformer translate.
        tgt_lang: And of the one that it translates into.
        context_length: Of a language model or masked model: tokens a window, by default as in its run's test, or the
            longest that it takes, at most 1,024.
        stride: Of a language model: tokens that a window goes on from the last, by default half a context.
        documents: Of running text: what the rows are, as data.documents in recipes.
        end_marks: Of a language model: whether the end of each document is predicted as well, as in training.
        dtype: What it is computed in: float32, bfloat16, or on a CPU int8; by default as weights are stored.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..api import texts

    check_beams(num_beams)
    if Path(model).is_file():
        raise InputError(
            f"{model} is a file; it must be a model's folder, or a name on the Hub. Translations that are finished are "
            f"scored by: paperformer score {model} REFERENCE"
        )
    model = texts.place_of(model)
    task = "translation"
    if engine == "torch":
        task = check_task(load_config(model, trust_remote_code=trust_remote_code), None, model)
    windows = {"context_length": context_length, "stride": stride, "documents": documents}
    loading: dict[str, Any] = {"src_lang": src_lang or None, "tgt_lang": tgt_lang or None}
    of_translation = {"reference": reference, "against": against, "prefix": prefix or None, **loading, **scoring}
    if task != "translation":
        _refuse(of_translation, {"format"}, f"{model} holds a {task} model; it translates nothing")
        _refuse({"processes": None if processes == 1 else processes}, set(), f"one process scores a {task} model")
        _evaluate_text(
            model, text, scoring.get("format", "table"), windows | {"dtype": dtype}, end_marks, trust_remote_code
        )
        return
    _refuse(windows | {"end_marks": None if end_marks else False}, set(), f"{model} holds a translation model")
    options = {"prefix": prefix, "processes": processes, "trust_remote_code": trust_remote_code}
    options |= {name: value for name, value in (loading | {"dtype": dtype}).items() if value is not None}
    _evaluate_translations(model, text, reference, against, (num_beams, length_penalty), engine, options, scoring)


def _evaluate_translations(
    model: str,
    text: str,
    reference: str | list[str] | None,
    against: str | None,
    decoding: tuple[int | None, float | None],
    engine: str,
    options: dict[str, Any],
    scoring: Scoring,
) -> None:
    """Prints and writes how good a model's translations are.

    Args:
        decoding: beam size, and exponent of the length; None: each model's own.
        options: others of `texts.translate`, also for the model that is compared with, if that is not of another kind.
    """
    from ..api import texts
    from .aligned_files import check_same_count, read_outputs, read_pairs, system_name

    sources, references = read_pairs(text, reference, _languages_of(model))
    trust: bool = options["trust_remote_code"]
    baseline, others = None, options
    if against is not None and Path(against).is_file():
        baseline = system_name(against), read_outputs(Path(against))
        check_same_count((Path(against), baseline[1]), (Path(text), sources))
    elif against is not None:  # before the first model has translated for minutes
        config = load_config(texts.place_of(against), trust_remote_code=trust)
        check_task(config, "translation", against)
        if engine != "torch" or load_config(model, trust_remote_code=trust).model_type != config.model_type:
            others = {name: value for name, value in options.items() if name not in ("src_lang", "tgt_lang")}
    outputs = texts.translate(model, sources, *decoding, engine=engine, **options)
    if against is not None and baseline is None:
        baseline = model_name(against), texts.translate(against, sources, *decoding, **others)
    _warn_of_seen(model, sources, references[0])
    _report(outputs, references, sources, model_name(model), baseline, scoring)


def likelihood(
    model: str,
    input: str = "-",  # noqa: A002
    translations: str | None = None,
    output: str = "-",
    prefix: str = "",
    on: Cluster | None = None,
    processes: int = 0,
    shard_lines: int = SHARD_LINES,
    overwrite: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Score each line of a file or a pipe by its log-probability: pairs of sentences, or texts under a language model.

    For each line, in order, one of three columns: the sum of the log-probabilities of the tokens in nats, how many
    there are, and their mean. The end mark is one of them. Of what is longer than the model takes the beginning is
    scored, and that is told on standard error.

    Args:
        model: A translation model's or a language model's folder, its name on the Hub, or that of one that comes with
            paperformer: cldr-en-de, shakespeare.
        input: File of pairs, a source, a tab and its translation a line, or for a language model of texts, one a line;
            perhaps compressed; - reads standard input.
        translations: File of the translations, line by line, where INPUT has the sources alone.
        output: File for the scores; - writes standard output. It is FILE.part until it is complete; the same command
            goes on where it was interrupted.
        prefix: Put before every source, as in translating.
        on: Where lines are scored, if not here: by a Ray cluster, in shards, as in translating (docs/bulk).
        processes: How many processes score, each a part of the lines, on several GPUs each on one of its own; with --on
            ray, how many actors, by default one for each GPU, or processor.
        shard_lines: Lines of a shard.
        overwrite: Replace OUTPUT, and what an interrupted command has left of it.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..api.text_likelihoods import likelihood_model
    from ..training.data.text.lines import count_lines
    from ..translation.line_source import ReadAhead, lines_of_file, lines_of_standard_input
    from .text.searching import beside
    from .text.written_lines import skip, work_on_lines, write_to

    if on is not None:
        _score_shards(model, input, translations, output, prefix, processes, shard_lines, overwrite, trust_remote_code)
        return
    if processes < 0:
        raise InputError(f"processes is {processes}; it must be at least 1")
    total = None if input == "-" else count_lines(Path(input))
    is_given = {"translations": translations, "prefix": prefix or None}
    place, is_of_pairs = likelihood_model(model, trust_remote_code=trust_remote_code)
    if not is_of_pairs:
        _refuse(is_given, set(), f"{model} holds a language model")
    source = lines_of_standard_input() if input == "-" else lines_of_file(Path(input))
    if translations is not None:
        source = beside(source, translations)
    elif is_of_pairs:
        source = _pairs(source, "standard input" if input == "-" else input)
    request = {"model": place, "input": input, "prefix": prefix, "translations": translations}
    others = {"translations": [translations]} if translations else {}
    with (
        _open_scorer(place, prefix, processes, trust_remote_code) as work,
        write_to(output, request, overwrite, others) as file,
        closing(ReadAhead(source)) as lines,
    ):
        skip(lines, file.done, output)
        work_on_lines(work, lines, _as_columns, file, total, is_shown=output != "-", described="score")


@contextmanager
def _open_scorer(place: str, prefix: str, processes: int, trust_remote_code: bool) -> "Iterator[Window]":
    """Loads the model, in this process or in several."""
    from ..api.model_processes import ModelProcesses
    from ..api.text_likelihoods import load_scorer, score_lines

    work = partial(score_lines, prefix)
    if processes <= 1:
        yield partial(work, load_scorer(place, trust_remote_code=trust_remote_code))
        return
    with ModelProcesses(
        partial(load_scorer, place, trust_remote_code=trust_remote_code), processes, doing="score"
    ) as pool:
        yield partial(pool.do, work, show_progress=False)


def _as_columns(number: int, score: Any) -> str:
    return f"{score.log_probability:.6f}\t{score.tokens}\t{score.mean:.6f}"


def _score_shards(
    model: str,
    input: str,  # noqa: A002
    translations: str | None,
    output: str,
    prefix: str,
    processes: int,
    shard_lines: int,
    overwrite: bool,
    trust_remote_code: bool,
) -> None:
    from ..api.text_likelihoods import likelihood_model
    from ..bulk.shard_work import LineWork
    from .text.written_lines import with_files

    place, is_of_pairs = likelihood_model(model, trust_remote_code=trust_remote_code)
    if not is_of_pairs:
        _refuse({"translations": translations, "prefix": prefix or None}, set(), f"{model} holds a language model")
    work = LineWork(
        load=partial(_load_window, whole_path(place), prefix, trust_remote_code),
        written=_as_columns,
        files=(input, *([translations] if translations else [])),
        output=output,
        is_of_pairs=is_of_pairs,
    )
    others = {"translations": [translations]} if translations else {}
    request = with_files({"model": place, "input": input, "prefix": prefix, "translations": translations}, others)
    work_in_shards(work, request, workers=processes, shard_lines=shard_lines, overwrite=overwrite, described="score")


def _load_window(place: str, prefix: str, trust_remote_code: bool) -> "Window":
    """In a process of a cluster."""
    from ..api.text_likelihoods import load_scorer, score_lines

    return partial(score_lines, prefix, load_scorer(place, trust_remote_code=trust_remote_code))


def _pairs(lines: "Iterator[Line]", name: str) -> "Iterator[Line]":
    """The same; raises an InputError at a line that has not one tab."""
    for line in lines:
        if (tabs := line.text.count("\t")) != 1:
            raise InputError(
                f"{name}, line {line.number:,} has {tabs or 'no'} tab{'s' * (tabs > 1)}; it must be a source, a tab "
                "and its translation, or give --translations FILE"
            )
        yield line


def _refuse(options: Mapping[str, Any], but: Collection[str], reason: str) -> None:
    """Raises an InputError for an option that is given to a model that it has no meaning for."""
    for name, value in options.items():
        if value is not None and name not in but:
            raise InputError(f"--{name} is given, and {reason}; leave it out")


def _evaluate_text(
    model: str, text: str, kind: str, windows: Mapping[str, Any], end_marks: bool, trust_remote_code: bool
) -> None:
    """Prints how likely a text is to a model."""
    from ..api.text_scores import evaluate_text
    from ..training.console.tables import align_rows
    from ..training.evaluation.evaluation_file import fields_of
    from ..training.reporting.markdown import markdown_table

    options = {"end_marks": end_marks, "trust_remote_code": trust_remote_code, **windows}
    scores = evaluate_text(model, Path(text), **options)
    if kind == "json":
        print(json.dumps(fields_of(scores), indent=2))
        return
    titles = ["Metric", "Value", "Measured over"]
    rows = [[score.metric.label, score.shown, score.basis] for score in scores]
    print(markdown_table(titles, rows, {1}) if kind == "markdown" else align_rows([titles, *rows], right={1}))


def _languages_of(model: str) -> tuple[str, str]:
    """Source and target language by the card in a model's folder; otherwise what a header may call them."""
    import yaml
    from huggingface_hub import metadata_load

    try:
        languages = (metadata_load(Path(model) / "README.md") or {}).get("language")
    except (OSError, ValueError, yaml.YAMLError):  # no card, or one that somebody has written into
        languages = None
    if isinstance(languages, list) and len(languages) == 2:
        return languages[0], languages[1]
    return "source", "target"


def _warn_of_seen(model: str, sources: Sequence[str], references: Sequence[str]) -> None:
    """Says how many of the sentences a model was trained on, where its run knows."""
    import pyarrow as pa

    from ..api.runs import Run
    from ..training.console.progress import say

    run = Path(model).resolve().parent
    if Path(model).name == "model" and (run / "recipe.yaml").is_file():
        rows = pa.RecordBatch.from_pydict({"source": list(sources), "target": list(references)})
        if seen := Run(run).count_seen(rows):
            say(
                f"warning: {seen:,} of {len(sources):,} sentences were in the training text of {run.name} (the source "
                "or the reference, as far as the words go): scores on them measure memory"
            )


def _report(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
    name: str,
    baseline: tuple[str, Sequence[str]] | None,
    scoring: Scoring,
) -> None:
    """Scores, prints and writes."""
    from ..training.evaluation.comet import find_comet, score_with_comet
    from ..training.evaluation.confidence import RESAMPLES
    from ..training.evaluation.metrics import METRICS, ScoringOptions, output_metrics
    from ..training.evaluation.translation_report import report_translations
    from ..training.reporting.translation_tables import json_of, markdown_of, text_of

    names = scoring.get("metrics") or [metric.name for metric in output_metrics()]
    known = {metric.name for metric in output_metrics()}
    others = {name: _load_metric(name) for name in names if name not in known}
    comet = find_comet(scoring["comet"]) if "comet" in scoring else None
    if (resamples := scoring.get("resamples", RESAMPLES)) < 0:
        raise InputError(f"--resamples is {resamples}; it must be at least 0")
    if baseline is not None and baseline[0] == name:
        baseline = f"{name} (baseline)", baseline[1]
    try:
        options = ScoringOptions(
            bleu_tokenizer=scoring.get("bleu_tokenizer", "13a"), lowercase=scoring.get("lowercase", False)
        )
        report = report_translations(
            outputs,
            references,
            sources,
            name=name,
            baseline=baseline,
            options=options,
            test=scoring.get("test", "bootstrap"),
            metrics=[METRICS[name] for name in names if name in known],
            resamples=resamples,
        )
    except (ValueError, ImportError) as error:  # what a BLEU tokenizer lacks
        raise InputError(f"--{error}" if isinstance(error, ValueError) else str(error)) from error
    values = json_of(report)
    for other, metric in others.items():
        values[other] = metric.compute(
            predictions=outputs,
            references=list(zip(*references, strict=True)) if len(references) > 1 else references[0],
        )
    if comet is not None:
        values["comet"] = score_with_comet(comet, sources, outputs, references[0])
    kind = scoring.get("format", "table")
    if folder := scoring.get("output_dir"):
        _write(Path(folder), report, values)
    if kind == "json":
        print(json.dumps(values, indent=2, ensure_ascii=False, default=float))
    else:
        print({"table": text_of, "markdown": markdown_of}[kind](report))
        for other in [*others, *(["comet"] if comet else [])]:
            print(f"\n{other}: {json.dumps(values[other], default=float)}")


def _write(folder: Path, report: "TranslationReport", values: dict[str, Any]) -> None:
    from ..training.atomic_files import replace_folder
    from ..training.reporting.side_by_side import page_of
    from ..training.reporting.translation_tables import markdown_of, sentences_of

    def write(path: Path) -> None:
        def put(name: str, content: str) -> None:
            (path / name).write_text(content, "utf-8")

        put("evaluation.json", json.dumps(values, indent=2, ensure_ascii=False, default=float) + "\n")
        put("report.md", markdown_of(report) + "\n")
        put("sentences.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in sentences_of(report)))
        put("hypotheses.txt", "".join(f"{line}\n" for line in report.system.hypotheses))
        put("sentences.html", page_of(report))

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--output_dir {folder} is no folder; give the name of one, or of nothing that is there")
    if folder.exists() and not (folder / "sentences.html").is_file() and any(folder.iterdir()):
        raise InputError(f"--output_dir {folder} holds other things; give a folder that is new, or of an evaluation")
    replace_folder(folder, write)


def _load_metric(name: str) -> Any:
    """A metric of the evaluate library; its own are scripts on the Hub, so most need the network once."""
    from evaluate import load as load_metric

    try:
        return load_metric(name)
    except (OSError, ImportError, ValueError) as error:
        raise InputError(f"--metrics: {name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error
