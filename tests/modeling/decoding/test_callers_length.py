import inspect
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)
from transformers.generation import GenerationMixin


@pytest.fixture(params=["seq2seq", "lm"])
def model(request: pytest.FixtureRequest, make_seq2seq: Any, make_lm: Any) -> PreTrainedModel:
    model = (make_seq2seq if request.param == "seq2seq" else make_lm)()
    model.generation_config = GenerationConfig(
        max_new_tokens=12, eos_token_id=None, pad_token_id=0, bos_token_id=1, decoder_start_token_id=1
    )
    return model


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(
    ("given", "length"),
    [({}, 12), ({"max_length": 7}, None), ({"max_new_tokens": 4}, 4), ({"max_length": 9, "max_new_tokens": 2}, 2)],
)
def test_what_a_caller_says_goes_before_what_was_saved(
    model: Any, given: dict[str, int], length: int | None, num_beams: int
) -> None:
    ids = torch.tensor([[5, 6, 7]])
    prompt = 1 if model.config.is_encoder_decoder else 3
    output = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=num_beams, **given)
    assert output.shape[1] == (given["max_length"] if length is None else prompt + length)


PARTS = slice(0, 5), slice(5, None)  # what is written, and what the trainer pads it with


def test_seq2seq_trainer_has_the_last_word(make_seq2seq: Any, tmp_path: Any) -> None:
    model = make_seq2seq()
    model.generation_config = GenerationConfig(
        max_new_tokens=12, eos_token_id=None, pad_token_id=0, bos_token_id=1, decoder_start_token_id=1
    )
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), predict_with_generate=True, generation_max_length=5, report_to=[], use_cpu=True
    )
    rows = [{"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [8, 9]}]
    ((*_, last), padding) = (Seq2SeqTrainer(model, arguments).predict(rows).predictions[0, part] for part in PARTS)
    assert last != 0
    assert not padding.any()


def test_it_is_described_as_that_of_transformers(model: Any) -> None:
    own, theirs = (inspect.signature(function) for function in (type(model).generate, GenerationMixin.generate))
    assert own == theirs


def test_a_pipeline_is_told_how_it_leaves_room_for_what_follows(make_lm) -> None:
    """Its truncation fills all positions, where GPT-2 has an IndexError; it has an option that does not."""
    model = make_lm(position_embedding_type="learned", max_position_embeddings=12)
    words = Tokenizer(WordLevel({f"w{index}": index for index in range(model.config.vocab_size)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, pad_token="w0")
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    text, options = " ".join(["w5"] * 40), {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    with pytest.raises(ValueError, match="handle_long_generation='hole' leaves room"):
        write(text, truncation=True, **options)
    assert write(text, truncation=True, handle_long_generation="hole", **options)[0]["generated_text"].startswith(text)
