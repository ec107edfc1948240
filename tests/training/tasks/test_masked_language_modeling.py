import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoTokenizer

from paperformer import PaperformerForMaskedLM
from paperformer.tokenization import train_tokenizer
from paperformer.training.console.input_error import InputError
from paperformer.training.evaluation.evaluation_file import read_scores
from paperformer.training.evaluation.metrics import LOSS, MASKED_ACCURACY, PSEUDO_PERPLEXITY
from paperformer.training.run import main, make_tokenizers
from paperformer.training.tasks.masked_language_modeling import MASKED_LANGUAGE_MODELING, MaskedScoring
from paperformer.training.tasks.protocols import Task

from ..conftest import command_line

Options = dict[str, Any]


@pytest.fixture
def options(lm_options: Options) -> Options:
    """The command line of a run of a few steps, option by option."""
    return lm_options | {"data.pseudo_perplexity_tokens": 30, "evaluation.samples": 3}


@pytest.fixture
def make_task(options: Options) -> Callable[..., Task]:
    def make(**changes: Any) -> Task:
        recipe = MASKED_LANGUAGE_MODELING.read_recipe(command_line(options | changes))
        splits = MASKED_LANGUAGE_MODELING.open_splits(recipe)
        return MASKED_LANGUAGE_MODELING.make_task(
            recipe, splits, make_tokenizers(MASKED_LANGUAGE_MODELING, recipe, splits)
        )

    return make


def scored(task: Task) -> tuple[MaskedScoring, PaperformerForMaskedLM]:
    torch.manual_seed(0)
    model: Any = task.build_model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    scoring: Any = task.scoring
    return scoring, model


def test_loss_and_accuracy_are_over_the_masked_tokens_of_all_documents(make_task: Callable[..., Task]) -> None:
    scoring, model = scored(make_task())
    commonest = int(np.bincount(np.asarray(scoring.held_out["validation"].ids[0:])).argmax())
    with torch.no_grad():
        model.lm_head.bias[commonest] += 20  # so that it is right now and then
    loss, accuracy = scoring.validate(model)
    assert (loss.metric, accuracy.metric) == (LOSS, MASKED_ACCURACY)
    sums, tokens, correct = 0.0, 0, 0
    for batch in scoring._text("validation").masked_at_once(100):
        for ids, mask, labels in zip(*(batch[name] for name in ("input_ids", "attention_mask", "labels")), strict=True):
            length = int(mask.sum())  # one row at a time, without padding
            with torch.no_grad():
                logits = model.eval()(ids[None, :length]).logits[0]
            for position in (labels[:length] != -100).nonzero().flatten().tolist():
                sums += F.cross_entropy(logits[position], labels[position]).item()
                correct += int(logits[position].argmax()) == int(labels[position])
                tokens += 1
    assert loss.count == accuracy.count == tokens
    assert tokens == pytest.approx(0.15 * len(scoring.held_out["validation"].ids), rel=0.2)
    assert loss.value == pytest.approx(sums / tokens, rel=1e-5)
    assert accuracy.value == pytest.approx(100 * correct / tokens)
    assert 0 < correct < tokens
    assert [score.value for score in scoring.validate(model)] == [loss.value, accuracy.value]  # the same masks again


def test_pseudo_perplexity_masks_one_token_at_a_time(make_task: Callable[..., Task]) -> None:
    """All tokens of a split, one by one, as Salazar et al. write it (equations 2 and 3)."""
    scoring, model = scored(make_task(**{"data.pseudo_perplexity_tokens": 10_000}))
    by_metric = {score.metric: score for score in scoring.evaluate(model, "test").scores}
    (document,) = scoring.held_out["test"].row(0)
    losses = []
    for start in range(0, len(document), 16):
        window = torch.tensor(document[start : start + 16].astype(np.int64))
        for position, token in enumerate(window.tolist()):
            if token > 4:  # <pad>, <s>, </s>, <unk> and <mask> do not stand for text
                masked = window.clone()
                masked[position] = scoring.tokenizer.mask_token_id
                with torch.no_grad():
                    logits = model(masked[None]).logits[0, position]
                losses.append(F.cross_entropy(logits, window[position]).item())
    found = by_metric[PSEUDO_PERPLEXITY]
    assert found.count == len(losses)
    assert found.value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)


def test_special_tokens_are_neither_masked_nor_put_in(make_task: Callable[..., Task]) -> None:
    batches: Any = make_task().batches
    (pool,) = batches.pools(0, 0)
    for item in pool:
        batch = batches.collate(item)
        special, is_masked = batch["input_ids"] < 4, batch["labels"] != -100
        assert not (special & is_masked).any()
        assert (batch["labels"][is_masked] > 4).all()


def test_a_corpus_that_spells_a_mask_does_not_mean_it(options: Options, tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.txt").write_text(f"{split}: say <mask> or </s> or <s>, and it is text.\n" * 20, "utf-8")
    options = options | {"data.dataset": tmp_path, "cleaning.duplicates": "keep"}
    recipe = MASKED_LANGUAGE_MODELING.read_recipe(command_line(options))
    splits = MASKED_LANGUAGE_MODELING.open_splits(recipe)
    tokenizers = make_tokenizers(MASKED_LANGUAGE_MODELING, recipe, splits)
    task: Any = MASKED_LANGUAGE_MODELING.make_task(recipe, splits, tokenizers)
    ids = np.asarray(task.batches.store.ids[0:])
    assert (ids == tokenizers.source.mask_token_id).sum() == (ids == tokenizers.source.eos_token_id).sum() == 0
    assert (ids == tokenizers.source.bos_token_id).sum() == 1  # where the document begins
    assert tokenizers.source("a <mask>").input_ids[-1] == tokenizers.source.mask_token_id  # of a user it is meant


def test_a_tokenizer_without_a_mask_is_refused(options: Options, tmp_path: Path) -> None:
    train_tokenizer(["a dog"] * 9, 270, append_eos=False).save_pretrained(tmp_path)
    recipe = MASKED_LANGUAGE_MODELING.read_recipe(command_line(options | {"tokenizer.path": tmp_path}))
    with pytest.raises(InputError, match="has no mask_token, which this task needs"):
        make_tokenizers(MASKED_LANGUAGE_MODELING, recipe, MASKED_LANGUAGE_MODELING.open_splits(recipe))


WITHOUT_PACKAGE = """
import json, sys
sys.modules["paperformer"] = None
from transformers import pipeline
fill = pipeline("fill-mask", model=sys.argv[1], trust_remote_code=True, top_k=2)
print(json.dumps([fill("A dog <mask>."), fill("The <mask> sings."), type(fill.model).__module__]))
"""


@pytest.mark.proof
def test_trained_resumed_and_filled_in_without_the_package(options: Options, tmp_path: Path) -> None:
    more = {"optimization.max_steps": 60, "evaluation.every_steps": 30, "optimization.tokens_per_batch": 128}
    more |= {"model.hidden_size": 32, "data.mask_probability": 0.3, "optimization.r_drop": 0.1}
    whole = main(MASKED_LANGUAGE_MODELING, command_line(options | more))
    losses = losses_of(whole.parent)
    assert losses[-1] < math.log(300) - 1.5  # that of a model which knows nothing, and a good deal less
    card = (whole / "README.md").read_text("utf-8")
    assert 'pipeline("fill-mask", model=model_id' in card
    assert "| Masked | Original | Filled in |" in card
    assert "model.generate" not in card
    metrics = {score.metric for score in read_scores(json.loads((whole / "evaluation.json").read_text("utf-8")))}
    assert metrics == {LOSS, MASKED_ACCURACY, PSEUDO_PERPLEXITY}
    assert "masked_accuracy" in (whole.parent / "report.html").read_text("utf-8")

    begun = options | more | {"name": "stopped", "optimization.max_steps": 30}
    main(MASKED_LANGUAGE_MODELING, command_line(begun))
    resumed = main(MASKED_LANGUAGE_MODELING, command_line(begun | {"optimization.max_steps": 60, "resume": "true"}))
    assert losses_of(resumed.parent)[-1] == pytest.approx(losses[-1], abs=0.3)  # another schedule until step 30

    run = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_PACKAGE, str(whole)], capture_output=True, text=True, check=True
    )
    first, second, module = json.loads(run.stdout.splitlines()[-1])
    assert module.startswith("transformers_modules")
    tokenizer = AutoTokenizer.from_pretrained(whole, trust_remote_code=False)
    assert len(first) == len(second) == 2
    assert first[0]["token"] not in tokenizer.all_special_ids
    assert first[0]["sequence"].startswith("A dog")


def losses_of(folder: Path) -> list[float]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [record["validation"]["loss"] for record in records if "validation" in record]
