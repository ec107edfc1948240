"""A model folder to an export: built beside its place, compared there, and put there whole or not at all."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from ..commands.loading import load_config, load_model, load_target_tokenizer, load_tokenizer
from ..modeling.families import FAMILIES
from ..training.atomic_files import replace_folder
from ..training.console.input_error import InputError
from ..training.console.progress import say
from .comparison import Comparison, check_function, check_rounding, compare, round_weights
from .export_file import ExportFile
from .formats.format import Exportable, Format
from .formats.registry import FORMATS
from .sample_text import Sample, sample_of
from .table import markdown_of
from .torch_engine import TorchEngine

REPORT = "export.md"


def export_folder(
    model: str,
    output: Path,
    to: str,
    *,
    quantization: str = "float32",
    text: Path | None = None,
    references: Sequence[str] | None = None,
    sequences: int = 100,
    num_beams: int = 5,
) -> Comparison:
    """Exports a model, and writes the folder only if what is in it agrees with the model.

    Args:
        model: its folder, or its name on the Hub.
        output: the folder to write; it must not exist.
        to: the format, one of `FORMATS`.
        quantization: how weights are stored.
        text, references: what is compared, see `sample_text.sample_of`.
        sequences: how many of its sentences, or windows of running text, at the most.
        num_beams: of the search beside the greedy one.

    Raises:
        InputError: if the model cannot be loaded, the format cannot say it, or the export does not agree with it by
            more than its quantisation explains; nothing has been written then.
    """
    export_format = _format_of(to, quantization)
    if output.exists():
        raise InputError(f"{output} exists; give a new folder")
    if sequences < 1:
        raise InputError(f"sequences is {sequences}; it must be at least 1")
    exportable = _load(model, export_format)
    own = getattr(exportable.model, "generation_config", None)  # an encoder has none
    facts = ExportFile.of(
        exportable.config,
        format=to,
        quantization=quantization,
        model=model,
        compared=export_format.of_encoder,
        has_target_tokenizer=exportable.target_tokenizer is not None,
        num_beams=getattr(own, "num_beams", None),
        length_penalty=getattr(own, "length_penalty", None),
    )
    sample = sample_of(exportable, facts, model, text, references).first(sequences)
    if export_format.compared_tokens is not None:
        sample = replace(sample, outputs=[ids[: export_format.compared_tokens] for ids in sample.outputs])
    found: list[Comparison] = []

    def write(folder: Path) -> None:
        found.append(_write_compared(exportable, export_format, facts, sample, folder, num_beams))

    replace_folder(output, write)
    return found[0]


def _format_of(to: str, quantization: str) -> Format:
    if to not in FORMATS:
        raise InputError(f"there is no format {to!r}; there are {', '.join(FORMATS)}")
    export_format = FORMATS[to]
    if quantization not in export_format.quantizations:
        raise InputError(
            f"quantization is {quantization!r}; {export_format.title} has {', '.join(export_format.quantizations)}"
        )
    return export_format


def _load(model: str, export_format: Format) -> Exportable:
    """The model in float32 on the CPU, if it is one of ours and the format can say it."""
    config = load_config(model)
    if config.model_type not in {family.config.model_type for family in FAMILIES.values()}:
        raise InputError(
            f"{model} holds a {config.model_type}; paperformer exports its own models: take the engine's converter, "
            "or paperformer convert --from"
        )
    export_format.check(config)
    export_format.check_installed()
    loaded = load_model(model, device_map="cpu", dtype=torch.float32)
    return Exportable(loaded, load_tokenizer(model), load_target_tokenizer(loaded))


def _write_compared(
    exportable: Exportable, export_format: Format, facts: ExportFile, sample: Sample, folder: Path, num_beams: int
) -> Comparison:
    """Fills a folder. The function is compared in float32 first, where nothing but an error explains a difference."""
    exact, *_ = export_format.quantizations
    ours = TorchEngine(exportable.model, facts)
    say(f"comparing with {export_format.title} on {len(sample.inputs):,} sequences ({sample.origin})")
    plain = folder if facts.quantization == exact else folder / exact
    plain.mkdir(exist_ok=True)
    _write_into(plain, exportable, export_format, replace(facts, quantization=exact))
    engine = export_format.open(plain)
    check_function(ours, engine, sample, export_format.title, export_format.tolerance)
    if export_format.check_text is not None:
        export_format.check_text(engine, exportable)
    rounded: PreTrainedModel | None = None
    if plain != folder:
        shutil.rmtree(plain)
        _write_into(folder, exportable, export_format, facts)
        engine = export_format.open(folder)
        rounded = round_weights(exportable.model, lambda weight: export_format.rounding(facts.quantization, weight))
    comparison = compare(
        ours,
        engine,
        exportable,
        sample,
        rounded=rounded,
        megabytes=(_megabytes_of(exportable.model), _megabytes_in(folder)),
        num_beams=num_beams,
    )
    if rounded is not None:
        check_rounding(comparison, export_format.title, facts.quantization)
    _save_tokenizers(exportable, folder)
    facts = replace(facts, comparison=asdict(comparison))
    facts.write(folder)
    (folder / REPORT).write_text(markdown_of(facts, comparison), "utf-8")
    return comparison


def _write_into(folder: Path, exportable: Exportable, export_format: Format, facts: ExportFile) -> None:
    export_format.write(exportable, folder, facts.quantization)
    facts.write(folder)


def _save_tokenizers(exportable: Exportable, folder: Path) -> None:
    exportable.tokenizer.save_pretrained(folder / "tokenizer")
    if exportable.target_tokenizer is not None:
        exportable.target_tokenizer.save_pretrained(folder / "target_tokenizer")


def _megabytes_of(model: PreTrainedModel) -> float:
    return sum(weight.numel() * weight.element_size() for weight in model.parameters()) / 1e6


def _megabytes_in(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
