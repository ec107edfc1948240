import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError
from paperformer.training.evaluation.evaluation_file import read_scores
from paperformer.training.evaluation.metrics import EXACT_SPANS, LOSS
from paperformer.training.run import main, make_tokenizers
from paperformer.training.tasks import denoising
from paperformer.training.tasks.denoising import DENOISING, DenoisingScoring
from paperformer.training.tasks.protocols import Task

from ..conftest import command_line

Options = dict[str, Any]


@pytest.fixture
def options(lm_options: Options) -> Options:
    """The command line of a run of a few steps, option by option."""
    without = {name: value for name, value in lm_options.items() if name != "model.num_hidden_layers"}
    sizes = {"model.encoder_layers": 1, "model.decoder_layers": 1, "tokenizer.vocab_size": 320}
    return without | sizes | {"data.context_length": 24, "evaluation.num_beams": 1, "evaluation.samples": 3}


@pytest.fixture
def make_task(options: Options) -> Callable[..., Task]:
    def make(**changes: Any) -> Task:
        recipe = DENOISING.read_recipe(command_line(options | changes))
        splits = DENOISING.open_splits(recipe)
        return DENOISING.make_task(recipe, splits, make_tokenizers(DENOISING, recipe, splits))

    return make


def scored(task: Task) -> tuple[DenoisingScoring, Any]:
    torch.manual_seed(0)
    scoring: Any = task.scoring
    return scoring, task.build_model().eval()


def test_a_full_context_fills_the_source(make_task: Callable[..., Task]) -> None:
    batches: Any = make_task().batches
    (pool,) = batches.pools(0, 0)
    lengths = {int(mask.sum()) for item in pool for mask in batches.collate(item)["attention_mask"]}
    assert max(lengths) == 24
    assert batches.longest_batch()["input_ids"].shape[1] == 24


def test_source_and_target_together_are_the_text(make_task: Callable[..., Task]) -> None:
    task = make_task()
    scoring, _ = scored(task)
    for batch in scoring._corrupted_windows("validation"):
        for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
            spans = scoring._spans(labels)
            restored = [token for id_ in ids for token in spans.get(id_, [id_])]
            text = scoring.tokenizer.decode(restored, skip_special_tokens=True)
            assert text
            assert text in "".join(scoring_text(scoring))


def scoring_text(scoring: DenoisingScoring) -> list[str]:
    store = scoring.held_out["validation"]
    return [scoring.tokenizer.decode(store.row(index)[0], skip_special_tokens=True) for index in range(len(store))]


def test_the_loss_is_over_the_targets_of_all_documents(make_task: Callable[..., Task]) -> None:
    scoring, model = scored(make_task())
    (loss,) = scoring.validate(model)
    total, tokens = 0.0, 0
    for batch in scoring._corrupted_windows("validation"):
        with torch.no_grad():
            logits = model(**batch).logits
        total += F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum").item()
        tokens += int((batch["labels"] != -100).sum())
    assert loss.metric is LOSS
    assert loss.count == tokens
    assert loss.value == pytest.approx(total / tokens, rel=1e-5)
    assert scoring.validate(model)[0].value == loss.value


@pytest.mark.parametrize(("spoilt", "share"), [(0, 100), (1, 0)])
def test_spans_are_exact_if_every_token_is(
    make_task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch, spoilt: int, share: float
) -> None:
    """A model that writes the target is always right; one that writes another last token of each span never."""
    scoring, model = scored(make_task())
    batches = iter(list(scoring._corrupted_windows("test")))

    def write(model: Any, **arguments: Any) -> torch.Tensor:
        labels = next(batches)["labels"].clone()
        is_last = (labels >= 4) & torch.isin(labels.roll(-1, 1), torch.tensor([*scoring.sentinels.tolist(), 2]))
        is_last &= ~torch.isin(labels, torch.tensor(scoring.sentinels))
        labels[is_last] += spoilt
        return torch.cat((torch.ones(len(labels), 1, dtype=torch.long), labels.clamp(min=0)), 1)

    monkeypatch.setattr(denoising, "generate", write)
    score = scoring._exact_spans(model, "test")
    assert score.metric is EXACT_SPANS
    assert score.value == share
    assert score.count > 10


def test_text_behind_a_sentinel_is_encoded_as_in_training(options: Options) -> None:
    """No space is put before it that would not be there if a span stood in the sentinel's place."""
    recipe = DENOISING.read_recipe(command_line(options))
    tokenizer = make_tokenizers(DENOISING, recipe, DENOISING.open_splits(recipe)).source
    whole, *_ = tokenizer(["A dog sleeps. A cat sings."]).input_ids
    for start in range(1, len(whole) - 2):
        before, after = tokenizer.decode(whole[:start]), tokenizer.decode(whole[start + 1 : -1])
        ids = tokenizer(f"{before}<extra_id_0>{after}").input_ids
        sentinel = tokenizer.convert_tokens_to_ids("<extra_id_0>")
        tokens = tokenizer.convert_ids_to_tokens(ids[ids.index(sentinel) + 1 : -1])
        assert "".join(tokens).replace("Ġ", " ") == after


def test_a_tokenizer_with_too_few_sentinels_is_refused(options: Options, tmp_path: Path) -> None:
    train_tokenizer(["a dog"] * 9, 270, append_eos=True).save_pretrained(tmp_path)
    recipe = DENOISING.read_recipe(command_line(options | {"tokenizer.path": tmp_path}))
    with pytest.raises(InputError, match=r"has 0 sentinels <extra_id_N>, and this task needs \d"):
        make_tokenizers(DENOISING, recipe, DENOISING.open_splits(recipe))


def test_trained_and_used(options: Options) -> None:
    more = {"optimization.max_steps": 60, "evaluation.every_steps": 30, "optimization.tokens_per_batch": 192}
    folder = main(DENOISING, command_line(options | more))
    records = [json.loads(line) for line in (folder.parent / "metrics.jsonl").read_text("utf-8").splitlines()]
    losses = [record["validation"]["loss"] for record in records if "validation" in record]
    assert losses[-1] < losses[0]
    scores = read_scores(json.loads((folder / "evaluation.json").read_text("utf-8")))
    assert {score.metric: bool(score.decoding) for score in scores} == {LOSS: False, EXACT_SPANS: True}
    card = (folder / "README.md").read_text("utf-8")
    assert "AutoTokenizer\n" in card  # there is no pipeline to import
    assert "| Source | Dropped | Output |" in card
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("A dog<extra_id_0> away.", return_tensors="pt")
    assert tokenizer.convert_tokens_to_ids("<extra_id_0>") in inputs.input_ids[0].tolist()
    assert inputs.input_ids[0, -1] == tokenizer.eos_token_id
    outputs = AutoModelForSeq2SeqLM.from_pretrained(folder).generate(**inputs)
    assert 1 < outputs.shape[1] <= 2 * 24
