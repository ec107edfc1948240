"""The Python API: recipes of all kinds, runs, and finished models on text."""

import math
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState

import paperformer
from paperformer import (
    InputError,
    Run,
    TrainingStopped,
    evaluate,
    generate,
    prepare,
    read_recipe,
    score,
    train,
    translate,
)
from paperformer.api import model_processes
from paperformer.training.engine.loop import Trainer
from paperformer.training.evaluation.metrics import ScoringOptions
from paperformer.training.tasks.registry import OBJECTIVES

TEXT = [f"The {animal} {verb} in the {place}.\n" for animal in ("dog", "cat", "man") for verb in ("runs", "sings")
        for place in ("house", "garden", "long queue", "sea")]  # fmt: skip
SMALL = {
    "tokenizer": {"vocab_size": 300},
    "model": {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
    "optimization": {"max_steps": 4, "tokens_per_batch": 64, "warmup_steps": 1},
    "evaluation": {"every_steps": 2, "validation_samples": 1, "samples": 1},
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a language model of a few steps, in sections."""
    folder = tmp_path_factory.mktemp("api")
    for split, times in {"train": 20, "validation": 2, "test": 1}.items():
        (folder / f"{split}.txt").write_text("".join(TEXT) * times, "utf-8")
    data = {"dataset": folder, "context_length": 16}
    cleaning = {"leak_check": False, "duplicates": "keep"}
    return {
        "objective": "lm",
        "name": "small",
        "output_dir": folder / "runs",
        "data": data,
        "cleaning": cleaning,
    } | SMALL


@pytest.fixture(scope="module")
def run(recipe: dict[str, Any]) -> Run:
    return train(recipe)


def test_a_run_from_python(run: Run, recipe: dict[str, Any]) -> None:
    assert run.folder == recipe["output_dir"] / "small"
    assert run.model_folder == run.folder / "model"
    found = {(score.split, score.metric.name): score for score in run.scores}
    assert {split for split, _ in found} == {"validation", "test"}
    assert found["test", "loss"].count > found["test", "perplexity"].count > 0
    assert [record["step"] for record in run.metrics if "validation" in record] == [2, 4]
    assert not run.model.training
    assert run.model is run.model
    batch = run.tokenizer("The dog", return_tensors="pt")
    assert run.model(**batch).logits.shape == (1, len(batch.input_ids[0]), run.model.config.vocab_size)
    card = (run.model_folder / "README.md").read_text("utf-8")
    assert "accelerate launch -m paperformer.training.train_lm --objective lm --name small --output_dir " in card
    again = Run(str(run.folder))
    assert again == run
    assert again.scores == run.scores


def test_the_same_again_in_one_process_also_after_a_failure(run: Run, recipe: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"the run .*small exists; give --resume, --overwrite or another --name$"):
        train(recipe)
    with pytest.raises(InputError, match=r"^optimization.max_steps is 0; it must be at least 1$"):
        train(recipe, {"optimization.max_steps": 0}, name="other")
    AcceleratorState._reset_state()
    Accelerator(mixed_precision="bf16")  # of a Trainer of transformers, in the same notebook
    other = train(recipe, name="other")
    weights = "model/model.safetensors"
    assert (other.folder / weights).read_bytes() == (run.folder / weights).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_reaches_the_caller_and_the_run_goes_on(
    number: signal.Signals, run: Run, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = Trainer._step, iter(range(1, 100))

    def step_and_interrupt(*arguments: Any) -> None:
        if next(calls) == 2:
            os.kill(os.getpid(), number)
        step(*arguments)

    monkeypatch.setattr(Trainer, "_step", step_and_interrupt)
    name = f"stopped-by-{number}"
    with pytest.raises(TrainingStopped, match="stopped after step 2, and its state is saved"):
        train(recipe, name=name)
    stopped = Run(recipe["output_dir"] / name)
    with pytest.raises(InputError, match="is not finished: it has no evaluation; train it further with resume=True"):
        stopped.scores  # noqa: B018
    with pytest.raises(InputError, match="it has no model"):
        generate(stopped.folder, "The")
    resumed = train(name=name, output_dir=recipe["output_dir"], resume=True)  # its own recipe, objective and all
    weights = "model/model.safetensors"
    assert (resumed.folder / weights).read_bytes() == (run.folder / weights).read_bytes()


def test_recipes_of_every_kind_are_the_same(recipe: dict[str, Any], tmp_path: Path) -> None:
    plain = recipe | {
        "output_dir": str(recipe["output_dir"]),
        "data": recipe["data"] | {"dataset": str(recipe["data"]["dataset"])},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(plain), "utf-8")
    dotted = {}
    for name, value in plain.items():
        dotted |= (
            {f"{name}.{field}": item for field, item in value.items()} if isinstance(value, dict) else {name: value}
        )
    expected = read_recipe(recipe)
    assert expected.optimization.max_steps == 4
    assert expected.cleaning.leak_check is False
    for given in (dotted, tmp_path / "recipe.yaml", str(tmp_path / "recipe.yaml"), expected):
        assert read_recipe(given) == expected
    assert read_recipe(None, **plain) == expected
    words = [word for name, value in dotted.items() for word in (f"--{name}", str(value))]
    assert OBJECTIVES["lm"].read_recipe(words).yaml == expected.yaml


def test_overrides(recipe: dict[str, Any]) -> None:
    changed = read_recipe(
        "shakespeare-lm",
        {"optimization.learning_rate": np.float64(1e-5), "optimization": {"max_steps": np.int64(7)}, "name": "first"},
        name="second",
        trackers=["tensorboard"],
        model={"rope_parameters": {"rope_type": "default", "rope_theta": 5e4}, "hidden_size": 96},
        license=None,
    )
    assert changed.optimization.learning_rate == 1e-5
    assert changed.optimization.max_steps == 7
    assert (changed.run.name, changed.run.trackers, changed.run.license) == ("second", ["tensorboard"], None)
    assert changed.model["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e4}
    assert (changed.data.dataset, changed.run.objective) == ("built-in:shakespeare", "lm")
    again = read_recipe(changed, {"optimization.max_steps": 8})
    assert (again.optimization.max_steps, again.run.name, again.model) == (8, "second", changed.model)
    assert read_recipe(recipe, name="--odd").run.name == "--odd"


def test_a_mapping_is_completed_as_a_command_line_is(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("".join(TEXT) * 9, "utf-8")
    completed = read_recipe({"objective": "lm", "data": {"train": tmp_path / "my.txt"}})
    assert (completed.run.name, completed.data.hold_out) == ("my-lm", 0.1)
    assert completed.optimization.max_steps >= 400


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "x"}, "the recipe does not say its objective; it must be seq2seq, lm, encoder or denoising"),
        ({"objective": "bert"}, "objective is bert; it must be seq2seq, lm, encoder or denoising"),
        ({"objective": ["lm"]}, "objective is ['lm']; it must be seq2seq, lm, encoder or denoising"),
        ({"objective": "lm"}, "nothing says what to train on; give --data.train FILE, or a recipe: --config NAME"),
        (
            {"objective": "lm", "optimisation": {"max_steps": 3}},
            "there is no option --optimisation.max_steps; did you ",
        ),
        ({"objective": "lm", "name": {1}}, "name is {1}; it must be text, a number, a bool, None, or a list or dict"),
        ("no-such-recipe", "--config: there is no file no-such-recipe, and no recipe of that name; there are cldr-"),
    ],
)
def test_what_cannot_be_read(given: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_recipe(given)
    assert str(refused.value).startswith(message)


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    for content, message in {"a: [": "line 1: this is not YAML", "- a": "a recipe must be a mapping"}.items():
        (tmp_path / "recipe.yaml").write_text(content)
        with pytest.raises(InputError, match=message):
            read_recipe(tmp_path / "recipe.yaml", objective="lm")
    with pytest.raises(InputError, match="is a folder; a recipe is a YAML file"):
        read_recipe(tmp_path)


def test_a_recipe_that_was_changed_by_hand_is_refused(recipe: dict[str, Any]) -> None:
    changed = read_recipe(recipe)
    changed.optimization.max_steps = 3
    with pytest.raises(InputError, match=r"^optimization.max_steps of the recipe was set to 3 after it was read"):
        train(changed, name="by-hand")


def test_an_error_is_one_line() -> None:
    assert str(InputError("first\n  second")) == "first second"
    assert issubclass(InputError, ValueError)


def test_prepare(recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    prepared = prepare(recipe, name="prepared")
    assert [split.name for split in prepared.splits] == ["train", "validation", "test"]
    assert all(split.tokens for split in prepared.splits)
    assert prepared.report["train"]["cleaning"]["kept"] == 3  # parts of one document
    assert len(prepared.tokenizers.source) == 300
    assert not (recipe["output_dir"] / "prepared").exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith(f"{prepared.batches}\n")


def test_generate_with_a_run_a_folder_and_a_model(run: Run, lm: Any) -> None:
    state = torch.random.get_rng_state()
    expected = generate(run, "The dog", max_new_tokens=5)
    assert expected.startswith("The dog")
    assert generate(run.folder, "The dog", 5) == expected
    assert generate(str(run.model_folder), "The dog", 5) == expected
    assert generate(run.model, "The dog", 5, tokenizer=run.tokenizer) == expected
    assert torch.equal(torch.random.get_rng_state(), state)
    assert generate(lm.folder, "A dog", 5, temperature=0) == generate(lm.folder, "A dog", 5, temperature=0, seed=2)


def test_translate_and_evaluate(seq2seq: Any) -> None:
    texts = ["A dog runs.", " ", "Two men talk."]
    outputs = translate(seq2seq.folder, texts, num_beams=1)
    assert [bool(output) for output in outputs] == [True, False, True]
    assert translate(seq2seq.model.train(), texts, 1, tokenizer=seq2seq.tokenizer) == outputs
    assert not seq2seq.model.training
    assert translate(seq2seq.folder, []) == []
    scores = {score.metric.name: score for score in evaluate(seq2seq.folder, texts[::2], outputs[::2], num_beams=1)}
    assert scores.keys() == {"bleu", "chrf", "chrf++", "ter", "exact_match"}
    assert (scores["exact_match"].value, scores["exact_match"].count) == (100, 2)
    assert scores["bleu"].signature.startswith("nrefs:1")
    assert scores["bleu"].confidence is not None
    streams = [["x", "y"], outputs[::2]]
    bleu = evaluate(seq2seq.folder, texts[::2], streams, num_beams=1, options=ScoringOptions(lowercase=True))[0]
    assert bleu.signature.startswith("nrefs:2|case:lc")


class PoolInThisProcess:
    """Does at once what processes would do each by itself, which take seconds to begin."""

    def __init__(self, count: int, context: object, begin: Callable[..., None], arguments: tuple[Any, ...]):
        begin(*arguments)

    def __enter__(self) -> "PoolInThisProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(call(*arguments))
        return future


def test_processes_translate_as_one_does(seq2seq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_processes, "ProcessPoolExecutor", PoolInThisProcess)
    monkeypatch.setenv("RANK", "0")
    threads = torch.get_num_threads()
    texts = ["xq zk", "", *("qx zk", "zk xq", "kz qx", "xk zq", "zz kk", "qq xx", "kx zq", "zq kx", "xz qk")]
    translations = translate(seq2seq.folder, texts, 2, processes=2)
    torch.set_num_threads(threads)
    assert translations == translate(seq2seq.folder, texts, 2)
    assert len(set(translations)) > 5
    with pytest.raises(InputError, match="processes is 2; the model must then be a folder or a name on the Hub"):
        translate(seq2seq.model, texts, processes=2, tokenizer=seq2seq.tokenizer)


def test_a_prefix_stands_before_every_text(seq2seq: Any) -> None:
    assert translate(seq2seq.folder, ["dog runs.", " "], 1, prefix="A ") == [
        *translate(seq2seq.folder, ["A dog runs."], 1),
        "",
    ]


def test_score_compares_finished_translations() -> None:
    report = score(
        ["a b c", "d"], [["a b c", "e"], ["x", "d"]], ["A B C", "D"], name="one", baseline=("none", ["", ""])
    )
    assert [system.name for system in report.systems] == ["none", "one"]
    assert {comparison.metric.name: comparison.system for comparison in report.comparisons}["exact_match"] == 100
    assert report.system.scores[0].signature.startswith("nrefs:2")
    for arguments, message in [
        ((["a"], ["b", "c"]), "there are 1 hypotheses and 2 references; each must have one"),
        ((["a"], "b"), "references is one text; it must be a list of texts"),
        ((["a"], ["b"], ["c", "d"]), "there are 1 hypotheses, and of sources 2; each must have one"),
    ]:
        with pytest.raises(InputError) as refused:
            score(*arguments)
        assert str(refused.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: translate(model, "A dog runs."), "texts is one text; it must be a list of texts"),
        (lambda model: translate(model, ["a"], num_beams=0), "num_beams is 0; it must be at least 1"),
        (lambda model: translate(model, ["a"], processes=0), "processes is 0; it must be at least 1"),
        (lambda model: translate(model, None), "texts is a NoneType; it must be a list of texts"),  # type: ignore[call-overload]
        (lambda model: translate(model, b"a"), "texts is a bytes; it must be a list of texts"),  # type: ignore[call-overload]
        (lambda model: translate(model, iter("ab")), "texts is a str_ascii_iterator; it must"),  # type: ignore[call-overload]
        (lambda model: translate(model, ["a", None]), "texts[1] is a NoneType; it must be a text, a str"),  # type: ignore[list-item]
        (lambda model: translate(model, [["a"]]), "texts[0] is a list; it must be a text, a str"),  # type: ignore[list-item]
        (lambda model: translate(model, ["a", "b \ud800"]), "texts[1] has half of a surrogate pair"),
        (lambda model: evaluate(model, [1], ["a"]), "sources[0] is a int"),  # type: ignore[list-item]
        (lambda model: translate("./nowhere", ["a", "b"], processes=2), "there is no folder ./nowhere"),
        (lambda model: evaluate(model, ["a"], ["b", "c"]), "there are 1 sources and 2 references; each must have one"),
        (lambda model: evaluate(model, [], []), "there are 0 sources and 0 references; each must have one"),
        (lambda model: generate(model, "a"), "holds a paperformer-seq2seq; this command needs a text-generation model"),
        (lambda model: generate(model, "a", temperature=math.nan), "temperature is nan; it must be at least 0"),
        (lambda model: generate(model, "a", top_p=0), "top_p is 0; it must be greater than 0 and at most 1"),
        (lambda model: generate(model, "a", max_new_tokens=0), "max_new_tokens is 0; it must be at least 1"),
        (lambda model: translate("./nowhere", ["a"]), "there is no folder ./nowhere"),
        (lambda model: Run("./nowhere"), "nowhere is no run: it has no recipe.yaml"),
    ],
)
def test_what_is_refused(call: Callable[[Path], object], message: str, seq2seq: Any) -> None:
    with pytest.raises(InputError) as refused:
        call(seq2seq.folder)
    assert message in str(refused.value)


def test_a_model_of_another_task_is_refused(run: Run, seq2seq: Any) -> None:
    with pytest.raises(InputError, match="small holds a paperformer-lm; this command needs a translation model"):
        translate(run, ["A dog."])
    with pytest.raises(InputError, match="the model holds a paperformer-seq2seq"):
        generate(seq2seq.model, "A dog", tokenizer=seq2seq.tokenizer)


def test_a_loaded_model_needs_its_tokenizer(seq2seq: Any) -> None:
    with pytest.raises(InputError, match="a model that has been loaded needs its tokenizer"):
        translate(seq2seq.model, ["A dog."])


def test_no_name_hides_a_module() -> None:
    folder = Path(paperformer.__file__).parent
    modules = {path.stem for path in folder.iterdir()} | {"configuration", "modeling", "tokenization", "training"}
    assert set(paperformer.__all__) & modules == set()


def test_training_in_another_thread(run: Run, recipe: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(train, recipe, name="thread").result()
    weights = "model/model.safetensors"
    assert (other.folder / weights).read_bytes() == (run.folder / weights).read_bytes()
