"""Converted models are trained further: what their tokenizers lack is found in them."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from paperformer.conversion.model_folder import ARCHITECTURES, convert_folder
from paperformer.training.run import main
from paperformer.training.tasks.registry import OBJECTIVES

from .conftest import THEIRS, random_model

LINES = [
    f"The {who} {what} by the river {n}.\n" for n in range(30) for who in ("dog", "man") for what in ("ran", "sat")
]


def byte_bpe(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def gpt2_tokenizer() -> PreTrainedTokenizerFast:
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=byte_bpe([end]), bos_token=end, eos_token=end, unk_token=end)


def llama_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_bpe(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def bert_tokenizer() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    names = {f"{token[1:-1].lower()}_token": token for token in special}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def marian_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = byte_bpe(["</s>", "<unk>", "<pad>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "gpt2": (gpt2_tokenizer, "lm", {"bos_token_id": 0, "eos_token_id": 0}),
    "llama": (llama_tokenizer, "lm", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}),
    "bert": (bert_tokenizer, "encoder", {"pad_token_id": 0}),
    "marian": (marian_tokenizer, "seq2seq", {"pad_token_id": 2, "eos_token_id": 0, "decoder_start_token_id": 2}),
}


@pytest.mark.proof
@pytest.mark.parametrize("kind", CASES)
def test_a_converted_model_is_trained_further(kind: str, tmp_path: Path) -> None:
    make_tokenizer, objective, tokens = CASES[kind]
    tokenizer, architecture = make_tokenizer(), ARCHITECTURES[kind]
    config = architecture.theirs.config_class(**THEIRS[kind] | tokens | {"vocab_size": len(tokenizer)})
    random_model(architecture.theirs, config).save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    convert_folder(str(tmp_path / "theirs"), tmp_path / "ours", architecture, to_ours=True)
    for split, count in {"train": 120, "validation": 6, "test": 6}.items():
        ending, row = (".tsv", "{0}\t{0}\n") if objective == "seq2seq" else (".txt", "{0}\n")
        rows = [row.format(line.strip()) for line in LINES[:count]]
        (tmp_path / f"{split}{ending}").write_text("".join(rows), "utf-8")
    options = {
        "name": kind,
        "init_from": tmp_path / "ours",
        "output_dir": tmp_path / "runs",
        "data.dataset": tmp_path,
        "cleaning.duplicates": "keep",
        "cleaning.leak_check": "false",
        "cleaning.drop_copies": "false",
        "optimization.max_steps": 4,
        "optimization.warmup_steps": 1,
        "optimization.tokens_per_batch": 200,
        "evaluation.every_steps": 2,
    }
    if objective == "seq2seq":
        options |= {"data.source_language": "en", "data.target_language": "de", "data.max_length": 38}
        options |= {"evaluation.num_beams": 1}
    else:
        options |= {"data.context_length": 16}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    model = main(OBJECTIVES[objective], words)
    assert "trained further from ours" in (model / "README.md").read_text("utf-8")
    saved = AutoTokenizer.from_pretrained(model)
    assert saved(LINES[0]).input_ids == tokenizer(LINES[0]).input_ids
