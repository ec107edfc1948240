"""What may be pushed to the Hub: whatever is refused here is refused before anything is asked of the Hub."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from paperformer.training.console.input_error import InputError
from paperformer.training.exact_weights import hash_weights
from paperformer.training.publishing import upload
from paperformer.training.publishing.upload import push

from .conftest import Saved
from .hub_server import Hub


@pytest.fixture(autouse=True)
def without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `clean_process` finds is another file's concern (test_publishing.py), and takes seconds."""
    monkeypatch.setattr(upload, "check_loads_alone", lambda folders, models: None)


@pytest.fixture
def finished(seq2seq: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seq2seq.folder, tmp_path / "model"))


class TestPush:
    def test_the_card_says_where_it_is_to_be_found(self, finished: Path, hub: Hub) -> None:
        before = contents(finished)
        for repo_id in ("me/first", "me/second"):
            push(finished, repo_id)
            card = ModelCard.load(finished / "README.md")
            assert card.text.count("model_id =") == card.text.count(f'model_id = "{repo_id}"') == 1
            assert card.data.model_name == "tiny-en-de"
        after = contents(finished)
        assert after.pop("README.md") != before.pop("README.md")
        assert after == before

    @pytest.mark.parametrize("name", ["", "a b", "a..b", "-v1", "v1.lock", "v/", ".v1", "v:1", "v1\n"])
    def test_what_git_takes_for_no_tag_is_refused_before_the_upload(self, name: str, finished: Path, hub: Hub) -> None:
        for option in ("tag", "revision"):
            with pytest.raises(InputError, match=f"--{option} is .*, which is no name of a {option}"):
                push(finished, "me/tiny", **{option: name})  # type: ignore[arg-type]
        assert not hub.requests

    def test_a_card_that_cannot_be_written_is_named(
        self, finished: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read_only(*arguments: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(upload, "set_model_id", read_only)
        with pytest.raises(InputError, match=r"README\.md cannot be written \(Permission denied\), .*nothing was publ"):
            push(finished, "me/tiny")

    def test_weights_in_shards(self, finished: Path, hub: Hub, seq2seq: Saved) -> None:
        (finished / "model.safetensors").unlink()
        seq2seq.model.save_pretrained(finished, max_shard_size="10KB")
        stamp(finished)
        push(finished, "tiny")
        shard = next(finished.glob("model-00002-of-*.safetensors"))
        shard.unlink()
        with pytest.raises(ValueError, match=r"model-00002-of-\d+.safetensors is missing or damaged"):
            push(finished, "tiny")

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda f: shutil.rmtree(f), r"model is not a folder"),
            (lambda f: (f / "config.json").unlink(), r"config\.json is missing; give the model folder"),
            (
                lambda f: rewrite(f / "config.json", model_type="gpt2"),
                r"is no paperformer model: .* 'gpt2', not",
            ),
            (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors is missing or damaged"),
            (lambda f: cut_short(f / "model.safetensors"), r"model\.safetensors is missing or damaged"),
            (
                lambda f: (f / "tokenizer.json").unlink(),
                r"tokenizer\.json is missing; save the model's tokenizer",
            ),
            (
                lambda f: (f / "tokenizer_config.json").write_text("{"),
                r"tokenizer_config\.json is not a JSON file",
            ),
            (lambda f: (f / "modeling_seq2seq.py").unlink(), r"lacks the model's code"),
            (lambda f: rewrite(f / "config.json", auto_map={}), r"lacks the model's code"),
            (lambda f: (f / "evaluation.json").unlink(), r"evaluation\.json is missing; evaluate the model"),
            (lambda f: (f / "evaluation.json").write_text("{}"), r"evaluation\.json has no scores"),
            (lambda f: (f / "evaluation.json").write_text("[]"), r"evaluation\.json holds no JSON object"),
            (lambda f: spoil_score(f / "evaluation.json"), r"evaluation\.json gives BLEU as nan"),
            (lambda f: unstamp(f), r"evaluation\.json does not say of which weights its scores are .*; resume the run"),
            (lambda f: nudge(f / "model.safetensors"), r"the scores of other weights \(SHA-256 .*\.\.\.\) than those"),
            (
                lambda f: rescore(f / "evaluation.json"),
                r"not the same scores: test bleu 12\.3\d* is in one of them",
            ),
            (lambda f: enlarge(f / "tokenizer.json"), r"tokenizer\.json has 301 entries, and the model 300 rows for"),
            (
                lambda f: (f / "stack.py").write_text("# hf_of_me"),
                r"stack\.py has your access token in it; take",
            ),
            (lambda f: (f / "README.md").unlink(), r"README\.md is missing or shows no scores"),
            (
                lambda f: (f / "README.md").write_text("# A model"),
                r"README\.md is missing or shows no scores",
            ),
            (lambda f: (f / "README.md").write_text("---\n[\n---\n"), r"README\.md is missing or shows no"),
            (lambda f: lose_shards(f), r"model\.safetensors is missing or damaged"),
        ],
    )
    def test_an_unfinished_folder_is_refused(
        self, damage: Callable[[Path], object], message: str, finished: Path, hub: Hub
    ) -> None:
        damage(finished)
        with pytest.raises(ValueError, match=message) as refusal:
            push(finished, "tiny")
        assert "\n" not in str(refusal.value)
        assert not hub.requests


class TestPushWithTwoVocabularies:
    @pytest.fixture
    def finished(self, two_vocabularies: Saved, tmp_path: Path) -> Path:
        return Path(shutil.copytree(two_vocabularies.folder, tmp_path / "model"))

    def test_both_tokenizers_are_uploaded(self, finished: Path, hub: Hub) -> None:
        push(finished, "tiny")
        assert {"tokenizer.json", "target_tokenizer/tokenizer.json"} <= hub.files("me/tiny").keys()

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (
                lambda f: shutil.rmtree(f / "target_tokenizer"),
                r"target_tokenizer/tokenizer\.json is missing; source and target have a vocabulary each: save",
            ),
            (
                lambda f: (f / "target_tokenizer" / "tokenizer_config.json").write_text("{"),
                r"target_tokenizer/tokenizer_config\.json is not a JSON file",
            ),
            (
                lambda f: (f / "tokenizer.json").unlink(),
                r"model/tokenizer\.json is missing; save the model's tokenizer",
            ),
            (
                lambda f: rewrite(f / "config.json", source_vocab_size=None),
                r"target_tokenizer is a second tokenizer, but config\.json has no source_vocab_size",
            ),
        ],
    )
    def test_vocabularies_and_tokenizers_are_as_many(
        self, damage: Callable[[Path], object], message: str, finished: Path, hub: Hub
    ) -> None:
        damage(finished)
        with pytest.raises(ValueError, match=message):
            push(finished, "tiny")
        assert not hub.requests


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def stamp(folder: Path) -> None:
    evaluation = json.loads((folder / "evaluation.json").read_text("utf-8"))
    evaluation["test"]["weights_sha256"] = hash_weights(folder)
    (folder / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")


def unstamp(folder: Path) -> None:
    evaluation = json.loads((folder / "evaluation.json").read_text("utf-8"))
    del evaluation["test"]["weights_sha256"]
    (folder / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")


def nudge(path: Path) -> None:
    """Another lowest bit of the last weight."""
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)


def rescore(path: Path) -> None:
    evaluation = json.loads(path.read_text("utf-8"))
    evaluation["test"]["bleu"]["score"] = 12.37
    path.write_text(json.dumps(evaluation), "utf-8")


def enlarge(path: Path) -> None:
    tokenizer = json.loads(path.read_text("utf-8"))
    special = tokenizer["added_tokens"][0]
    tokenizer["added_tokens"].append(special | {"id": 300, "content": "<more>"})
    path.write_text(json.dumps(tokenizer), "utf-8")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lose_shards(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")


def spoil_score(path: Path) -> None:
    evaluation = json.loads(path.read_text("utf-8"))
    evaluation["test"]["bleu"]["score"] = float("nan")
    path.write_text(json.dumps(evaluation), "utf-8")
