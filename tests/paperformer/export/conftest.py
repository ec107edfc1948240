"""Tiny models with random weights, exports of them, and how far both are apart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from paperformer.export import comparison
from paperformer.export.coverage import SIZE
from paperformer.export.export_file import ExportFile
from paperformer.export.formats.format import Engine, Exportable, Format
from paperformer.export.torch_engine import TorchEngine
from paperformer.modeling.families import FAMILIES


@pytest.fixture(autouse=True, scope="package")
def one_round() -> Iterator[None]:
    """Takes no time thrice, of which nothing is asserted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "ROUNDS", 1)
        yield


VOCABULARY = SIZE["vocab_size"]
DEPTH = {
    "seq2seq": {"encoder_layers": 2, "decoder_layers": 2},
    "lm": {"num_hidden_layers": 2},
    "encoder": {"num_hidden_layers": 2},
}


def is_about_caches(name: str) -> bool:
    """Whether an option is worth decoding with, and trying in each family: it acts on positions, keys or values."""
    return any(word in name for word in ("position", "rope", "attention", "key_value", "qk_norm", "linear"))


class Names:
    """As much of a tokenizer as a vocabulary file asks for."""

    unk_token = "<unk>"

    def __len__(self) -> int:
        return VOCABULARY - 2  # the model has rows that no token has

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [["<pad>", "<s>", "</s>", "<unk>"][index] if index < 4 else f"token {index}" for index in ids]


def random_model(family: str, **options: Any) -> PreTrainedModel:
    """A model with biases and norms that are not at their usual 0 and 1."""
    torch.manual_seed(1)
    model = FAMILIES[family].head(FAMILIES[family].config(**{**SIZE, **DEPTH[family], **options})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def random_ids(*lengths: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(4, VOCABULARY - 2, (length,), generator=generator).tolist() for length in lengths]


def both(export_format: Format, model: PreTrainedModel, folder: Path) -> tuple[TorchEngine, Engine]:
    """A model, and its export to a new folder."""
    facts = ExportFile.of(
        model.config,
        format=export_format.name,
        quantization="float32",
        model="a model",
        compared=export_format.of_encoder,
    )
    names: Any = Names()
    folder.mkdir(parents=True)
    export_format.write(Exportable(model, names, None), folder, "float32")
    facts.write(folder)
    return TorchEngine(model, facts), export_format.open(folder)


def largest_difference(ours: Engine, theirs: Engine) -> float:
    inputs, outputs = random_ids(7, 12, 3), random_ids(9, 4, 14)
    pairs = list(zip(ours.values(inputs, outputs), theirs.values(inputs, outputs), strict=True))
    assert all(own.shape == other.shape and own.size for own, other in pairs)
    return max(float(np.abs(own - other).max()) for own, other in pairs)


def decoded(engine: Engine, num_beams: int) -> list[list[int]]:
    return engine.decode(random_ids(7, 12, 3), num_beams=num_beams, length_penalty=1.0, max_new_tokens=9)
