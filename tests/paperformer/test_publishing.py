"""Publication on a server that speaks the Hub's protocol, by the real client, also where things go wrong."""

import json
import logging
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard, constants

import paperformer
from paperformer import InputError
from paperformer.cli import main
from paperformer.training.evaluation.evaluation_file import Evaluation, entry_of, hash_pairs
from paperformer.training.evaluation.metrics import BITS_PER_BYTE, LOSS, Score, score_outputs
from paperformer.training.evaluation.passages import PassageLosses
from paperformer.training.exact_weights import hash_weights
from paperformer.training.publishing import clean_process, upload
from paperformer.training.publishing.clean_process import check_loads_alone

from .conftest import TEXTS, Saved, finish
from .hub_server import PART, Hub, Refused

Refuse = Callable[..., str]
LOGITS = "project(hidden_states[:, kept], output_layer)[0]"


@pytest.fixture(autouse=True)
def without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading in a clean process takes seconds: it has a test of its own."""
    monkeypatch.setattr(upload, "check_loads_alone", lambda folders, models: None)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Runs a command that must end with exit code 2; returns its last line, which says why."""

    def expect(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        assert stopped.value.code == 2
        said = capsys.readouterr()
        assert said.out == ""
        last = said.err.splitlines()[-1]
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    return expect


@pytest.fixture
def folder(seq2seq: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seq2seq.folder, tmp_path / "model"))


WORDS = ["der", "ein", "am", "Hund", "läuft", "Mann", "redet", "nie", "so", "viel"]
PAIRS = [(TEXTS[0], " ".join(random.Random(number).sample(WORDS, 7))) for number in range(40)]


def translations(wrong: float, seed: int) -> list[str]:
    """References with a share of their words replaced."""
    rng = random.Random(seed)
    return [" ".join("Katze" if rng.random() < wrong else word for word in reference.split()) for _, reference in PAIRS]


def make_run(seq2seq: Saved, path: Path, outputs: list[str]) -> Path:
    """A run's folder, of which the test split was translated so."""
    model = path / "model"
    shutil.copytree(seq2seq.folder, model)
    evaluation = Evaluation(
        scores=score_outputs(outputs, [[reference for _, reference in PAIRS]]),
        outputs=outputs,
        decoding={"num_beams": 2},
        pairs=PAIRS,
    )
    scores = entry_of("translation", "test", evaluation, 1)
    finish(seq2seq.model, seq2seq.tokenizer, model, "translation", TEXTS[0], scores)
    for place, name, records in (
        (model / "evaluation", "test.outputs.jsonl", outputs),
        (path / "evaluation", "test.pairs.jsonl", PAIRS),
    ):
        place.mkdir()
        (place / name).write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    (path / "recipe.yaml").write_text("seed: 1\n", "utf-8")
    return path


def local_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_published_once(hub: Hub, folder: Path, repo_id: str = "me/tiny") -> None:
    files = hub.files(repo_id)
    files.pop(".gitattributes")
    assert files == local_files(folder)
    assert len(hub.repositories[repo_id].commits) == 2  # with the one that makes the repository


class TestOneCommit:
    def test_all_of_a_run(self, seq2seq: Saved, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
        run = make_run(seq2seq, tmp_path / "first", translations(0.1, 1))
        (run / "model" / ".DS_Store").write_text("litter")
        main(["push", str(run), "me/tiny", "--tag", "v1.0", "--collection", "Small models"])
        (run / "model" / ".DS_Store").unlink()
        assert_published_once(hub, run / "model")
        assert {"model.safetensors", "tokenizer.json", "generation_config.json", "modeling_seq2seq.py", "README.md",
                "evaluation.json", "evaluation/test.outputs.jsonl"} <= hub.files("me/tiny").keys()  # fmt: skip
        repository = hub.repositories["me/tiny"]
        assert capsys.readouterr().out == f"{hub.endpoint}/me/tiny {repository.head.oid}\n"
        assert repository.private
        assert repository.tags == {"v1.0": repository.head.oid}
        (collection,) = hub.collections.values()
        assert (collection["title"], collection["private"]) == ("Small models", True)
        assert [item["id"] for item in collection["items"]] == ["me/tiny"]
        card = ModelCard(hub.files("me/tiny")["README.md"].decode())
        assert {result.metric_type for result in card.data.eval_results or []} >= {"bleu", "chrf"}
        assert 'model_id = "me/tiny"' in card.text

    def test_the_token_goes_to_the_hub_only(self, folder: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
        logged: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("huggingface_hub.utils._http").addHandler(handler)
        hub.fail("PUT /storage/.*/2", 500)
        hub.fail("POST /api/validate-yaml", 503)
        paperformer.push_to_hub(folder, "tiny")
        for path, authorization in hub.authorizations:
            if path.startswith("/storage/") and "verify" not in path:  # signed addresses need none
                assert authorization == "", path
        logging.getLogger("huggingface_hub.utils._http").removeHandler(handler)
        said = capsys.readouterr()
        assert said.err.count("trying again in 1 s") == 2
        for secret in ("hf_of_me", "signature"):  # that of an address that is signed
            assert secret not in said.out + said.err + "".join(logged)
        assert all(b"hf_of_me" not in content for content in hub.files("me/tiny").values())

    def test_public_if_asked_for(self, folder: Path, hub: Hub) -> None:
        publication = paperformer.push_to_hub(folder, "tiny", private=False, token="hf_of_me")
        assert (publication.repo_id, publication.address) == ("me/tiny", f"{hub.endpoint}/me/tiny")
        assert not hub.repositories["me/tiny"].private

    def test_a_branch(self, folder: Path, hub: Hub, refused: Refuse) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        repository = hub.repositories["me/tiny"]
        before = repository.head
        assert refused("push", folder, "me/tiny", "--revision", "next").startswith("me/tiny has no such revision")
        repository.refs["next"] = before.oid
        (folder / "evaluation").mkdir()
        (folder / "evaluation" / "notes.md").write_text("new")
        publication = paperformer.push_to_hub(folder, "me/tiny", revision="next")
        assert repository.head == before
        assert repository.refs["next"] == publication.commit != before.oid

    def test_a_pull_request_needs_no_right_to_write(
        self, folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, refused: Refuse
    ) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        monkeypatch.setenv("HF_TOKEN", "hf_reads")
        before = hub.repositories["me/tiny"].head
        (folder / "notes.md").write_text("new")
        assert "it needs write permission there" in refused("push", folder, "me/tiny")
        publication = paperformer.push_to_hub(folder, "me/tiny", create_pr=True)
        assert publication.address == f"{hub.endpoint}/me/tiny/discussions/1"
        assert hub.repositories["me/tiny"].head == before
        assert hub.files("me/tiny", "refs/pr/1")["notes.md"] == b"new"
        assert hub.repositories["me/tiny"].refs["refs/pr/1"] == publication.commit

    def test_old_weights_do_not_stay_beside_new_ones(self, folder: Path, hub: Hub, seq2seq: Saved) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        hub.change("me/tiny", "photo.png", b"of someone else")
        (folder / "model.safetensors").unlink()
        seq2seq.model.save_pretrained(folder, max_shard_size="10KB")
        finish_again(folder)
        hub.fail("POST .*/commit/", "lose")  # what is deleted then is not there to be deleted again
        paperformer.push_to_hub(folder, "me/tiny")
        files = hub.files("me/tiny")
        assert "model.safetensors" not in files
        assert "model.safetensors.index.json" in files
        assert files["photo.png"] == b"of someone else"


def finish_again(folder: Path) -> None:
    """The evaluation of weights that were saved in another way."""
    evaluation = json.loads((folder / "evaluation.json").read_text("utf-8"))
    evaluation["test"]["weights_sha256"] = hash_weights(folder)
    (folder / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")


class TestResuming:
    def test_large_files_that_are_there_are_not_sent_again(self, folder: Path, hub: Hub, refused: Refuse) -> None:
        size = (folder / "model.safetensors").stat().st_size
        hub.fail("POST .*/commit/", 403)
        refused("push", folder, "me/tiny")
        assert hub.sent_bytes == size > 2 * PART
        assert hub.files("me/tiny").keys() == {".gitattributes"}
        paperformer.push_to_hub(folder, "me/tiny")
        assert hub.sent_bytes == size
        assert_published_once(hub, folder)

    def test_published_twice_it_is_one_commit(self, folder: Path, hub: Hub) -> None:
        first = paperformer.push_to_hub(folder, "me/tiny")
        assert paperformer.push_to_hub(folder, "me/tiny") == first
        assert_published_once(hub, folder)


class TestFaults:
    @pytest.fixture(autouse=True)
    def without_local_checks(self, seq2seq: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
        """They load the model, and are the concern of test_push.py."""
        monkeypatch.setattr(upload, "check_ready_to_push", lambda folder, secret: seq2seq.model)

    @pytest.mark.parametrize(
        ("pattern", "answers", "waits"),
        [
            ("PUT /storage/.*/2", ["drop"], [1]),  # in the middle of the upload
            ("PUT /storage/.*/2", [500, 503], [1, 2]),
            ("POST .*/preupload/", [429], [1]),
            ("POST .*/objects/batch", ["lose"], [1]),
            ("POST /storage/.*/complete", [504], [1]),
            ("GET /api/models/me/tiny$", [Refused(429, Retry_After="17")], [17]),
            ("POST /api/repos/create", ["lose"], [1]),
            ("POST /api/validate-yaml", [502], [1]),
            ("POST .*/commit/", [503, 503], [1, 2]),
            ("POST .*/commit/", ["drop"], [1]),
            ("POST .*/commit/", ["lose"], [1]),  # heard, and not answered: it must not be made twice
            ("POST .*/tag/", ["lose"], [1]),
        ],
    )
    def test_what_passes_is_tried_again(
        self, pattern: str, answers: list[Any], waits: list[float], folder: Path, hub: Hub
    ) -> None:
        hub.fail(pattern, *answers)
        publication = paperformer.push_to_hub(folder, "me/tiny", tag="v1")
        assert [round(wait) for wait in hub.sleeps] in (waits, [wait + 1 for wait in waits])  # the client adds one
        assert_published_once(hub, folder)
        assert hub.repositories["me/tiny"].tags == {"v1": publication.commit}

    @pytest.mark.parametrize(
        ("pattern", "answer", "message"),
        [
            (
                "GET /api/models/",
                Refused(401, "Invalid credentials in Authorization header"),
                "does not accept the",
            ),
            ("POST /api/repos/create", Refused(403, "Not yours"), "the access token may not do this to me/tiny"),
            ("POST .*/preupload/", Refused(404, "", "RepoNotFound"), "me/tiny is not on the Hub, or the access token"),
            ("POST .*/objects/batch", 500, "the Hub is busy or out of order: 500"),
            ("PUT /storage/.*/2", 500, "the Hub is busy or out of order: 500"),
            ("PUT /storage/.*/2", "drop", "cannot be reached, or the connection broke"),
            ("PUT /storage/.*/2", 403, "the access token may not do this to me/tiny"),
            ("POST .*/commit/", Refused(409, "Locked"), "the Hub refuses this for me/tiny: 409 (Locked)"),
            (
                "POST .*/commit/",
                Refused(412, "Changed"),
                "me/tiny was changed by someone while this was",
            ),
            ("POST .*/commit/", Refused(429, "Too many", Retry_After="2"), "the Hub is busy or out of order: 429"),
            ("POST .*/commit/", Refused(429, "Too many", Retry_After="4000"), "the Hub is busy or out of order: 429"),
            ("POST .*/commit/", 500, "the Hub is busy or out of order: 500"),
            ("POST .*/commit/", Refused(400, "No"), "the Hub refuses this for me/tiny: 400"),
        ],
    )
    def test_what_stays_is_one_line_and_nothing_is_published(
        self, pattern: str, answer: Any, message: str, folder: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hub.fail(pattern, *[answer] * 50)
        with pytest.raises(SystemExit) as stopped:
            main(["push", str(folder), "me/tiny"])
        assert stopped.value.code == 2
        *repeated, last = capsys.readouterr().err.splitlines()
        assert last.startswith("error: ")
        assert message in last
        assert last.endswith("; nothing was published")
        assert all("trying again in" in line or line.startswith("sending ") for line in repeated)
        assert "me/tiny" not in hub.repositories or hub.files("me/tiny").keys() == {".gitattributes"}

    def test_someone_else_was_faster(self, folder: Path, hub: Hub, refused: Refuse) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        (folder / "notes.md").write_text("mine")
        hub.fail("POST .*/commit/", lambda: hub.change("me/tiny", "README.md", b"theirs"))
        assert refused("push", folder, "me/tiny").startswith("me/tiny was changed by someone while this was being")
        assert hub.files("me/tiny")["README.md"] == b"theirs"
        assert "notes.md" not in hub.files("me/tiny")

    def test_someone_else_was_faster_and_the_answer_was_lost(self, folder: Path, hub: Hub) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        (folder / "notes.md").write_text("mine")
        hub.fail("POST .*/commit/", "drop", lambda: hub.change("me/tiny", "other.md", b"theirs"))
        with pytest.raises(InputError, match="was changed by someone"):
            paperformer.push_to_hub(folder, "me/tiny")
        assert "notes.md" not in hub.files("me/tiny")

    def test_a_pull_request_is_not_asked_for_twice(self, folder: Path, hub: Hub) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        (folder / "notes.md").write_text("mine")
        hub.fail("POST .*/commit/", "lose")
        with pytest.raises(InputError, match=r"no answer when the pull request was asked for; look .*/discussions"):
            paperformer.push_to_hub(folder, "me/tiny", create_pr=True)
        assert [ref for ref in hub.repositories["me/tiny"].refs if ref != "main"] == ["refs/pr/1"]

    def test_after_the_commit_it_is_said_that_it_is_published(self, folder: Path, hub: Hub) -> None:
        hub.fail("POST .*/tag/", 403)
        with pytest.raises(InputError, match=r"may not .*; the model is published \(commit .*\), without the tag"):
            paperformer.push_to_hub(folder, "me/tiny", tag="v1")
        assert_published_once(hub, folder)
        with pytest.raises(InputError, match=r"^me/none-1 is not on the Hub.*, and not in the collection me/none-1$"):
            paperformer.push_to_hub(folder, "me/tiny", collection="me/none-1")


class TestBadInput:
    @pytest.mark.parametrize(
        ("repo_id", "message"),
        [
            ("me/ti ny", "'me/ti ny' is no name of a repository; it must be USER/NAME"),
            ("a/b/c", "'a/b/c' is no name of a repository"),
            ("me/con", "the Hub refuses this for me/con: 400 (Invalid repo name: con is reserved)"),
            ("you/tiny", "the access token may not do this to you/tiny (You don't have the rights"),
        ],
    )
    def test_names(self, repo_id: str, message: str, folder: Path, hub: Hub, refused: Refuse) -> None:
        assert message in refused("push", folder, repo_id)
        assert not hub.repositories

    def test_tokens(self, folder: Path, hub: Hub, refused: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        line = refused("push", folder, "me/tiny")
        assert line.startswith("the Hub does not accept the access token")
        assert "hf_wrong" not in line
        monkeypatch.delenv("HF_TOKEN")
        hub.requests.clear()
        assert refused("push", folder, "me/tiny") == (
            "there is no access token; log in with: hf auth login, or set HF_TOKEN"
        )
        assert not hub.requests

    def test_no_network(self, folder: Path, hub: Hub, refused: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        assert refused("push", folder, "me/tiny").startswith("http://127.0.0.1:9 cannot be reached")
        assert hub.sleeps == []
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "HF_HUB_OFFLINE is set" in refused("push", folder, "me/tiny")

    def test_a_repository_of_another_architecture(self, folder: Path, hub: Hub, lm: Saved, refused: Refuse) -> None:
        paperformer.push_to_hub(folder, "me/tiny")
        line = refused("push", lm.folder, "me/tiny", "--force")
        assert line.startswith("me/tiny holds a paperformer-seq2seq, and this is a paperformer-lm")

    def test_what_does_not_go_together(self, folder: Path, hub: Hub, refused: Refuse) -> None:
        assert "no pull request can be opened" in refused("push", folder, "me/tiny", "--create_pr")
        assert "there is no branch next" in refused("push", folder, "me/tiny", "--revision", "next")
        assert "leave --tag and --revision out" in refused("push", folder, "me/tiny", "--create_pr", "--tag", "v1")
        paperformer.push_to_hub(folder, "me/tiny", tag="v1")
        assert "has a tag v1 already" in refused("push", folder, "me/tiny", "--tag", "v1")


class TestWorse:
    def test_a_significantly_worse_model_is_refused(
        self, seq2seq: Saved, tmp_path: Path, hub: Hub, refused: Refuse
    ) -> None:
        good, bad = (
            make_run(seq2seq, tmp_path / name, translations(wrong, 2)) for name, wrong in (("good", 0.05), ("bad", 0.5))
        )
        paperformer.push_to_hub(good, "me/tiny")
        before = hub.repositories["me/tiny"].head
        line = refused("push", bad, "me/tiny")
        assert line.startswith("test BLEU: ")
        assert ": worse (p = 0.00" in line
        assert line.endswith("; nothing was published (--force publishes it all the same)")
        assert hub.repositories["me/tiny"].head == before
        assert paperformer.push_to_hub(bad, "me/tiny", force=True).commit != before.oid
        assert paperformer.push_to_hub(good, "me/tiny").repo_id == "me/tiny"  # better

    def test_a_little_worse_may_be_chance(
        self, seq2seq: Saved, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
    ) -> None:
        outputs = translations(0.1, 3)
        other = [*outputs[:-1], "Katze"]
        paperformer.push_to_hub(make_run(seq2seq, tmp_path / "one", outputs), "me/tiny")
        paperformer.push_to_hub(make_run(seq2seq, tmp_path / "two", other), "me/tiny")
        assert capsys.readouterr().err.count("no significant difference (p = ") == 2

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda run: (run / "evaluation" / "test.pairs.jsonl").unlink(), "the reference translations are not here"),
            (lambda run: other_pairs(run), "the test sentences are others"),
            (
                lambda run: (run / "model" / "evaluation" / "test.outputs.jsonl").write_text("{"),
                "has not a translation",
            ),
        ],
    )
    def test_what_cannot_be_tested_is_said(
        self,
        change: Callable[[Path], None],
        reason: str,
        seq2seq: Saved,
        tmp_path: Path,
        hub: Hub,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        paperformer.push_to_hub(make_run(seq2seq, tmp_path / "good", translations(0.05, 2)), "me/tiny")
        bad = make_run(seq2seq, tmp_path / "bad", translations(0.5, 2))
        change(bad)
        paperformer.push_to_hub(bad, "me/tiny")
        said = capsys.readouterr().err
        assert "whether that is more than chance is not tested: " in said
        assert reason in said


def passages(nats_a_token: float, sha256: str = "of the text", count: int = 60) -> PassageLosses:
    """Losses that vary with the passage by far more than models do."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(200, 260, size=count)
    nats = tokens * (rng.normal(0, 0.4, size=count) + nats_a_token)
    return PassageLosses(nats=nats, tokens=tokens, bytes=4 * tokens, sha256=sha256)


def make_scored_model(saved: Saved, path: Path, losses: PassageLosses) -> Path:
    """A model's folder, with losses of the test split by passage."""
    task = "fill-mask" if losses.bytes is None else "text-generation"
    metric, sizes = (LOSS, losses.tokens) if losses.bytes is None else (BITS_PER_BYTE, losses.bytes)
    size = int(sizes.sum())
    score = Score(metric=metric, value=float(losses.nats.sum()) / size, count=size, signature="context:64|stride:32")
    scores = entry_of(task, "test", Evaluation(scores=[score], outputs=[], passages=losses), 1)
    shutil.copytree(saved.folder, path)
    finish(saved.model, saved.tokenizer, path, task, TEXTS[0], scores)
    (path / "evaluation").mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in losses.records())
    (path / "evaluation" / "test.losses.jsonl").write_text(lines, "utf-8")
    return path


class TestWorsePerplexity:
    @pytest.mark.parametrize("family", ["lm", "encoder"])
    def test_a_significantly_worse_model_is_refused(
        self, family: str, request: pytest.FixtureRequest, tmp_path: Path, hub: Hub, refused: Refuse
    ) -> None:
        saved: Saved = request.getfixturevalue(family)
        good, bad = passages(2.0), passages(2.02)
        if family == "encoder":
            good, bad = replace(good, bytes=None), replace(bad, bytes=None)
        first, second = (make_scored_model(saved, tmp_path / str(i), each) for i, each in enumerate((good, bad)))
        paperformer.push_to_hub(first, "me/tiny")
        before = hub.repositories["me/tiny"].head
        assert "evaluation/test.losses.jsonl" in hub.files("me/tiny")
        line = refused("push", second, "me/tiny")
        assert line.startswith("test Bits a byte: 0.7" if family == "lm" else "test Loss: 2.1044, me/tiny")
        assert line.endswith(": worse (p = 0.001); nothing was published (--force publishes it all the same)")
        assert hub.repositories["me/tiny"].head == before
        assert paperformer.push_to_hub(second, "me/tiny", force=True).commit != before.oid
        assert paperformer.push_to_hub(first, "me/tiny").repo_id == "me/tiny"  # better

    def test_a_difference_that_may_be_chance(
        self, lm: Saved, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
    ) -> None:
        losses = passages(2.0)
        other = replace(losses, nats=losses.nats + np.random.default_rng(1).normal(0.1, 9, size=60))
        paperformer.push_to_hub(make_scored_model(lm, tmp_path / "one", losses), "me/tiny")
        paperformer.push_to_hub(make_scored_model(lm, tmp_path / "two", other), "me/tiny")
        assert "no significant difference (p = " in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("published", "new", "reason"),
        [
            (passages(2.0), passages(3.0, sha256="of another"), "the test text, or which tokens of it are masked, is"),
            (passages(2.0, count=19), passages(3.0, count=19), "the test split has 19 passages; it takes 20 to tell"),
            (passages(2.0), None, "evaluation/test.losses.jsonl has not the losses of each passage, here or"),
            (None, passages(3.0), "what is published has no losses by passage (evaluation/test.losses.jsonl)"),
        ],
    )
    def test_what_cannot_be_tested_is_said(
        self,
        published: PassageLosses | None,
        new: PassageLosses | None,
        reason: str,
        lm: Saved,
        tmp_path: Path,
        hub: Hub,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        for name, losses in (("good", published), ("bad", new)):
            model = make_scored_model(lm, tmp_path / name, losses or passages(2.5))
            if losses is None:
                (model / "evaluation" / "test.losses.jsonl").unlink()
                if name == "good":  # as it was before there was such a file
                    evaluation = json.loads((model / "evaluation.json").read_text("utf-8"))
                    del evaluation["test"]["passages_sha256"]
                    (model / "evaluation.json").write_text(json.dumps(evaluation), "utf-8")
            paperformer.push_to_hub(model, "me/tiny")
        said = capsys.readouterr().err
        assert f"whether that is more than chance is not tested: {reason}" in said


def other_pairs(run: Path) -> None:
    path = run / "model" / "evaluation.json"
    evaluation = json.loads(path.read_text("utf-8"))
    evaluation["test"]["pairs_sha256"] = hash_pairs([("another", "pair")])
    path.write_text(json.dumps(evaluation), "utf-8")


@pytest.mark.proof
def test_folders_are_loaded_without_paperformer(
    seq2seq: Saved,
    two_vocabularies: Saved,
    lm: Saved,
    encoder: Saved,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All in one process; each fault is one that the installed code does not notice."""
    lacks, differs, exits = (Path(shutil.copytree(seq2seq.folder, tmp_path / name)) for name in ("a", "b", "c"))
    (lacks / "norms.py").unlink()
    code = (differs / "loss.py").read_text("utf-8")
    (differs / "loss.py").write_text(code.replace(LOGITS, f"2 * {LOGITS}"), "utf-8")
    (exits / "stack.py").write_text("raise SystemExit(3)\n", "utf-8")
    good = [seq2seq, two_vocabularies, lm, encoder]
    of_folder = {saved.folder: saved for saved in good} | dict.fromkeys((lacks, differs, exits), seq2seq)
    found = dict(zip(of_folder, clean_process._load(list(of_folder)), strict=True))
    monkeypatch.setattr(clean_process, "_load", lambda folders: [found[folder] for folder in folders])
    check_loads_alone([saved.folder for saved in good], [saved.model for saved in good])
    for folder, message in (
        (lacks, r"a cannot be used where paperformer is not installed: FileNotFoundError: .*norms\.py"),
        (differs, r"b computes something else with its own code than with paperformer's \(logits differ by"),
        (exits, r"c cannot be used where paperformer is not installed: SystemExit: 3"),
    ):
        with pytest.raises(InputError, match=message):
            check_loads_alone([folder], [of_folder[folder].model])
