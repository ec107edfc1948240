import dataclasses
import re
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import PreTrainedConfig

from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.data import ParallelData, TextData
from paperformer.training.recipe.parsing import parse_recipe, recipe_parser
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.tasks.registry import OBJECTIVES

FAMILIES = {"seq2seq": (PaperformerSeq2SeqConfig, ParallelData), "lm": (PaperformerLMConfig, TextData)}
LM = "name: x\ndata:\n  dataset: folder\n"


def parse(arguments: list[str], family: str = "lm") -> Recipe[Any]:
    return parse_recipe(arguments, *FAMILIES[family])


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str | bytes], list[str]]:
    """Writes a recipe file and returns the arguments that name it."""

    def write(content: str | bytes) -> list[str]:
        path = tmp_path / "recipe.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return ["--config", str(path)]

    return write


@pytest.mark.parametrize(
    "name", [file.name for file in resources.files("paperformer.training.recipes").iterdir() if "yaml" in file.name]
)
def test_recipes_that_ship_with_the_package(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = resources.files("paperformer.training.recipes")
    content = yaml.safe_load(recipes.joinpath(name).read_text("utf-8"))
    if base := content.get("init_from"):  # the run of another recipe, for which another model stands here
        assert recipes.joinpath(f"{base.removeprefix('runs/')}.yaml").is_file()
        monkeypatch.chdir(tmp_path)
        shutil.copytree(str(resources.files("paperformer.shipped_models").joinpath("cldr-en-de")), base)
    recipe = OBJECTIVES[content["objective"]].read_recipe(["--config", name.removesuffix(".yaml")])
    assert recipe.run.name == name.removesuffix(".yaml")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_has_a_help_text(family: str) -> None:
    config_class, data_class = FAMILIES[family]
    shown = " ".join(recipe_parser(config_class, data_class).parser.format_help().partition("\noptions:")[2].split())
    own = {field.name for field in dataclasses.fields(config_class)} - {
        field.name for field in dataclasses.fields(PreTrainedConfig)
    }
    set_by_tokenizer = {"vocab_size", "source_vocab_size", "decoder_start_token_id"}
    set_by_tokenizer |= {f"{mark}_token_id" for mark in ("pad", "bos", "eos")}
    expected = set(recipe_parser(config_class, data_class).fields)
    assert {f"model.{name}" for name in own - set_by_tokenizer} <= expected
    assert len(expected) > 50
    for name in expected:
        after = re.split(rf" --{re.escape(name)}[ ,]", shown)[-1]  # with a comma from Python 3.13 on
        text = re.split(r"\(type:|\(required", after.replace(f"--{name}+", ""))[0]
        words = re.findall(r"[a-z]+", text)  # the name of the value is in capitals
        assert len(words) > 1, f"{name} has no help text"
        assert " --" not in text, f"{name} has no help text"


@pytest.mark.parametrize("family", FAMILIES)
def test_help_shows_them(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(["--help"], family)
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    for field in recipe_parser(*FAMILIES[family]).fields:
        assert f"--{field}" in shown


def test_print_config_is_a_recipe(
    written: Callable[[str | bytes], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse([*written(LM), "--optimization.max_steps", "7", "--print_config"])
    assert stopped.value.code in (0, None)
    assert parse(written(capsys.readouterr().out)).optimization.max_steps == 7


def test_the_command_line_overrides_the_file(written: Callable[[str | bytes], list[str]]) -> None:
    config = written(LM + "optimization: {max_steps: 7, learning_rate: 1e-4}\nmodel: {dropout: 0}\n")
    recipe = parse([*config, "--optimization.max_steps=8", "--resume"])
    assert (recipe.optimization.max_steps, recipe.optimization.learning_rate) == (8, 1e-4)
    assert (recipe.run.resume, recipe.model["dropout"]) == (True, 0)
    assert parse([config[0] + "=" + config[1]]).optimization.max_steps == 7


@pytest.mark.parametrize("family", FAMILIES)
def test_a_written_recipe_gives_the_same_recipe(
    family: str, written: Callable[[str | bytes], list[str]], seq2seq_recipe: Any, lm_recipe: Any
) -> None:
    make = seq2seq_recipe if family == "seq2seq" else lm_recipe
    recipe = make(license="mit", optimization__adam_epsilon=1e-9, model__rope_parameters="null")
    assert parse(written(recipe.yaml), family) == recipe


def test_a_written_recipe_neither_resumes_nor_deletes(
    lm_recipe: Callable[..., Recipe[TextData]], written: Callable[[str | bytes], list[str]]
) -> None:
    for call in ({"resume": True}, {"overwrite": True}):
        recipe = lm_recipe(**call)
        again = parse(written(recipe.yaml))
        assert not again.run.resume
        assert not again.run.overwrite


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [b\nc: d", "recipe.yaml, line 2: this is not YAML: expected ',' or ']'"),
        ("a\tb: \x00", "recipe.yaml is not YAML"),
        ("", "recipe.yaml: a recipe must be a mapping, FIELD: VALUE"),
        ("- a\n", "recipe.yaml, line 1: a recipe must be a mapping"),
        ("name: x\ndata: folder\n", "recipe.yaml, line 2: data must be a mapping"),
        (b"name: x\n# na\xefve\n", "recipe.yaml, line 2: byte 0xef is not UTF-8"),
        (LM + "optimisation: {}\n", "line 4: there is no field optimisation; did you mean optimization.*?"),
        (LM + "  dataset: twice\n", "line 4: data.dataset is given again; line 3 has it already"),
        (LM + "  max_length: 3\n", "line 4: there is no field data.max_length; "),  # of the other family
        (LM + "model:\n  hiden_size: 3\n", "line 5: there is no field model.hiden_size; did you mean model.hidden_s"),
        (LM + "model: {vocab_size: 3}\n", "line 4: there is no field model.vocab_size"),
        (LM + "seed: one\n", "line 4: seed is one; it must be an integer$"),
        (LM + "resume: maybe\n", "line 4: resume is maybe; it must be true or false"),
        (LM + "tokenizer:\n  vocab_size: 1.5\n", "line 5: tokenizer.vocab_size is 1.5; it must be an integer"),
        (LM + "model: {dropout: much}\n", "line 4: model.dropout is much; it must be a number$"),
        (LM + "model: {rope_parameters: 7}\n", "line 4: model.rope_parameters is 7; it must be a mapping or null"),
        (LM + "model: {norm_type: batchnorm}\n", "model.norm_type is batchnorm; it must be layernorm or rmsnorm"),
        (LM + "optimization: {max_steps: null}\n", "line 4: optimization.max_steps is null; it must be an integer"),
        (LM + "evaluation: {num_beams: [1]}\n", r"line 4: evaluation.num_beams is \[1\]; it must be an integer"),
        ("data: {dataset: x}\n", "recipe.yaml lacks name; write it in the recipe, or give --name$"),
    ],
)  # fmt: skip
def test_a_bad_recipe_file(content: str | bytes, message: str, written: Callable[[str | bytes], list[str]]) -> None:
    with pytest.raises(InputError, match=message):
        parse(written(content))


def test_recipe_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file nothing, and no recipe of that name; there are cldr-en-de, every"):
        parse(["--config", "nothing"])
    with pytest.raises(InputError, match="is a folder; a recipe is a YAML file"):
        parse(["--config", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "without --config RECIPE lacks name; write it in the recipe, or give --name"),
        (["--config"], "--config: expected one argument"),
        (["--name", "x", "--trackers+", "nothing"], "--trackers is nothing; it must be a list"),
        (["--name", "x", "--trackers+", "tensorboard", "--seed", "x"], "^--seed is x; it must be an integer"),
        (["--name", "x", "--data.nothing.else", "3"], "there is no option --data.nothing.else"),
        (["--bananas", "3"], "there is no option --bananas; --help lists them all"),
        (["--optimization.max_step=3"], r"no option --optimization.max_step; did you mean --optimization.max_steps\?"),
        (["stray"], "'stray' belongs to no option; options are written --FIELD VALUE"),
        (["--seed", "x"], "--seed is x; it must be an integer"),
        (["--model.norm_position", "middle"], "--model.norm_position is middle; it must be post, pre or peri"),
    ],
)
def test_a_bad_command_line(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(arguments)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("name", "../other", "name is '../other'; it must be the plain name of a folder"),
        ("name", "..", "must be the plain name"),
        ("seed", -1, "seed is -1; it must be at least 0"),
        ("push_to_hub", "a/b/c", "push_to_hub is 'a/b/c'; it must be USER/NAME"),
        ("data.context_length", 1, "data.context_length is 1; it must be at least 2"),
        ("data.context_length", 2048, "data.context_length is 2048; it must be at most model.max_position_embeddings"),
        ("tokenizer.vocab_size", 259, "tokenizer.vocab_size is 259; it must be at least 260"),
        ("tokenizer.min_frequency", 0, "tokenizer.min_frequency is 0; it must be at least 1"),
        ("tokenizer.bpe_dropout", 1.0, "tokenizer.bpe_dropout is 1.0; it must be at least 0 and less than 1"),
        ("optimization.max_steps", 0, "optimization.max_steps is 0; it must be at least 1"),
        ("optimization.tokens_per_batch", 0, "optimization.tokens_per_batch is 0; it must be at least 1"),
        ("optimization.tokens_per_batch", 9, r"tokens_per_batch is 9; it must be at least data.context_length \(16\)"),
        ("optimization.accumulation_steps", 0, "optimization.accumulation_steps is 0; it must be at least 1"),
        ("optimization.warmup_steps", -1, "optimization.warmup_steps is -1; it must be at least 0"),
        ("optimization.learning_rate", 0, "optimization.learning_rate is 0.0; it must be greater than 0"),
        ("optimization.learning_rate", ".nan", "optimization.learning_rate is nan; it must be greater than 0"),
        ("optimization.adam_beta2", 1, "optimization.adam_beta2 is 1.0; it must be at least 0 and less than 1"),
        ("optimization.adam_epsilon", 0, "optimization.adam_epsilon is 0.0; it must be greater than 0"),
        ("optimization.weight_decay", -0.1, "optimization.weight_decay is -0.1; it must be at least 0"),
        ("optimization.max_grad_norm", 0, "optimization.max_grad_norm is 0.0; it must be greater than 0"),
        ("evaluation.every_steps", 0, "evaluation.every_steps is 0; it must be at least 1"),
        ("evaluation.num_beams", 0, "evaluation.num_beams is 0; it must be at least 1"),
        ("evaluation.samples", -1, "evaluation.samples is -1; it must be at least 0"),
        ("evaluation.length_penalty", ".inf", "evaluation.length_penalty is inf; it must be a finite number"),
        ("evaluation.select_by", "bleu", "evaluation.select_by is 'bleu'; a language model is chosen by its 'loss'"),
        ("model.hidden_size", 15, r"model.hidden_size is 15; it must be a multiple of num_attention_heads \(2\)"),
        ("model.num_key_value_heads", 3, "model.num_key_value_heads is 3; it must divide num_attention_heads"),
        ("model.dropout", 1, "model.dropout is 1.0; it must be at least 0 and less than 1"),
        ("model.num_hidden_layers", 0, "model.num_hidden_layers is 0; it must be at least 1"),
    ],
)
def test_values_that_make_no_sense(
    option: str, value: Any, message: str, lm_recipe: Callable[..., Recipe[TextData]]
) -> None:
    with pytest.raises(InputError, match=f"^{message}" if message.startswith(option) else message):
        lm_recipe(**{option: value})


def test_values_of_translation_that_make_no_sense(seq2seq_recipe: Callable[..., Recipe[ParallelData]]) -> None:
    with pytest.raises(InputError, match=r"data\.max_length is 1; it must be at least 2"):
        seq2seq_recipe(data__max_length=1)
    with pytest.raises(InputError, match=r"data\.max_length is 99; it must be at most .*embeddings \(64\)"):
        seq2seq_recipe(data__max_length=99, model__max_position_embeddings=64)
    with pytest.raises(InputError, match="resume and overwrite are both true; give one of them"):
        seq2seq_recipe(resume=True, overwrite=True)


def test_the_yaml_has_every_field(lm_recipe: Callable[..., Recipe[TextData]]) -> None:
    content = yaml.safe_load(lm_recipe().yaml)
    for field in recipe_parser(*FAMILIES["lm"]).fields.keys() - {"resume", "overwrite"}:
        value = content
        for name in field.split("."):
            value = value[name]
