import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
    train_tokenizer,
)
from paperformer.training.data.batching import pad
from paperformer.training.evaluation import (
    _overlapping_windows,
    count_labels,
    language_model_scores,
    loss_per_token,
    translate,
    translation_scores,
)

SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer."


@pytest.fixture(scope="module")
def lm() -> PaperformerForCausalLM:
    torch.manual_seed(0)
    config = PaperformerLMConfig(num_hidden_layers=1, vocab_size=50, dropout=0.5, label_smoothing=0.3, **SIZE)
    model = PaperformerForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # far from uniform, so that a wrong context shows
    return model


def direct_nats(model: PaperformerForCausalLM, ids: list[int]) -> float:
    """The sum over a document, without windows, batches or the model's own loss."""
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    return float(cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]), reduction="sum"))


def test_loss_of_a_short_document_is_the_direct_computation(lm: PaperformerForCausalLM) -> None:
    ids = [1, 7, 3, 30, 49, 5, 5, 12]
    scores = language_model_scores(lm.train(), [ids], ["seven words in four\nand three more ü"], context_length=16)
    nats = direct_nats(lm, ids)
    assert scores["loss"]["tokens"] == 7
    assert scores["loss"]["nats_per_token"] == pytest.approx(nats / 7, rel=1e-5)
    assert (scores["words"], scores["bytes"]) == (8, 37)
    assert scores["word_perplexity"] == pytest.approx(math.exp(nats / 8), rel=1e-5)
    assert scores["bits_per_byte"] == pytest.approx(nats / math.log(2) / 37, rel=1e-5)


def test_sums_over_documents_not_means_of_means(lm: PaperformerForCausalLM) -> None:
    documents = [[1, 5], [1, *range(10, 25)], [1, 8, 9]]
    scores = language_model_scores(lm, documents, ["a", "b", "c"], context_length=16)
    nats = sum(direct_nats(lm, ids) for ids in documents)
    assert scores["loss"]["tokens"] == 1 + 15 + 2
    assert scores["loss"]["nats_per_token"] == pytest.approx(nats / 18, rel=1e-5)


@pytest.mark.parametrize("context_length", [6, 7])
def test_the_score_does_not_depend_on_how_windows_are_batched(lm: PaperformerForCausalLM, context_length: int) -> None:
    documents = [[1, *torch.randint(4, 50, (n,), generator=torch.Generator().manual_seed(n)).tolist()] for n in (3, 41)]
    losses = [loss_per_token(lm, _overlapping_windows(documents, context_length, size)) for size in (1, 2, 5, 100)]
    assert [loss["tokens"] for loss in losses] == [44] * 4
    assert losses[1:] == [{"nats_per_token": pytest.approx(losses[0]["nats_per_token"], rel=1e-5), "tokens": 44}] * 3


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(2, 12), st.integers(1, 5))
def test_every_token_is_scored_once_and_with_enough_context(
    lengths: list[int], context_length: int, batch_size: int
) -> None:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    documents = [
        list(range(start + 1, start + 1 + n)) for start, n in zip(starts, lengths, strict=True)
    ]  # 0 is padding
    first_tokens = {document[0] for document in documents}
    scored = []
    for batch in _overlapping_windows(documents, context_length, batch_size):
        assert batch["input_ids"].shape[1] <= context_length
        for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
            for position in range(1, len(ids)):  # the label at a position is predicted from those before it
                if labels[position] != -100:
                    assert labels[position] == ids[position]
                    assert mask[position]
                    scored.append(int(labels[position]))
                    begins_document = int(ids[0]) in first_tokens
                    assert begins_document or position >= context_length // 2
    assert sorted(scored) == sorted(token for document in documents for token in document[1:])


def test_count_labels() -> None:
    batch = {"labels": torch.tensor([[-100, 5, 6], [7, 8, -100]])}
    assert count_labels(batch, is_shifted=True) == 4
    assert count_labels(batch, is_shifted=False) == 3


@pytest.fixture(scope="module")
def translator() -> tuple[PaperformerForConditionalGeneration, object, list[str]]:
    torch.manual_seed(3)
    sources = [
        "a dog",
        "two men talk",
        "a much longer sentence about nothing at all",
        "",
        "cat",
        "the dog runs away",
    ] * 2
    tokenizer = train_tokenizer([TEXT, *sources], 280, append_eos=True)
    # So few positions that the limit of an output's length, which an untrained model reaches, is the same for all.
    size = SIZE | {"max_position_embeddings": 22}
    config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, vocab_size=len(tokenizer), **size)
    model = PaperformerForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model, tokenizer, sources


@pytest.mark.parametrize("num_beams", [1, 3])
def test_translate_keeps_the_order_and_batching_changes_nothing(translator: tuple, num_beams: int) -> None:
    model, tokenizer, sources = translator
    together = translate(model, tokenizer, sources, num_beams=num_beams, tokens_per_batch=60)
    one_by_one = [translate(model, tokenizer, [source], num_beams=num_beams)[0] for source in sources]
    assert together == one_by_one
    assert len(set(together)) == 6  # or the order would not show


def test_translate_truncates_and_takes_nothing(translator: tuple) -> None:
    model, tokenizer, _ = translator
    assert translate(model, tokenizer, []) == []
    cut = tokenizer(TEXT, truncation=True, max_length=9).input_ids
    assert cut[-1] == tokenizer.eos_token_id
    long, short = translate(model, tokenizer, [TEXT, tokenizer.decode(cut, skip_special_tokens=True)], max_length=9)
    assert long == short


def test_translate_decodes_with_the_targets_tokenizer(translator: tuple) -> None:
    model, tokenizer, sources = translator

    class Reversing:
        def batch_decode(self, outputs: torch.Tensor, *, skip_special_tokens: bool) -> list[str]:
            return [text[::-1] for text in tokenizer.batch_decode(outputs, skip_special_tokens=skip_special_tokens)]

    translations = translate(model, tokenizer, sources)
    assert translate(model, tokenizer, sources, target_tokenizer=Reversing()) == [text[::-1] for text in translations]
    assert any(text != text[::-1] for text in translations)


def test_translation_loss_is_the_direct_computation(translator: tuple) -> None:
    model, tokenizer, _ = translator
    model.config.label_smoothing = 0.3  # of no effect in evaluation
    pairs = [("a dog", "cat"), ("two men talk", "the dog runs away"), ("cat", "a")]
    nats, tokens, batches = 0.0, 0, []
    for source, target in pairs:
        ids, labels = torch.tensor([tokenizer(source).input_ids]), torch.tensor([tokenizer(target).input_ids])
        shifted = torch.cat([torch.tensor([[1]]), labels[:, :-1]], dim=1)
        with torch.no_grad():
            logits = model.eval()(input_ids=ids, decoder_input_ids=shifted).logits[0]
        nats += float(cross_entropy(logits.double(), labels[0], reduction="sum"))
        tokens += labels.shape[1]
    for group in (pairs[:2], pairs[2:]):
        ids = pad([tokenizer(source).input_ids for source, _ in group], 0)
        labels = pad([tokenizer(target).input_ids for _, target in group], -100)
        batches.append({"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels})
    loss = loss_per_token(model.train(), batches)
    assert loss == {"nats_per_token": pytest.approx(nats / tokens, rel=1e-5), "tokens": tokens}


def test_bleu_and_chrf_are_those_of_sacrebleu_s_command(tmp_path: Path) -> None:
    hypotheses = ["Ein Hund läuft am Strand entlang.", "Zwei Männer, die reden!", "Das ist „gut“.", "1,5 km weit weg"]
    references = ["Ein Hund rennt am Strand entlang.", "Zwei Männer reden.", "Das ist „gut“.", "1,5 km weit entfernt"]
    (tmp_path / "ref").write_text("\n".join(references) + "\n", "utf-8")
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), "-w", "4"]
    result = subprocess.run([*command, "-m", "bleu", "chrf"], capture_output=True, text=True, check=True)
    bleu, chrf = json.loads(result.stdout)
    scores = translation_scores(hypotheses, references)
    assert round(scores["bleu"]["score"], 4) == bleu["score"]
    assert round(scores["chrf"]["score"], 4) == chrf["score"]
    assert scores["bleu"]["signature"] == bleu["signature"]
    assert 20 < bleu["score"] < 80
    assert (scores["exact_match"], scores["sentences"]) == (25.0, 4)
    assert "case:mixed" in bleu["signature"]
