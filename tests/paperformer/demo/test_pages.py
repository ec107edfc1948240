"""What the page answers, without a browser: first that it is busy, then what there is, or why there is nothing."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the page needs gradio: pip install 'paperformer[demo]'")

from fastapi.testclient import TestClient

from paperformer.demo.beams import find_language_tags
from paperformer.demo.models import ShownModel, find_models
from paperformer.demo.pages import page as pages
from paperformer.demo.pages.language import Writing, read, write, write_token
from paperformer.demo.pages.masks import fill
from paperformer.demo.pages.runs import follow
from paperformer.demo.pages.translation import translate, translate_upload
from paperformer.translation.formats.names import FormatOptions

TEXT = "A dog runs."


@pytest.fixture(scope="module")
def models(seq2seq: Any, lm: Any, encoder: Any) -> list[ShownModel]:
    return find_models([str(one.folder) for one in (seq2seq, lm, encoder)])


def test_a_text_is_translated_by_two_models(models: list[ShownModel]) -> None:
    busy, shown = translate([models[0], models[0]], TEXT, 3, 2, 1.0)
    assert "tiny-en-de and tiny-en-de at work on it" in busy
    assert shown.count('<section class="pf-model">') == 2
    assert "Both models write the same." in shown
    assert shown.count('class="pf-attention"') == 2


def test_of_a_long_text_a_part_is_shown(models: list[ShownModel]) -> None:
    *_, shown = translate(models[:1], TEXT * 40, 1, 1, 1.0)
    assert "This is the first of" in shown


def test_what_is_put_before_a_text_is_read(models: list[ShownModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paperformer.demo.pages.translation.find_language_tags", lambda _: ("<2de>", "<2fr>"))
    *_, shown = translate(models[:1], TEXT, 1, 1, 1.0)
    assert "put one before the text: &lt;2de&gt;, &lt;2fr&gt;" in shown
    *_, shown = translate(models[:1], TEXT, 1, 1, 1.0, "<2de> Two men. ")
    assert ">Two</button>" in shown
    assert "put one before" not in shown


def test_tags_are_found_in_a_vocabulary() -> None:
    tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 1, "<2fr>": 2, "<s>": 3, "<2de>": 4})
    assert find_language_tags(tokenizer) == ("<2de>", "<2fr>")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_text_is_said(text: str, models: list[ShownModel]) -> None:
    (failed,) = translate(models[:1], text, 3, 2, 1.0)
    assert 'role="alert"' in failed


def test_a_file_is_translated(models: list[ShownModel], tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("id\ten\n1\tA dog.\n", "utf-8")
    said: list[Any] = []

    def progress(done: Any, desc: str) -> None:
        said.append((done, desc))

    html, output = translate_upload(models[0], str(path), FormatOptions(column="en"), progress)
    assert "1 rows translated" in html
    assert output is not None
    assert Path(output).name == "rows.translated.tsv"
    assert said[-1] == ((2, 2), "translate rows.tsv")  # the head is one
    html, output = translate_upload(models[0], str(path), FormatOptions(column="nothing"), progress)
    assert 'role="alert"' in html
    assert str(tmp_path) not in html
    assert output is None
    assert "there is no file" in translate_upload(models[0], None, FormatOptions(), progress)[0]


def test_a_text_is_written(models: list[ShownModel]) -> None:
    writing = Writing()
    writing.dials.temperature = 0
    busy, *_, (text, candidates) = write(writing, models[1], "A dog", 9, 1)
    assert "begins to write" in busy[0]
    assert text.count("data-step=") == len(writing.steps) == 9
    assert candidates.count("<tr") == 11
    assert writing.dials.temperature == 0


def test_writing_is_stopped_and_goes_on_by_a_token(models: list[ShownModel]) -> None:
    writing = Writing()
    coming = write(writing, models[1], "A dog", 30, 1)
    next(coming)
    next(coming)
    writing.stop()
    list(coming)
    count = len(writing.steps)
    assert count < 30
    write_token(writing, models[1], "A dog", 30, 1)
    assert len(writing.steps) == count + 1
    assert writing.dials.is_stopped
    write_token(writing, models[1], "Another", 30, 1)  # begins anew
    assert (writing.prompt, len(writing.steps)) == ("Another", 1)


def test_one_token_more_than_asked_for_is_said(models: list[ShownModel]) -> None:
    writing = Writing()
    for count in (1, 2):
        text, _ = write_token(writing, models[1], "A dog", 2, 1)
        assert (len(writing.steps), "asked for" in text) == (count, False)
    for _ in range(2):
        text, candidates = write_token(writing, models[1], "A dog", 2, 1)
        assert "These are the 2 tokens that were asked for." in text
        assert text.count("data-step=") == 2
        assert "<tr" in candidates


def test_a_text_that_ends_says_why(models: list[ShownModel]) -> None:
    writing = Writing()
    *_, (text, _) = write(writing, models[1], "A dog", 500, 5)  # the model takes 64
    assert ("The model has ended the text" in text) == writing.steps[-1].is_end
    assert ("as long as the model takes" in text) != writing.steps[-1].is_end


def test_beginning_anew_ends_what_is_being_written(models: list[ShownModel]) -> None:
    writing = Writing()
    first = write(writing, models[1], "A dog", 30, 1)
    next(first)
    next(first)
    second = write(writing, models[1], "Two men", 5, 1)
    next(second)
    next(second)
    assert list(first) == []
    *_, (text, _) = second
    assert "Two men" in text
    assert len(writing.steps) == 5


def test_a_text_is_read(models: list[ShownModel]) -> None:
    busy, heat = read(models[1], TEXT)
    assert "reads it" in busy
    assert heat.count('class="pf-heat" tabindex') > 3
    *_, failed = read(models[1], "")
    assert 'role="alert"' in failed


def test_masks_are_filled_in(models: list[ShownModel]) -> None:
    _, shown = fill(models[2], "A <mask> runs.")
    assert "Mask 1" in shown
    _, failed = fill(models[2], "A dog.")
    assert 'role="alert"' in failed


def test_runs_are_shown_again_when_they_have_changed(tmp_path: Path) -> None:
    shown, seen = follow(tmp_path, ["gone"], None)
    assert "Choose a run" in shown
    assert isinstance(follow(tmp_path, ["gone"], seen)[0], dict)  # Gradio's mark for nothing new


@pytest.fixture(scope="module")
def client(models: list[ShownModel], tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    page = pages.build_page(models, tmp_path_factory.mktemp("runs"))
    return TestClient(pages.make_application(page, ["127.0.0.1"]), base_url="http://127.0.0.1")


def test_a_browser_is_told_to_ask_nobody_else(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert "https://fonts" not in answer.text


def test_pages_of_others_are_refused(client: TestClient) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


def test_files_of_the_machine_are_not_given_out(client: TestClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("never to be seen")
    for route in ("/gradio_api/file=", "/file="):
        assert "never to be seen" not in client.get(f"{route}{secret}").text


def test_gradio_tells_nobody_that_it_is_used() -> None:
    import os

    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert "gradio" in sys.modules
