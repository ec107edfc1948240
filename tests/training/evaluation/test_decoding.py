import pytest
import torch
from torch.nn.functional import cross_entropy

from paperformer import (
    PaperformerForConditionalGeneration,
    PaperformerSeq2SeqConfig,
    train_tokenizer,
)
from paperformer.training.data.batches.token_budget import pad
from paperformer.training.evaluation.decoding import source_batches, translate
from paperformer.training.evaluation.perplexity import (
    loss_per_token,
)

SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer."


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


def test_four_hypotheses_of_a_source_count_as_one(translator: tuple) -> None:
    model, tokenizer, sources = translator
    (length,) = {len(ids) for ids in tokenizer([sources[0]] * 64).input_ids}

    def sizes(hypotheses: int) -> list[int]:
        options = {"max_length": 64, "hypotheses": hypotheses, "tokens_per_batch": 16 * length}
        return [len(batch.rows) for batch in source_batches(model, tokenizer, [sources[0]] * 64, **options)]

    assert sizes(1) == sizes(4) == [16] * 4
    assert sizes(8) == [8] * 8
    assert sizes(1000) == [1] * 64


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
    assert (loss.value, loss.count) == (pytest.approx(nats / tokens, rel=1e-5), tokens)
