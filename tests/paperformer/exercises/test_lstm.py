"""The LSTMs that Transformers are compared with."""

from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from paperformer.exercises.lstm import LSTMConfig, LSTMForCausalLM, LSTMForConditionalGeneration, matching_width
from paperformer.training.evaluation.decoding import generate

MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def config(**changes: float) -> LSTMConfig:
    sizes = {"vocab_size": 37, "hidden_size": 10, "num_hidden_layers": 2, "decoder_start_token_id": 1}
    return LSTMConfig(**sizes | MARKS | changes)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def ids_and_mask() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    return torch.randint(3, 37, (2, 7)) * mask, mask


def test_the_language_model_sees_nothing_later_and_its_loss_is_that_of_its_logits() -> None:
    model = LSTMForCausalLM(config()).eval()
    ids, mask = ids_and_mask()
    labels = ids.masked_fill(mask == 0, -100)
    logits = model(ids).logits
    torch.testing.assert_close(model(ids[:, :3]).logits, logits[:, :3])
    wanted = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 37), labels[:, 1:].reshape(-1))
    torch.testing.assert_close(model(ids, labels=labels, return_logits=False).loss, wanted)
    in_sum = model(ids, labels=labels, num_items_in_batch=1, return_logits=False).loss
    torch.testing.assert_close(in_sum, wanted * 9)  # six labels and three


def test_dropout_drops_the_same_units_at_all_places() -> None:
    model = LSTMForCausalLM(config(dropout=0.5)).train()
    dropped = model._drop(torch.ones(3, 5, 10))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(model.eval()._drop(torch.ones(3, 5, 10)), torch.ones(3, 5, 10))


def test_padding_of_the_source_changes_nothing() -> None:
    model = LSTMForConditionalGeneration(config()).eval()
    ids, mask = ids_and_mask()
    padded = model(ids, mask, labels=ids).logits
    alone = model(ids[1:, :4], mask[1:, :4], labels=ids[1:]).logits
    torch.testing.assert_close(padded[1:], alone)


def test_the_decoder_sees_its_source_and_nothing_later() -> None:
    model = LSTMForConditionalGeneration(config()).eval()
    ids, mask = ids_and_mask()
    other = ids.clone()
    other[0, 4] = 3 + (ids[0, 4] - 2) % 34
    logits, later = (model(ids, mask, labels=labels).logits for labels in (ids, other))
    torch.testing.assert_close(later[0, :5], logits[0, :5])
    assert not torch.allclose(later[0, 5:], logits[0, 5:])
    assert not torch.allclose(model(other, mask, labels=ids).logits[0, :1], logits[0, :1])


def test_attention_learns_where_to_look_soon() -> None:
    model = LSTMForConditionalGeneration(config(hidden_size=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    for _ in range(80):
        source = torch.randint(3, 37, (32, 6))
        loss = model(source, torch.ones_like(source), labels=source.flip(1)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 2  # smaller embeddings are at 3.2 then; a guess has 3.5


def test_the_language_model_learns_which_token_follows_soon() -> None:
    model = LSTMForCausalLM(config(hidden_size=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    following = torch.randperm(37)
    tokens = [torch.randint(37, (8,))]
    for _ in range(15):
        tokens.append(following[tokens[-1]])
    ids = torch.stack(tokens, 1)
    for _ in range(100):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.7  # with embeddings that are not scaled it is 1 then


@pytest.mark.parametrize("kind", [LSTMForCausalLM, LSTMForConditionalGeneration])
def test_it_is_as_it_was_saved_and_generates_what_its_logits_say(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    model = kind(config()).eval()
    model.generation_config = GenerationConfig(**MARKS, decoder_start_token_id=1, use_cache=False, max_new_tokens=4)
    model.save_pretrained(tmp_path)
    again = kind.from_pretrained(tmp_path).eval()
    ids, mask = ids_and_mask()
    ids, mask = ids[:1], mask[:1]
    given = {"attention_mask": mask, "do_sample": False}
    output = generate(model, input_ids=ids, **given)
    assert torch.equal(output, generate(again, input_ids=ids, **given))
    if model.config.is_encoder_decoder:
        logits = model(ids, mask, decoder_input_ids=output[:, :-1]).logits
        assert torch.equal(logits.argmax(-1), output[:, 1:])
        assert generate(model, input_ids=ids, num_beams=3, **given).shape[0] == 1
    else:
        assert torch.equal(model(output).logits.argmax(-1)[:, 6:-1], output[:, 7:])
    assert model.lm_head.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("kind", [LSTMForCausalLM, LSTMForConditionalGeneration])
def test_the_width_is_the_even_one_that_comes_closest(kind: type[PreTrainedModel]) -> None:
    def make(width: int) -> PreTrainedModel:
        return kind(config(hidden_size=width))

    counts = {width: make(width).num_parameters() for width in range(2, 40, 2)}
    for wanted in (5_000, 9_000, counts[12]):
        width = matching_width(wanted, make)
        assert abs(counts[width] - wanted) == min(abs(count - wanted) for count in counts.values())
