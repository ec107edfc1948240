"""A page with the sentences of one system, or of two beside each other; it needs nothing but itself."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from ..evaluation.translation_report import TranslationReport
from .templates import load_template
from .translation_tables import tables_of

MOST_SENTENCES = 2000
"""On a page, which stays quick to open."""


def page_of(report: TranslationReport) -> str:
    """The HTML of a report."""
    sentences = list(_sentences(report))
    return load_template("side_by_side.html.jinja").render(
        report=report,
        tables=list(tables_of(report))[:-1],  # the last shows some sentences, and here all are
        sentences=sentences,
        shown=len(sentences),
        total=len(report.system.hypotheses),
    )


def mark_words(output: str, reference: str) -> list[tuple[str, bool]]:
    """The words of an output, and of each whether a reference has it in the same place of their longest alignment."""
    words = output.split()
    known = [False] * len(words)
    for block in SequenceMatcher(None, words, reference.split(), autojunk=False).get_matching_blocks():
        known[block.a : block.a + block.size] = [True] * block.size
    return list(zip(words, known, strict=True))


def _sentences(report: TranslationReport) -> Iterator[dict[str, Any]]:
    total = len(report.system.hypotheses)
    places = report.system.worst(total) if report.baseline is None else report.differences()
    for index in places[:MOST_SENTENCES]:
        values = [system.by_sentence[index]["chrf"] for system in report.systems]
        references = [stream[index] for stream in report.references]
        outputs = [mark_words(system.hypotheses[index], references[0]) for system in report.systems]
        yield {
            "line": index + 1,
            "source": report.sources[index] if report.sources is not None else "",
            "references": references,
            "outputs": list(zip(outputs, values, strict=True)),
            "difference": values[-1] - values[0],
        }
