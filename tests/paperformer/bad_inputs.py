"""A folder of things that go wrong, which the commands of docs/bad_input.md are given."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from paperformer import PaperformerForCausalLM, PaperformerLMConfig

FILES: dict[str, str | bytes] = {
    "good.txt": "A dog runs.\n",
    "good.de": "Ein Hund läuft.\n",
    "pairs.dat": "A dog runs.\tEin Hund läuft.\n",
    "two.de": "Ein Hund läuft.\nZwei Männer.\n",
    "empty.txt": "",
    "blank.txt": "\n \n\n",
    "long.txt": "dog " * 100 + "\n",
    "text.txt": "".join(f"Dog number {number} runs.\n" for number in range(60)),
    "megabyte.txt": "dog run " * 125_000 + "\n",
    "nul.txt": b"A \x00dog\x07 runs\x1b[31m.\n",
    "latin1.txt": b"A d\xf6g runs.\n",
    "utf16.txt": "A dog runs.\n".encode("utf-16"),
    "latin1.tsv": b"en\tde\nA d\xf6g.\tEin Hund.\n",
    "one-column.tsv": "en\tde\nA dog.\n",
    "broken.jsonl": '{"text": "A dog."}\n{"text": \n',
    "broken.gz": b"this was never compressed",
    "broken.parquet": b"PAR1 and no more",
    "broken.yaml": "name: first\n  data: [\n",
    "unknown-field.yaml": "name: first\nnonsense: 3\n",
    "list.yaml": "- name\n",
    "latin1.yaml": b"name: d\xf6g\n",
    "nul.yaml": b"name: a\x00b\n",
}


def write_bad_inputs(place: Path, translator: Path, lm: Path, other_tokenizer: PreTrainedTokenizerBase) -> None:
    """Writes files, and a model folder for each thing that can be wrong with one."""
    for name, content in FILES.items():
        (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def copy(name: str, source: Path = translator) -> Path:
        return Path(shutil.copytree(source, place / name))

    def reconfigured(name: str, **fields: Any) -> None:
        path = copy(name) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields), "utf-8")

    copy("translator")
    copy("language-model", lm)
    (copy("no-weights-lm", lm) / "model.safetensors").unlink()
    weights = translator / "model.safetensors"
    (copy("no-weights") / weights.name).unlink()
    (copy("truncated") / weights.name).write_bytes(weights.read_bytes()[:9000])
    (copy("empty-weights") / weights.name).write_bytes(b"")
    (copy("no-safetensors") / weights.name).write_bytes(b"\xff" * 100)
    pickled = copy("pickled")
    (pickled / weights.name).unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    elsewhere = copy("elsewhere")
    (elsewhere / weights.name).unlink()
    (elsewhere / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../translator/model.safetensors"}}')
    reconfigured("another-architecture", model_type="bert")
    reconfigured("unknown-architecture", model_type="nonesuch", auto_map=None)
    reconfigured("other-shapes", intermediate_size=48)
    reconfigured("words-for-numbers", hidden_size="big")
    reconfigured("no-layers", encoder_layers=0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
    learned = PaperformerLMConfig(num_hidden_layers=1, vocab_size=300, position_embedding_type="learned", **size)
    PaperformerForCausalLM(learned).save_pretrained(place / "learned-positions")
    for file in lm.glob("tokenizer*"):
        shutil.copy(file, place / "learned-positions")
    for name, file in (
        ("damaged-config", "config.json"),
        ("damaged-settings", "generation_config.json"),
        ("damaged-tokenizer", "tokenizer.json"),
        ("damaged-tokenizer-config", "tokenizer_config.json"),
    ):
        (copy(name) / file).write_text('{"model_type": "paper', "utf-8")
    (copy("settings-in-a-list") / "generation_config.json").write_text("[]", "utf-8")
    bare = copy("no-tokenizer")
    for file in bare.glob("tokenizer*"):
        file.unlink()
    other_tokenizer.save_pretrained(copy("larger-tokenizer"))
    other_tokenizer.save_pretrained(copy("larger-tokenizer-lm", lm))
