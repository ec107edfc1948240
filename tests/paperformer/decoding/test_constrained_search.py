"""Translations that have to have some terms: always, and the best of those that have them."""

import copy
import itertools
from functools import partial
from typing import Any

import pytest
import torch

from paperformer import InputError, PaperformerForConditionalGeneration, PaperformerSeq2SeqConfig, translate
from paperformer.cli import main
from paperformer.decoding.constrained_search import Progress, constrained_beam_search, rank
from paperformer.decoding.glossary import Glossary, ids_of, missing_terms, places_of, word_continuations
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.translator import Translator

SOURCES = ["A dog runs.", "Two men talk on the beach.", "A dog talk."]


def ignore(index: int, what: str) -> None:
    pass


def test_progress_with_terms() -> None:
    progress = Progress(((5, 6), (5, 7, 8), (9,)))
    assert (progress.tokens_left, progress.wanted()) == (6, {5, 9})
    progress = progress.after(5, -1.0)
    assert (progress.tokens_left, progress.wanted()) == (5, {6, 7})
    progress = progress.after(7, -1.0).after(3, -1.0)  # it leaves off
    assert (progress.tokens_left, progress.begun, progress.met_tokens) == (6, (), 0)
    progress = progress.after(5, -1.0).after(5, -2.0).after(6, -4.0)
    assert (progress.missing, progress.is_behind_term) == (((5, 7, 8), (9,)), True)
    assert (progress.met_score, progress.met_tokens) == (-6.0, 2)
    progress = progress.after(9, -1.0).after(2, -1.0)
    assert (progress.tokens_left, progress.is_behind_term) == (3, False)
    assert progress.score(-20.0, 10, 1.0) == -13.0 / 7 - 7.0 / 3


def tiny_model() -> Any:
    torch.manual_seed(4)
    config = PaperformerSeq2SeqConfig(
        vocab_size=7, hidden_size=8, intermediate_size=8, num_attention_heads=2, encoder_layers=1, decoder_layers=1,
        max_position_embeddings=16, initialization="normal", initializer_range=0.5,
    )  # fmt: skip
    return PaperformerForConditionalGeneration(config).double().eval()


@pytest.mark.parametrize("terms", [((5, 3),), ((4,), (6,)), ((3, 3),)])
@pytest.mark.parametrize("penalty", [1.0, 0.0])
def test_with_beams_enough_it_finds_the_best_of_all_sequences(terms: Any, penalty: float) -> None:
    """All that have the terms, of up to three tokens, are scored one by one."""
    model, source = tiny_model(), torch.tensor([[3, 5, 4, 2]])
    strategy = partial(constrained_beam_search, terms=[terms], continues_word=torch.zeros(7, dtype=torch.bool))
    options = {"do_sample": False, "length_penalty": penalty, "max_new_tokens": 3, "custom_generate": strategy}
    found = model.generate(source, num_beams=60, num_return_sequences=3, early_stopping=False, **options)
    scored = []
    for length in range(1, 4):
        for ids in itertools.product(range(7), repeat=length):
            is_whole = (ids[-1] == 2 and 2 not in ids[:-1]) or (length == 3 and 2 not in ids)
            progress = Progress(terms)
            for token in ids:
                progress = progress.after(token, 0.0)
            if is_whole and progress.tokens_left == 0:
                scored.append(ids)
    ranked = []
    with torch.no_grad():
        for ids in scored:
            logits = model(input_ids=source, decoder_input_ids=torch.tensor([[1, *ids[:-1]]])).logits[0]
            log_probs = logits.log_softmax(-1)[torch.arange(len(ids)), list(ids)].tolist()
            ranked.append((rank(ids, log_probs, terms, penalty), ids))
    best = [ids for _, ids in sorted(ranked, reverse=True)[:3]]
    assert [tuple(row[1 : 1 + len(ids)].tolist()) for row, ids in zip(found, best, strict=True)] == best


@pytest.mark.parametrize(
    ("words", "beams"), [(["Hund", "zxq"], 1), (["Männer reden", "Strand", "Ein"], 2), (["Öl", "läuft"], 5)]
)
def test_the_terms_are_there_and_other_lines_are_as_they_were(one: Translator, words: list[str], beams: int) -> None:
    notes: list[Any] = []
    glossary = Glossary.of(dict(zip(["dog", "runs", "a"], words, strict=False)))
    free = search_texts(one, SOURCES, ignore, Search(num_beams=beams))
    found = search_texts(one, SOURCES, lambda *note: notes.append(note), Search(num_beams=beams, glossary=glossary))
    for source, (best,), (before,) in zip(SOURCES, found, free, strict=True):
        wanted = glossary.wanted(source)
        assert [term for term in wanted if not places_of(term, best.text)] == []
        if not missing_terms(before.text, wanted):
            assert best == before
    assert found[1] == free[1]  # it has no term
    assert notes == []


def test_a_word_ends_with_its_term(one: Translator) -> None:
    """Also where the model would like best to go on with it."""
    letter = next(token for token, text in enumerate(one.tokenizer.convert_ids_to_tokens(range(285))) if text == "s")
    model: Any = copy.deepcopy(one.model)
    model.lm_head.bias = torch.nn.Parameter(20.0 * (torch.arange(model.config.vocab_size) == letter))
    fond = Translator(model, one.tokenizer)
    search = Search(glossary=Glossary.of({"dog": "Hund"}), num_beams=2)
    ((best,),) = search_texts(fond, SOURCES[:1], ignore, search)
    assert "s" in best.text
    assert places_of("Hund", best.text)
    assert best.missing_terms == ()


def test_a_term_that_does_not_fit_is_said(one: Translator) -> None:
    notes: list[Any] = []
    search = Search(glossary=Glossary.of({"dog": "x" * 70}), num_beams=2)
    ((best,),) = search_texts(one, SOURCES[:1], lambda *note: notes.append(note), search)
    assert best.missing_terms == ("x" * 70,)
    assert notes == [(0, f"its translation is without the glossary's {'x' * 70!r}")]


def test_a_line_with_terms_is_translated_as_if_it_were_alone(one: Translator) -> None:
    search = Search(glossary=Glossary.of({"dog": "Strand", "runs": "Männer", "men": "Hund"}), n_best=2, num_beams=2)
    together = search_texts(one, SOURCES, ignore, search)
    for source, hypotheses in zip(SOURCES, together, strict=True):
        (alone,) = search_texts(one, [source], ignore, search)
        assert [each.text for each in alone] == [each.text for each in hypotheses]
        assert [each.score for each in alone] == pytest.approx([each.score for each in hypotheses], rel=1e-4)


def test_terms_are_found_as_words() -> None:
    glossary = Glossary.of({"dog": "Hund", "hot dog": "Würstchen", "the": "das", "犬": "Hund!"})
    assert glossary.wanted("A Dog and a hot dog") == ["Würstchen", "Hund"]
    assert glossary.wanted("A hot dog") == ["Würstchen"]
    assert glossary.wanted("dogma, then lapdog") == []
    assert glossary.wanted("dog's dog") == ["Hund"]
    assert glossary.wanted("大犬小") == ["Hund!"]
    assert places_of("Hund", "Hunde Hund Jagdhund Hund_") == [6]
    assert places_of("C++", "C++11 C++") == [0, 6]


def test_tokens_that_go_on_with_a_word(one: Translator) -> None:
    tokenizer = one.tokenizer
    goes_on = word_continuations(tokenizer, len(tokenizer))
    for token, continues in enumerate(goes_on.tolist()):
        written = tokenizer.decode([*ids_of("men", tokenizer), token], skip_special_tokens=True)
        behind = written.removeprefix("men")[:1]
        assert continues == (behind.isalnum() or (behind in ("_", "\ufffd") and behind != ""))
    assert 0 < goes_on.sum() < len(goes_on)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nc\n", "line 2: it must be a term, a tab, and the term's translation"),
        ("a\tb\tc\n", "line 1: it must be a term, a tab"),
        ("a\tb\n\na\tb\na\tc\n", "line 4: 'a' is 'b' by line 1; a term has one translation"),
    ],
)
def test_files_that_are_no_glossaries(tmp_path: Any, content: str, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(content, "utf-8")
    with pytest.raises(InputError, match=f"terms.tsv, {message}"):
        Glossary.read(path)


@pytest.mark.parametrize("search", [Search(num_beams=1), Search(n_best=2, num_beams=3), Search(mbr=3)])
def test_translations_begin_as_they_are_told(one: Translator, search: Search) -> None:
    prefixes = ["Ein Hund", "", "Strand,"]
    found = search_texts(one, SOURCES, ignore, search, target_prefixes=prefixes)
    free = search_texts(one, SOURCES, ignore, search)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert all(each.text.startswith(prefix) for each in hypotheses)
    assert [each.text for each in found[1]] == [each.text for each in free[1]]
    if search.num_beams == 1:
        long = " ".join(["Strand"] * 25)
        (short,) = search_texts(one, ["A"], ignore, search, target_prefixes=[long])
        assert short[0].text.startswith(long)  # which is longer than such a source's translation may be
        both = Search(num_beams=2, glossary=Glossary.of({"dog": "Männer"}))
        with_terms = search_texts(one, SOURCES, ignore, both, target_prefixes=prefixes)
        assert [each.text.startswith(prefix) for prefix, (each,) in zip(prefixes, with_terms, strict=True)] == [
            True
        ] * 3
        assert places_of("Männer", with_terms[0][0].text)


def test_prefixes_of_lines_on_the_command_line(seq2seq: Any, tmp_path: Any, capsys: Any, refused: Any) -> None:
    source, prefixes, columns = (tmp_path / name for name in ("source", "prefixes", "columns"))
    source.write_text("A dog runs.\nTwo men talk.\n", "utf-8")
    prefixes.write_text("Ein\nHund und\n", "utf-8")
    columns.write_text("A dog runs.\tEin\nTwo men talk.\tHund und\n", "utf-8")
    command = ["translate", str(seq2seq.folder), "--num_beams", "1", "--input"]
    main([*command, str(source), "--target_prefixes", str(prefixes)])
    by_file = capsys.readouterr().out
    assert by_file.startswith("Ein")
    assert by_file.splitlines()[1].startswith("Hund und")
    main([*command, str(columns), "--target_prefixes", "-"])
    assert capsys.readouterr().out == by_file
    texts = ["A dog runs.", "Two men talk."]
    assert translate(seq2seq.folder, texts, 1, target_prefix=["Ein", "Hund und"]) == by_file.splitlines()
    prefixes.write_text("Ein\n", "utf-8")
    with pytest.raises(SystemExit):
        main([*command, str(source), "--target_prefixes", str(prefixes)])
    assert "prefixes has 1 lines and the input has more; each line must have one" in capsys.readouterr().err
