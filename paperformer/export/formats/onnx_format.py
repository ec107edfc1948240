"""ONNX: graphs for onnxruntime, on CPUs, in browsers and on phones; the search lies beside them as a file of Python."""

import logging
import shutil
from pathlib import Path

import numpy as np
import torch

from ..export_file import ExportFile
from .format import Engine, Exportable, Format, Ids, Refusal, require

DECODING = Path(__file__).with_name("onnx_decoding.py")
LARGEST_FILE = 1_500_000_000
"""Bytes; above, weights lie in a file of their own: a file of protocol buffers cannot have 2 GB."""


def _write(exportable: Exportable, folder: Path, quantization: str) -> None:
    import onnx

    from .onnx_graph import build_graphs

    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in build_graphs(exportable.model).items():
        path = folder / f"{name}.onnx"
        size = sum(len(weight.raw_data) for weight in graph.graph.initializer)
        onnx.save_model(graph, str(path), save_as_external_data=size > LARGEST_FILE, location=f"{name}.weights")
        if quantization == "int8":
            _quantize(path)
    shutil.copyfile(DECODING, folder / "decode.py")


def _quantize(path: Path) -> None:
    """Weights as whole numbers of 8 bits, and what they are multiplied with as well, when it is known."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = path.with_suffix(".float32")
    path.rename(plain)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises to do what has no effect on these graphs
    try:
        # Unsigned, because products of signed numbers overflow on processors without VNNI.
        quantize_dynamic(plain, path, op_types_to_quantize=["MatMul", "Gather"], weight_type=QuantType.QUInt8)
    finally:
        logging.getLogger().setLevel(level)
    plain.unlink()


def _round(quantization: str, weight: torch.Tensor) -> torch.Tensor:
    """What is left of a matrix: whole numbers of 1/255 of what lies between its smallest and its largest value."""
    if weight.dim() < 2:
        return weight
    low, high = weight.min().clamp(max=0), weight.max().clamp(min=0)
    scale = 255 / (high - low).clamp(min=1e-30)
    return (weight * scale).round() / scale


class OnnxEngine(Engine):
    """A model of any family in onnxruntime; see `format.Engine`.

    Args:
        folder: what `paperformer export --to onnx` has written.
    """

    def __init__(self, folder: Path) -> None:
        require("onnxruntime", "onnx")
        from .onnx_decoding import OnnxModel

        self.facts = ExportFile.read(folder)
        self.model = OnnxModel(folder, torch.get_num_threads())

    def values(self, inputs: Ids, outputs: Ids) -> list[np.ndarray]:
        if self.facts.family == "encoder":
            return [self.model.encode(list(ids))[self.facts.compared][0] for ids in inputs]
        ends = self.facts.end_ids[:1] if self.facts.family == "seq2seq" else []
        return [
            self.model.log_probabilities(list(given), [*following, *ends])
            for given, following in zip(inputs, outputs, strict=True)
        ]

    def decode(self, inputs: Ids, *, num_beams: int, length_penalty: float, max_new_tokens: int) -> list[list[int]]:
        settings = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
        return [self.model.decode(list(ids), length_penalty=length_penalty, **settings) for ids in inputs]


REFUSALS = (
    Refusal(
        "rope_parameters",
        lambda config: (config.rope_parameters or {}).get("rope_type") in ("dynamic", "longrope"),
        "its frequencies do not change with the length of a text",
        "use it with torch",
    ),
)

ONNX = Format(
    name="onnx",
    title="ONNX",
    packages=("onnx", "onnxruntime"),
    extra="onnx",
    families={"seq2seq": ({},), "lm": ({},), "encoder": ({},)},
    quantizations=("float32", "int8"),
    of_encoder="logits",
    rounding=_round,
    refusals=REFUSALS,
    write=_write,
    open=OnnxEngine,
)
