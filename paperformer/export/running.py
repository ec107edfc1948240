"""Exports in the place of models: what translates lines with a model of ours does so with another engine."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..training.console.input_error import InputError
from .export_file import EXPORT_FILE, ExportFile
from .exporting import export_folder
from .formats.format import Engine
from .formats.registry import FORMATS

CACHED_SEQUENCES = 10
"""How many sequences an export is compared by that is made on the fly."""


class EngineModel:
    """An export with as much of a model's surface as decoding a batch asks for.

    Args:
        folder: an export of a translation model.

    Raises:
        InputError: if it is none, or of another family.
    """

    def __init__(self, folder: Path):
        self.folder, self.facts = folder, ExportFile.read(folder)
        if self.facts.family != "seq2seq":
            raise InputError(f"{folder} holds a {self.facts.family}; this command needs a translation model")
        if self.facts.format not in FORMATS:
            raise InputError(f"{folder} is an export to {self.facts.format}, which this version does not know")
        export_format = FORMATS[self.facts.format]
        export_format.check_installed()
        self.engine: Engine = export_format.open(folder)
        self.config = SimpleNamespace(max_position_embeddings=self.facts.longest, is_encoder_decoder=True)
        self.device = torch.device("cpu")
        self.tokenizer = _load_tokenizer(folder / "tokenizer")
        self.target_tokenizer = (
            _load_tokenizer(folder / "target_tokenizer") if self.facts.has_target_tokenizer else None
        )

    def eval(self) -> "EngineModel":  # the name is torch's
        """Itself: it does not train."""
        return self

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        num_beams: int,
        length_penalty: float,
        max_new_tokens: int,
        **ignored: Any,
    ) -> torch.Tensor:
        """Translations of a padded batch, (B, S) -> (B, T): what `generate` of a model gives."""
        sources = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        outputs = self.engine.decode(
            sources, num_beams=num_beams, length_penalty=length_penalty, max_new_tokens=max_new_tokens
        )
        width = max(map(len, outputs))
        return torch.tensor([ids + [self.facts.pad_id] * (width - len(ids)) for ids in outputs]).view(len(outputs), -1)


def load_engine(model: str, engine: str) -> EngineModel:
    """An export, or a model folder as one, which is made once and kept in a cache.

    Raises:
        InputError: if there is no such engine, the export is for another, or the model cannot be exported.
    """
    if engine not in FORMATS:
        raise InputError(f"there is no engine {engine!r}; there are torch, {', '.join(FORMATS)}")
    folder = Path(model)
    if not (folder / EXPORT_FILE).is_file():
        folder = _cached_export(model, engine)
    loaded = EngineModel(folder)
    if loaded.facts.format != engine:
        raise InputError(f"{folder} is an export to {loaded.facts.format}, not to {engine}")
    return loaded


def _cached_export(model: str, engine: str) -> Path:
    """The export of a model in the cache, by name, size and time of its files; made where it is missing."""
    if not Path(model).is_dir():
        raise InputError(f"there is no folder {model}; --engine {engine} takes an export, or a model's folder")
    files = sorted(path for path in Path(model).rglob("*") if path.is_file())
    stamp = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    key = hashlib.sha256(repr(stamp).encode()).hexdigest()[:24]
    folder = Path(HF_HOME) / "paperformer" / "exports" / f"{engine}-{key}"
    if not (folder / EXPORT_FILE).is_file():
        export_folder(model, folder, engine, sequences=CACHED_SEQUENCES)
    return folder


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} holds no tokenizer that can be loaded: {str(error).splitlines()[0]}") from error
