import json
import math
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from paperformer import InputError, train_tokenizer
from paperformer.training.engine.loop import Trainer
from paperformer.training.evaluation.evaluation_file import hash_pairs
from paperformer.training.evaluation.passages import read_losses
from paperformer.training.exact_weights import hash_weights
from paperformer.training.path_lock import hold_lock
from paperformer.training.publishing.upload import Publication
from paperformer.training.run import _resuming, _typed, main
from paperformer.training.tasks import language_modeling
from paperformer.training.tasks.registry import OBJECTIVES


def run(family: str, options: dict[str, Any], *flags: str) -> Path:
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return main(OBJECTIVES[family], [*arguments, *flags])


@pytest.fixture
def options(seq2seq_options: dict[str, Any], lm_options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"seq2seq": seq2seq_options, "lm": lm_options}


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs what must end in one line on standard error and exit code 2; returns that line."""

    def expect(family: str, options: dict[str, Any], *flags: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run(family, options, *flags)
        assert stopped.value.code == 2
        said = capsys.readouterr()
        assert said.out == ""
        *progress, line = said.err.splitlines()
        assert line.startswith("error: ")
        assert {line.partition(" on the ")[0] for line in progress} <= {"training a tokenizer of 300 entries"}
        return line.removeprefix("error: ")

    return expect


def config_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text("utf-8")))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SCORES = {
    "seq2seq": {"task", "split", "decoding", "bleu", "chrf", "chrf++", "ter", "exact_match"}
    | {"sentences", "loss", "seconds", "pairs_sha256", "weights_sha256"},
    "lm": {"task", "split", "loss", "word_perplexity", "words", "bits_per_byte", "bytes", "windows", "seconds"}
    | {"weights_sha256"},
}
OF_TEST_ONLY = {"seq2seq": {"domains", "unseen_words"}, "lm": {"passages_sha256", "domains"}}


@pytest.mark.parametrize("family", SCORES)
def test_a_run_from_text_to_a_finished_model(
    family: str, options: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options["lm"]["model.position_embedding_type"] = "learned"  # of which there are so many
    test = Path(options[family]["data.dataset"]) / "test"
    options[family]["data.test"] = {
        "seq2seq": f"[{{path: {test}, domain: beasts}}, {{path: {test.with_name('validation')}}}]",
        "lm": f"[{{path: {test}.txt, domain: beasts}}, {{path: {test.with_name('validation')}.txt}}]",
    }[family]
    model_path = run(family, options[family], "--license", "mit")
    said = capsys.readouterr()
    assert said.out == f"model: {model_path}\n"
    assert "\r" not in said.err  # standard error is no terminal here
    for expected in ("step 3: validation loss", "step 6: validation loss", "weights: step", "test: "):
        assert expected in said.err

    folder = tmp_path / "runs" / "tiny"
    assert model_path == folder / "model"
    assert {path.name for path in folder.iterdir()} == {
        "recipe.yaml", "data.json", "tokenizer", "config.json", "generation_config.json", "metrics.jsonl",
        "samples.jsonl", "checkpoints", "evaluation", "model", "report.html",
    }  # fmt: skip
    assert not list(tmp_path.rglob("*.partial"))
    evaluation = json.loads((folder / "evaluation" / "evaluation.json").read_text("utf-8"))
    assert evaluation.keys() == {"validation", "test"}
    for split, scores in evaluation.items():
        assert scores.keys() == SCORES[family] | (OF_TEST_ONLY[family] if split == "test" else set())
        assert scores["split"] == split
        assert scores["loss"].keys() == {"nats_per_token", "tokens"}
    outputs = (folder / "evaluation" / "test.outputs.jsonl").read_text("utf-8").splitlines()
    assert len(outputs) == (10 if family == "seq2seq" else 2)
    domains = evaluation["test"]["domains"]
    other = "validation.txt" if family == "lm" else "validation"
    assert [name.rpartition("/")[2] for name in domains] == ["beasts", other]
    units = "sentences" if family == "seq2seq" else "bytes"
    assert sum(domain[units] for domain in domains.values()) == evaluation["test"][units]
    assert len((folder / "evaluation" / "samples.jsonl").read_text("utf-8").splitlines()) == 2
    assert {scores["weights_sha256"] for scores in evaluation.values()} == {hash_weights(model_path)}
    assert "gradient_norm_by_layer" not in (model_path / "metrics.jsonl").read_text("utf-8")
    assert [json.loads(line)["step"] for line in (model_path / "metrics.jsonl").read_text("utf-8").splitlines()] == [
        json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    if family == "seq2seq":  # what was translated stays here, what the model made of it goes with it
        pairs = (folder / "evaluation" / "test.pairs.jsonl").read_text("utf-8").splitlines()
        assert evaluation["test"]["pairs_sha256"] == hash_pairs(map(json.loads, pairs))
        assert (model_path / "evaluation" / "test.outputs.jsonl").read_text("utf-8").splitlines() == outputs
        assert not (model_path / "evaluation" / "test.pairs.jsonl").exists()
    else:
        places = [at / "test.losses.jsonl" for at in (folder / "evaluation", model_path / "evaluation")]
        losses, same = (read_losses(place.read_text("utf-8"), "") for place in places)
        assert losses is not None
        assert same is not None
        assert losses.nats.tolist() == same.nats.tolist()
        assert losses.bytes is not None
        bits = losses.nats.sum() / math.log(2) / losses.bytes.sum()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        assert tokenizer.model_max_length == config_of(model_path)["max_position_embeddings"]
        assert bits == pytest.approx(evaluation["test"]["bits_per_byte"], rel=1e-5)

    card = (model_path / "README.md").read_text("utf-8")
    assert card.startswith("---\n")
    assert "license: mit" in card
    assert "on 2 domains, beasts and " in card
    if family == "seq2seq":
        assert "training text.\n" in card
        assert evaluation["test"]["unseen_words"]["share"] == 0
    assert f"accelerate launch -m paperformer.training.train_{family} --cleaning.duplicates" in card
    assert json.loads((model_path / "evaluation.json").read_text("utf-8")) == evaluation
    auto_class = AutoModelForSeq2SeqLM if family == "seq2seq" else AutoModelForCausalLM
    model = auto_class.from_pretrained(model_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    assert model.config.use_cache
    assert model.config.vocab_size == -(-len(tokenizer) // 8) * 8
    assert model.generate(**tokenizer(["A dog"], return_tensors="pt"), max_new_tokens=3).shape[0] == 1


def test_a_recipe_is_carried_out_again_from_the_run_s_folder(
    options: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    run("lm", options["lm"])
    first = tmp_path / "runs" / "tiny"
    main(OBJECTIVES["lm"], ["--config", str(first / "recipe.yaml"), "--name", "again"])
    second = tmp_path / "runs" / "again"
    recipes = [yaml.safe_load((folder / "recipe.yaml").read_text()) for folder in (first, second)]
    assert recipes[1] == recipes[0] | {"name": "again"}
    weights = "model/model.safetensors"
    assert (first / weights).read_bytes() == (second / weights).read_bytes()


def test_interrupted_and_resumed(
    options: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = Trainer._step, iter(range(1, 100))

    def step_and_interrupt(*arguments: Any) -> None:
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        step(*arguments)

    monkeypatch.setattr(Trainer, "_step", step_and_interrupt)
    with pytest.raises(SystemExit) as stopped:
        run("lm", options["lm"], "--overwrite", "true")
    assert stopped.value.code == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("stopped after step 2, and its state is saved; go on with: accelerate launch -m paperformer")
    words = shlex.split(said.partition("-m paperformer.training.train_lm ")[2])
    main(OBJECTIVES["lm"], words)  # as it was said
    assert "going on from " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--name a", "--name a --resume"),
        ("--name a --overwrite", "--name a --resume"),
        ("--overwrite true --name a", "--name a --resume"),
        ("--overwrite=true --name 'a b'", "--name 'a b' --resume"),
        ("--resume --name a", "--resume --name a"),
        ("--resume true --name a", "--resume true --name a"),
    ],
)
def test_the_command_to_resume(given: str, said: str) -> None:
    assert _resuming(f"accelerate launch -m x {given}") == f"accelerate launch -m x {said}"


def test_the_command_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = OBJECTIVES["lm"]
    monkeypatch.setattr("sys.argv", ["/usr/bin/paperformer", "train", "lm", "--name", "a b"])
    assert _typed(lm) == "paperformer train lm --name 'a b'"
    monkeypatch.setattr("sys.argv", ["/usr/bin/paperformer", "quickstart"])  # which takes no options of training
    assert _typed(lm) is None
    launcher = ["python", "/usr/bin/accelerate", "launch", "--num_processes", "2", "-m", lm.script, "--name", "a"]
    monkeypatch.setattr("psutil.Process.cmdline", lambda process: launcher)
    assert _typed(lm) == f"accelerate launch --num_processes 2 -m {lm.script} --name a"


def test_the_hint_repeats_what_was_typed(
    options: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["paperformer", "train", "lm", "--overwrite", "--name", "a"])
    monkeypatch.setattr("paperformer.training.data.tokenizers.train_tokenizer", interrupted)
    said = {
        "--overwrite": "paperformer train lm --overwrite --name a",
        "--resume": "paperformer train lm --name a --resume",
    }
    for flag, hint in said.items():
        with pytest.raises(SystemExit):
            run("lm", options["lm"], flag)
        assert capsys.readouterr().err.splitlines()[-1].endswith(f" with: {hint}")


SINUSOIDS = {"model.position_embedding_type": "sinusoidal"}


@pytest.mark.parametrize(
    ("family", "changes", "flags", "times"),
    [
        ("lm", SINUSOIDS, (), 35),
        ("encoder", SINUSOIDS, (), 35),
        ("seq2seq", SINUSOIDS | {"model.scale_embedding": "false", "model.hidden_size": 512}, (), 16),
        ("lm", SINUSOIDS, ("--resume",), None),
        ("lm", SINUSOIDS | {"model.scale_embedding": "true"}, (), None),
        ("lm", SINUSOIDS | {"model.initializer_range": "0.5"}, (), None),
        ("lm", {}, (), None),
        ("seq2seq", {}, (), None),
    ],
)
def test_embeddings_that_drown_in_sinusoids_are_warned_of(
    family: str,
    changes: dict[str, str],
    flags: tuple[str, ...],
    times: int | None,
    options: dict[str, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(splits: object) -> None:
        raise InputError("that is enough")

    monkeypatch.setattr("paperformer.training.run._say_what_was_left_out", stop)
    with pytest.raises(SystemExit):
        run(family, options["seq2seq" if family == "seq2seq" else "lm"] | changes, *flags)
    *warnings, last = capsys.readouterr().err.splitlines()
    assert last == "error: that is enough"
    assert len(warnings) == (times is not None)
    for line in warnings:
        assert f"sinusoids are {times} times as large as the embeddings" in line
        assert line.endswith("give --model.scale_embedding true")


def test_interrupted_before_training(
    options: dict[str, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paperformer.training.data.tokenizers.train_tokenizer", interrupted)
    with pytest.raises(SystemExit) as stopped:
        run("lm", options["lm"])
    assert stopped.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted; ")
    assert not (tmp_path / "runs" / "tiny").exists()


def test_divergence_ends_in_one_line(
    options: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = language_modeling.build_language_model

    def build_poisoned(*arguments: Any) -> Any:
        model = build(*arguments)
        with torch.no_grad():
            model.get_parameter("model.layers.0.self_attn.q_proj.weight").fill_(float("nan"))
        return model

    monkeypatch.setattr(language_modeling, "build_language_model", build_poisoned)
    with pytest.raises(SystemExit) as stopped:
        run("lm", options["lm"])
    assert stopped.value.code == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: step 1: the loss is not finite, at batch 0 of epoch 0 and most in model.")
    assert "learning_rate" in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimization.memory_budget": 0.0001}, "memory"),
        ({"optimization.learning_rate": 1e20, "optimization.warmup_steps": 1}, " is not finite"),
    ],
)
def test_a_run_that_cannot_be_replaced_is_left(
    change: dict[str, Any],
    message: str,
    options: dict[str, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    existing = tmp_path / "runs" / "tiny"
    (existing / "model").mkdir(parents=True)
    (existing / "recipe.yaml").write_text("name: tiny\n")
    (existing / "model" / "model.safetensors").write_text("trained for days")
    before = tree(existing)
    with pytest.raises(SystemExit) as stopped:
        run("lm", options["lm"] | change, "--overwrite")
    assert stopped.value.code in (1, 2)
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert tree(existing) == before
    assert {path.name for path in existing.parent.iterdir()} == {"tiny", ".cache"}


def test_two_processes_do_not_write_one_run(
    options: dict[str, dict[str, Any]], refused: Callable[..., str], tmp_path: Path
) -> None:
    with hold_lock(tmp_path / "runs" / "tiny"):
        line = refused("lm", options["lm"])
    assert f"tiny is being written by process {os.getpid()} on " in line
    assert list(tmp_path.iterdir()) == []


def change_data(options: dict[str, Any], tmp_path: Path, **files: bytes | None) -> dict[str, Any]:
    """The options with a copy of the data in which train_en=b"x" has replaced train.en, or None has deleted it."""
    data = tmp_path / "changed"
    shutil.copytree(options["data.dataset"], data)
    for name, content in files.items():
        path = data / name.replace("_", ".")
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    return options | {"data.dataset": data}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_en": None}, "train.en (nor .gz"),
        ({"test_de": b"one line\n"}, "test.de has 1; line n of one must be the translation of line n of the other"),
        ({"train_en": b"", "train_de": b""}, "train.en is empty"),
        (
            {"validation_de": b"fine\n\xff\n\n\n\n"},
            "validation.de, line 2: byte 0xff at byte 1 of the line is not UTF-8",
        ),
    ],
)
def test_bad_data_makes_no_folder(
    files: dict[str, bytes | None],
    message: str,
    options: dict[str, dict[str, Any]],
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    assert message in refused("seq2seq", change_data(options["seq2seq"], tmp_path, **files))
    assert not (tmp_path / "runs" / "tiny").exists()


TOO_LONG = {
    "data.context_length": 3000,
    "optimization.tokens_per_batch": 3000,
    "model.max_position_embeddings": 3000,
}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("lm", {"model.hidden_size": 15}, "model.hidden_size is 15; it must be a multiple of num_attention_heads (2)"),
        ("lm", TOO_LONG, "tokens; it needs at least data.context_length (3,000)"),
        ("lm", {"optimization.max_steps": 0}, "optimization.max_steps is 0; it must be at least 1"),
        ("lm", {"data.dataset": "./nowhere"}, "data.dataset: there is no folder ./nowhere"),
        ("lm", {"tokenizer.path": "./nowhere"}, "tokenizer.path: there is no tokenizer.json in nowhere"),
        ("seq2seq", {"data.max_length": 2}, "data.max_length is 2 tokens; every training pair is longer"),
        ("seq2seq", {"data.dataset": "built-in:cldr", "data.target_language": "xx"}, "CLDR has no locale 'xx'"),
        ("seq2seq", {"data.target_language": "fr"}, "train.fr (nor .gz"),
        ("seq2seq", {"config": "nowhere.yaml"}, "--config: there is no file nowhere.yaml"),
    ],
)
def test_bad_options_make_no_folder_and_spoil_none(
    family: str,
    changes: dict[str, Any],
    message: str,
    options: dict[str, dict[str, Any]],
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    changed = options[family] | changes
    line = refused(family, changed)
    assert message in line
    assert not (tmp_path / "runs" / "tiny").exists()
    existing = tmp_path / "runs" / "tiny"
    existing.mkdir(parents=True)
    (existing / "recipe.yaml").write_text("name: tiny\n")
    for flag in ("--overwrite", "--resume"):
        assert refused(family, changed, flag) == line
        assert tree(existing) == {"recipe.yaml": b"name: tiny\n"}


def test_an_existing_run_another_model_and_an_unwritable_folder(
    options: dict[str, dict[str, Any]], refused: Callable[..., str], tmp_path: Path
) -> None:
    run("lm", options["lm"])
    before = tree(tmp_path)
    assert "exists; give --resume, --overwrite or another --name" in refused("lm", options["lm"])
    wider = options["lm"] | {"model.hidden_size": 32}
    assert "begun with model.hidden_size 16, and this recipe has 32" in refused("lm", wider, "--resume")
    assert "resume and overwrite are both true" in refused("lm", wider, "--resume", "--overwrite")
    inside_a_file = options["lm"] | {"output_dir": tmp_path / "runs" / "tiny" / "recipe.yaml"}
    assert "Not a directory" in refused("lm", inside_a_file)
    assert tree(tmp_path) == before


def test_a_full_disk(
    options: dict[str, dict[str, Any]], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def save_pretrained(self: Any, path: Path) -> None:
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paperformer.PaperformerForCausalLM.save_pretrained", save_pretrained)
    arguments = [word for name, value in options["lm"].items() for word in (f"--{name}", str(value))]
    with pytest.raises(SystemExit) as stopped:
        main(OBJECTIVES["lm"], arguments)
    assert stopped.value.code == 2
    assert {path.name for path in (tmp_path / "runs" / "tiny").iterdir()} == {
        "recipe.yaml", "data.json", "tokenizer", "config.json", "generation_config.json", "metrics.jsonl",
        "samples.jsonl", "checkpoints",
    }  # fmt: skip
    monkeypatch.undo()
    assert run("lm", options["lm"], "--resume").is_dir()


def test_a_given_tokenizer(
    options: dict[str, dict[str, Any]], refused: Callable[..., str], tmp_path: Path, text_folder: Path
) -> None:
    lines = (text_folder / "train.txt").read_text("utf-8").splitlines()
    path = tmp_path / "mine"
    train_tokenizer(lines, 290, append_eos=False).save_pretrained(path)
    model_path = run("lm", options["lm"] | {"tokenizer.path": path})
    assert len(AutoTokenizer.from_pretrained(model_path)) == 290
    line = refused("seq2seq", options["seq2seq"] | {"tokenizer.path": path, "name": "other"})
    assert line == f"tokenizer.path: the tokenizer of {path} must end every text with </s> for this task"
    (path / "tokenizer.json").write_text("{")
    assert "holds no tokenizer" in refused("lm", options["lm"] | {"tokenizer.path": path, "name": "other"})
    assert not (tmp_path / "runs" / "other").exists()


def test_publishing(
    options: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published = []

    def push(folder: Path, repo_id: str) -> Publication:
        published.append((folder, repo_id, (folder / "README.md").is_file()))
        if repo_id == "me/offline":
            raise InputError("no network")
        return Publication(repo_id=repo_id, commit="c0ffee", address=f"https://hub/{repo_id}")

    monkeypatch.setattr("paperformer.training.publishing.upload.push", push)
    path = run("lm", options["lm"], "--push_to_hub", "me/tiny")
    assert published == [(path, "me/tiny", True)]
    assert "published: https://hub/me/tiny c0ffee" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        run("lm", options["lm"], "--overwrite", "--push_to_hub", "me/offline")
    assert stopped.value.code == 2
    assert f"no network; try again with: paperformer push {path} me/offline" in capsys.readouterr().err
    assert path.is_dir()
