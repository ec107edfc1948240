import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.evaluation.perplexity import (
    count_labels,
    language_model_scores,
    loss_per_token,
    overlapping_windows,
)

SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}


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
    scores = fields_of(
        language_model_scores(lm.train(), [ids], ["seven words in four\nand three more ü"], context_length=16)
    )
    nats = direct_nats(lm, ids)
    assert scores["loss"]["tokens"] == 7
    assert scores["loss"]["nats_per_token"] == pytest.approx(nats / 7, rel=1e-5)
    assert (scores["words"], scores["bytes"]) == (8, 37)
    assert scores["word_perplexity"] == pytest.approx(math.exp(nats / 8), rel=1e-5)
    assert scores["bits_per_byte"] == pytest.approx(nats / math.log(2) / 37, rel=1e-5)


def test_sums_over_documents_not_means_of_means(lm: PaperformerForCausalLM) -> None:
    documents = [[1, 5], [1, *range(10, 25)], [1, 8, 9]]
    scores = fields_of(language_model_scores(lm, documents, ["a", "b", "c"], context_length=16))
    nats = sum(direct_nats(lm, ids) for ids in documents)
    assert scores["loss"]["tokens"] == 1 + 15 + 2
    assert scores["loss"]["nats_per_token"] == pytest.approx(nats / 18, rel=1e-5)


@pytest.mark.parametrize("context_length", [6, 7])
def test_the_score_does_not_depend_on_how_windows_are_batched(lm: PaperformerForCausalLM, context_length: int) -> None:
    documents = [[1, *torch.randint(4, 50, (n,), generator=torch.Generator().manual_seed(n)).tolist()] for n in (3, 41)]
    stride = context_length // 2
    losses = [
        loss_per_token(lm, overlapping_windows(documents, context_length, stride, tokens)) for tokens in (1, 20, 999)
    ]
    assert [loss.count for loss in losses] == [44] * 3
    assert [loss.value for loss in losses[1:]] == [pytest.approx(losses[0].value, rel=1e-5)] * 2


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(2, 12), st.integers(1, 60))
def test_every_token_is_scored_once_and_with_enough_context(
    lengths: list[int], context_length: int, tokens_per_batch: int
) -> None:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    documents = [
        list(range(start + 1, start + 1 + n)) for start, n in zip(starts, lengths, strict=True)
    ]  # 0 is padding
    first_tokens = {document[0] for document in documents}
    scored = []
    for batch in overlapping_windows(documents, context_length, context_length // 2, tokens_per_batch):
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
    """Only a language model's first label has no prediction: an encoder's first token may be masked."""
    batch = {"labels": torch.tensor([[-100, 5, 6], [7, 8, -100]])}
    sizes = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    lm = PaperformerForCausalLM(PaperformerLMConfig(**sizes, num_hidden_layers=1))
    encoder = PaperformerForMaskedLM(PaperformerEncoderConfig(**sizes, num_hidden_layers=1))
    seq2seq = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**sizes, encoder_layers=1, decoder_layers=1))
    assert [count_labels(model, batch) for model in (lm, encoder, seq2seq)] == [3, 4, 4]
    for model in (lm, encoder, seq2seq):
        ids = {"input_ids": torch.tensor([[4, 5, 6], [7, 8, 9]]), **batch}
        with torch.no_grad():
            mean, total = (model.eval()(**ids, **more).loss for more in ({}, {"num_items_in_batch": 1}))
        assert total / mean == pytest.approx(count_labels(model, batch))  # as the model counts them
