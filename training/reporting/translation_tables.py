"""The report of translations as text for a terminal, Markdown for a card, and JSON."""

from collections.abc import Iterator
from typing import Any

from ..console.tables import align_rows
from ..evaluation.evaluation_file import fields_of
from ..evaluation.significance import SIGNIFICANT
from ..evaluation.translation_report import SystemReport, TranslationReport
from .markdown import markdown_table

Rows = list[list[str]]
Table = tuple[str, Rows, set[int]]
"""Title, rows with the header first, and which columns hold figures."""

WORST = 5


def text_of(report: TranslationReport) -> str:
    """For a terminal."""
    return "\n\n".join(
        f"{title}\n{align_rows(rows, right=figures, widest=dict.fromkeys(range(len(rows[0])), 60))}"
        for title, rows, figures in tables_of(report)
    )


def markdown_of(report: TranslationReport) -> str:
    """For a card: tables under headings of the third level."""
    return "\n\n".join(
        f"### {title}\n\n{markdown_table(rows[0], rows[1:], right=figures)}"
        for title, rows, figures in tables_of(report)
    )


def json_of(report: TranslationReport) -> dict[str, Any]:
    """Plain values: the system's scores as evaluation.json has them, and beside them all else but the sentences."""
    values = _system_json(report.system)
    if report.baseline is not None:
        values["baseline"] = _system_json(report.baseline)
        values["comparisons"] = [
            {
                "metric": comparison.metric.name,
                "baseline": comparison.baseline,
                "system": comparison.system,
                "difference": comparison.difference,
                "p_value": comparison.p_value,
                "verdict": comparison.verdict,
                "signature": comparison.signature,
            }
            for comparison in report.comparisons
        ]
    return values


def sentences_of(report: TranslationReport) -> Iterator[dict[str, Any]]:
    """A record for each sentence, in their order."""
    for index in range(len(report.system.hypotheses)):
        record: dict[str, Any] = {"line": index + 1}
        if report.sources is not None:
            record["source"] = report.sources[index]
        record["references"] = [stream[index] for stream in report.references]
        systems = {
            system.name: {"output": system.hypotheses[index]} | system.by_sentence[index] for system in report.systems
        }
        yield record | (systems[report.system.name] if report.baseline is None else {"systems": systems})


def _system_json(system: SystemReport) -> dict[str, Any]:
    return {
        "name": system.name,
        **fields_of(system.scores),
        "ngram_precisions": list(system.ngrams.precisions),
        "brevity_penalty": system.ngrams.brevity_penalty,
        "length_ratio": system.ngrams.length_ratio,
        "by_length": [
            {"shortest": group.shortest, "longest": group.longest} | fields_of(group.scores)
            for group in system.by_length
        ],
    }


def tables_of(report: TranslationReport) -> Iterator[Table]:
    """Scores or a comparison, n-grams, groups by length, and last some sentences."""
    systems = report.systems
    count = f"{len(report.system.hypotheses):,} sentences"
    if report.comparisons:
        yield _comparison(report, count)
    else:
        rows = [[score.metric.label, score.shown, score.signature] for score in report.system.scores]
        yield f"Scores of {report.system.name}, {count}", [["Metric", "Value", "Signature"], *rows], {1}
    rows = [["", "1-grams", "2-grams", "3-grams", "4-grams", "Brevity penalty", "Length ratio"]]
    for system in systems:
        ngrams = system.ngrams
        figures = [f"{value:.1f}" for value in ngrams.precisions]
        rows.append([system.name, *figures, f"{ngrams.brevity_penalty:.3f}", f"{ngrams.length_ratio:.3f}"])
    yield "Precision of n-grams, %", rows, set(range(1, 7))
    yield _by_length(report)
    yield _worst(report)


def _comparison(report: TranslationReport, count: str) -> Table:
    baseline, system = report.systems
    rows = [["Metric", baseline.name, system.name, "Difference", "p", "Verdict", "Signature"]]
    for comparison, first, second in zip(report.comparisons, baseline.scores, system.scores, strict=True):
        digits = comparison.metric.digits
        rows.append(
            [
                comparison.metric.label,
                first.shown,
                second.shown,
                f"{comparison.difference:+.{digits}f}",
                f"{comparison.p_value:.4f}",
                comparison.verdict,
                comparison.signature,
            ]
        )
    title = f"{system.name} against {baseline.name}, {count} (significant: p < {SIGNIFICANT})"
    return title, rows, {1, 2, 3, 4}


def _by_length(report: TranslationReport) -> Table:
    header = ["Characters", "Sentences"]
    for system in report.systems:
        titles = [score.metric.title for score in system.by_length[0].scores]
        header += titles if report.baseline is None else [f"{title}, {system.name}" for title in titles]
    rows = [header]
    for groups in zip(*(system.by_length for system in report.systems), strict=True):
        scores = [score.shown for group in groups for score in group.scores]
        rows.append([f"{groups[0].shortest}–{groups[0].longest}", f"{groups[0].scores[0].count:,}", *scores])
    text = "references" if report.sources is None else "sources"
    return f"By the length of {text}", rows, set(range(1, len(header)))


def _worst(report: TranslationReport) -> Table:
    """Sentences of lowest chrF; of two systems, those that they differ in most."""
    places = report.system.worst(WORST) if report.baseline is None else report.differences()[:WORST]
    rows = [["Line", "", "chrF"]]
    for index in places:
        if report.sources is not None:
            rows.append([str(index + 1), f"source: {report.sources[index]}", ""])
        rows.append(["" if report.sources else str(index + 1), f"reference: {report.references[0][index]}", ""])
        rows.extend(
            ["", f"{system.name}: {system.hypotheses[index]}", f"{system.by_sentence[index]['chrf']:.1f}"]
            for system in report.systems
        )
    title = "Worst sentences" if report.baseline is None else "Sentences that the two differ in most"
    return title, rows, {0, 2}
