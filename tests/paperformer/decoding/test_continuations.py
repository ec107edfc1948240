"""Prompts that are continued together, as if each were alone."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from paperformer import InputError, PaperformerForCausalLM, PaperformerLMConfig, generate, train_tokenizer
from paperformer.cli import main
from paperformer.decoding.continuations import Sampling, continue_prompts

TEXTS = ["A dog runs on the beach.", "Two men talk."]
PROMPTS = ["A dog", "", "Two men talk. A dog runs", "Two"]


def ignore(index: int, what: str) -> None:
    pass


@pytest.fixture(scope="module")
def given() -> tuple[PreTrainedModel, Any]:
    torch.manual_seed(3)
    tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=False)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 40}
    strong = {"initialization": "normal", "initializer_range": 0.3}
    config = PaperformerLMConfig(
        num_hidden_layers=1, vocab_size=len(tokenizer), position_embedding_type="learned", **size, **strong
    )
    return PaperformerForCausalLM(config).eval(), tokenizer


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0}, {"num_sequences": 3, "top_k": 5}, {"repetition_penalty": 1.5, "stop": ("e", "an")}],
)
def test_a_prompt_is_continued_as_if_it_were_alone(given: Any, options: dict[str, Any]) -> None:
    sampling = Sampling(max_new_tokens=9, **options)
    together = continue_prompts(*given, PROMPTS, sampling, ignore)
    for prompt, continuations in zip(PROMPTS, together, strict=True):
        assert [continuations] == continue_prompts(*given, [prompt], sampling, ignore)
        assert len(continuations) == sampling.num_sequences
        assert {each.prompt for each in continuations} == {prompt}
    others = continue_prompts(*given, PROMPTS, Sampling(max_new_tokens=9, **options, seed=2), ignore)
    assert (others == together) == (sampling.temperature == 0)


def test_what_is_written_ends_before_a_stop_string(given: Any) -> None:
    free = continue_prompts(*given, PROMPTS, Sampling(max_new_tokens=20), ignore)
    for prompt, (whole,) in zip(PROMPTS, free, strict=True):
        for stop in (whole.text[3:5], whole.text[6]):
            ((cut,),) = continue_prompts(*given, [prompt], Sampling(max_new_tokens=20, stop=(stop, "~~")), ignore)
            assert cut.text == whole.text[: whole.text.find(stop)]


def test_it_stops_as_soon_as_the_string_is_there(given: Any) -> None:
    model, tokenizer = given
    ((whole,),) = continue_prompts(model, tokenizer, ["A dog"], Sampling(max_new_tokens=20), ignore)
    calls: list[int] = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    continue_prompts(model, tokenizer, ["A dog"], Sampling(max_new_tokens=20, stop=(whole.text[2:4],)), ignore)
    hook.remove()
    assert len(calls) < 10


def test_a_prompt_that_does_not_fit_is_read_from_behind(given: Any) -> None:
    notes: list[Any] = []
    long = " ".join(["Two men talk."] * 30)
    ((found,),) = continue_prompts(*given, [long], Sampling(max_new_tokens=9), lambda *note: notes.append(note))
    assert found.prompt
    assert long.endswith(found.prompt)
    ((index, what),) = notes
    assert index == 0
    assert what.endswith("and there is room for 31: only its end was read")


def test_a_text_ends_where_learned_positions_do(given: Any) -> None:
    model, tokenizer = given
    sampling = Sampling(max_new_tokens=100, num_sequences=2)
    together = continue_prompts(model, tokenizer, PROMPTS, sampling, ignore)
    for prompt, continuations in zip(PROMPTS, together, strict=True):
        room = 40 - 1 - len(tokenizer(prompt, add_special_tokens=False).input_ids)
        ((short, *_),) = continue_prompts(
            model, tokenizer, [prompt], Sampling(max_new_tokens=room, num_sequences=2), ignore
        )
        assert continuations[0].prompt == prompt
        assert short.text
        assert continuations[0].text.startswith(short.text[:3])
        assert [continuations] == continue_prompts(model, tokenizer, [prompt], sampling, ignore)


def test_the_command_on_files_and_pipes(lm: Any, tmp_path: Path, capsys: Any, monkeypatch: Any, refused: Any) -> None:
    source, output = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    source.write_text("A dog\nTwo men\n", "utf-8")
    options = ["--max_new_tokens", "5", "--num_sequences", "2"]
    main(["generate", str(lm.folder), "--input", str(source), "--output", str(output), *options])
    records = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [record["prompt"] for record in records] == ["A dog", "Two men"]
    expected = generate(lm.folder, ["A dog", "Two men"], 5, num_sequences=2)
    assert [[record["prompt"] + text for text in record["continuations"]] for record in records] == expected
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"id": 7, "prompt": "A dog"}\n"Two men"\n', "utf-8")
    main(["generate", str(lm.folder), "--input", str(lines), *options])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"id": 7, **records[0]}, records[1]]
    piped = io.TextIOWrapper(io.BytesIO(b"A dog\nTwo men\n"))
    monkeypatch.setattr("sys.stdin", piped)
    main(["generate", str(lm.folder), *options])
    assert capsys.readouterr().out == output.read_text("utf-8")
    main(["generate", str(lm.folder), "A dog", "--max_new_tokens", "5"])
    assert capsys.readouterr().out == generate(lm.folder, "A dog", 5) + "\n"
    (tmp_path / "out.jsonl.part").unlink(missing_ok=True)
    lines.write_text('"A dog"\n{"text": "b"}\n', "utf-8")
    with pytest.raises(SystemExit):
        main(["generate", str(lm.folder), "--input", str(lines), *options])
    assert (
        'prompts.jsonl, line 2 has no "prompt"; it must be a JSON string, or an object with one'
        in capsys.readouterr().err
    )
    assert "which are for prompts of a file" in refused("generate", lm.folder, "A", "--input", source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": -1}, "top_k is -1; it must be at least 0"),
        ({"num_sequences": 0}, "num_sequences is 0; it must be at least 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0; it must be greater than 0"),
        ({"num_sequences": 2, "temperature": 0}, "num_sequences is 2 and temperature 0, which gives the same"),
        ({"stop": ("",)}, "stop is empty; it must have characters"),
    ],
)
def test_values_out_of_their_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**options)
