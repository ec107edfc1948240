"""A card shows every figure of its run, is valid for the Hub, and shows text as text."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from paperformer.training.data.splits import SplitFacts
from paperformer.training.data.unseen_words import UnseenWords
from paperformer.training.evaluation.domains import score_domains_of_text
from paperformer.training.evaluation.evaluation_file import read_scores
from paperformer.training.evaluation.metrics import EXACT_MATCH, Score, ScoringOptions
from paperformer.training.evaluation.passages import PassageLosses
from paperformer.training.evaluation.translation_report import Weaknesses, find_weaknesses
from paperformer.training.reporting.card import (
    ModelCardFacts,
    build_card,
    set_model_id,
    write_card,
)

CONFIG = {
    "encoder_layers": 3,
    "decoder_layers": 2,
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "norm_position": "peri",
    "norm_type": "rmsnorm",
    "position_embedding_type": "rope",
    "vocab_size": 6007,
    "max_position_embeddings": 1031,
}
TRANSLATION_SCORES = {
    "task": "translation",
    "split": "test",
    "sentences": 1009,
    "decoding": {"num_beams": 5, "length_penalty": 0.9},
    "bleu": {"score": 39.1267, "signature": "nrefs:1|case:mixed|tok:13a"},
    "chrf": {"score": 61.234, "signature": "nrefs:1|case:mixed|nc:6"},
    "exact_match": 9.81,
    "loss": {"nats_per_token": 1.234567, "tokens": 15013},
    "seconds": 12.5,
}
LM_SCORES = {
    "task": "text-generation",
    "split": "test",
    "loss": {"nats_per_token": 3.456789, "tokens": 40009},
    "word_perplexity": 234.567,
    "words": 20011,
    "bits_per_byte": 1.876543,
    "bytes": 111119,
    "seconds": 3.5,
}
TRANSLATION = ModelCardFacts(
    name="multi-en-de",
    task="translation",
    dataset="Multi30k",
    hub_datasets=["someone/multi30k"],
    splits=[SplitFacts(name="train", examples=29017, tokens=812345), SplitFacts(name="test", examples=1009)],
    languages=["en", "de_AT"],
    license="apache-2.0",
    config=CONFIG,
    parameters=7654321,
    recipe="name: multi-en-de\nseed: 17\n",
    command="paperformer train --config multi-en-de",
    seed=17,
    hardware="2 cores of a Threadmill 9000",
    minutes=83.26,
    versions={"torch": "2.13.0", "transformers": "5.23.0"},
    validation_curve=[(500, 4.321), (1000, 1.23449), (1500, 2.5)],
    evaluation={"validation": {**TRANSLATION_SCORES, "split": "validation"}, "test": TRANSLATION_SCORES},
    samples=[
        ("A dog runs.", "Ein Hund läuft.", "Ein Hund rennt."),
        ("Two men.", "Zwei Männer.", "Zwei Mann."),
    ],
)
LM = replace(
    TRANSLATION,
    name="plays",
    task="text-generation",
    hub_datasets=(),
    languages=["en"],
    evaluation=LM_SCORES,
    samples=[("ROMEO:\n", "O, she doth\n\nteach")],
)


class Recorder:
    """Stands in for the package, and gives back what its `generate` is called with."""

    def generate(self, *arguments: Any) -> Any:
        return arguments


def written(facts: ModelCardFacts, folder: Path) -> str:
    path = write_card(folder, facts)
    assert path == folder / "README.md"
    assert [file.name for file in folder.iterdir()] == ["README.md"]
    return path.read_text("utf-8")


def test_a_translation_card_shows_every_figure(tmp_path: Path) -> None:
    text = written(TRANSLATION, tmp_path).partition("\n---\n")[2]
    for figure in [
        "39.13",
        "61.23",
        "9.81",
        "1.2346",
        "1,009 sentences",
        "15,013 tokens",
        r"nrefs:1\|case:mixed\|tok:13a",
        r"nrefs:1\|case:mixed\|nc:6",
        r"num\_beams 5, length\_penalty 0.9",
        "3 + 2 layers",
        "256 wide",
        "8 attention heads",
        "peri-norm (rmsnorm)",
        "rope positions",
        "6,007 tokens",
        "7,654,321 parameters",
        "en to de_AT",
        "29,017",
        "812,345",
        "83.3 minutes on 2 cores of a Threadmill 9000, with seed 17",
        "paperformer train --config multi-en-de",
        "torch 2.13.0, transformers 5.23.0",
        "name: multi-en-de\nseed: 17\n",
        "| 500 | 4.3210 |",
        "| 1,500 | 2.5000 |",
        "the lowest loss, 1.2345 nats a token, at step 1,000",
        "`█▁▄`",
        "| A dog runs. | Ein Hund läuft. | Ein Hund rennt. |",
        "| Two men. | Zwei Männer. | Zwei Mann. |",
        "29,017 sentence pairs of Multi30k",
        "validation and test split",
        "1,031 tokens",
        "Multi30k ([someone/multi30k](https://huggingface.co/datasets/someone/multi30k))",
        "## Licence\n\napache-2.0",
    ]:
        assert figure in text, figure
    assert text.count("| validation |") == text.count("| test | ") - 1 == 4  # the splits' table has a row of tests, too


def test_a_language_model_card_shows_every_figure(tmp_path: Path) -> None:
    text = written(LM, tmp_path).partition("\n---\n")[2]
    for figure in [
        "| test | Loss, nats a token | 3.4568 | 40,009 tokens | – |",
        "| test | Perplexity a word | 234.57 | 20,011 words | – |",
        "| test | Bits a byte | 1.8765 | 111,119 bytes | – |",
        "decoder-only Transformer of 4 layers",
        "```text\nROMEO:\n```",
        "```text\nO, she doth\n\nteach\n```",
        "It continues text (en).",
    ]:
        assert figure in text, figure
    assert "translat" not in text
    assert "BLEU" not in text


@pytest.mark.parametrize("facts", [TRANSLATION, LM], ids=["translation", "lm"])
def test_the_metadata_are_valid_for_the_hub(facts: ModelCardFacts, tmp_path: Path) -> None:
    text = written(facts, tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    data = card.data
    assert (data.library_name, data.pipeline_tag, data.license) == ("transformers", facts.task, "apache-2.0")
    assert data.language == (["en", "de"] if facts is TRANSLATION else ["en"])
    assert data.datasets == (["someone/multi30k"] if facts is TRANSLATION else None)
    assert data.metrics == (["bleu", "chrf", "exact_match"] if facts is TRANSLATION else ["perplexity"])
    assert data.model_name == facts.name
    found = [(result.dataset_split, result.metric_type, result.metric_value) for result in data.eval_results]
    if facts is TRANSLATION:
        figures = [("bleu", 39.13), ("chrf", 61.23), ("exact_match", 9.81), ("loss", 1.2346)]
        assert found == [(split, *figure) for split in ("validation", "test") for figure in figures]
        assert data.eval_results[0].metric_args == {
            "measured_over": "1,009 sentences, nrefs:1|case:mixed|tok:13a",
            "decoding": "num_beams 5, length_penalty 0.9",
        }
    else:
        assert found == [
            ("test", "loss", 3.4568),
            ("test", "perplexity", 234.57),
            ("test", "bits_per_byte", 1.8765),
        ]
    assert yaml.safe_load(text.split("---\n")[1])["model-index"][0]["name"] == facts.name
    assert str(card) == text  # read and written again, it is the same card


@pytest.mark.parametrize("facts", [TRANSLATION, LM], ids=["translation", "lm"])
def test_what_was_not_given_is_not_made_up(facts: ModelCardFacts, tmp_path: Path) -> None:
    bare = replace(facts, license=None, languages=[], hub_datasets=(), splits=[], validation_curve=[], samples=[])
    text = written(bare, tmp_path)
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.license is data.language is data.datasets is None
    assert "No licence has been stated." in text
    for absent in ("None", "## Samples", "### Loss", "| Split | Sent", "\n\n\n", "license:"):
        assert absent not in text, absent


def test_text_of_the_data_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    facts = replace(TRANSLATION, samples=[("a|b\n<b>`*x*`</b>", "{{ 7 * 7 }}", "# $[1](2)")])
    assert r"| a\|b \<b\>\`\*x\*\`\</b\> | {{ 7 \* 7 }} | \# \$\[1\](2) |" in written(facts, tmp_path)
    facts = replace(LM, samples=[("p", "before\n```\n# no heading\n````\nafter")])
    assert "`````text\nbefore\n```\n# no heading\n````\nafter\n`````" in written(facts, tmp_path)


def test_the_example_code_is_python_whatever_the_text(tmp_path: Path) -> None:
    prompt = "\"quoted\" \\ 'and'\n\tläuft"
    text = written(replace(LM, samples=[(prompt, "...")]), tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 3
    calls: list[Any] = []
    code = re.search(r"generate\((.*), max_new_tokens", blocks[0])
    assert code is not None
    exec(f"calls.append({code[1]})", {"calls": calls})
    assert calls == [prompt]
    for block in blocks:
        compile(block, "card", "exec")
    own: list[Any] = []
    exec(blocks[2].replace("import paperformer", ""), {"model_id": "m", "print": own.append, "paperformer": Recorder()})
    assert own == [("m", prompt)]
    (command,) = re.findall(r"```bash\n(model_id=.*?)```", text, flags=re.DOTALL)
    said = subprocess.run(["bash", "-c", f"paperformer() {{ printf '%s|' \"$@\"; }}\n{command}"], capture_output=True)
    assert said.stdout.decode() == f"generate|plays|{prompt}|"


def test_a_long_curve_is_thinned_and_keeps_its_ends_and_its_best(tmp_path: Path) -> None:
    curve = [(100 * i, abs(i - 73) / 10 + 1.5) for i in range(1, 201)]
    text = written(replace(LM, validation_curve=curve), tmp_path)
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 10
    assert rows[0] == ("100", "8.7000")
    assert rows[-1] == ("20,000", "14.2000")
    assert ("7,300", "1.5000") in rows
    assert "200 validations; the lowest loss, 1.5000 nats a token, at step 7,300" in text


def test_the_scores_of_one_split_may_stand_alone() -> None:
    alone = read_scores(TRANSLATION_SCORES)
    assert alone == read_scores({"test": TRANSLATION_SCORES})
    assert alone[2] == Score(
        metric=EXACT_MATCH,
        value=9.81,
        count=1009,
        split="test",
        decoding="num_beams 5, length_penalty 0.9",
    )
    assert (alone[2].metric.label, alone[2].basis) == ("Exact match, %", "1,009 sentences")


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({}, "has no scores; evaluate the model before writing its card"),
        ({"task": "translation", "split": "test"}, "has no scores"),
        (
            {**LM_SCORES, "loss": {"nats_per_token": 3.0}},
            r"does not have the expected form: KeyError\('tokens'\)",
        ),
        ({**TRANSLATION_SCORES, "bleu": 39.1}, "does not have the expected form: TypeError"),
        ({"test": 39.1}, "does not have the expected form: AttributeError"),
    ],
)
def test_scores_without_their_denominator_are_refused(evaluation: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_card(tmp_path, replace(LM, evaluation=evaluation))
    assert not list(tmp_path.iterdir())


def test_the_model_can_be_given_another_name_to_load_it_by(tmp_path: Path) -> None:
    before = written(LM, tmp_path)
    set_model_id(tmp_path / "README.md", "someone/plays")
    text = (tmp_path / "README.md").read_text("utf-8")
    assert text == before.replace('"plays"\n', '"someone/plays"\n') != before
    assert text.count("someone/plays") == 2  # in Python, and in a shell


def test_what_was_left_out_is_said() -> None:
    assert "Left out" not in str(build_card(TRANSLATION))
    counts = {"duplicate": 1200, "mojibake": 0, "not UTF-8": 3}
    card = str(build_card(replace(TRANSLATION, left_out=counts)))
    assert "Left out of the training text before training: 1,200 rows (duplicate), 3 rows (not UTF-8).\n" in card


def test_where_it_is_worst_is_shown_with_figures() -> None:
    assert "Where it is worst" not in str(build_card(TRANSLATION))
    pairs = [(f"{'x' * length} a dog", "Ein Hund läuft weit weg") for length in range(1, 11)]
    outputs = ["Ein Hund läuft weit weg"] * 8 + ["Ein Hund lief weit weg", "Katze"]
    weaknesses = find_weaknesses(pairs, outputs, ScoringOptions(), 2)
    card = str(build_card(replace(TRANSLATION, weaknesses=weaknesses)))
    section = card.partition("## Where it is worst")[2].partition("## Limits")[0]
    rows = re.findall(r"^\| (\d+) to (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", section, flags=re.MULTILINE)
    assert (rows[0][0], rows[-1][1], sum(int(row[2]) for row in rows)) == ("7", "16", 10)
    assert float(rows[0][4]) == 100
    assert float(rows[-1][4]) < 20  # Katze
    worst = [row.split(" | ")[2] for row in section.splitlines() if row.startswith("| xxxx")]
    assert worst == ["Katze", "Ein Hund lief weit weg"]
    assert find_weaknesses(pairs, outputs, ScoringOptions(), 5).worst == weaknesses.worst  # the others are right
    weaknesses = find_weaknesses(pairs, outputs[:1] * 10, ScoringOptions(), 2)
    section = str(build_card(replace(TRANSLATION, weaknesses=weaknesses))).partition("## Where it is worst")[2]
    assert "100.00 |\n\nEach of the translations is its reference.\n\n## Limits\n" in section


def test_the_cost_is_said() -> None:
    assert "The energy that it took is not known." in str(build_card(TRANSLATION))
    facts = replace(TRANSLATION, joules=1.8e6, energy_source="measured by RAPL")
    assert "It took 0.5 kWh, measured by RAPL." in str(build_card(facts))


def test_two_vocabularies_are_named_and_the_example_decodes_with_the_target_s() -> None:
    config = {**TRANSLATION.config, "source_vocab_size": 700}
    card = str(build_card(replace(TRANSLATION, config=config)))
    assert f"vocabularies of 700 (source) and {config['vocab_size']:,} tokens (target)" in card
    assert 'AutoTokenizer.from_pretrained(model_id, subfolder="target_tokenizer"' in card
    assert "subfolder" not in str(build_card(TRANSLATION))


DOG = "Ein Hund läuft sehr weit weg"
MIXED = [(f"{'x' * length} a dog", DOG) for length in range(1, 81)]
BAD_IN_LAW = [DOG] * 40 + ["Ein Hund lief nicht weit", DOG] * 20


def test_domains_are_shown_and_the_worse_one_is_named_among_the_limits() -> None:
    unseen = UnseenWords(words=np.full(80, 3), unseen=np.array([0] * 40 + [1, 0] * 20))
    weaknesses = find_weaknesses(MIXED, BAD_IN_LAW, ScoringOptions(), 2, ["news|de"] * 40 + ["law"] * 40, unseen)
    card = str(build_card(replace(TRANSLATION, domains=["news|de", "law"], weaknesses=weaknesses)))
    section, _, limits = card.partition("## Where it is worst\n")[2].partition("## Limits")
    by_domain = section.partition("| Domain ")[2].splitlines()[2:4]
    assert [row.split(" | ")[1] for row in by_domain] == ["40", "40"]
    assert by_domain[0].startswith(r"| news\|de | 40 | 100.00 ± 0.00 | 100.00 ± 0.00 | 0.00 % | not worse |")
    score = r"[\d.]+ ± [\d.]+"
    assert re.fullmatch(rf"\| law \| 40 \| {score} \| {score} \| 16.67 % \| worse \(p = 0.002\) \|", by_domain[1])
    assert "8.33 % (20 of 240) are not in the training text" in section
    assert re.search(r"^\| none \| 60 \| 100.00 .* \| not worse \|$", section, flags=re.MULTILINE)
    assert re.search(r"^\| some \| 20 \| .* \| worse \(p = 0.002\) \|$", section, flags=re.MULTILINE)
    assert "the test on 2 domains, news|de and law; their scores are above" in limits
    assert re.search(r"significantly worse on law \(chrF [\d.]+ ± [\d.]+; of the whole test split 61.23\)", limits)
    assert "\n\n\n" not in card


def test_the_one_domain_is_named() -> None:
    weaknesses = find_weaknesses(MIXED, BAD_IN_LAW, ScoringOptions(), 2, ["news"] * 80)
    card = str(build_card(replace(TRANSLATION, domains=["news"], weaknesses=weaknesses)))
    assert "split only, and that on one domain: news. On any other it was not measured." in card
    assert "| Domain " not in card
    assert "training text.\n\n|" not in card


def test_domains_of_text_are_shown() -> None:
    sizes = np.full(60, 1000)
    losses = PassageLosses(nats=np.repeat([500.0, 900.0], 30), tokens=sizes, bytes=sizes, sha256="")
    weaknesses = Weaknesses(by_domain=score_domains_of_text(losses, ["plays"] * 30 + ["law"] * 30))
    card = str(build_card(replace(LM, domains=["plays", "law"], weaknesses=weaknesses)))
    assert "| law | 30,000 | 1.2984 ± 0.0000 | worse (p = 0.002) |\n" in card
    assert "significantly worse on law (Bits a byte 1.2984 ± 0.0000; of the whole test split 1.8765)" in card
    card = str(build_card(replace(LM, domains=["plays", "law"])))
    assert "the test on 2 domains, plays and law; they were not scored one by one" in card
