import json
import re
from html.parser import HTMLParser

import pytest

from paperformer.training.evaluation.evaluation_file import read_scores
from paperformer.training.evaluation.translation_report import TranslationReport, report_translations
from paperformer.training.reporting import side_by_side
from paperformer.training.reporting.side_by_side import mark_words, page_of
from paperformer.training.reporting.translation_tables import json_of, markdown_of, sentences_of, text_of

SOURCES = ["a | pipe", "<b>bold</b>", "plain", "*stars*"]
REFERENCES = [["ein | Rohr", "<b>fett</b>", "schlicht", "*Sterne*"]]
SYSTEM = ["ein | Rohr", "<b>fett</b> <script>alert(1)</script>", "einfach", "*Sterne*"]
BASELINE = ["kein | Rohr", "<i>fett</i>", "schlicht", "Sterne"]


@pytest.fixture(scope="module")
def one() -> TranslationReport:
    return report_translations(SYSTEM, REFERENCES, SOURCES, name="new", resamples=20)


@pytest.fixture(scope="module")
def two() -> TranslationReport:
    return report_translations(SYSTEM, REFERENCES, SOURCES, name="new", baseline=("old", BASELINE), resamples=20)


class Cells(HTMLParser):
    """The rows of the last table of a page, and all tags and addresses in it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.is_in_table = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "table":
            self.rows, self.is_in_table = [], True
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.is_in_table = tag != "table" and self.is_in_table

    def handle_data(self, data: str) -> None:
        if self.is_in_table and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def parsed(report: TranslationReport) -> Cells:
    cells = Cells()
    cells.feed(page_of(report))
    return cells


def test_a_page_shows_every_sentence_and_runs_nothing_of_them(two: TranslationReport) -> None:
    page = parsed(two)
    header, *rows = page.rows
    assert header == ["Line", "Source", "Reference", "old", "chrF", "new", "chrF", "Difference"]
    assert {int(row[0]) for row in rows} == {1, 2, 3, 4}
    by_line = {int(row[0]): row for row in rows}
    assert by_line[2][1] == SOURCES[1]
    assert by_line[2][5].replace(" ", "") == SYSTEM[1].replace(" ", "")
    assert page.tags.count("script") == 1
    assert "b" not in page.tags
    assert page.addresses == []
    differences = [abs(float(row[-1])) for row in rows]
    assert differences == sorted(differences, reverse=True)
    for row in rows:
        assert float(row[-1]) == pytest.approx(float(row[6]) - float(row[4]), abs=0.11)


def test_a_page_of_one_system_has_the_worst_first(one: TranslationReport) -> None:
    header, *rows = parsed(one).rows
    assert header == ["Line", "Source", "Reference", "new", "chrF"]
    assert rows[0][0] == "3"


def test_a_long_page_is_cut_and_says_so(one: TranslationReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "MOST_SENTENCES", 3)
    assert "Shown are 3 of 4." in page_of(one)
    assert len(parsed(one).rows) == 4


def test_words_that_the_reference_has_not_are_marked() -> None:
    assert mark_words("der alte Mann lacht", "der Mann lacht laut") == [
        ("der", True),
        ("alte", False),
        ("Mann", True),
        ("lacht", True),
    ]
    assert mark_words("", "etwas") == []


def test_markdown_keeps_its_columns_whatever_the_text(one: TranslationReport, two: TranslationReport) -> None:
    for report in (one, two):
        for table in re.findall(r"(?:^\|.*\n?)+", markdown_of(report), re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(widths) == 1
    assert "\\<script\\>" in markdown_of(one)


def test_text_names_systems_scores_and_verdicts(one: TranslationReport, two: TranslationReport) -> None:
    shown = text_of(one)
    for score in one.system.scores:
        assert score.shown in shown
    assert "Worst sentences" in shown
    shown = text_of(two)
    assert shown.startswith("new against old, 4 sentences (significant: p < 0.05)")
    for comparison in two.comparisons:
        assert f"{comparison.difference:+.2f}" in shown
        assert comparison.verdict in shown


def test_beside_another_system_the_sentences_shown_are_those_that_differ() -> None:
    """And not those that both have wrong."""
    report = report_translations(["x", "gut"], [["schlecht", "gut"]], baseline=("old", ["x", "y"]), resamples=0)
    shown = text_of(report)
    assert shown.index("reference: gut") < shown.index("reference: schlecht")


def test_json_is_read_as_an_evaluation(two: TranslationReport) -> None:
    values = json.loads(json.dumps(json_of(two)))
    scores = read_scores({"task": "translation", "split": "", **values})
    assert [(score.metric, score.value, score.signature) for score in scores] == [
        (score.metric, score.value, score.signature) for score in two.system.scores
    ]
    assert values["baseline"]["name"] == "old"
    assert [comparison["metric"] for comparison in values["comparisons"]] == [
        score.metric.name for score in two.system.scores
    ]


def test_a_record_for_every_sentence(one: TranslationReport, two: TranslationReport) -> None:
    records = list(sentences_of(one))
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert records[1]["source"] == SOURCES[1]
    assert records[1]["output"] == SYSTEM[1]
    assert records[0]["bleu"] == one.system.by_sentence[0]["bleu"]
    assert [record["systems"]["old"]["output"] for record in sentences_of(two)] == BASELINE
