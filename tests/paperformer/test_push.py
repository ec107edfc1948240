"""What may be pushed to the Hub, and what is asked of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, RepoUrl
from huggingface_hub.utils import filter_repo_objects

from paperformer.training.publishing import upload
from paperformer.training.publishing.upload import push

from .conftest import Saved


class FakeHub:
    """Stands in for huggingface_hub.HfApi, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, token: str | None) -> "FakeHub":
        self.token = token
        return self

    def create_repo(self, repo_id: str, **kwargs: Any) -> RepoUrl:
        self.calls.append(("create_repo", {"repo_id": repo_id, **kwargs}))
        full_name = repo_id if "/" in repo_id else f"someone/{repo_id}"
        return RepoUrl(f"https://huggingface.co/{full_name}")

    def upload_folder(self, **kwargs: Any) -> None:
        self.calls.append(("upload_folder", kwargs))


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setattr(upload, "HfApi", fake)
    return fake


@pytest.fixture
def finished(seq2seq: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seq2seq.folder, tmp_path / "model"))


class TestPush:
    def test_a_finished_folder_is_uploaded_as_it_is(self, finished: Path, fake_hub: FakeHub) -> None:
        before = contents(finished)
        assert push(finished, "tiny", private=True, token="secret") == "https://huggingface.co/someone/tiny"
        assert fake_hub.token == "secret"
        (create, repository), (upload, arguments) = fake_hub.calls
        assert (create, upload) == ("create_repo", "upload_folder")
        assert repository == {"repo_id": "tiny", "private": True, "exist_ok": True}
        assert (arguments["repo_id"], arguments["folder_path"]) == ("someone/tiny", finished)
        after = contents(finished)
        assert after.pop("README.md") != before.pop("README.md")
        assert after == before

    def test_the_card_says_where_it_is_to_be_found(self, finished: Path, fake_hub: FakeHub) -> None:
        for repo_id in ("someone/first", "someone/second"):
            push(finished, repo_id)
            card = ModelCard.load(finished / "README.md")
            assert card.text.count("model_id =") == card.text.count(f'model_id = "{repo_id}"') == 1
            assert card.data.model_name == "tiny-en-de"

    def test_weights_in_shards(self, finished: Path, fake_hub: FakeHub, seq2seq: Saved) -> None:
        (finished / "model.safetensors").unlink()
        seq2seq.model.save_pretrained(finished, max_shard_size="10KB")
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
        self, damage: Callable[[Path], object], message: str, finished: Path, fake_hub: FakeHub
    ) -> None:
        damage(finished)
        with pytest.raises(ValueError, match=message) as refusal:
            push(finished, "tiny")
        assert "\n" not in str(refusal.value)
        assert not fake_hub.calls


class TestPushWithTwoVocabularies:
    @pytest.fixture
    def finished(self, two_vocabularies: Saved, tmp_path: Path) -> Path:
        return Path(shutil.copytree(two_vocabularies.folder, tmp_path / "model"))

    def test_both_tokenizers_are_uploaded(self, finished: Path, fake_hub: FakeHub) -> None:
        push(finished, "tiny")
        upload = fake_hub.calls[1][1]
        files = [path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()]
        uploaded = set(filter_repo_objects(files, ignore_patterns=upload["ignore_patterns"]))
        assert uploaded == set(files)
        assert {"tokenizer.json", "target_tokenizer/tokenizer.json"} <= uploaded

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
        self, damage: Callable[[Path], object], message: str, finished: Path, fake_hub: FakeHub
    ) -> None:
        damage(finished)
        with pytest.raises(ValueError, match=message):
            push(finished, "tiny")
        assert not fake_hub.calls


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lose_shards(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")


def spoil_score(path: Path) -> None:
    evaluation = json.loads(path.read_text("utf-8"))
    evaluation["test"]["bleu"]["score"] = float("nan")
    path.write_text(json.dumps(evaluation), "utf-8")
