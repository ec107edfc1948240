"""Other people's training programs with our models: transformers' Trainer and Seq2SeqTrainer, TRL, adapters of PEFT.

Each trains, evaluates, chooses the best checkpoint, and goes on from one as if it had never stopped.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from paperformer import train_tokenizer

TEXTS = ["A dog runs.", "Two men talk.", "A man runs with a dog.", "Two dogs run and a man talks."] * 2
TARGET_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]

MakeModel = Callable[..., PreTrainedModel]


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 3,
        "learning_rate": 0.01,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "accuracy",
        "greater_is_better": True,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **more,
    }


def rows(columns: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.fixture
def token_rows() -> dict[str, Tensor]:
    input_ids = torch.randint(3, 50, (8, 7))
    return {"input_ids": input_ids, "labels": input_ids.clone()}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(TEXTS, 270, append_eos=True)


def accuracy_of_next(result: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((result.predictions[:, :-1].argmax(-1) == result.label_ids[:, 1:]).mean())}


def accuracy_in_place(result: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())}


def trained(make_trainer: Callable[[], Trainer]) -> Trainer:
    """The trainer after training, when all that is promised at the top has been seen."""
    trainer = make_trainer()
    trainer.train()
    evaluations = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations] == [2, 4]
    scores = [entry["eval_accuracy"] for entry in evaluations]
    assert trainer.state.best_metric == max(scores)
    assert trainer.state.best_global_step == (2 if scores[0] >= scores[1] else 4)
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(max(scores))

    resumed = make_trainer()
    resumed.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-2"))
    again = [entry for entry in resumed.state.log_history if "eval_loss" in entry and entry["step"] == 4]
    assert again[0]["eval_loss"] == pytest.approx(evaluations[1]["eval_loss"], rel=1e-5)
    return trainer


def loss_of(model: PreTrainedModel, columns: dict[str, Tensor]) -> float:
    with torch.no_grad():
        return float(model.eval()(**columns).loss)


def test_language_model(make_lm: MakeModel, token_rows: dict[str, Tensor], tmp_path: Path) -> None:
    data = rows(token_rows)

    def make_trainer() -> Trainer:
        arguments = TrainingArguments(**options(tmp_path))
        return Trainer(make_lm(), arguments, train_dataset=data, eval_dataset=data, compute_metrics=accuracy_of_next)

    trainer = trained(make_trainer)
    assert trainer.label_names == ["labels"]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss_of(trainer.model, token_rows), rel=1e-5)


def test_trainer_shifts_the_labels_that_it_smooths(
    make_lm: MakeModel, token_rows: dict[str, Tensor], tmp_path: Path
) -> None:
    """It knows language models by the names of their classes, which `import paperformer` tells it."""
    model = make_lm().eval()
    trainer = Trainer(
        model,
        TrainingArguments(
            **options(tmp_path, label_smoothing_factor=0.1, eval_strategy="no", load_best_model_at_end=False)
        ),
    )
    with torch.no_grad():
        loss, logits = trainer.compute_loss(model, dict(token_rows)), model(**token_rows).logits
    targets = token_rows["labels"][:, 1:].flatten()
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets, label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)


def test_encoder(make_encoder: MakeModel, token_rows: dict[str, Tensor], tmp_path: Path) -> None:
    """With a pooled vector among its outputs, of which a metric of tokens is not to know."""
    data = rows(token_rows)

    def make_trainer() -> Trainer:
        arguments = TrainingArguments(**options(tmp_path))
        model = make_encoder(pooling="mean")
        return Trainer(model, arguments, train_dataset=data, eval_dataset=data, compute_metrics=accuracy_in_place)

    trainer = trained(make_trainer)
    assert trainer.label_names == ["labels"]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss_of(trainer.model, token_rows), rel=1e-5)


@pytest.mark.parametrize("generate", [True, False])
def test_encoder_decoder(
    generate: bool, make_seq2seq: MakeModel, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    data = [{"input_ids": ids, "labels": ids[-3:]} for ids in tokenizer(TEXTS).input_ids]

    def accuracy(result: EvalPrediction) -> dict[str, float]:
        if not generate:
            return accuracy_in_place(result)
        assert result.predictions.ndim == 2  # token ids
        return {"accuracy": float((result.predictions[:, 1:4] == result.label_ids[:, :3]).mean())}

    def make_trainer() -> Trainer:
        model = make_seq2seq(vocab_size=len(tokenizer))
        model.generation_config = GenerationConfig(
            pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, max_new_tokens=5, num_beams=2
        )
        arguments = Seq2SeqTrainingArguments(**options(tmp_path, predict_with_generate=generate))
        return Seq2SeqTrainer(
            model,
            arguments,
            train_dataset=data,
            eval_dataset=data,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
            compute_metrics=accuracy,
        )

    assert trained(make_trainer).label_names == ["labels"]


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore:.*return_outputs:FutureWarning")
@pytest.mark.parametrize("adapter", [False, True])
def test_trl(adapter: bool, make_lm: MakeModel, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    data = Dataset.from_dict({"text": TEXTS})

    def make_trainer() -> Trainer:
        arguments = SFTConfig(**options(tmp_path), max_length=16)
        return SFTTrainer(
            make_lm(vocab_size=len(tokenizer)),
            arguments,
            train_dataset=data,
            eval_dataset=data,
            processing_class=tokenizer,
            compute_metrics=accuracy_of_next,
            peft_config=peft.LoraConfig(task_type="CAUSAL_LM", target_modules=TARGET_MODULES) if adapter else None,
        )

    trained(make_trainer)


@pytest.mark.proof
@pytest.mark.parametrize("gated", [False, True])
def test_adapters(gated: bool, make_any_model: MakeModel, token_rows: dict[str, Tensor], tmp_path: Path) -> None:
    """Of all projections that the guide names; the adapter alone is saved, and gives the same model when loaded."""
    data = rows(token_rows)
    target_modules = TARGET_MODULES + ["gate_proj"] * gated
    make_model = lambda: make_any_model(gated_mlp=gated)  # noqa: E731
    is_causal = not hasattr(make_model(), "transform") and not make_model().config.is_encoder_decoder

    def make_trainer() -> Trainer:
        adapted = peft.get_peft_model(make_model(), peft.LoraConfig(target_modules=target_modules, r=2))
        arguments = TrainingArguments(**options(tmp_path))
        metric = accuracy_of_next if is_causal else accuracy_in_place
        return Trainer(adapted, arguments, train_dataset=data, eval_dataset=data, compute_metrics=metric)

    trainer = trained(make_trainer)
    adapted_layers = {name.rpartition(".lora_A")[0] for name, _ in trainer.model.named_modules() if "lora_A." in name}
    projections = {name for name, _ in trainer.model.named_modules() if name.endswith("_proj")}
    assert adapted_layers == projections
    expected = trainer.model.eval()(**token_rows).logits
    trainer.save_model(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded = peft.PeftModel.from_pretrained(make_model(), str(tmp_path / "adapter"))
    torch.testing.assert_close(loaded(**token_rows).logits, expected)
    torch.testing.assert_close(loaded.merge_and_unload()(**token_rows).logits, expected, rtol=1e-3, atol=1e-4)
