"""Auto* classes with the package installed, the code in a saved folder, and what may be pushed."""

import ast
import copy
import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    Trainer,
    TrainingArguments,
)
from transformers.dynamic_module_utils import get_relative_import_files

import paperformer
from paperformer.hub import remote_code
from paperformer.hub.remote_code import flat_sources, write_remote_code
from paperformer.modeling import modeling_lm

from .conftest import Saved

COMMON_MODULES = {
    "attention.py",
    "beam_search.py",
    "blocks.py",
    "callers_length.py",
    "configuration_transformer.py",
    "dropout.py",
    "feed_forward.py",
    "growing_cache.py",
    "linear_attention.py",
    "loss.py",
    "masks.py",
    "norms.py",
    "packed_weights.py",
    "positions.py",
    "pretrained.py",
    "sampling.py",
    "stack.py",
}


class TestLoadingWithThePackage:
    """No trust_remote_code anywhere: the installed classes are used."""

    def test_auto_classes(self, seq2seq: Saved, lm: Saved) -> None:
        assert type(AutoConfig.from_pretrained(seq2seq.folder)) is paperformer.PaperformerSeq2SeqConfig
        assert type(AutoConfig.from_pretrained(lm.folder)) is paperformer.PaperformerLMConfig
        assert type(AutoModel.from_pretrained(seq2seq.folder)) is paperformer.PaperformerSeq2SeqModel
        assert type(AutoModel.from_pretrained(lm.folder)) is paperformer.PaperformerLMModel
        translator = AutoModelForSeq2SeqLM.from_pretrained(seq2seq.folder)
        assert type(translator) is paperformer.PaperformerForConditionalGeneration
        assert type(AutoModelForCausalLM.from_pretrained(lm.folder)) is paperformer.PaperformerForCausalLM

    def test_a_base_model_saved_by_itself(self, lm: Saved, tmp_path: Path) -> None:
        lm.model.model.save_pretrained(tmp_path)
        ids = torch.tensor([[5, 70, 9]])
        with torch.no_grad():
            loaded = AutoModel.from_pretrained(tmp_path)(ids).last_hidden_state
            torch.testing.assert_close(loaded, lm.model.model(ids).last_hidden_state)

    def test_generation_settings_come_back(self, seq2seq: Saved) -> None:
        settings = AutoModelForSeq2SeqLM.from_pretrained(seq2seq.folder).generation_config
        assert isinstance(settings, GenerationConfig)
        assert (settings.num_beams, settings.max_new_tokens, settings.decoder_start_token_id) == (2, 7, 1)

    @pytest.mark.parametrize("name", ["seq2seq", "lm"])
    def test_loaded_and_saved_again_it_is_complete(
        self, name: str, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        saved: Saved = request.getfixturevalue(name)
        auto_class = AutoModelForSeq2SeqLM if name == "seq2seq" else AutoModelForCausalLM
        auto_class.from_pretrained(saved.folder).save_pretrained(tmp_path)
        config = json.loads((saved.folder / "config.json").read_text("utf-8"))
        assert json.loads((tmp_path / "config.json").read_text("utf-8")) == config
        assert {path.name for path in tmp_path.glob("*.py")} == {path.name for path in saved.folder.glob("*.py")}

    def test_a_checkpoint_of_trainer_is_complete(self, lm: Saved, tmp_path: Path) -> None:
        arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
        Trainer(copy.deepcopy(lm.model), arguments, processing_class=lm.tokenizer).save_model()
        of_the_run = {"README.md", "evaluation.json"}
        expected = {path.name for path in lm.folder.iterdir()} - of_the_run
        assert {path.name for path in tmp_path.iterdir()} == expected | {"training_args.bin"}


class TestRemoteCode:
    def test_the_files_are_the_model_and_what_it_needs(self, seq2seq: Saved, lm: Saved) -> None:
        code = {path.name for path in lm.folder.glob("*.py")}
        assert code == COMMON_MODULES | {"configuration_lm.py", "continuous_batching.py", "modeling_lm.py"}
        code = {path.name for path in seq2seq.folder.glob("*.py")}
        of_translation = {"configuration_seq2seq.py", "modeling_seq2seq.py", "pieces.py", "pipeline_translation.py"}
        assert code == COMMON_MODULES | of_translation

    @pytest.mark.parametrize("name", ["seq2seq", "lm"])
    def test_every_import_is_of_a_neighbour_or_a_library(self, name: str, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue(name).folder
        for path in folder.glob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.level > 0:
                    assert node.level == 1, f"{path.name}:{node.lineno}"
                    assert (folder / f"{node.module}.py").is_file(), f"{path.name}:{node.lineno}"
                elif isinstance(node, ast.ImportFrom):
                    assert node.module.split(".")[0] != "paperformer", f"{path.name}:{node.lineno}"
                elif isinstance(node, ast.Import):
                    assert all(not alias.name.startswith("paperformer") for alias in node.names), path.name

    @pytest.mark.parametrize("name", ["seq2seq", "lm"])
    def test_transformers_follows_the_imports_to_every_file(self, name: str, request: pytest.FixtureRequest) -> None:
        # It reads them by regular expression, docstrings included; so ask it, and not only ast.
        folder: Path = request.getfixturevalue(name).folder
        entry = next(folder.glob("modeling_*.py"))
        found = {Path(path).name for path in get_relative_import_files(entry)} | {entry.name}
        assert found == {path.name for path in folder.glob("*.py")}

    def test_only_import_lines_are_changed(self, lm: Saved) -> None:
        original = Path(modeling_lm.__file__)
        copied = (lm.folder / "modeling_lm.py").read_text("utf-8").split("\n")
        changed = [
            pair for pair in zip(original.read_text("utf-8").split("\n"), copied, strict=True) if len(set(pair)) > 1
        ]
        assert changed == [
            (
                "from ..configuration.configuration_lm import PaperformerLMConfig",
                "from .configuration_lm import PaperformerLMConfig",
            ),
            *(
                (f"from .decoding.{module} import {name}", f"from .{module} import {name}")
                for module, name in (
                    ("beam_search", "BeamSearchMixin"),
                    ("callers_length", "CallersLengthMixin"),
                    ("continuous_batching", "ContinuousBatchingMixin"),
                    ("sampling", "SamplingMixin"),
                )
            ),
        ]

    def test_writing_it_again_changes_nothing(self, seq2seq: Saved, tmp_path: Path) -> None:
        folder = tmp_path / "copy"
        shutil.copytree(seq2seq.folder, folder)
        write_remote_code(seq2seq.model, folder)
        assert contents(folder) == contents(seq2seq.folder)

    def test_config_is_written_last_and_whole(
        self, seq2seq: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written = []
        monkeypatch.setattr(remote_code, "replace_file", lambda path, text: written.append(path.name))
        shutil.copy(seq2seq.folder / "config.json", tmp_path)
        write_remote_code(seq2seq.model, tmp_path)
        assert written[-1] == "config.json"
        assert len(set(written)) == len(written) == len(COMMON_MODULES) + 5

    def test_a_part_of_a_model_loads_as_that_part(self, seq2seq: Saved, tmp_path: Path) -> None:
        seq2seq.model.model.encoder.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text("utf-8"))
        assert config["auto_map"] == {
            "AutoConfig": "configuration_seq2seq.PaperformerSeq2SeqConfig",
            "AutoModel": "modeling_seq2seq.PaperformerSeq2SeqEncoder",
        }
        assert "custom_pipelines" not in config

    def test_an_fsdp_wrapped_model_counts_as_what_it_wraps(self, lm: Saved, tmp_path: Path) -> None:
        model = copy.deepcopy(lm.model)
        # What torch's fully_shard does to a module's class.
        model.__class__ = type("FSDPPaperformerForCausalLM", (type(model),), {"__module__": "torch.distributed.fsdp"})
        model.save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text("utf-8"))
        assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_lm.PaperformerForCausalLM"

    def test_a_class_derived_elsewhere_is_announced_and_saved_without_code(self, lm: Saved, tmp_path: Path) -> None:
        class Mine(paperformer.PaperformerForCausalLM):
            pass

        model = Mine(copy.deepcopy(lm.model.config))
        with pytest.warns(UserWarning, match=r"^Mine is defined outside paperformer, so its code is not written"):
            model.save_pretrained(tmp_path)
        assert not list(tmp_path.glob("*.py"))
        assert (tmp_path / "model.safetensors").is_file()
        Mine.register_for_auto_class("AutoModelForCausalLM")  # now transformers copies it: nothing to announce
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            model.save_pretrained(tmp_path)
        assert (tmp_path / "test_hub.py").is_file()

    def test_a_folder_without_configuration_is_left_alone(self, lm: Saved, tmp_path: Path) -> None:
        write_remote_code(lm.model, tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("from . import b", r"a\.py:2 must name one module on one line"),
            ("from .sub import c", r"a\.py:2 must name one module on one line"),
            ("from .missing import x", r"a\.py:2 must name one module on one line"),
            ("from .b \\\n    import x", r"a\.py:2 must name one module on one line"),
            ("import paperformer.hub", r"a\.py:2 imports paperformer by its name"),
            ("def f():\n    from paperformer.hub import push", r"a\.py:3 imports paperformer by its name"),
            ("from .b import x\nfrom .sub.b import y", r"would both be b\.py in one folder"),
        ],
    )
    def test_imports_that_cannot_be_flattened_are_refused(
        self, statement: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / f"package_{abs(hash(statement))}"
        (package / "sub").mkdir(parents=True)
        for name in ("__init__.py", "b.py", "sub/__init__.py", "sub/b.py"):
            (package / name).write_text("x = y = c = 1\n", "utf-8")
        (package / "a.py").write_text(f"import json\n{statement}\n", "utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ValueError, match=message):
            flat_sources([f"{package.name}.a"])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
